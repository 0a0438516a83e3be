"""The asks of an execution in the blocking shell."""

from __future__ import annotations

from kernelbox.core.approvals._approve_argument import NOT_ALLOWED, reason_for
from kernelbox.core.approvals._requests import SyncApprovalRequest, settle
from kernelbox.wire._messages import INPUT_TOOL, SHELL_SERVER, Answer, Ask, Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from kernelbox.core._cell_options import AtKeyboard
    from kernelbox.core.approvals._approval_gate import Gate
    from kernelbox.core.approvals._requests import Approve
    from kernelbox.shells._blocking_calls import Calls


def answering(
    steps: Generator[Any, Any, Any],
    gate: Gate,
    approve: Approve | bool | None,
    calls: Calls,
    person: AtKeyboard | None = None,
) -> Generator[Any, None, Any]:
    """Passes an execution's events through and lets the gate decide its asks.

    `approve` is called with each request. With True, requests are yielded among the events; without it, what would be
    asked is rejected. A `person` answers `input()`.
    """
    answer: Answer | str | None = None
    try:
        while True:
            try:
                event = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = None
            if person is not None and _is_for_person(event):
                answer = _ask_person(event, person)
            elif isinstance(event, Ask):
                answer = (yield from _decide(event, gate, approve, calls)) or "later"
            else:
                yield event
    finally:
        steps.close()


def _is_for_person(event: object) -> bool:
    if isinstance(event, Ask):
        return event.server_name == SHELL_SERVER and event.tool_name == INPUT_TOOL
    return isinstance(event, Payload)


def _ask_person(event: Ask | Payload, person: AtKeyboard) -> Answer | str | None:
    if isinstance(event, Payload):
        person.take_payload(event.content)
        return None
    prompt = event.tool_args.get("prompt")
    typed = person.read_line(
        prompt if isinstance(prompt, str) else "", password=event.tool_args.get("password") is True
    )
    if typed is None:
        return "later"  # the cell was interrupted, and has withdrawn its question
    return Answer(event.id, event.ask, True, payload=typed.encode("utf-8", "surrogatepass"))


def _decide(
    ask: Ask, gate: Gate, approve: Approve | bool | None, calls: Calls
) -> Generator[SyncApprovalRequest, None, Answer | None]:
    """Returns the answer to an ask, None if it comes later; yields the request that the caller is to answer."""
    verdict = gate.look_up(ask)
    if verdict is None:
        request = SyncApprovalRequest.of(ask)
        try:
            if callable(approve):
                _call(approve, request)
            elif approve:
                yield request
                request.close("it was not answered before the next output was asked for")
            else:
                request.close(NOT_ALLOWED)
        finally:
            verdict = settle(request)
    return gate.conclude(ask, verdict) or calls.start(ask)


def _call(approve: Approve, request: SyncApprovalRequest) -> None:
    verdict = approve(request)
    if request.open and verdict is True:
        request.accept()
    elif request.open:
        request.reject(reason_for(verdict))

"""Questions that the guest puts to the host and waits for: tool calls and shell commands that need approval."""

from __future__ import annotations

import contextlib
import itertools
import queue
from collections.abc import Iterator
from typing import Any

from kernelbox.guest import _guards
from kernelbox.guest._outbox import Outbox
from kernelbox.guest._peer import Peer
from kernelbox.wire._approvals import SHELL_SERVER, ApprovalRejectedError
from kernelbox.wire._messages import Answer, Ask, Execute

# How much of a command its rejection repeats.
_SHOWN = 80


class Asks:
    """Open questions, each waited for by the thread that put it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[Peer, queue.SimpleQueue[Answer]]] = {}
        self._approve_shell = False

    def __repr__(self) -> str:
        return f"<Asks open={len(self._open)}>"

    def ask(self, server_name: str, tool_name: str, tool_args: dict[str, Any]) -> Any:
        """Puts a question and returns the answer's value; raises ApprovalRejectedError. Ctrl-C ends the wait."""
        peer, execution_id, number = self._outbox.peer, self._outbox.execution_id, next(self._numbers)
        if peer is None:
            raise ApprovalRejectedError(f"{tool_name}: no cell is running for which it could be approved")
        if self._outbox.forked:
            raise ApprovalRejectedError(f"{tool_name}: a process that the cell forked cannot ask")
        box: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._open[number] = (peer, box)
        try:
            self._outbox.send(Ask(execution_id, number, server_name, tool_name, tool_args))
            if peer.closed or self._outbox.execution_id != execution_id:
                self._reject(number, "the cell or the application that could approve it has gone away")
            answer = box.get()
        finally:
            self._open.pop(number, None)
        if not answer.accepted:
            raise ApprovalRejectedError(f"{_describe(tool_name, tool_args)}: {answer.reason or 'rejected'}")
        return answer.value

    def ask_shell(self, tool_name: str, command: str, program: str = "") -> None:
        """Returns when a shell command may run: at once, unless the execution wants to approve each."""
        if self._approve_shell:
            self.ask(SHELL_SERVER, tool_name, {"cmd": command, **({"program": program} if program else {})})

    def answer(self, peer: Peer, message: Answer) -> None:
        """Gives an answer to whoever waits; called by the I/O thread. Only the client that was asked may answer."""
        asked, box = self._open.get(message.ask, (None, None))
        if box is not None and asked is peer:
            box.put(message)

    def abandon(self, peer: Peer) -> None:
        """Rejects what a vanished client was asked."""
        for number, (asked, _) in list(self._open.items()):
            if asked is peer:
                self._reject(number, "the application that was asked has gone away")

    @contextlib.contextmanager
    def guarding(self, request: Execute) -> Iterator[None]:
        """Applies an execution's rules for starting processes.

        They stay in force after it, until the next execution brings its own: threads and tasks that a cell leaves
        behind get no more freedom than the cell had.
        """
        self._approve_shell = request.approve_shell
        _guards.restrict(request.shell_escape_only)
        try:
            yield
        finally:
            for number in list(self._open):
                self._reject(number, "the cell that asked has ended")

    def _reject(self, number: int, reason: str) -> None:
        _, box = self._open.get(number, (None, None))
        if box is not None:
            box.put(Answer("", number, False, reason))


def _describe(tool_name: str, tool_args: dict[str, Any]) -> str:
    command = tool_args.get("cmd")
    if not isinstance(command, str):
        return tool_name
    return f"{tool_name} {command if len(command) <= _SHOWN else command[: _SHOWN - 1] + '…'!r}"

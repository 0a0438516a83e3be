"""Questions that the guest puts to the host and waits for: tool calls and shell commands that need approval."""

from __future__ import annotations

import contextlib
import itertools
import queue
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernelbox.guest._outbox import Outbox
from kernelbox.guest._peer import Peer
from kernelbox.wire._messages import Answer, Ask, Execute

if TYPE_CHECKING:
    pass


class ApprovalRejectedError(Exception):
    """Raised in the cell when a tool call or shell command was not approved."""


class Asks:
    """Open questions, each waited for by the thread that put it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[Peer, queue.SimpleQueue[Answer]]] = {}

    def ask(self, server_name: str, tool_name: str, tool_args: dict[str, Any]) -> Any:
        """Puts a question and returns the answer's value; raises ApprovalRejectedError."""
        peer, execution_id, number = self._outbox.peer, self._outbox.execution_id, next(self._numbers)
        if peer is None:
            raise ApprovalRejectedError(f"{tool_name}: no execution is running that could approve it")
        box: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._open[number] = (peer, box)
        try:
            self._outbox.send(Ask(execution_id, number, server_name, tool_name, tool_args))
            answer = box.get()
        finally:
            self._open.pop(number, None)
        if not answer.accepted:
            raise ApprovalRejectedError(answer.reason or f"{tool_name}: rejected")
        return answer.value

    def answer(self, message: Answer) -> None:
        """Gives an answer to whoever waits; called by the I/O thread."""
        if message.ask in self._open:
            self._open[message.ask][1].put(message)

    def abandon(self, peer: Peer) -> None:
        """Rejects what a vanished client was asked."""
        for number, (asked, box) in list(self._open.items()):
            if asked is peer:
                box.put(Answer("", number, False, "the application that was asked has gone away"))

    @contextlib.contextmanager
    def guarding(self, request: Execute) -> Iterator[None]:
        """Applies an execution's rules for starting processes while it runs."""
        yield

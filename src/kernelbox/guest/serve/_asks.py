"""Questions that the guest puts to the host and waits for: tool calls and shell commands that need approval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from kernelbox.guest._exact_values import plain_args, plain_text
from kernelbox.guest._stdlib import contextlib
from kernelbox.guest.output._outbox import Outbox
from kernelbox.guest.output._peers import Peer
from kernelbox.guest.programs._command_environment import take_directory
from kernelbox.guest.programs._program import Approval, Program
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import INPUT_TOOL, SHELL_SERVER, Answer, ApprovalRejectedError, Ask, Execute, Withdraw
from kernelbox.wire._output_limit import bound
from kernelbox.wire._questions import fingerprint, number_of

keep_builtins(globals())

# Characters of a prompt; a front end shows a line of it.
_LONGEST_PROMPT = 100_000

# How much of a command its rejection repeats.
_SHOWN = 80


class PendingAsks:
    """Open questions, each waited for by the thread that put it.

    The number of a question, and the fingerprint in its answer, are derived from the key of the client's connection. So
    the host ends a kernel whose cell forges a question, and no answer is taken for another question.
    """

    def __init__(self, outbox: Outbox, call_helper: Callable[[], None], *, guarded: bool) -> None:
        self._guarded = guarded
        self._outbox = outbox
        self._call_helper = call_helper
        self._key = ""
        self._count = 0
        self.open: dict[int, tuple[Peer, Callable[[Answer], object]]] = {}
        self._approve_shell = False
        self._takes_questions = False
        self.allows_input = False

    def take_directory(self, there: bytes | None = None) -> bytes | None:
        """Returns the directory in which a command is approved and run, the kernel's if it is not `there`.

        None if commands do not wait for approval.
        """
        if not self._approve_shell:
            return None
        return take_directory() if there is None else there

    def ask(self, server_name: str, tool_name: str, tool_args: dict[str, Any]) -> bytes:
        """Puts a question and returns what the tool returned; raises ApprovalRejectedError. Ctrl-C ends the wait.

        Arguments that are not JSON, or too much of it, raise TypeError or ValueError before anything is asked.
        """
        return self._ask(server_name, tool_name, tool_args).read_answer()

    def _ask(self, server_name: str, tool_name: str, tool_args: dict[str, Any]) -> _Question:
        question = _Question(server_name, tool_name, tool_args)
        box: SimpleQueue[Answer] = SimpleQueue()
        with self._asking(question, box.put):
            question.answer = box.get()
        return question

    async def ask_async(self, server_name: str, tool_name: str, tool_args: dict[str, Any]) -> bytes:
        """Does the same in a task, and lets others run while it waits."""
        question = _Question(server_name, tool_name, tool_args)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()

        def put(answer: Answer) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(_settle, answered, answer)

        with self._asking(question, put):
            question.answer = await answered
        return question.read_answer()

    @contextlib.contextmanager
    def _asking(self, question: _Question, put: Callable[[Answer], object]) -> Iterator[None]:
        """Puts a question, and passes its answer to `put`. A question without an answer is withdrawn at the end."""
        tool_name = question.tool_name
        peer, execution_id = self._outbox.peer, self._outbox.execution_id
        if peer is None:
            raise ApprovalRejectedError(f"{tool_name}: no cell is running for which it could be approved")
        if self._outbox.forked:
            raise ApprovalRejectedError(f"{tool_name}: a process that the cell forked cannot ask")
        number = 0

        def make() -> Ask:
            nonlocal number
            if not peer.is_itself:
                raise ApprovalRejectedError(f"{tool_name}: a cell has replaced the socket of its client")
            self._count += 1
            number = question.number = number_of(self._key, execution_id, self._count)
            ask = Ask(execution_id, number, question.server_name, tool_name, question.args)
            question.fingerprint = fingerprint(self._key, _as_read(ask))
            self.open[number] = (peer, put)
            return ask

        try:
            if not self._outbox.ask(execution_id, make) or peer.closed:
                raise ApprovalRejectedError(
                    f"{tool_name}: the cell or the application that could approve it has gone away"
                )
            self._call_helper()  # or the answer would not be read before the cell has run for a while
            yield
        finally:
            self.open.pop(number, None)
            if question.answer is None and number:
                self._outbox.ask(execution_id, lambda: Withdraw(execution_id, number))

    def ask_input(self, prompt: str, *, password: bool) -> str:
        """Returns the line that a person answers; raises ApprovalRejectedError."""
        args = {"prompt": bound(prompt, _LONGEST_PROMPT), "password": password}
        return self.ask(SHELL_SERVER, INPUT_TOOL, args).decode("utf-8", "surrogatepass")

    def ask_shell(self, tool_name: str, program: Program, *, with_changes: bool = True) -> Program:
        """Returns the command when it may run. That is at once, unless the execution approves each command.

        `with_changes` shows what cells have changed in the environment, where that reaches the command.
        """
        if not self._approve_shell:
            return program
        shown = program.show(with_changes=with_changes)
        if program.directory is None:  # of a thread that an earlier cell left behind
            raise ApprovalRejectedError(
                f"{_describe(tool_name, shown)}: commands have needed approval since this one was made"
            )
        if self._outbox.peer is not None and not self._takes_questions:
            raise ApprovalRejectedError(
                f"{_describe(tool_name, shown)}: cells of this kernel have run with require_shell_escape, so its "
                "commands need approval, and the application that runs this cell does not take such requests; "
                "it must pass approve_shell_cmds=True, or approve= in the synchronous API"
            )
        question = self._ask(SHELL_SERVER, tool_name, shown)
        question.read_answer()
        assert question.answer is not None
        return replace(program, approval=Approval(question.answer.id, question.number, question.answer.seal))

    def answer(self, peer: Peer, message: Answer) -> None:
        """Gives an answer to the thread that waits for it; called by the I/O thread.

        Only the client that was asked may answer.
        """
        asked, put = self.open.get(message.ask, (None, None))
        if put is not None and asked is peer:
            put(message)

    def abandon(self, peer: Peer) -> None:
        """Rejects what a vanished client was asked."""
        self._reject("the application that was asked has gone away", peer)

    def begin(self, request: Execute) -> None:
        """Takes the key of the next execution, and applies its rules for starting processes.

        It is called before the execution has begun, when no question can be put. The rules stay in force after it,
        until the next execution brings its own: threads and tasks that a cell leaves behind get no more freedom than
        the cell had. In a guarded kernel commands need approval for good: the cell of another client must not free
        such a thread.
        """
        self._key, self._count = request.key, 0
        self.allows_input = request.allow_stdin
        self._approve_shell = request.approve_shell or self._guarded
        self._takes_questions = request.approve_shell

    def end(self) -> None:
        """Rejects open questions of threads and tasks. None can ask more once the end of their cell was reported."""
        self._reject("the cell that asked has ended")

    def _reject(self, reason: str, peer: Peer | None = None) -> None:
        for number, (asked, put) in list(self.open.items()):
            if peer is None or asked is peer:
                put(Answer("", number, False, reason))


class _Question:
    """A call that waits for its answer."""

    def __init__(self, server_name: str, tool_name: str, tool_args: dict[str, Any]) -> None:
        self.server_name, self.tool_name = plain_text(server_name, "a server"), plain_text(tool_name, "a tool")
        self.args = plain_args(tool_args)
        self.number = 0
        self.fingerprint = ""
        self.answer: Answer | None = None

    def read_answer(self) -> bytes:
        """Returns what the tool returned; raises ApprovalRejectedError."""
        assert self.answer is not None
        if not self.answer.accepted:
            raise ApprovalRejectedError(f"{_describe(self.tool_name, self.args)}: {self.answer.reason or 'rejected'}")
        if self.answer.fingerprint != self.fingerprint:
            raise ApprovalRejectedError(f"{_describe(self.tool_name, self.args)}: the answer was about another call")
        return self.answer.payload


def _settle(answered: asyncio.Future[Answer], answer: Answer) -> None:
    if not answered.done():  # the task may have been cancelled meanwhile
        answered.set_result(answer)


def _as_read(ask: Ask) -> Ask:
    (read,) = Decoder().feed(encode(ask))
    assert isinstance(read, Ask)
    return read


def _describe(tool_name: str, tool_args: dict[str, Any]) -> str:
    command = tool_args.get("cmd")
    if not isinstance(command, str):
        return tool_name
    return f"{tool_name} {command if len(command) <= _SHOWN else command[: _SHOWN - 1] + '…'!r}"

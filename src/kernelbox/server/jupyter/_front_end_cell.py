"""A cell that a front end runs: Jupyter's messages of what it says, and its questions to the person there."""

from __future__ import annotations

from kernelbox.core.approvals._gate import Gate
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.shells._asyncio import Run
from kernelbox.shells._asyncio_asks import Asks
from kernelbox.shells._asyncio_watch import Lent
from kernelbox.wire._messages import (
    INPUT_TOOL,
    SHELL_SERVER,
    Answer,
    Ask,
    Begun,
    Clear,
    Comm,
    Display,
    Done,
    Output,
    Started,
    Withdraw,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kernelbox.core._kernel import Kernel
    from kernelbox.server.jupyter._channel_options import ChannelRules, FrontEnd
    from kernelbox.server.jupyter._exchange import Exchange
    from kernelbox.server.jupyter._jupyter_message import JupyterMessage
    from kernelbox.server.jupyter._other_clients import OtherClients
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._results import ExecutionResult

_NO_APPROVALS = "no one can be asked: Jupyter's front ends have no approvals, and the policy does not allow it"
_GONE = "input() cannot be answered: the front end has gone away"


class FrontEndCell:
    """Runs one cell for one front end."""

    def __init__(self, run: Run, asks: Asks, front_end: FrontEnd, exchange: Exchange, others: OtherClients) -> None:
        self._run = run
        self._asks = asks
        self._front_end: FrontEnd | None = front_end
        self._exchange = exchange
        self._others = others
        self._questions: dict[str, Ask] = {}  # by the id of the message that put it to the front end

    @classmethod
    async def begin(
        cls,
        place: Kernel | Lent,
        request: Execute,
        front_end: FrontEnd,
        exchange: Exchange,
        others: OtherClients,
        rules: ChannelRules,
    ) -> FrontEndCell:
        """Sends a cell to a kernel, on a connection that was lent if there is one."""
        kernel, lent = (place.kernel, place) if isinstance(place, Lent) else (place, None)
        run = await Run.begin(kernel, request, timeout=None, raw=True, lent=lent)
        gate = Gate(kernel.record, rules.policy, rules.sessions, shell="accept", tools="ask")
        asks = Asks(run, gate, rules.toolbox, patience=None, present=True, stop_clock=False)
        run.call_at_end(asks.end)
        return cls(run, asks, front_end, exchange, others)

    def __repr__(self) -> str:
        return f"<FrontEndCell {self._run!r}>"

    @property
    def result(self) -> ExecutionResult:
        result = self._run.execution.result
        assert result is not None
        return result

    async def messages(self) -> AsyncGenerator[JupyterMessage]:
        """Yields what all front ends are to see, until the cell has ended. Leaving it interrupts the cell."""
        own = self._run.execution.request.id
        try:
            while events := await self._run.next():
                for event in events:
                    match event:
                        case Begun() | Done():
                            for message in self._others.tell(event):
                                yield message
                        case Output(id=of) | Display(id=of) | Clear(id=of) | Comm(id=of) if of != own:
                            for message in self._others.tell(event):
                                yield message
                        case Started() | Output() | Display() | Clear() | Comm():
                            for message in self._exchange.broadcast(event):
                                yield message
                        case Ask(server_name=server, tool_name=tool) if (server, tool) == (SHELL_SERVER, INPUT_TOOL):
                            await self._ask_for_input(event)
                        case Ask():
                            self._asks.take(event)
                        case Withdraw():
                            self._withdraw(event)
                        case ApprovalRequest():
                            event.close(_NO_APPROVALS)
        finally:
            await self._run.stop()
        if self._asks.failure is not None:
            raise self._asks.failure

    def answer_input(self, front_end: FrontEnd, reply: JupyterMessage) -> None:
        """Gives the cell what a person has answered; a reply that names no question is about the oldest."""
        if front_end is not self._front_end or reply.kind != "input_reply" or not self._questions:
            return
        key = reply.parent.get("msg_id")
        ask = self._questions.pop(key if key in self._questions else next(iter(self._questions)))
        value = reply.content.get("value")
        text = value if isinstance(value, str) else ""
        self._run.answer(Answer(ask.id, ask.ask, True, payload=text.encode("utf-8", "surrogatepass")))

    def lose(self, front_end: FrontEnd) -> None:
        """Refuses what was asked of a front end that has gone."""
        if front_end is self._front_end:
            self._front_end = None
            for ask in self._questions.values():
                self._refuse(ask)
            self._questions.clear()

    async def _ask_for_input(self, ask: Ask) -> None:
        if self._front_end is None or not self._run.execution.request.allow_stdin:
            self._refuse(ask)
            return
        prompt, password = ask.tool_args.get("prompt"), ask.tool_args.get("password") is True
        question = self._exchange.ask_for_input(prompt if isinstance(prompt, str) else "", password=password)
        self._questions[question.id] = ask
        await self._front_end.send(question)

    def _withdraw(self, withdrawn: Withdraw) -> None:
        self._questions = {key: ask for key, ask in self._questions.items() if ask.ask != withdrawn.ask}
        self._asks.withdraw(withdrawn.ask)

    def _refuse(self, ask: Ask) -> None:
        self._run.answer(Answer(ask.id, ask.ask, False, _GONE))

"""A cell that a front end runs: its output as Jupyter's messages, and its questions to the person there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from kernelbox.server.jupyter._channel_options import FrontEnd
from kernelbox.server.jupyter._exchange import Exchange
from kernelbox.server.jupyter._front_end_message import JupyterMessage
from kernelbox.server.jupyter._other_clients import OtherClients
from kernelbox.shells._asyncio_cell import AsyncCell, InputRequest
from kernelbox.wire._messages import Begun, Clear, Comm, Display, Done, Output, Payload, Started
from kernelbox.wire._results import ExecutionResult

_GONE = "input() cannot be answered: the front end has gone away"


class FrontEndCell:
    """Runs one cell for one front end; `result` is set when `messages` has ended."""

    result: ExecutionResult

    def __init__(self, cell: AsyncCell, front_end: FrontEnd, exchange: Exchange, others: OtherClients) -> None:
        self._cell = cell
        self._front_end: FrontEnd | None = front_end
        self._exchange = exchange
        self._others = others
        self.payload: list[dict[str, Any]] = []  # what the front end is to do when the cell has ended
        self._questions: dict[str, InputRequest] = {}  # by the id of the message that put it to the front end

    async def messages(self) -> AsyncGenerator[JupyterMessage]:
        """Yields what all front ends should see, until the cell has ended. Leaving it interrupts the cell."""
        own = self._cell.request.id
        try:
            async for event in self._cell:
                match event:
                    case ExecutionResult():
                        self.result = event
                    case Begun() | Done():
                        for message in self._others.tell(event):
                            yield message
                    case Output(id=of) | Display(id=of) | Clear(id=of) | Comm(id=of) if of != own:
                        for message in self._others.tell(event):
                            yield message
                    case Started() | Output() | Display() | Clear() | Comm():
                        for message in self._exchange.broadcast(event):
                            yield message
                    case Payload():
                        self.payload.append(event.content)
                    case InputRequest():
                        await self._ask_for_input(event)
        finally:
            await self._cell.stop()

    def answer_input(self, front_end: FrontEnd, reply: JupyterMessage) -> None:
        """Gives the cell what a person has answered; a reply that names no question is about the oldest."""
        self._questions = {key: asked for key, asked in self._questions.items() if asked.open}
        if front_end is not self._front_end or reply.kind != "input_reply" or not self._questions:
            return
        key = reply.parent.get("msg_id")
        asked = self._questions[key if key in self._questions else next(iter(self._questions))]
        value = reply.content.get("value")
        asked.answer(value if isinstance(value, str) else "")

    def lose(self, front_end: FrontEnd) -> None:
        """Refuses what was asked of a front end that has gone."""
        if front_end is self._front_end:
            self._front_end = None
            for asked in self._questions.values():
                asked.refuse(_GONE)

    async def _ask_for_input(self, asked: InputRequest) -> None:
        if self._front_end is None or not self._cell.request.allow_stdin:
            asked.refuse(_GONE)
            return
        question = self._exchange.ask_for_input(asked.prompt, password=asked.is_password)
        self._questions[question.id] = asked
        await self._front_end.send(question)

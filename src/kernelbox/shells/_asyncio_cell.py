"""One cell on an event loop: `async for event in cell` yields its outputs and requests, and the result last."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from kernelbox.base._unique_objects import Handle
from kernelbox.core._images import ImageFiles
from kernelbox.core.approvals._approval_gate import Gate
from kernelbox.core.approvals._approval_policy import ApprovalPolicy
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.shells._asyncio_asks import CellAsks
from kernelbox.shells._asyncio_run import Run
from kernelbox.wire._messages import INPUT_TOOL, SHELL_SERVER, Answer, Ask, Withdraw
from kernelbox.wire._results import ExecutionResult, OutputItem
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeAlias

    from kernelbox.core._cell_options import CellOptions
    from kernelbox.core._executor_values import ToolEvent
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.core.approvals._memory import Sessions
    from kernelbox.shells._asyncio_asks import AsyncApprove
    from kernelbox.shells._asyncio_watch import Lent
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._execution import Event
    from kernelbox.wire._messages import Execute

    CellEvent: TypeAlias = "CellOutput | ApprovalRequest | ToolEvent | InputRequest | Event | ExecutionResult"
    OnEvent = Callable[[CellEvent], None]


@dataclass(frozen=True, slots=True)
class CellOutput:
    """Something that a cell wrote or showed, and the file that its image was written to, if it has one."""

    item: OutputItem
    image: str | None = None


class InputRequest:
    """A question that `input()` puts to the person at a front end; it takes one answer while the cell waits."""

    def __init__(self, ask: Ask, send: Callable[[Answer], None]) -> None:
        self.open = True
        self._ask = ask
        self._send = send

    def __repr__(self) -> str:
        return f"<InputRequest {self.prompt!r} {'open' if self.open else 'closed'}>"

    @property
    def prompt(self) -> str:
        prompt = self._ask.tool_args.get("prompt")
        return prompt if isinstance(prompt, str) else ""

    @property
    def is_password(self) -> bool:
        return self._ask.tool_args.get("password") is True

    def answer(self, text: str) -> None:
        """Gives the cell a line of text."""
        self._settle(Answer(self._ask.id, self._ask.ask, True, payload=text.encode("utf-8", "surrogatepass")))

    def refuse(self, reason: str) -> None:
        """Makes `input()` raise an error in the cell."""
        self._settle(Answer(self._ask.id, self._ask.ask, False, reason))

    def _settle(self, answer: Answer) -> None:
        if self.open:
            self.open = False
            self._send(answer)


class AsyncCell(Handle):
    """One cell in a kernel: its execution, its questions and its images.

    One task iterates over the events. `cancel`, `stop` and the answers to `requests` work from any other task. Leaving
    the loop does not stop the cell: call `stop` or `leave`.
    """

    def __init__(
        self, kernel: KernelHandle, run: Run, options: CellOptions, sessions: Sessions, toolbox: Toolbox
    ) -> None:
        self.kernel = kernel
        self.is_cancelled = False
        self.requests: dict[str, ApprovalRequest] = {}  # those that wait for an answer, by their ids
        self.approve: AsyncApprove | None = None  # answers the requests, which are then no events
        self._began = time.monotonic()
        self._run = run
        self._options = options
        self._sessions = sessions
        self._toolbox = toolbox
        self._asks: CellAsks | None = None
        self._images = None if options.images is None else ImageFiles(options.images, options.describe, options.address)
        self._inputs: dict[int, InputRequest] = {}
        self._events: deque[Event | ApprovalRequest | ToolEvent] = deque()
        self._is_over = False
        run.call_at_end(self._end_asks)

    @classmethod
    async def begin(
        cls,
        kernel: KernelHandle,
        request: Execute,
        options: CellOptions,
        sessions: Sessions,
        toolbox: Toolbox,
        *,
        lent: Lent | None = None,
    ) -> Self:
        """Sends a cell to a kernel, on a lent connection if there is one. It waits there for its turn."""
        run = await Run.begin(kernel, request, timeout=options.timeout, raw=options.raw, lent=lent)
        return cls(kernel, run, options, sessions, toolbox)

    def __repr__(self) -> str:
        return f"<AsyncCell {self._run!r}>"

    @property
    def request(self) -> Execute:
        return self._run.execution.request

    @property
    def ended(self) -> bool:
        """Whether the kernel is free."""
        return self._run.ended

    @property
    def text(self) -> str:
        """What the cell has written and shown so far."""
        return self._run.execution.text

    @property
    def seconds(self) -> float:
        """How long ago the cell was sent."""
        return time.monotonic() - self._began

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CellEvent:
        while not self._is_over:
            while self._events:
                shown = await self._take(self._events.popleft())
                if shown is not None:
                    return shown
            self._events.extend(await self._run.next())
            if not self._events:
                self._is_over = True
                return self._conclude()
        raise StopAsyncIteration

    async def drive(self, on_event: OnEvent | None = None) -> ExecutionResult:
        """Brings the cell to its end in the caller's task; `on_event` is called with each event but the result.

        If the caller is cancelled, the cell is stopped, but not waited for.
        """
        try:
            async for event in self:
                if isinstance(event, ExecutionResult):
                    return event
                if on_event is not None:
                    on_event(event)
        except BaseException:
            self.cancel()
            raise
        raise AssertionError("a cell ends with its result")

    def open_requests(self) -> list[ApprovalRequest]:
        """Returns the requests that can still be answered, and forgets the others."""
        self.requests = {key: request for key, request in self.requests.items() if request.open}
        return list(self.requests.values())

    def call_at_end(self, function: Callable[[], object]) -> None:
        """Calls a function once the kernel is free, or at once if it already is."""
        self._run.call_at_end(function)

    def cancel(self) -> None:
        """Begins to stop the cell, by the same steps as a timeout; a cell that waits for its turn never runs."""
        self.is_cancelled = True
        self._run.cancel()

    async def stop(self) -> None:
        """Stops the cell, if it still runs, and returns when the kernel is free."""
        await self._run.stop()

    async def until_ended(self) -> None:
        """Waits until the kernel is free."""
        await self._run.until_ended()

    async def leave(self) -> None:
        """Stops the cell because its caller has left; open requests are rejected first."""
        if self._asks is not None:
            self._asks.close("the execution was left")
        await self.stop()

    def forget(self) -> None:
        """Leaves the cell to the process that we were forked from."""
        self._run.forget()

    async def _take(self, event: Event | ApprovalRequest | ToolEvent) -> CellEvent | None:
        """Returns what the caller sees of an event; None if it is internal."""
        match event:
            case OutputItem():
                return await self._show(event)
            case Ask(server_name=server, tool_name=tool) if (
                self._options.raw and server == SHELL_SERVER and tool == INPUT_TOOL
            ):
                return self._ask_for_input(event)
            case Ask():
                self._have_asks().take(event)
            case Withdraw():
                self._withdraw(event.ask)
            case ApprovalRequest():
                return self._show_request(event)
            case _:
                return event
        return None

    def _show_request(self, request: ApprovalRequest) -> ApprovalRequest | None:
        if not self._have_asks().show(request):
            return None
        self.requests[request.id] = request
        return request

    def _ask_for_input(self, ask: Ask) -> InputRequest:
        self._inputs = {number: asked for number, asked in self._inputs.items() if asked.open}
        self._inputs[ask.ask] = InputRequest(ask, self._run.answer)
        return self._inputs[ask.ask]

    async def _show(self, item: OutputItem) -> CellOutput:
        images = self._images
        if images is None or not images.has_image(item):
            return CellOutput(item)
        path = await asyncio.to_thread(images.save, item)
        if (notice := images.take_notice()) is not None:
            self._events.appendleft(notice)
        return CellOutput(item, path)

    def _have_asks(self) -> CellAsks:
        """Returns the object that answers the cell's questions, made when the first one comes."""
        if self._asks is None:
            options = self._options
            policy = ApprovalPolicy() if options.policy is None else options.policy
            gate = Gate(
                self.kernel.record, policy, self._sessions, shell=options.shell, tools=options.tools, host=options.host
            )
            self._asks = CellAsks(self._run, gate, self._toolbox, options, self.approve)
        return self._asks

    def _withdraw(self, number: int) -> None:
        if (asked := self._inputs.pop(number, None)) is not None:
            asked.open = False
        if self._asks is not None:
            self._asks.withdraw(number)

    def _conclude(self) -> ExecutionResult:
        """Returns the result; raises what a policy or a tool failed with."""
        if self._asks is not None and self._asks.failure is not None:
            raise self._asks.failure
        result = self._run.execution.result
        assert result is not None
        self._options.conclude(result, self.kernel, self._images)
        if not self._options.keep_outputs:
            result.outputs = []
        return result

    def _end_asks(self) -> None:
        if self._asks is not None:
            self._asks.end()

"""The asks of an execution on an event loop: a task for each, all of them ended with the execution."""

from __future__ import annotations

import asyncio
import contextlib
import inspect

from kernelbox.core.approvals._approve_argument import reason_for
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.core.cells._host_functions import HostFunctions
from kernelbox.wire import _questions  # noqa: F401  # connections load it at the first ask: the loop would wait for it
from kernelbox.wire._messages import HOST_SERVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kernelbox.core._cell_options import CellOptions
    from kernelbox.core._executor_values import ToolEvent
    from kernelbox.core.approvals._approval_gate import Gate
    from kernelbox.shells._asyncio_run import Run
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._messages import Answer, Ask

    # True accepts; a string rejects with that reason, anything else without one.
    AsyncApprove = Callable[[ApprovalRequest], bool | str | Awaitable[bool | str | None] | None]

# Events kept for a caller that does not read them. Beyond this number they are dropped.
_MOST_EVENTS = 1_000


class CellAsks:
    """Answers what one execution asks, as its options say.

    Requests come out of `Run.next`, among the events, unless the function `approve` answers them.
    """

    def __init__(
        self, run: Run, gate: Gate, toolbox: Toolbox, options: CellOptions, approve: AsyncApprove | None = None
    ) -> None:
        self.failure: BaseException | None = None
        self._run = run
        self._gate = gate
        self._toolbox = toolbox
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._approve = approve
        self._present = {"show": self._hand_over, "accept": _accept, "reject": self._reject}[options.asking]
        self._tasks: dict[asyncio.Task[None], int] = {}
        self._open: dict[ApprovalRequest, asyncio.TimerHandle | None] = {}

    def __repr__(self) -> str:
        return f"<CellAsks undecided={len(self._tasks)} open={len(self._open)}>"

    def take(self, ask: Ask) -> None:
        """Decides and answers an ask, unless the execution has ended meanwhile."""
        if self._run.ended:
            return
        task = asyncio.get_running_loop().create_task(self._answer(ask))
        self._tasks[task] = ask.ask
        task.add_done_callback(self._on_done)

    def withdraw(self, number: int) -> None:
        """Gives up an ask that no thread of the cell waits for; a tool that runs is cancelled."""
        for task, asked in self._tasks.items():
            if asked == number:
                task.cancel()

    def show(self, request: ApprovalRequest) -> bool:
        """Notes that the application sees a request from now on; returns whether it still can be answered."""
        if not request.open:
            return False
        if (patience := self._options.patience) is not None:
            reason = f"expired: no answer within {patience:g} s"
            self._open[request] = asyncio.get_running_loop().call_later(patience, request.close, reason)
        if self._options.stop_clock:
            self._run.hold()
        return True

    def close(self, reason: str) -> None:
        """Rejects what has not been answered."""
        for request in list(self._open):
            request.close(reason)

    def end(self) -> None:
        """Ends all that is undecided: the execution is over, and no answer reaches it."""
        self.close("the execution has ended")
        for task in list(self._tasks):
            task.cancel()

    async def _answer(self, ask: Ask) -> None:
        self._run.answer(await self._gate.decide(ask, self._present, self._call))

    async def _call(self, ask: Ask) -> Answer:
        if ask.server_name == HOST_SERVER:
            return await (self._options.functions or HostFunctions({})).answer(ask)
        return await asyncio.wrap_future(self._toolbox.submit(ask, self._on_event))

    def _on_event(self, event: ToolEvent) -> None:
        """Passes on what a tool's server says; called in the thread of the sessions."""
        if self._run.waiting_events < _MOST_EVENTS:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._run.pass_on, event)

    async def _hand_over(self, request: ApprovalRequest) -> None:
        self._open[request] = None
        self._note_open()
        try:
            if self._approve is None:
                self._run.pass_on(request)
                await request.response()
            else:
                await _ask(self._approve, request)
        finally:
            timer = self._open.pop(request)
            if timer is not None:
                timer.cancel()
            self._note_open()
            if not self._open:
                self._run.go_on()

    async def _reject(self, request: ApprovalRequest) -> None:
        request.close(self._options.unasked)

    def _note_open(self) -> None:
        """Tells the execution which request has waited longest: if its time is up, the result names it."""
        self._run.execution.wait_for_answer(str(next(iter(self._open), "")))

    def _on_done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
            self._run.cancel()  # the task that reads the execution raises it


async def _accept(request: ApprovalRequest) -> None:
    await request.accept()


async def _ask(approve: AsyncApprove, request: ApprovalRequest) -> None:
    """Answers a request as the application's function does, unless it is closed meanwhile."""
    verdict = approve(request)
    if inspect.isawaitable(verdict):
        verdict = await verdict
    if request.open and verdict is True:
        await request.accept()
    elif request.open:
        await request.reject(reason_for(verdict))

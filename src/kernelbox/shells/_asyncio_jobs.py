"""Jobs: cells that go on whether a caller waits for them or not, in kernels that are opened by name."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time

from kernelbox.core._executor_values import ToolEvent
from kernelbox.core._images import ImageFiles
from kernelbox.core.approvals._gate import Gate
from kernelbox.core.approvals._memory import Sessions
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.shells._asyncio import Run
from kernelbox.shells._asyncio_asks import Asks
from kernelbox.wire._messages import Ask, Execute, Withdraw
from kernelbox.wire._results import OutputItem
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set

    from kernelbox.core._kernel import Kernel
    from kernelbox.core.approvals._gate import Habit
    from kernelbox.core.approvals._policy import ApprovalPolicy
    from kernelbox.host.files._home import Home
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._results import ExecutionResult

    Watch = Callable[[OutputItem | ToolEvent | ApprovalRequest, str | None], None]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What every job is run with.

    `shell` and `tools` decide the shell commands and tool calls that the policy leaves open, and `patience` is how many
    seconds a request waits for its answer; where `unasked` says why, what would be asked is rejected. `text_limit` is
    how many characters are kept of what a cell writes. `keep_outputs` leaves in the result what its text and files
    have. `describe` says why images cannot be written, where the caller may not know the directory.
    """

    images_dir: str | Home
    policy: ApprovalPolicy
    shell: Habit = "ask"
    tools: Habit = "ask"
    unasked: str = ""
    patience: float | None = None
    shell_escape_only: bool = False
    text_limit: int = 1_000_000
    report_changes: bool = True
    keep_outputs: bool = False
    describe: Callable[[Exception], str] | None = None

    def request(self, code: str, language: str) -> Execute:
        """Returns what is sent to run a cell."""
        return Execute(
            os.urandom(8).hex(),
            code,
            language,  # type: ignore[arg-type]  # checked by the caller
            approve_shell=self.shell == "ask" or self.policy.concerns_shell(),
            shell_escape_only=self.shell_escape_only,
            report_changes=self.report_changes,
            text_limit=self.text_limit,
        )


class Job:
    """One cell, driven to its end by the task that calls `drive`, or after `start` by a task of its own.

    `requests` are the approvals that wait for an answer, by their ids; `notice` is what a tool's server said last. A
    job that is attended by no caller for `leash` seconds is cancelled. `watch` is called with what comes as it comes:
    outputs, with the file that an image was written to, requests, and what tools' servers say.
    """

    def __init__(
        self,
        kernel_name: str,
        run: Run,
        make_asks: Callable[[Run], Asks],
        options: JobOptions,
        watch: Watch | None = None,
    ) -> None:
        self.kernel_name = kernel_name
        self.kernel_id = run.kernel_id
        self.requests: dict[str, ApprovalRequest] = {}
        self.notice = ""
        self._began = time.monotonic()
        self._run = run
        self._make_asks = make_asks
        self._asks: Asks | None = None
        self._options = options
        self._watch = watch
        self._images = ImageFiles(options.images_dir, options.describe)
        self._news = asyncio.Event()
        self._attending = 0
        self._leash: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._end: asyncio.Future[ExecutionResult] = self._loop.create_future()

    @classmethod
    async def begin(
        cls,
        kernel_name: str,
        kernel: Kernel,
        request: Execute,
        options: JobOptions,
        sessions: Sessions,
        toolbox: Toolbox,
        *,
        timeout: float | None,  # noqa: ASYNC109  # it interrupts the cell and keeps what it wrote
        watch: Watch | None = None,
    ) -> Job:
        """Sends a cell to a kernel. It waits there for its turn: a kernel runs one cell at a time."""

        def make_asks(run: Run) -> Asks:
            gate = Gate(kernel.record, options.policy, sessions, shell=options.shell, tools=options.tools)
            return Asks(run, gate, toolbox, patience=options.patience, present=True, stop_clock=True)

        run = await Run.begin(kernel, request, timeout=timeout)
        return cls(kernel_name, run, make_asks, options, watch)

    def __repr__(self) -> str:
        return f"<Job {self.execution_id} in {self.kernel_name!r} {'done' if self.done else 'running'}>"

    @functools.cached_property
    def id(self) -> str:
        """What callers who come again know it by."""
        return os.urandom(16).hex()

    @property
    def execution_id(self) -> str:
        """What the kernel knows the cell by."""
        return self._run.execution.request.id

    @property
    def done(self) -> bool:
        """Whether the cell has come to its end."""
        return self._end.done()

    @property
    def result(self) -> ExecutionResult:
        """What came of the cell, once it is done; raises what kept it from its end."""
        return self._end.result()

    @property
    def text(self) -> str:
        """What the cell has written and shown so far."""
        return self._run.execution.text

    @property
    def seconds(self) -> float:
        """How long ago the cell was sent."""
        return time.monotonic() - self._began

    @contextlib.contextmanager
    def attended(self, leash: float) -> Iterator[None]:
        """Says that a caller waits for the job; `leash` is how many seconds it may go on without any."""
        self._attending += 1
        self._cut_leash()
        try:
            yield
        finally:
            self._attending -= 1
            if not self._attending and not self.done:
                self._leash = self._loop.call_later(leash, self.cancel)

    async def wait(self, seconds: float, *, seen: Set[str] = frozenset()) -> None:
        """Waits until the cell is done, or asks for more than the requests in `seen`, or the seconds have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.done and not {request.id for request in self.open_requests()} - seen:
                    self._news.clear()
                    await self._news.wait()

    async def finished(self) -> ExecutionResult:
        """Returns the result when the cell is done; a caller that is cancelled leaves the cell running."""
        return await asyncio.shield(self._end)

    def cancel(self) -> None:
        """Begins to stop the cell, by the same ladder as a timeout; a cell that waits for its turn never runs."""
        if not self.done:
            self._run.cancel()

    async def stop(self) -> None:
        """Stops the cell, if it still runs, and returns when its kernel is free."""
        self.cancel()
        await asyncio.wait({self._end})
        await self._run.stop()

    def start(self) -> None:
        """Has a task of its own bring the cell to its end, whether a caller waits or not."""
        self._task = self._loop.create_task(self._drive_alone())

    async def _drive_alone(self) -> None:
        try:
            with contextlib.suppress(Exception):  # whoever asks for the result gets it
                await self.drive()
        finally:
            await self._run.stop()

    async def drive(self) -> ExecutionResult:
        """Brings the cell to its end, in the caller's task: a second one would cost a short cell a tenth more.

        A caller that is cancelled leaves a cell that is about to be stopped, and does not wait for it.
        """
        try:
            result = await self._conclude()
        except asyncio.CancelledError:
            self._run.cancel()
            self._end.cancel()
            raise
        except BaseException as exc:
            self._run.cancel()
            self._end.set_exception(exc)
            self._end.exception()  # it is raised here; of those who wait for the end there may be none
            raise
        else:
            self._end.set_result(result)
            return result
        finally:
            self._cut_leash()
            self._news.set()

    async def _conclude(self) -> ExecutionResult:
        while events := await self._run.next():
            for event in events:
                await self._take(event)
        if self._asks is not None and self._asks.failure is not None:
            raise self._asks.failure
        result = self._run.execution.result
        assert result is not None
        self._images.conclude(result, self._run.execution.request.text_limit)
        if not self._options.keep_outputs:
            result.outputs = []  # the text has them, and the files
        return result

    async def _take(self, event: object) -> None:
        if isinstance(event, Ask):
            self._have_asks().take(event)
        elif isinstance(event, Withdraw):
            self._have_asks().withdraw(event.ask)
        elif isinstance(event, ToolEvent):
            self.notice = f"{event.server_name}.{event.tool_name}: {event.text}"
            self._tell(event)
        elif isinstance(event, ApprovalRequest):
            self._take_request(event)
        elif isinstance(event, OutputItem):
            shows = self._images.has_image(event)
            self._tell(event, await asyncio.to_thread(self._images.save, event) if shows else None)
            if notice := self._images.take_notice():
                self._tell(notice)

    def _have_asks(self) -> Asks:
        """Returns what answers the cell's questions, which most cells have none of."""
        if self._asks is None:
            self._asks = self._make_asks(self._run)
            self._run.call_at_end(self._asks.end)
        return self._asks

    def _take_request(self, request: ApprovalRequest) -> None:
        if self._options.unasked:
            request.close(self._options.unasked)
        elif self._have_asks().show(request):
            self.requests[request.id] = request
            self._news.set()
            self._tell(request)

    def _tell(self, event: OutputItem | ToolEvent | ApprovalRequest, image: str | None = None) -> None:
        if self._watch is not None:
            self._watch(event, image)

    def open_requests(self) -> list[ApprovalRequest]:
        """Returns the requests that can still be answered, and forgets the others."""
        self.requests = {key: request for key, request in self.requests.items() if request.open}
        return list(self.requests.values())

    def _cut_leash(self) -> None:
        if self._leash is not None:
            self._leash.cancel()
            self._leash = None

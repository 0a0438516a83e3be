"""A cell of the synchronous API: the kernel that it is for, what it shows and asks, and its end as a result."""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput
from kernelbox.core._arguments import check_key
from kernelbox.core._images import ImageFiles
from kernelbox.core._kernel import Kernel, dead_result
from kernelbox.host.store._record import KernelRecord
from kernelbox.shells._blocking_run import drive, run
from kernelbox.wire._layout import is_kernel_id
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from kernelbox.core._cell_options import CellOptions
    from kernelbox.core._executor_values import ToolEvent
    from kernelbox.core._kernels import Kernels
    from kernelbox.core.approvals._gate import Gate
    from kernelbox.core.approvals._policy import ApprovalPolicy
    from kernelbox.core.approvals._requests import Approve, SyncApprovalRequest
    from kernelbox.host.engines._interface import Connection
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._results import OutputItem


def run_cell(
    here: Kernels, kernel: KernelRecord | str, code: str, options: CellOptions, approve: Approve | None
) -> ExecutionResult:
    """Finds the kernel, and runs a cell to its end; `approve` answers its questions."""
    if approve is not None or options.policy is not None:
        for event in stream_cell(here, kernel, code, options, approve, may_pause=approve is not None):
            if isinstance(event, ExecutionResult):
                return event
        raise AssertionError("a stream ends with its result")
    request = options.request(code)
    handle, connection = _find(here, kernel)
    if connection is None and handle.is_dead:
        return _report_death(handle)
    assert options.images is not None
    images = ImageFiles(options.images)
    result = run(handle, request, options.timeout, connection, images.see)
    return _conclude(handle, images, request, result)


def stream_cell(
    here: Kernels,
    kernel: KernelRecord | str,
    code: str,
    options: CellOptions,
    approve: Approve | bool | None,
    *,
    may_pause: bool,
) -> Iterator[OutputItem | SyncApprovalRequest | ToolEvent | ExecutionResult]:
    """Finds the kernel, and yields what a cell shows and asks, the result last.

    `approve` answers its questions, or True has them yielded. The cell is sent when the first item is asked for.
    """
    request = options.request(code)
    handle, connection = _find(here, kernel)
    if connection is not None:
        handle.release(connection)  # until then: it may take long, or never come
    return _stream(here, handle, request, options, approve, may_pause=may_pause)


def holds_commands(approve: Approve | bool | None, policy: ApprovalPolicy | None) -> bool:
    """Tells whether shell commands must be held, for the function or the policy to see them."""
    if approve is None and policy is None:
        return False
    if approve is not None and not callable(approve) and approve is not True:
        raise InvalidInput("approve", approve, "use a function, which is called with each request, or True")
    if _is_async(approve):
        raise InvalidInput("approve", approve, "use a plain function; CodeExecutor.stream takes asynchronous answers")
    if policy is not None:
        from kernelbox.core.approvals._policy import check_policy

        check_policy(policy)  # any policy holds commands: what its rules leave open is not allowed
    return True


def _find(here: Kernels, kernel: KernelRecord | str) -> tuple[Kernel, Connection | None]:
    """Returns a kernel and, if one waits in the pool, a connection to it."""
    if isinstance(kernel, KernelRecord):
        handle = Kernel(here, kernel)
        if (connection := handle.take_pooled()) is not None:
            return handle, connection
        return Kernel(here, here.follow(kernel)), None
    name = check_key(kernel)
    if (found := here.pool.take_named(name)) is not None:
        return Kernel(here, found[0]), found[1]
    if is_kernel_id(name):
        record = here.settled(name) or here.get(name)
    else:
        record = here.use(name)
        if record.alive:
            here.pool.remember(name, record)
    handle = Kernel(here, record)
    return handle, handle.take_pooled()


def _stream(
    here: Kernels,
    kernel: Kernel,
    request: Execute,
    options: CellOptions,
    approve: Approve | bool | None,
    *,
    may_pause: bool,
) -> Iterator[OutputItem | SyncApprovalRequest | ToolEvent | ExecutionResult]:
    if kernel.is_dead:
        yield _report_death(kernel)
        return
    steps: Generator[Any, Any, ExecutionResult]
    if approve is None and options.policy is None:
        steps = drive(kernel, request, options.timeout, may_pause=may_pause)
    else:
        from kernelbox.shells._blocking_asks import answering
        from kernelbox.shells._blocking_calls import Calls

        calls = Calls(lambda: _toolbox(here))
        steps = drive(kernel, request, options.timeout, calls, may_pause=may_pause)
        steps = answering(steps, _gate(kernel.record, options.policy), approve, calls)
    assert options.images is not None
    images = ImageFiles(options.images)
    result: ExecutionResult = yield from images.save_all(steps)
    yield _conclude(kernel, images, request, result)


def _report_death(kernel: Kernel) -> ExecutionResult:
    """Returns the result of a cell that is for a dead kernel."""
    kernel.note_death()
    return dead_result(kernel.record, _advice(kernel.record))


def _conclude(kernel: Kernel, images: ImageFiles, request: Execute, result: ExecutionResult) -> ExecutionResult:
    """Gives a result its images, and says in it what becomes of a kernel that has died."""
    images.conclude(result, request.text_limit)
    if result.ending == "died":
        kernel.report_death(result, _advice(kernel.record))
    return result


def _advice(record: KernelRecord) -> str:
    return f"the next call by the name {record.name!r} starts a fresh one"


def _gate(record: KernelRecord, policy: ApprovalPolicy | None) -> Gate:
    from kernelbox.core.approvals._gate import Gate
    from kernelbox.core.approvals._memory import shared_sessions
    from kernelbox.core.approvals._policy import check_policy

    return Gate(record, check_policy(policy), shared_sessions, shell="ask", tools="ask")


def _toolbox(here: Kernels) -> Toolbox:
    from kernelbox.tools._toolbox import shared_toolbox

    return shared_toolbox(here.config)


def _is_async(function: object) -> bool:
    """Tells whether calling a function gives an awaitable, by the flag that `async def` leaves (CO_COROUTINE)."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return bool(getattr(code, "co_flags", 0) & 0x80)

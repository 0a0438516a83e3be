"""A cell of the synchronous API: the kernel that it is for, what it shows and asks, and its end as a result."""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput
from kernelbox.core._arguments import check_key
from kernelbox.core._images import ImageFiles
from kernelbox.core._kernel_handle import KernelHandle, next_by_name
from kernelbox.core._options import NO_OPTIONS
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
    from kernelbox.core._options import KernelOptions
    from kernelbox.core.approvals._approval_gate import Gate
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.approvals._requests import Approve, SyncApprovalRequest
    from kernelbox.host.engines._interface import Connection
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._results import OutputItem


def run_cell(
    here: Kernels,
    kernel: KernelRecord | str,
    code: str,
    options: CellOptions,
    approve: Approve | None,
    new: KernelOptions = NO_OPTIONS,
) -> ExecutionResult:
    """Finds the kernel, and runs a cell to its end; `approve` answers its questions.

    `new` is what a kernel is opened with, if a name has none.
    """
    if approve is not None or options.policy is not None or options.functions is not None:
        for event in stream_cell(here, kernel, code, options, approve, may_pause=approve is not None, new=new):
            if isinstance(event, ExecutionResult):
                return event
        raise AssertionError("a stream ends with its result")
    request = options.request(code)
    handle, connection = _find(here, kernel, new)
    if connection is None and handle.is_dead:
        return handle.dead_result(next_by_name(handle.name))
    assert options.images is not None
    images = ImageFiles(options.images)
    result = run(handle, request, options.timeout, connection, images.see)
    return _conclude(handle, images, options, result)


def stream_cell(
    here: Kernels,
    kernel: KernelRecord | str,
    code: str,
    options: CellOptions,
    approve: Approve | bool | None,
    *,
    may_pause: bool,
    new: KernelOptions = NO_OPTIONS,
) -> Iterator[OutputItem | SyncApprovalRequest | ToolEvent | ExecutionResult]:
    """Finds the kernel, and yields what a cell shows and asks, the result last.

    `approve` answers its questions; with True they are yielded. The cell is sent when the first item is asked for.
    """
    request = options.request(code)
    handle, connection = _find(here, kernel, new)
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
        raise InvalidInput("approve", approve, "use a plain function, or AsyncKernel, which awaits this one")
    if policy is not None:
        from kernelbox.core.approvals._approval_policy import check_policy

        check_policy(policy)  # any policy holds commands: what its rules leave open is not allowed
    return True


def _find(here: Kernels, kernel: KernelRecord | str, new: KernelOptions) -> tuple[KernelHandle, Connection | None]:
    """Returns a kernel and, if one waits in the pool, a connection to it."""
    if isinstance(kernel, KernelRecord):
        handle = KernelHandle(here, kernel)
        if (connection := handle.take_pooled()) is not None:
            return handle, connection
        if (found := here.pool.take_named(kernel.kernel_id)) is not None:  # it was restarted since
            return KernelHandle(here, found[0]), found[1]
        record = here.follow(kernel)
        if record.alive:
            here.pool.remember(record.kernel_id, record)
        return KernelHandle(here, record), None
    name = check_key(kernel)
    if (found := here.pool.take_named(name)) is not None:
        return KernelHandle(here, found[0]), found[1]
    if is_kernel_id(name):
        record = here.settled(name) or here.get(name)
    else:
        record = here.use(name, new)
    if record.alive:
        here.pool.remember(name, record)
    handle = KernelHandle(here, record)
    return handle, handle.take_pooled()


def _stream(
    here: Kernels,
    kernel: KernelHandle,
    request: Execute,
    options: CellOptions,
    approve: Approve | bool | None,
    *,
    may_pause: bool,
) -> Iterator[OutputItem | SyncApprovalRequest | ToolEvent | ExecutionResult]:
    if kernel.is_dead:
        yield kernel.dead_result(next_by_name(kernel.name))
        return
    steps: Generator[Any, Any, ExecutionResult]
    if approve is None and options.policy is None and options.functions is None and options.person is None:
        steps = drive(kernel, request, options.timeout, may_pause=may_pause)
    else:
        from kernelbox.shells._blocking_asks import answering
        from kernelbox.shells._blocking_calls import Calls

        calls = Calls(lambda: _toolbox(here), options.functions)
        steps = drive(kernel, request, options.timeout, calls, may_pause=may_pause)
        steps = answering(steps, _gate(kernel.record, options), approve, calls, options.person)
    assert options.images is not None
    images = ImageFiles(options.images)
    result: ExecutionResult = yield from images.save_all(steps)
    yield _conclude(kernel, images, options, result)


def _conclude(
    kernel: KernelHandle, images: ImageFiles, options: CellOptions, result: ExecutionResult
) -> ExecutionResult:
    """Gives a result its images, and says in it what happens to a kernel that has died."""
    options.conclude(result, kernel, images)
    if result.ending == "died":
        kernel.report_death(result, next_by_name(kernel.name))
    return result


def _gate(record: KernelRecord, options: CellOptions) -> Gate:
    from kernelbox.core.approvals._approval_gate import Gate
    from kernelbox.core.approvals._approval_policy import check_policy
    from kernelbox.core.approvals._memory import shared_sessions

    return Gate(record, check_policy(options.policy), shared_sessions, shell="ask", tools="ask", host=options.host)


def _toolbox(here: Kernels) -> Toolbox:
    from kernelbox.tools._toolbox import shared_toolbox

    return shared_toolbox(here.config)


def _is_async(function: object) -> bool:
    """Tells whether calling a function gives an awaitable, by the flag that `async def` leaves (CO_COROUTINE)."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return bool(getattr(code, "co_flags", 0) & 0x80)

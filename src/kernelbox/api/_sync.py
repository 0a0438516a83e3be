"""The synchronous API: plain functions on kernels that are named, found and started as needed."""

from __future__ import annotations

import os

from kernelbox.api._configured import kernels
from kernelbox.base._errors import InvalidInput, KernelNotFound, attach_attempts
from kernelbox.core._arguments import check_key, check_language, check_limit, check_timeout
from kernelbox.core._cell_options import CellOptions
from kernelbox.core._images import choose_images_dir
from kernelbox.core._options import KernelOptions, at_level
from kernelbox.host.store._record import KernelRecord
from kernelbox.shells._blocking_cell import holds_commands, run_cell, stream_cell
from kernelbox.wire._layout import is_kernel_id
from kernelbox.wire._results import ExecutionResult, OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kernelbox.base._limits import Limits
    from kernelbox.core._executor_values import ToolEvent
    from kernelbox.core._kernels import Kernels
    from kernelbox.core._options import Sandbox, SandboxLevel
    from kernelbox.core.approvals._policy import ApprovalPolicy
    from kernelbox.core.approvals._requests import Approve, SyncApprovalRequest
    from kernelbox.host.store._record import Lifetime


def get_or_create(
    name: str,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    session_name: str | None = None,
    kernel_type: str | None = None,
    lifetime: Lifetime = "kernel",
    limits: Limits | Mapping[str, object] | None = None,
    sandbox: Sandbox | None = None,
    sandbox_level: SandboxLevel | None = None,
) -> KernelRecord:
    """Returns the live kernel of a name, a new one if there is none.

    Raises KernelExists if the live one has other options than those given. `lifetime="process"` is for a kernel that
    must not outlive this process. `limits` is what the kernel may use, such as `{"memory": "512MB"}`: see `Limits`.
    With `sandbox` a new kernel is confined before it runs any code: True for the default (it can write its working
    directory and has no network), the path of a configuration file, or a dict of what would be in one; it raises
    StartFailed where that cannot be done. `sandbox_level="srt"` has it confined by sandbox-runtime as well, whose proxy
    lets it reach the domains that the configuration allows. See docs/sandbox.md.
    """
    options = KernelOptions(
        session_name, tags, cwd, env, lifetime, kernel_type, limits, at_level(sandbox, sandbox_level)
    )
    return kernels().get_or_create(name, options)


def execute(
    kernel: KernelRecord | str,
    code: str,
    *,
    language: str = "python",
    timeout: float | None = None,
    images_dir: str | os.PathLike[str] | None = None,
    approve: Approve | None = None,
    policy: ApprovalPolicy | None = None,
    output_char_limit: int | None = None,
) -> ExecutionResult:
    """Runs code in a kernel and returns the result; errors of the code are in the result and are not raised.

    `kernel` is a record, an id or a name; an unknown name opens a kernel. `timeout` is in seconds; None, 0 and
    less stand for KERNELBOX_EXECUTION_TIMEOUT. With `approve`, shell commands are held until it has been called with a
    SyncApprovalRequest: True from it accepts, a string rejects with that reason, anything else rejects. The rules of
    a `policy` decide first; with a policy and no `approve`, what would be asked is rejected. `output_char_limit` is how
    many characters are kept of each text, 0 for all; it defaults to KERNELBOX_OUTPUT_CHAR_LIMIT.
    """
    here, approve = kernels(), _check_approve(approve)
    options = _cell_options(here, language, timeout, images_dir, approve, policy, output_char_limit)
    return run_cell(here, kernel, code, options, approve)


def stream(
    kernel: KernelRecord | str,
    code: str,
    *,
    language: str = "python",
    timeout: float | None = None,
    images_dir: str | os.PathLike[str] | None = None,
    approve: Approve | bool | None = None,
    policy: ApprovalPolicy | None = None,
    output_char_limit: int | None = None,
) -> Iterator[OutputItem | SyncApprovalRequest | ToolEvent | ExecutionResult]:
    """Runs code and yields each output as it comes, the result last. Leaving the loop interrupts the cell.

    The timeout holds whether or not the outputs are asked for.

    The options are those of `execute`; with `approve=True` the requests are yielded instead, to be answered
    before the next item is asked for.
    """
    approve = None if approve is False else approve
    here = kernels()
    options = _cell_options(here, language, timeout, images_dir, approve, policy, output_char_limit)
    return stream_cell(here, kernel, code, options, approve, may_pause=True)


def execute_with_retry(
    kernel: KernelRecord | str,
    code: str,
    on_error_fn: Callable[[ExecutionResult, int], str | None],
    *,
    max_attempts: int | None = None,
    language: str = "python",
    timeout: float | None = None,
    images_dir: str | os.PathLike[str] | None = None,
    approve: Approve | None = None,
    policy: ApprovalPolicy | None = None,
    output_char_limit: int | None = None,
) -> ExecutionResult:
    """Runs code until it succeeds, asking `on_error_fn(result, attempt)` for new code after each failure.

    None from it means the same code again. After `max_attempts` failures (None or 0: KERNELBOX_MAX_RETRIES) the status
    is max_attempts_exceeded. A kernel that an attempt ends is restarted for the next; one that was destroyed
    meanwhile is not, if `kernel` is its record or id: its result is returned at once.
    """
    if max_attempts is not None and (type(max_attempts) is not int or max_attempts < 0):
        raise InvalidInput("max_attempts", max_attempts, "use a whole number, or None or 0 for the configured one")
    if not callable(on_error_fn):
        raise InvalidInput("on_error_fn", on_error_fn, "use a function of a result and the number of the attempt")
    here, approve = kernels(), _check_approve(approve)
    options = _cell_options(here, language, timeout, images_dir, approve, policy, output_char_limit)
    allowed = max_attempts or here.config.max_retries
    attempts = []
    for attempt in range(1, allowed + 1):
        result = run_cell(here, kernel, code, options, approve)
        attempts.append(result.snapshot(attempt, code))
        result.attempts = attempts
        if result.ok:
            return result
        if attempt == allowed:
            break
        if result.state == "lost" and not _can_go_on(kernel):
            return result
        try:
            code = _next_code(on_error_fn(result, attempt), code)
        except BaseException as exc:
            attach_attempts(exc, attempts)
            raise
    result.status = "max_attempts_exceeded"
    return result


def _next_code(answer: object, code: str) -> str:
    if answer is not None and not isinstance(answer, str):
        raise InvalidInput("the return value of on_error_fn", answer, "return new code, or None to try again")
    return code if answer is None else answer


def _can_go_on(kernel: KernelRecord | str) -> bool:
    """Restarts a dead kernel that was given by record or id; a name opens a new one when it is next used."""
    if isinstance(kernel, str) and not is_kernel_id(kernel):
        return True
    try:
        kernels().revive(status(kernel))
    except KernelNotFound:
        return False
    return True


def interrupt(kernel: KernelRecord | str) -> bool:
    """Interrupts what a kernel is running; returns whether there was anything, and it was reached."""
    return kernels().interrupt(_key(kernel))


def restart(kernel: KernelRecord | str) -> KernelRecord:
    """Starts a new process for a kernel, under the same name and id; its variables are lost."""
    return kernels().restart(_key(kernel))


def destroy(name: KernelRecord | str) -> bool:
    """Ends a kernel, its children and its files; returns whether there was one. `name` may be a record or an id."""
    return kernels().destroy(_key(name))


def list_kernels() -> list[KernelRecord]:
    """Returns all kernels, oldest first, with what each uses."""
    from kernelbox.host.engines._limiting import measured

    return measured(kernels().all())


def status(kernel: KernelRecord | str) -> KernelRecord:
    """Returns what is known of a kernel now; raises KernelNotFound."""
    return kernels().look(_key(kernel))


def create(
    name: str,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    session_name: str | None = None,
    kernel_type: str | None = None,
    lifetime: Lifetime = "kernel",
    limits: Limits | Mapping[str, object] | None = None,
    sandbox: Sandbox | None = None,
    sandbox_level: SandboxLevel | None = None,
) -> KernelRecord:
    """Opens a kernel under a name that no live kernel has; raises KernelExists. The options are `get_or_create`'s."""
    options = KernelOptions(
        session_name, tags, cwd, env, lifetime, kernel_type, limits, at_level(sandbox, sandbox_level)
    )
    return kernels().create(name, options)


def wipe(*, stale: bool = False) -> list[str]:
    """Destroys all kernels, and ends the templates; returns the kernels' ids.

    With `stale`, ends only the kernels that have been idle for longer than KERNELBOX_KERNEL_IDLE_TIMEOUT: each name
    tells so when it is next used.
    """
    return kernels().cull() if stale else kernels().wipe()


def _check_approve(approve: Approve | None) -> Approve | None:
    if approve is not None and not callable(approve):
        raise InvalidInput("approve", approve, "use a function, which is called with each request")
    return approve


def _cell_options(
    here: Kernels,
    language: str,
    timeout: float | None,
    images_dir: str | os.PathLike[str] | None,
    approve: Approve | bool | None,
    policy: ApprovalPolicy | None,
    output_char_limit: int | None,
) -> CellOptions:
    """Checks what was asked for and returns it as one value."""
    holds = (approve is not None or policy is not None) and holds_commands(approve, policy)
    return CellOptions(
        check_language(language),
        check_timeout(timeout, here.config.execution_timeout),
        check_limit(output_char_limit, here.config.output_char_limit),
        here.home if images_dir in (None, "") else choose_images_dir(images_dir),
        policy=policy,
        shell="ask" if holds else "accept",
    )


def _key(kernel: KernelRecord | str) -> str:
    return kernel.kernel_id if isinstance(kernel, KernelRecord) else check_key(kernel)

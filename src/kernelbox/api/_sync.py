"""The synchronous API: plain functions on kernels that are named, found and started as needed."""

from __future__ import annotations

import os

from kernelbox.api._configured import kernels, kernels_of_all_homes, warn_on_loop
from kernelbox.base._errors import KernelNotFound, StoreFailed
from kernelbox.base._suggestions import suggest_arguments
from kernelbox.core._arguments import key_of
from kernelbox.core._cell_options import CellOptions, cell_options, choose_tools
from kernelbox.core._options import NO_OPTIONS, KernelOptions, choose_sandbox
from kernelbox.core.approvals._approve_argument import check_approve
from kernelbox.host.store._record import KernelRecord
from kernelbox.shells._blocking_cell import holds_commands, run_cell, stream_cell
from kernelbox.wire._layout import is_kernel_id
from kernelbox.wire._results import ExecutionResult, OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kernelbox.api._kernel import Kernel
    from kernelbox.base._limits import Limits
    from kernelbox.core._arguments import LanguageName
    from kernelbox.core._executor_values import ToolEvent
    from kernelbox.core._kernels import Kernels
    from kernelbox.core._options import Sandbox, SandboxLevel
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.approvals._requests import Approve, SyncApprovalRequest
    from kernelbox.core.cells._host_functions import Tools
    from kernelbox.host.store._record import Lifetime


@suggest_arguments
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
    python: str | os.PathLike[str] | None = None,
    requirements: Sequence[str] | str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Kernel:
    """Returns the live kernel of a name, a new one if there is none. It is a KernelRecord with methods.

    Raises KernelExists if the live one has other options than those given. `lifetime="process"` is for a kernel that
    must not outlive this process. `limits` is what the kernel may use, such as `{"memory": "512MB"}`: see `Limits`.
    With `sandbox` a new kernel is confined before it runs any code: True for the default (it can write its working
    directory and has no network), the path of a configuration file, or a dict of what would be in one; it raises
    StartFailed where that cannot be done. `sandbox_level="srt"` confines it by sandbox-runtime as well, whose proxy
    lets it reach the domains that the configuration allows. See docs/sandbox.md. `python` is the interpreter that a new
    kernel runs in: a path, an environment's directory, a version such as "3.12", or "project". With
    `requirements` kernelbox makes an environment of it, once, and `progress` is called with each line of the installer.
    See docs/your-python.md.
    """
    chosen = choose_sandbox(sandbox, level=sandbox_level) or sandbox
    options = KernelOptions(
        session_name, tags, cwd, env, lifetime, kernel_type, limits, chosen, python, requirements, progress
    )
    return _object(kernels(), name, options, create=False)


@suggest_arguments
def execute(
    kernel: KernelRecord | str,
    code: str,
    *,
    language: LanguageName = "python",
    timeout: float | None = None,
    images_dir: str | os.PathLike[str] | None = None,
    approve: Approve | None = None,
    policy: ApprovalPolicy | None = None,
    output_char_limit: int | None = None,
    budget: int | None = None,
    tools: Tools | None = None,
) -> ExecutionResult:
    """Runs code in a kernel and returns the result; errors of the code are in the result and are not raised.

    `kernel` is a record, an id or a name; an unknown name opens a kernel. `timeout` is in seconds; None or 0
    means KERNELBOX_EXECUTION_TIMEOUT. With `approve`, shell commands are held until it has been called with a
    SyncApprovalRequest: True from it accepts, a string rejects with that reason, anything else rejects. The rules of a
    `policy` decide first; with a policy and no `approve`, what would be asked is rejected. `output_char_limit` is how
    many characters are kept of each text, 0 for all; it defaults to KERNELBOX_OUTPUT_CHAR_LIMIT. `budget` is how many
    characters the result's `text` may have: what tells a model most is kept.
    """
    warn_on_loop("execute()")
    here = kernels()
    if approve is not None:
        check_approve(approve)
    options = _cell_options(here, language, timeout, images_dir, approve, policy, output_char_limit, budget, tools)
    return run_cell(here, kernel, code, options, approve)


@suggest_arguments
def stream(
    kernel: KernelRecord | str,
    code: str,
    *,
    language: LanguageName = "python",
    timeout: float | None = None,
    images_dir: str | os.PathLike[str] | None = None,
    approve: Approve | bool | None = None,
    policy: ApprovalPolicy | None = None,
    output_char_limit: int | None = None,
    budget: int | None = None,
    tools: Tools | None = None,
) -> Iterator[OutputItem | SyncApprovalRequest | ToolEvent | ExecutionResult]:
    """Runs code and yields each output as it comes, the result last. Leaving the loop interrupts the cell.

    The timeout holds whether or not the outputs are asked for.

    The options are those of `execute`; with `approve=True` the requests are yielded instead, to be answered
    before the next item is asked for.
    """
    warn_on_loop("stream()")
    approve = None if approve is False else approve
    here = kernels()
    options = _cell_options(here, language, timeout, images_dir, approve, policy, output_char_limit, budget, tools)
    return stream_cell(here, kernel, code, options, approve, may_pause=True)


@suggest_arguments
def execute_with_retry(
    kernel: KernelRecord | str,
    code: str,
    on_error_fn: Callable[[ExecutionResult, int], str | None],
    *,
    max_attempts: int | None = None,
    language: LanguageName = "python",
    timeout: float | None = None,
    images_dir: str | os.PathLike[str] | None = None,
    approve: Approve | None = None,
    policy: ApprovalPolicy | None = None,
    output_char_limit: int | None = None,
    budget: int | None = None,
    tools: Tools | None = None,
) -> ExecutionResult:
    """Runs code until it succeeds, asking `on_error_fn(result, attempt)` for new code after each failure.

    If it returns None, the same code runs again. After `max_attempts` failures (None or 0: KERNELBOX_MAX_RETRIES) the
    status is max_attempts_exceeded. A kernel that an attempt ends is restarted for the next; one that was destroyed
    meanwhile is not, if `kernel` is its record or id: its result is returned at once.
    """
    from kernelbox.core.cells._attempts import attempts, check_attempts, run_attempts

    here, approve = kernels(), check_approve(approve)
    allowed = check_attempts(on_error_fn, max_attempts, here.config.max_retries)
    options = _cell_options(here, language, timeout, images_dir, approve, policy, output_char_limit, budget, tools)
    steps = attempts(code, allowed, lambda: _can_go_on(kernel))
    return run_attempts(steps, lambda code: run_cell(here, kernel, code, options, approve), on_error_fn)


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
    """Interrupts what a kernel is running; returns whether something was interrupted."""
    return kernels().interrupt(key_of(kernel))


def restart(kernel: KernelRecord | str) -> KernelRecord:
    """Starts a new process for a kernel, under the same name and id; its variables are lost."""
    return kernels().restart(key_of(kernel))


def destroy(name: KernelRecord | str) -> bool:
    """Ends a kernel, its children and its files; returns whether there was one. `name` may be a record or an id."""
    return kernels().destroy(key_of(name))


@suggest_arguments
def list_kernels(*, all_homes: bool = False, usage: bool = False) -> list[KernelRecord]:
    """Returns all kernels, oldest first.

    With `all_homes` they are those of every home of this user on this machine, as objects that know their home. With
    `usage` each record says what its kernel uses, which takes several times as long.
    """
    from kernelbox.core._every_kernel import list_all

    if all_homes:
        found = [kernel for here in kernels_of_all_homes() for kernel in _objects(here)]
    else:
        found = list_all(kernels())
    if usage:
        from kernelbox.host.engines._limiting import measured

        measured(found)
    return found


def _objects(here: Kernels) -> list[KernelRecord]:
    from kernelbox.api._kernel import Kernel
    from kernelbox.core._every_kernel import list_all

    try:
        return [Kernel.of(here, record, NO_OPTIONS) for record in list_all(here)]
    except StoreFailed:
        return []  # a copy, or another machine's: it cannot be used, and `doctor` says why


def status(kernel: KernelRecord | str) -> KernelRecord:
    """Returns what is known of a kernel now; raises KernelNotFound."""
    return kernels().look(key_of(kernel))


@suggest_arguments
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
    python: str | os.PathLike[str] | None = None,
    requirements: Sequence[str] | str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Kernel:
    """Opens a kernel under a name that no live kernel has; raises KernelExists. The options are `get_or_create`'s."""
    chosen = choose_sandbox(sandbox, level=sandbox_level) or sandbox
    options = KernelOptions(
        session_name, tags, cwd, env, lifetime, kernel_type, limits, chosen, python, requirements, progress
    )
    return _object(kernels(), name, options, create=True)


@suggest_arguments
def wipe(*, stale: bool = False, all_homes: bool = False) -> list[str]:
    """Destroys all kernels, and ends the templates; returns the kernels' ids.

    With `stale`, ends only the kernels that have been idle for longer than KERNELBOX_KERNEL_IDLE_TIMEOUT: each name
    says so when it is next used. With `all_homes`, this is done in every home of this user.
    """
    from kernelbox.core import _every_kernel

    ended = []
    for here in kernels_of_all_homes() if all_homes else [kernels()]:
        try:
            ended += _every_kernel.cull(here) if stale else _every_kernel.wipe(here)
        except StoreFailed:
            if not all_homes:
                raise
    return ended


def _object(here: Kernels, name: str, options: KernelOptions, *, create: bool) -> Kernel:
    from kernelbox.api._kernel import Kernel  # most calls of the command line need none

    record = here.create(name, options) if create else here.get_or_create(name, options)
    return Kernel.of(here, record, options)


def _cell_options(
    here: Kernels,
    language: LanguageName,
    timeout: float | None,
    images_dir: str | os.PathLike[str] | None,
    approve: Approve | bool | None,
    policy: ApprovalPolicy | None,
    output_char_limit: int | None,
    budget: int | None,
    tools: Tools | None,
) -> CellOptions:
    """Checks what was asked for and returns it as one value."""
    return cell_options(
        here.config,
        here.home,
        language=language,
        timeout=timeout,
        images_dir=images_dir,
        output_char_limit=output_char_limit,
        budget=budget,
        policy=policy,
        shell="ask" if holds_commands(approve, policy) else "accept",
        functions=choose_tools(tools),
        host="accept" if approve is None else "ask",
    )

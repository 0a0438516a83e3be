"""How a kernel is started: its record, its process, and the start-up code."""

from __future__ import annotations

import contextlib
import os

from kernelbox.base._config import refuse_unknown_limits
from kernelbox.base._environment import kernel_environment, scrubbed_environment
from kernelbox.base._errors import InvalidInput, StartFailed, StoreFailed
from kernelbox.host._engines import engine_for, engine_named
from kernelbox.host.engines._interface import Launch
from kernelbox.host.process._lifeline import lifeline_to
from kernelbox.host.process._process import ProcessIdentity
from kernelbox.host.store._record import KernelRecord, now
from kernelbox.wire._messages import SETTLED, Execute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelbox.base._config import EngineName, KernelBoxConfig
    from kernelbox.core._kernel import Kernel
    from kernelbox.core._options import KernelOptions
    from kernelbox.host.engines._interface import Engine
    from kernelbox.host.store._store import Store
    from kernelbox.wire._results import ExecutionResult

# A kernel has some 25 files open for itself; the rest is for cells, whose imports have several open at once.
_LEAST_FILES = 64


def new_record(name: str, options: KernelOptions, config: KernelBoxConfig, store: Store) -> KernelRecord:
    """Returns the record of a kernel that is about to be started; raises InvalidInput for a type it cannot have."""
    kernel_type = options.kernel_type or config.kernel_type
    engine = check_start(kernel_type, config.engine)
    rules, config_of_sandbox = options.sandbox_rules(), options.sandbox_config()
    if rules and engine.name != "kernelbox":
        allowed = "only python3 kernels of kernelbox's own engine can be sandboxed"
        raise InvalidInput("sandbox", options.sandbox, f"{allowed}, and {kernel_type!r} is one of Jupyter's")
    if options.guarded and engine.name != "kernelbox":
        raise InvalidInput.saying(
            "require_shell_escape: only python3 kernels of kernelbox's own engine can be guarded, and "
            f"{kernel_type!r} is one of Jupyter's"
        )
    kernel_id = os.urandom(16).hex()
    made_at = now()
    record = KernelRecord(
        kernel_id=kernel_id,
        connection_file=store.directory(kernel_id).path_of(engine.connection_file),
        name=name,
        session_name=options.session_name or name,
        created_at=made_at,
        last_used_at=made_at,
        status="unknown",
        tags=options.tags or {},
        kernel_type=kernel_type,
        engine=engine.name,
        cwd=str(options.cwd),
        lifetime=options.lifetime,
        environment="caller" if options.env is None else "given",
        limits=options.effective_limits(config.limits),
        sandbox=None if config_of_sandbox is None else config_of_sandbox.level,
        sandbox_config=rules,
        guarded=options.guarded,
    )
    if options.lifetime == "process" or config.store_backend == "memory":
        own = ProcessIdentity.own()
        record.owner_pid, record.owner_start_time = own.pid, own.start_time
    return record


def check_start(kernel_type: str, configured: EngineName) -> Engine:
    """Returns the engine of a kernel that can be started from here; raises InvalidInput or StartFailed if it cannot."""
    engine = engine_for(kernel_type, configured)
    engine.check(kernel_type)
    refuse_unknown_limits()
    allowed = os.sysconf("SC_OPEN_MAX")  # the limit of this process, which its kernels have too; -1 is none
    if 0 <= allowed < _LEAST_FILES:
        raise StartFailed(
            f"a kernel needs {_LEAST_FILES} open files, and the limit of this process, which it would have too, is "
            f"{allowed}: raise its limit (ulimit -n)"
        )
    return engine


def start(
    kernel: Kernel,
    environment: dict[str, str] | None,
    store: Store,
    config: KernelBoxConfig,
    run: Callable[[Kernel, Execute, float | None], ExecutionResult],
) -> None:
    """Starts the process of a kernel and runs the start-up code; the caller holds the lock of its name.

    Until that has come to an end the record is kept as unknown, so that others wait for it, or, if we do not live to
    see it, take it for what it is; the keeper then ends the process.
    """
    record = kernel.record
    record.status, record.death, record.busy_since = "unknown", None, None
    with _opening() as (opening, settling):
        _launch(record, environment, store, config, opening)
        try:
            if config.startup_code:
                store.save(record)
                _run_startup_code(kernel, config, run)
        finally:
            record.status = "idle"
            os.write(settling, SETTLED)  # first: a kernel that a record calls alive must not be ended
            store.publish(record)


@contextlib.contextmanager
def _opening() -> Iterator[tuple[int, int]]:
    """Gives a pipe that tells a keeper when the start has come to an end, or that we have ended before.

    Writing to it cannot fail, whatever has become of the keeper: we hold the other end too.
    """
    opening, settling = os.pipe()
    try:
        yield opening, settling
    finally:
        os.close(settling)
        os.close(opening)


def _launch(
    record: KernelRecord, environment: dict[str, str] | None, store: Store, config: KernelBoxConfig, opening: int
) -> None:
    directory = store.directory(record.kernel_id)
    lifeline, disk_before = -1, 0
    try:
        if record.owner_pid is not None:
            lifeline = lifeline_to(record.owner_pid, record.owner_start_time)
            if lifeline < 0:
                raise StartFailed(f"kernel {record.name!r} belongs to process {record.owner_pid}, which has ended")
        if environment is None:  # in a sandbox, what is harmless of our own: there may be secrets in it
            given = scrubbed_environment({}) if record.sandbox is not None else kernel_environment()
        else:
            given = environment
        if record.limits:
            from kernelbox.host.engines._limiting import prepare_limits

            disk_before = prepare_limits(record, config.home, use_groups=config.cgroups)
        launch = Launch(record, directory, given, config, opening, lifeline, disk_before)
        engine_named(record.engine).launch(launch)
    except BaseException as exc:
        if record.groups:
            from kernelbox.host.engines._limiting import release_limits

            release_limits(record)
        if isinstance(exc, OSError) and not isinstance(exc, StoreFailed):
            raise StoreFailed.because(exc, directory.path) from exc
        raise
    finally:
        if lifeline >= 0:
            os.close(lifeline)


def _run_startup_code(
    kernel: Kernel, config: KernelBoxConfig, run: Callable[[Kernel, Execute, float | None], ExecutionResult]
) -> None:
    request = Execute(
        os.urandom(8).hex(), config.startup_code, store_history=False, text_limit=max(0, config.output_char_limit)
    )
    result = run(kernel, request, config.execution_timeout)
    if not result.ok:
        assert result.error is not None
        kernel.end("its start-up code failed")
        told = result.error.traceback
        if result.status == "timeout":  # its sentence is about the variables of a kernel that goes on
            told = [*told[:-1], f"TimeoutError: timed out after {config.execution_timeout:g} s"]
        raise StartFailed(
            f"KERNELBOX_STARTUP_CODE failed in kernel {kernel.name!r}; the kernel was not kept.\n" + "\n".join(told)
        )

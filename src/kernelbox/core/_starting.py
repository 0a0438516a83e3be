"""How a kernel is started: its record, its process, and the start-up code."""

from __future__ import annotations

import os

from kernelbox.base._config import refuse_unknown_limits
from kernelbox.base._environment import environment_in, kernel_environment
from kernelbox.base._errors import InvalidInput, StartFailed, StoreFailed
from kernelbox.base._interpreter import own_interpreter
from kernelbox.base._light_stdlib import contextmanager
from kernelbox.base._unique_objects import fill_standard_descriptors
from kernelbox.core._kernel_condition import describe_loss
from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.core._name_terms import require_directory
from kernelbox.host._engines import engine_for, engine_named
from kernelbox.host.engines._interface import Launch
from kernelbox.host.process._lifeline import lifeline_to
from kernelbox.host.process._process import ProcessIdentity
from kernelbox.host.store._record import KernelRecord, now
from kernelbox.wire._messages import SETTLED, Execute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelbox.base._config import EngineName
    from kernelbox.base._interpreter import Interpreter
    from kernelbox.core._kernels import Kernels
    from kernelbox.core._name_terms import Terms
    from kernelbox.host.engines._local import Engine
    from kernelbox.host.pythons._requirements import Requirements
    from kernelbox.host.store._store import Store

# A kernel itself has about 25 files open; the rest is for cells, whose imports open several at once.
_LEAST_FILES = 64

# Seconds that a kernel has to log the end of its last cell before it is restarted: some clients restart at once.
_LOG_PATIENCE = 0.2


def new_record(terms: Terms, kernels: Kernels) -> KernelRecord:
    """Returns the record of a kernel that is about to start; raises InvalidInput for a type it cannot have."""
    options, config = terms.options, kernels.config
    kernel_type = options.kernel_type or config.kernel_type
    engine = check_start(kernel_type, config.engine)
    rules, config_of_sandbox = options.sandbox_rules(), options.sandbox_config()
    if rules and not engine.can_confine:
        allowed = "only python3 kernels of kernelbox's own engine can be sandboxed"
        raise InvalidInput("sandbox", options.sandbox, f"{allowed}, and {kernel_type!r} is one of Jupyter's")
    if options.guarded and not engine.can_confine:
        raise InvalidInput.saying(
            "require_shell_escape: only python3 kernels of kernelbox's own engine can be guarded, and "
            f"{kernel_type!r} is one of Jupyter's"
        )
    kernel_id = os.urandom(16).hex()
    made_at = now()
    record = KernelRecord(
        kernel_id=kernel_id,
        connection_file=kernels.store.directory(kernel_id).path_of(engine.connection_file),
        name=terms.name,
        session_name=options.session_name or terms.name,
        created_at=made_at,
        last_used_at=made_at,
        status="unknown",
        tags=options.tags or {},
        kernel_type=kernel_type,
        engine=engine.name,
        cwd=terms.cwd,
        cwd_identity=terms.cwd_identity,
        lifetime=options.lifetime,
        environment="caller" if options.env is None else "given",
        limits=options.effective_limits(config.limits),
        sandbox=None if config_of_sandbox is None else config_of_sandbox.level,
        sandbox_config=rules,
        guarded=options.guarded,
    )
    if options.lifetime == "process" or config.store_backend == "memory":
        owner = terms.owner or ProcessIdentity.own()
        record.owner_pid, record.owner_start_time = owner.pid, owner.start_time
    wanted, required = options.python or (config.python if engine.can_choose_python else ""), options.required()
    if wanted or required is not None:
        if not engine.can_choose_python:
            allowed = "only python3 kernels of kernelbox's own engine run in a Python of your choice"
            raise InvalidInput("python", wanted, f"{allowed}, and {kernel_type!r} is one of Jupyter's")
        record.chosen_python = choose_python(wanted, required, terms.cwd, kernels.store)
        record.requirements = None if required is None else list(required.packages)
    settle_python(record, kernels, options.progress)
    return record


def choose_python(wanted: str | os.PathLike[str], required: Requirements | None, cwd: str, store: Store) -> str:
    """Returns the requested interpreter, or one that the requirements accept; "" for our own."""
    from kernelbox.host.pythons._searching import find_accepted, find_python  # few kernels have another interpreter

    store.read_new()  # an interpreter that cells of other kernels can write is not run
    if wanted:
        return find_python(os.fspath(wanted), cwd)
    return "" if required is None else find_accepted(required)


def settle_python(record: KernelRecord, kernels: Kernels, progress: Callable[[str], None] | None = None) -> Interpreter:
    """Notes in a record which interpreter its next process runs in; raises StartFailed if kernels cannot run there.

    The environment of its requirements is made if it is not in the cache.
    """
    interpreter = own_interpreter()
    if record.chosen_python or record.requirements is not None:
        from kernelbox.host.pythons._probing import probe

        kernels.store.read_new()
        chosen = record.chosen_python or interpreter.executable
        interpreter = probe(chosen, bare=record.requirements is not None)
        if record.requirements is not None:
            from kernelbox.host.pythons._virtual_environments import cache_directory, environment_for

            cache = cache_directory(kernels.config.cache)
            interpreter = probe(environment_for(interpreter, record.requirements, cache, progress))
    if engine_named(record.engine).can_choose_python:
        record.python, record.python_version = interpreter.executable, interpreter.version
        record.python_prefix = interpreter.prefix if interpreter.prefix in interpreter.code else ""
    return interpreter


def check_start(kernel_type: str, configured: EngineName) -> Engine:
    """Returns the engine of a kernel; raises InvalidInput or StartFailed if the kernel cannot be started from here."""
    engine = engine_for(kernel_type, configured)
    engine.check(kernel_type)
    refuse_unknown_limits()
    allowed = os.sysconf("SC_OPEN_MAX")  # the limit of this process and of its kernels; -1 is none
    if 0 <= allowed < _LEAST_FILES:
        raise StartFailed(
            f"a kernel needs {_LEAST_FILES} open files, and the limit of this process, which kernels inherit, is "
            f"{allowed}: raise its limit (ulimit -n)"
        )
    return engine


def require_restartable(record: KernelRecord, kernels: Kernels, *, must_end: bool) -> None:
    """Raises if a kernel could be ended but not started again; one that must end in any case may lack its directory."""
    check_start(record.kernel_type, record.engine)
    settle_python(record, kernels)
    if not must_end:
        require_directory(record)


def end_for_restart(kernels: Kernels, record: KernelRecord, seen: KernelRecord, reason: str) -> None:
    """Ends the process of a kernel that is started again next, and notes what is lost; the caller holds the lock.

    `seen` is the record that the caller has: the one in the store may be older.
    """
    record.lost, record.restored_from, record.copied = describe_loss(record), None, False
    record.lost_executions = []
    cause = record.death if record.status == "dead" and record.death else reason
    was_unreachable = kernels.condition.is_unreachable(record)
    if record.status == "idle" and engine_named(record.engine).logs_cells:
        KernelHandle(kernels, record, starting=True).ask("is_complete", {"code": ""}, patience=_LOG_PATIENCE)
    record.status = "unknown"
    if not was_unreachable:
        kernels.store.save(record)  # before its process is gone: others wait for a start, and see no death
    kernels.end_process(record, reason)
    if seen.process != record.process:
        kernels.end_process(seen, reason)
    kernels.pool.drop(record)
    kernels.log_loss(record, cause)
    if was_unreachable:
        kernels.store.remake(record)


def start(kernels: Kernels, record: KernelRecord, environment: dict[str, str] | None) -> None:
    """Starts the process of a kernel and runs the start-up code; the caller holds the lock of its name.

    Meanwhile the stored record has the status unknown, so that other processes wait for it. If we end before the start
    does, they see that it was cut short, and the keeper ends the process.
    """
    fill_standard_descriptors()  # before any that a child gets is opened
    store = kernels.store
    require_directory(record)
    interpreter = settle_python(record, kernels)
    if record.sandbox is not None:
        from kernelbox.base._cell_places import note_places  # few kernels have a sandbox

        store.read_new()  # it must be known where other sandboxed kernels write
        note_places(record.writable, [record.python_prefix] if record.python_prefix else [])
    record.status, record.death, record.busy_since = "unknown", None, None
    with _opening() as (opening, settling):
        _launch(kernels, record, environment, opening, interpreter)
        try:
            if kernels.config.startup_code:
                store.save(record)
                _run_startup_code(kernels, record)
        finally:
            record.status = "idle"
            os.write(settling, SETTLED)  # first: the keeper must not end a kernel whose record says alive
            store.publish(record)


@contextmanager
def _opening() -> Iterator[tuple[int, int]]:
    """Yields a pipe that tells a keeper when the start has succeeded or failed, or that we ended before.

    Writing to it cannot fail even if the keeper has ended, because we hold the other end too.
    """
    opening, settling = os.pipe()
    try:
        yield opening, settling
    finally:
        os.close(settling)
        os.close(opening)


def _launch(
    kernels: Kernels, record: KernelRecord, environment: dict[str, str] | None, opening: int, interpreter: Interpreter
) -> None:
    config, directory = kernels.config, kernels.store.directory(record.kernel_id)
    lifeline, disk_before = -1, 0
    try:
        if record.owner_pid is not None:
            lifeline = lifeline_to(record.owner_pid, record.owner_start_time)
            if lifeline < 0:
                raise StartFailed(f"kernel {record.name!r} belongs to process {record.owner_pid}, which has ended")
        given = kernel_environment(sandboxed=record.sandbox is not None) if environment is None else environment
        if record.limits:
            from kernelbox.host.engines._limiting import prepare_limits

            disk_before = prepare_limits(record, config.home, use_groups=config.cgroups)
        given = environment_in(interpreter, given)
        launch = Launch(record, directory, given, config, opening, lifeline, interpreter, disk_before)
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


def _run_startup_code(kernels: Kernels, record: KernelRecord) -> None:
    config, kernel = kernels.config, KernelHandle(kernels, record, starting=True)
    request = Execute(
        os.urandom(8).hex(), config.startup_code, store_history=False, text_limit=max(0, config.output_char_limit)
    )
    result = kernels.run(kernel, request, config.execution_timeout)
    if not result.ok:
        assert result.error is not None
        kernel.end("its start-up code failed")
        told = result.error.traceback or [f"{result.error.ename}: {result.error.evalue}"]
        if result.status == "timeout":  # its own sentence says that the kernel kept its variables
            told = [*told[:-1], f"TimeoutError: timed out after {config.execution_timeout:g} s"]
        raise StartFailed(
            f"KERNELBOX_STARTUP_CODE failed in kernel {kernel.name!r}; the kernel was not kept.\n" + "\n".join(told)
        )

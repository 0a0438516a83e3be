"""The engine of kernelbox's own kernels."""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput
from kernelbox.host.engines._local import END_PATIENCE, Engine, end_closed, identify, process_of
from kernelbox.host.engines.own._own_connection import OwnConnection
from kernelbox.wire._layout import RECORD, SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.base._config import EngineName
    from kernelbox.host.engines._interface import CopyPlan, Fostering, Launch
    from kernelbox.host.files._place import Place
    from kernelbox.host.process._process import Process
    from kernelbox.host.store._checkpoint_files import Checkpoint
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._messages import Release, Spawned

# The threads of a kernel in which user code has started none: the main thread and the helper.
_THREADS = 2


class OwnEngine(Engine):
    """Forks kernels from a warm template, or starts each one cold if there can be no template."""

    name: EngineName = "kernelbox"
    connection_file = RECORD
    uses_template = True
    can_confine = True
    can_choose_python = True
    logs_cells = True

    def check(self, kernel_type: str) -> None:
        if kernel_type != "python3":
            raise InvalidInput("the kernel type", kernel_type, "kernelbox's own engine runs python3 only")

    def launch(self, launch: Launch) -> None:
        from kernelbox.host.engines._spawning import preparing, spawn_cold
        from kernelbox.host.engines.own._warm_template import fork_warm, has_warm_template

        confinement, environment, srt = None, launch.environment, None
        if launch.record.sandbox is not None:
            from kernelbox.host.engines.own._sandboxed import outside_of_box, prepare_box

            if launch.record.sandbox == "srt":
                from kernelbox.host.engines.own._srt_template import prepare_srt

                srt = prepare_srt(launch)
            confinement, environment = prepare_box(launch)
            launch = outside_of_box(launch, confinement)
        guard = b""
        if launch.record.guarded:
            from kernelbox.host.engines.own._guarded import guard_filter

            guard = guard_filter()
        with preparing(launch, [SOCKET], environment=environment, confinement=confinement, guard=guard) as request:
            if srt is not None or (launch.config.template and has_warm_template()):
                spawned = fork_warm(request, launch, srt)
            else:
                spawned = spawn_cold(request, launch)
        self.require_walls(launch.record, spawned)
        identify(launch.record, spawned)

    def require_walls(self, record: KernelRecord, spawned: Spawned) -> None:
        if record.sandbox is not None:
            from kernelbox.host.engines.own._sandboxed import require_armed

            require_armed(spawned, in_srt=record.sandbox == "srt")
        if record.guarded:
            from kernelbox.host.engines.own._guarded import require_guarded

            require_guarded(spawned, sandboxed=record.sandbox is not None)

    def may_be_held(self, record: KernelRecord) -> bool:
        process = process_of(record)
        return process is not None and process.threads not in (1, _THREADS)

    def find_refusals(self, record: KernelRecord, *, branch: bool) -> list[str]:
        from kernelbox.host.engines.own._keeper_request import find_refusals  # few kernels are copied

        return find_refusals(record, branch=branch)

    def foster(self, plan: CopyPlan) -> Fostering:
        from kernelbox.host.engines.own._keeper_request import KeeperRequest

        return KeeperRequest(plan)

    def release_checkpoints(self, directory: KernelDirectory, release: Release) -> None:
        from kernelbox.host.engines.own._keeper_request import release_checkpoints

        release_checkpoints(directory, release)

    def measure_checkpoints(self, directory: KernelDirectory, *, limit: int = 0) -> list[Checkpoint]:
        from kernelbox.host.engines.own._keeper_request import measure_checkpoints

        return measure_checkpoints(directory, limit)

    def tidy(self, runtime: Place, secret: bytes) -> None:
        from kernelbox.host.engines.own._template_processes import dismiss_templates

        dismiss_templates(runtime, secret)

    def _entrances(self, directory: KernelDirectory) -> tuple[str]:
        return (SOCKET,)

    def _connect(self, record: KernelRecord, directory: KernelDirectory, process: Process) -> OwnConnection:
        try:
            return OwnConnection(directory, process, guarded=record.guarded, copied=record.copied)
        except ConnectionRefusedError:
            if not process.wait(END_PATIENCE):
                end_closed(directory, process)
            raise

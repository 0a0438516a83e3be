"""Where the whole text of a cut result is kept: the log of its kernel, which outlives the process and the client."""

from __future__ import annotations

from kernelbox.base._config import KernelBoxConfig
from kernelbox.base._errors import KernelNotFound, OutputNotKept
from kernelbox.core._kernels import Kernels
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._results import ExecutionResult


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """The place of one cell's output. It is a value, so that a result can be copied, stored and sent elsewhere."""

    home: str
    registry_path: str
    runtime_dir: str
    key_file: str
    kernel_id: str
    name: str
    execution_id: str

    @classmethod
    def of(cls, config: KernelBoxConfig, record: KernelRecord, execution_id: str) -> KeptOutput:
        """Names the output of an execution that ran in a kernel."""
        return cls(
            config.home,
            config.registry_path,
            config.runtime_dir,
            config.key_file,
            record.kernel_id,
            record.name,
            execution_id,
        )

    def read(self) -> str:
        """Returns the whole text; raises OutputNotKept."""
        places = {name: getattr(self, name) for name in ("home", "registry_path", "runtime_dir", "key_file")}
        here = Kernels(KernelBoxConfig(**places), _start_nothing)
        try:
            record = here.find(self.kernel_id) or here.get(self.name)  # a kernel that follows a dead one has its log
        except KernelNotFound:
            raise OutputNotKept(self.name, self.execution_id, "the kernel was destroyed") from None
        try:
            return here.kernel(record).read_output(self.execution_id)
        finally:
            here.pool.drop(record)


def _start_nothing(kernel: KernelHandle, request: Execute, timeout: float | None) -> ExecutionResult:
    raise AssertionError("a log is read without starting a kernel")

"""Changes the tags of a kernel, while no other process changes them."""

from __future__ import annotations

from kernelbox.base._errors import KernelNotFound
from kernelbox.core._arguments import check_tags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelbox.core._kernels import Kernels
    from kernelbox.host.store._record import KernelRecord


def retag(kernels: Kernels, kernel_id: str, changes: Mapping[str, str | None]) -> KernelRecord:
    """Sets tags, and removes those that are None; raises KernelNotFound, and InvalidInput for too many."""
    record = kernels.get(kernel_id)
    with kernels.store.locking(*record.names):
        current = kernels.store.get(record.kernel_id)
        if current is None:
            raise KernelNotFound(kernel_id)
        kept = {name: value for name, value in current.tags.items() if name not in changes}
        set_now = {name: value for name, value in changes.items() if value is not None}
        current.tags = check_tags({**kept, **set_now})
        kernels.store.publish(current)
        return kernels.condition.refresh(current)

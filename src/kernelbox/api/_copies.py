"""Copies of live kernels, as functions: branches, checkpoints, and the way back to them."""

from __future__ import annotations

from typing import overload

from kernelbox.api._configured import kernels
from kernelbox.api._kernel import Kernel
from kernelbox.base._errors import InvalidInput
from kernelbox.base._suggestions import suggest_arguments
from kernelbox.core import _time_travel
from kernelbox.core._arguments import check_key
from kernelbox.core._options import NO_OPTIONS
from kernelbox.host.store._checkpoint_files import Checkpoint
from kernelbox.host.store._record import KernelRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


@overload
def branch(kernel: KernelRecord | str, name: str, *, reseed: bool = True, timeout: float | None = None) -> Kernel: ...


@overload
def branch(
    kernel: KernelRecord | str, *, names: Sequence[str], reseed: bool = True, timeout: float | None = None
) -> list[Kernel]: ...


@suggest_arguments
def branch(
    kernel: KernelRecord | str,
    name: str | None = None,
    *,
    names: Sequence[str] | None = None,
    reseed: bool = True,
    timeout: float | None = None,
) -> Kernel | list[Kernel]:
    """Copies a live kernel, with all its variables, into a kernel of its own; with `names`, into several.

    The original goes on as if nothing had happened. A copy is made between cells: one that runs is waited for, at most
    `timeout` seconds (by default KERNELBOX_EXECUTION_TIMEOUT), then KernelBusy is raised. Random numbers begin anew in
    a branch, unless `reseed` is False. Raises CannotCopy if something in the kernel cannot be copied.
    """
    here, wanted = kernels(), _time_travel.choose_names(name, names)
    made = _time_travel.branch(here, _key(kernel), wanted, reseed=reseed, timeout=timeout)
    objects = [Kernel.of(here, record, NO_OPTIONS) for record in made]
    return objects[0] if name is not None else objects


@suggest_arguments
def checkpoint(kernel: KernelRecord | str, label: str | None = None, *, timeout: float | None = None) -> Checkpoint:
    """Freezes a copy of a live kernel, to which `rollback` sets it back, and which it comes back to if it dies.

    It takes only the memory that the kernel changes afterwards. KERNELBOX_CHECKPOINTS and two more variables say how
    many are kept; `evicted` in the checkpoint are those that were dropped for it. `timeout` and errors are those of
    `branch`.
    """
    return _time_travel.checkpoint(kernels(), _key(kernel), label=label, timeout=timeout)


def checkpoints(kernel: KernelRecord | str) -> list[Checkpoint]:
    """Returns the checkpoints of a kernel, oldest first, with the memory that each has for itself."""
    return _time_travel.checkpoints(kernels(), _key(kernel))


@suggest_arguments
def rollback(kernel: KernelRecord | str, to: Checkpoint | int | str | None = None) -> Kernel:
    """Sets a kernel back to a checkpoint, a number or a label; without, to the last one. Name and id stay the same.

    A running cell is ended, and its result says why. The checkpoint can be used again. Files are not undone. Raises
    CheckpointNotFound.
    """
    here = kernels()
    return Kernel.of(here, _time_travel.rollback(here, _key(kernel), to), NO_OPTIONS)


def drop(checkpoint: Checkpoint) -> bool:
    """Ends a checkpoint, and gives its memory back; returns whether it was there."""
    if not isinstance(checkpoint, Checkpoint):
        raise InvalidInput("the checkpoint", checkpoint, "use what checkpoint() or checkpoints() returned")
    return _time_travel.drop(kernels(), checkpoint.kernel_id, checkpoint.number)


@suggest_arguments
def promote(kernel: KernelRecord | str, *, timeout: float | None = None) -> Kernel:
    """Puts a branch in the place of the kernel that it is a branch of, which keeps its name and id.

    The branch itself is gone then. The variables of the original are lost. `timeout` and errors are those of `branch`.
    """
    here = kernels()
    return Kernel.of(here, _time_travel.promote(here, _key(kernel), timeout=timeout), NO_OPTIONS)


def _key(kernel: KernelRecord | str) -> str:
    return kernel.kernel_id if isinstance(kernel, KernelRecord) else check_key(kernel)

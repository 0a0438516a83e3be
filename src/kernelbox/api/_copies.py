"""Copies of live kernels, as functions: branches, checkpoints, and the way back to them."""

from __future__ import annotations

from typing import overload

from kernelbox.api._configured import kernels
from kernelbox.api._kernel import Kernel
from kernelbox.base._errors import InvalidInput
from kernelbox.base._suggestions import suggest_arguments
from kernelbox.core import _time_travel
from kernelbox.core._arguments import key_of
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

    The original continues unchanged. A copy is made between cells: a running cell is waited for, at most `timeout`
    seconds (by default KERNELBOX_EXECUTION_TIMEOUT), then KernelBusy is raised. A branch has new random numbers, unless
    `reseed` is False. Raises CannotCopy if something in the kernel cannot be copied.
    """
    here, wanted = kernels(), _time_travel.choose_names(name, names)
    made = _time_travel.branch(here, key_of(kernel), wanted, reseed=reseed, timeout=timeout)
    objects = [Kernel.of(here, record, NO_OPTIONS) for record in made]
    return objects[0] if name is not None else objects


@suggest_arguments
def checkpoint(kernel: KernelRecord | str, label: str | None = None, *, timeout: float | None = None) -> Checkpoint:
    """Freezes a copy of a live kernel. `rollback` returns the kernel to it, and so does a death of the kernel.

    It takes only the memory that the kernel changes afterwards. KERNELBOX_CHECKPOINTS and two more variables say how
    many are kept; `evicted` in the checkpoint are those that were dropped for it. `timeout` and errors are those of
    `branch`.
    """
    return _time_travel.checkpoint(kernels(), key_of(kernel), label=label, timeout=timeout)


def checkpoints(kernel: KernelRecord | str) -> list[Checkpoint]:
    """Returns the checkpoints of a kernel, oldest first, with the memory that each has for itself."""
    return _time_travel.checkpoints(kernels(), key_of(kernel))


@suggest_arguments
def rollback(kernel: KernelRecord | str, to: Checkpoint | int | str | None = None) -> Kernel:
    """Rolls a kernel back to a checkpoint, by number or label, or to the last one. Name and id stay the same.

    A running cell is ended, and its result says why. The checkpoint can be used again. Files are not undone. Raises
    CheckpointNotFound.
    """
    here = kernels()
    return Kernel.of(here, _time_travel.rollback(here, key_of(kernel), to), NO_OPTIONS)


def drop(checkpoint: Checkpoint) -> bool:
    """Ends a checkpoint and frees its memory; returns whether it existed."""
    if not isinstance(checkpoint, Checkpoint):
        raise InvalidInput("the checkpoint", checkpoint, "use what checkpoint() or checkpoints() returned")
    return _time_travel.drop(kernels(), checkpoint.kernel_id, checkpoint.number)


@suggest_arguments
def promote(kernel: KernelRecord | str, *, timeout: float | None = None) -> Kernel:
    """Replaces a kernel by a branch of it. The kernel keeps its name and id.

    The branch itself no longer exists then. The variables of the original are lost. `timeout` and errors are those of
    `branch`.
    """
    here = kernels()
    return Kernel.of(here, _time_travel.promote(here, key_of(kernel), timeout=timeout), NO_OPTIONS)

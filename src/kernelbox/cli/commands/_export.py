"""`export`: prints what a kernel has run, with its outputs, as a notebook."""

from __future__ import annotations

from kernelbox.api import _sync
from kernelbox.api._configured import kernels
from kernelbox.base._errors import KernelBusy, KernelDied
from kernelbox.cli.terminal._output import emit
from kernelbox.core._notebook_export import build_notebook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

# Seconds that a kernel has to answer. It answers after the cell that is running.
_PATIENCE = 10.0


def run(options: Namespace) -> int:
    record = _sync.status(options.id if options.name is None else options.name)
    kernel = kernels().kernel(record)
    if not record.alive:
        raise KernelDied(record.name, kernel.cause())
    content = kernel.ask("notebook", {}, patience=_PATIENCE)
    if content is None:
        raise KernelBusy(record.name)
    emit(build_notebook(record.name, content))
    return 0

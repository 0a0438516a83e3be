"""Which cell a task belongs to. What it writes and shows goes there, also while a later cell runs, as in ipykernel.

A task keeps the context that it was made in. A thread has no context of the cell that started it, so its output goes
to the cell that runs, unless the thread asks for another by `get_ipython().set_thread_parent`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())


class Origin(NamedTuple):
    """A cell: the id of its execution, and the id under which its front end knows it."""

    execution_id: str
    parent: str


ORIGIN: ContextVar[Origin | None] = ContextVar("kernelbox_origin", default=None)

"""What happened to a console's kernel while the console waited: it was restarted, died, or was destroyed."""

from __future__ import annotations

from kernelbox.api._configured import kernels
from kernelbox.base._errors import KernelBoxError
from kernelbox.host.store._record import KernelRecord


class KernelNews:
    """Compares a kernel with what was known of it."""

    def __init__(self, record: KernelRecord) -> None:
        self._name = record.name
        self._process: tuple[int | None, int] | None = (record.pid, record.start_time)

    def look(self) -> str:
        """Returns what has happened since the last look, in a sentence, or ""."""
        here = kernels()
        try:
            record = here.find(self._name)
            if record is not None and not record.alive:
                if here.store.is_changing(self._name):
                    return ""  # somebody ends it on purpose: what comes of that is the news
                record = here.find(self._name)  # that may just have ended
        except KernelBoxError:
            return ""
        before = self._process
        self._process = (record.pid, record.start_time) if record is not None and record.alive else None
        if self._process == before or (record is not None and record.status == "unknown"):
            return ""
        if record is None:
            return f"kernel {self._name!r} was destroyed elsewhere; the next cell opens a new one"
        if self._process is None:
            then = "its variables are lost"
            if here.kernel(record).has_checkpoints:
                then = "the next cell continues from its last checkpoint"
            return f"kernel {self._name!r} has died: {record.death}; {then}"
        if before is None:
            return f"kernel {self._name!r} is back, in a new process"
        if record.restored_from is not None:
            return f"kernel {self._name!r} was set back to checkpoint {record.restored_from} elsewhere"
        if record.copied:
            return f"a branch of kernel {self._name!r} took its place elsewhere"
        return f"kernel {self._name!r} was restarted elsewhere; its variables are lost"

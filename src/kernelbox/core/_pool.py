"""Connections that wait for the next execution: a cell on a kernel that was used before costs no look at the disk."""

from __future__ import annotations

import contextlib

# Looking at every connection costs a few microseconds each: not after every cell.
_SWEEP_EVERY = 100

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.engines._interface import Connection
    from kernelbox.host.store._record import KernelRecord


class Pool:
    """Idle connections, by kernel. A list's `append` and `pop` are what threads share it by."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Connection]] = {}
        self._given = 0

    def __repr__(self) -> str:
        return f"<Pool of {sum(map(len, self._idle.values()))} connections>"

    def take(self, record: KernelRecord) -> Connection | None:
        """Returns a connection to the process that the record names, None if none is kept."""
        kept = self._idle.get(record.kernel_id)
        while kept:
            try:
                connection = kept.pop()
            except IndexError:
                break  # another thread took the last
            if connection.idle and connection.leads_to(record):
                return connection
            connection.close()
        return None

    def give(self, record: KernelRecord, connection: Connection) -> None:
        """Keeps a connection for the next execution."""
        self._idle.setdefault(record.kernel_id, []).append(connection)
        self._given += 1
        if self._given % _SWEEP_EVERY == 0:
            self._sweep()

    def _sweep(self) -> None:
        """Closes connections to kernels that others have ended, which are never asked for again."""
        for kernel_id, kept in list(self._idle.items()):
            for connection in [connection for connection in kept if not connection.idle]:
                with contextlib.suppress(ValueError):  # another thread has just taken it
                    kept.remove(connection)
                    connection.close()
            if not kept:
                self._idle.pop(kernel_id, None)

    def has(self, record: KernelRecord) -> bool:
        """Tells whether a connection shows that the kernel lives."""
        for connection in self._idle.get(record.kernel_id, ()):
            if connection.idle and connection.leads_to(record):
                return True
        return False

    def drop(self, record: KernelRecord) -> None:
        """Closes the connections to a kernel."""
        for connection in self._idle.pop(record.kernel_id, ()):
            connection.close()

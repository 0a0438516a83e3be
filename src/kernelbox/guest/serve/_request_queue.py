"""The requests that wait for the main thread: added and withdrawn by the thread that reads, taken in their order."""

from __future__ import annotations

from collections import deque

from kernelbox.guest._stdlib import threading
from kernelbox.guest.output._outbox import Outbox
from kernelbox.guest.output._peers import Peer
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._messages import Copy, Done, Execute, Query

keep_builtins(globals())

_HELD = "while it waited behind work that an earlier cell had left in the background, which was interrupted"
_UNTAKEN = "before the kernel had taken it"


class RequestQueue:
    """Requests with the clients that sent them; `idle` says whether the main thread is to take the next."""

    def __init__(self, outbox: Outbox) -> None:
        self.idle = False
        self._outbox = outbox
        self.entries: deque[tuple[Peer, Execute | Query | Copy]] = deque()
        self._withdrawn: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, peer: Peer, request: Execute | Query | Copy) -> None:
        with self._lock:
            self.entries.append((peer, request))

    def take(self) -> tuple[Peer, Execute | Query | Copy] | None:
        """Returns the next request, if there is one. The main thread is busy from then on."""
        with self._lock:
            while self.entries:
                peer, request = self.entries.popleft()
                if request.id not in self._withdrawn:
                    self.idle = False
                    return peer, request
                self._withdrawn.discard(request.id)
                self._outbox.reply(peer, Done(request.id, "aborted", evalue=_HELD))
        return None

    def withdraw(self, execution_id: str, *, by_main: bool) -> bool | None:
        """Drops a request that has not begun; returns whether the main thread is held up, None if there is no request.

        Behind a running cell it is dropped at once. So it is when the main thread itself asks: the request came just
        before, or the process was stopped. If no cell runs, something that an earlier cell left in the event loop holds
        the main thread up. Then the request stays, and is dropped when the main thread gets to it.
        """
        with self._lock:
            for entry in self.entries:
                if entry[1].id == execution_id:
                    if self.idle and not by_main:
                        self._withdrawn.add(execution_id)
                        return True
                    self.entries.remove(entry)
                    reason = _UNTAKEN if self.idle else ""
                    self._outbox.reply(entry[0], Done(execution_id, "aborted", evalue=reason))
                    return False
        return None

    def forget(self) -> None:
        """Drops everything, in a copy of the process: the original answers."""
        self.entries.clear()
        self._withdrawn.clear()

    def has_cells(self) -> bool:
        with self._lock:
            return any(isinstance(request, Execute) for _, request in self.entries)

"""The clients that are told what the cells of all clients write and show, and what comes between cells."""

from __future__ import annotations

from kernelbox.guest._stdlib import time
from kernelbox.guest.output._peer import Peer
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Bytes that wait for a watcher. With more, what is written waits too, so that little is lost to one that is slow.
_FAR_BEHIND = 8 * 1024 * 1024

# Seconds after which a watcher that is still so far behind is let go: cells of others must not stand still for it.
_PATIENCE = 5.0


class Watchers:
    """Sends frames to those who watch; the caller holds the outbox's lock."""

    def __init__(self) -> None:
        self._behind_since: dict[Peer, float] = {}  # 0 for a watcher that is not far behind

    def __bool__(self) -> bool:
        return bool(self._behind_since)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._behind_since

    def __repr__(self) -> str:
        return f"<Watchers: {len(self._behind_since)}>"

    def add(self, peer: Peer) -> None:
        self._behind_since[peer] = 0.0

    def remove(self, peer: Peer) -> None:
        self._behind_since.pop(peer, None)

    def tell(self, frame: bytes, *, but: Peer | None = None) -> None:
        """Sends a frame to all, but not to the client whose cell it is about."""
        for peer in self._behind_since:
            if peer is not but:
                peer.send(frame)

    def far_behind(self, *, but: Peer | None = None) -> list[Peer]:
        """Returns those whom writers must wait for; lets go of one that has not caught up for too long."""
        found, now = [], time.monotonic()
        for peer, since in self._behind_since.items():
            if peer is but or peer.unread <= _FAR_BEHIND:
                if since:
                    self._behind_since[peer] = 0.0
            elif not since:
                self._behind_since[peer] = now
                found.append(peer)
            elif now - since < _PATIENCE:
                found.append(peer)
            else:
                peer.abandon()
        return found

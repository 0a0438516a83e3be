"""What a client knows from what a kernel publishes: that it is heard at all, and which requests of others it serves."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.jupyter._message import KernelMessage

# A kernel drops what a client has no room for. One that has left this many messages unread may have missed some.
FAR_BEHIND = 1000

# Requests of others that are remembered one by one; so many are never open at once, but a cell can publish anything.
_MOST_OTHERS = 1000


class Reception:
    """Follows the published messages that are not about this client's own cell."""

    def __init__(self) -> None:
        self.heard = False
        self._others: set[str] = set()
        self._unread = 0

    def __repr__(self) -> str:
        return f"<Reception {'heard' if self.heard else 'unknown'}, {len(self._others)} requests of others>"

    @property
    def serves_others(self) -> bool:
        """Whether the kernel has begun a request of another client and not said that it has ended."""
        return bool(self._others)

    def take_at_rest(self) -> None:
        """Counts a message that waited while this client ran no cell and did not read."""
        self._unread += 1

    def catch_up(self) -> None:
        """Takes that everything which waited has been read; after too much of it the kernel must be probed again."""
        self.heard &= self._unread < FAR_BEHIND
        self._unread = 0

    def take_status(self, message: KernelMessage) -> None:
        """Takes the status of a request that is not this client's, who may not queue with ours."""
        if message.text("execution_state") == "idle":
            self._others.discard(message.parent)
        elif len(self._others) < _MOST_OTHERS:
            self._others.add(message.parent)

    def forget_others(self) -> None:
        """Takes that the kernel has served all that it had begun before."""
        self._others.clear()

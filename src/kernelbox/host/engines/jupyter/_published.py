"""What a client learns from publications that are not about its running cell: other clients, and earlier cells."""

from __future__ import annotations

from collections import deque

from kernelbox.wire._output_limit import BoundedText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage

# A kernel drops messages that a client has no room for. With this many unread messages, some may be missing.
FAR_BEHIND = 1000

# The most requests of other clients to remember. So many are never open at once, but a cell can publish anything.
_MOST_OTHERS = 1000


class Reception:
    """Follows the publications that are not about this client's own cell."""

    def __init__(self) -> None:
        self.heard = False
        self._others: set[str] = set()
        self._unread = 0

    def __repr__(self) -> str:
        return f"<Reception {'heard' if self.heard else 'unknown'}, {len(self._others)} requests of others>"

    @property
    def serves_others(self) -> bool:
        """Whether the kernel has begun a request of another client and not finished it."""
        return bool(self._others)

    def take_at_rest(self) -> None:
        """Counts a message that waited while this client ran no cell and did not read."""
        self._unread += 1

    def catch_up(self) -> None:
        """Notes that all waiting messages have been read. If there were too many, the kernel must be probed again."""
        self.heard &= self._unread < FAR_BEHIND
        self._unread = 0

    def take_status(self, message: KernelMessage) -> None:
        """Takes the status of another client's request; other programs do not use the queue."""
        if message.text("execution_state") == "idle":
            self._others.discard(message.parent)
        elif len(self._others) < _MOST_OTHERS:
            self._others.add(message.parent)

    def forget_others(self) -> None:
        """Notes that the kernel has served all earlier requests."""
        self._others.clear()


# How many cells to remember, and how many characters of each stream to keep.
_EARLIER_CELLS = 64
_LIMIT = 1_000_000


class EarlierOutput:
    """Remembers the earlier cells of a client, and keeps what they print while none of its cells runs."""

    def __init__(self) -> None:
        self._earlier: deque[str] = deque(maxlen=_EARLIER_CELLS)
        self._kept: dict[str, BoundedText] = {}

    def remember(self, execution_id: str) -> None:
        """Notes that a cell has ended."""
        self._earlier.append(execution_id)

    def owns(self, message: KernelMessage) -> bool:
        """Tells whether a published message is text of an earlier cell."""
        return message.kind == "stream" and message.parent in self._earlier

    def keep(self, message: KernelMessage) -> None:
        """Keeps the text of a message for the next cell."""
        name = "stderr" if message.text("name") == "stderr" else "stdout"
        self._kept.setdefault(name, BoundedText(_LIMIT)).add(message.text("text"))

    def take(self) -> list[tuple[str, str]]:
        """Returns the kept texts, each with the name of its stream, and forgets them."""
        texts = [(name, kept.text) for name, kept in self._kept.items() if kept]
        self._kept.clear()
        return texts

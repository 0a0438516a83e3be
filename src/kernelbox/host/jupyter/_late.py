"""What threads of earlier cells print: for the cell that runs by then, or kept for the next."""

from __future__ import annotations

from collections import deque

from kernelbox.wire._bounded import BoundedText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.jupyter._message import KernelMessage

# Of this many cells, this many characters of each stream.
_EARLIER_CELLS = 64
_LIMIT = 1_000_000


class LateOutput:
    """Knows the earlier cells of a client, and keeps what they print while none of its cells runs."""

    def __init__(self) -> None:
        self._earlier: deque[str] = deque(maxlen=_EARLIER_CELLS)
        self._kept: dict[str, BoundedText] = {}

    def __repr__(self) -> str:
        return f"<LateOutput of {len(self._earlier)} cells>"

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

"""What threads and tasks write, show and send between cells: kept in order, and within bounds, for the next reader."""

from __future__ import annotations

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._messages import Comm, Display, Message, Output
from kernelbox.wire._output_limit import BoundedText

keep_builtins(globals())

# Characters of text that are kept; after so many pieces (a change of stream, a display) each stream is one piece.
_LIMIT = 1_000_000
_PIECES = 100

# Bytes of pictures and buffers that are kept; a message that does not fit is dropped, and a notice says so.
_BLOBS = 16 * 1024 * 1024


class OutputBetweenCells:
    """Collects output that belongs to no execution, until one takes it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drops everything."""
        self.has_any = False
        self._pieces: list[tuple[str, BoundedText] | Display | Comm] = []
        self._blobs = 0
        self._dropped = 0

    def add_text(self, name: str, text: str) -> None:
        """Takes text that was written to a stream."""
        self.has_any = True
        last = self._pieces[-1] if self._pieces else None
        texts = [piece for piece in self._pieces if isinstance(piece, tuple)]
        same = isinstance(last, tuple) and last[0] == name
        full = len(self._pieces) >= _PIECES and any(origin == name for origin, _ in texts)
        if not same and not full:
            room = _LIMIT - sum(len(kept.text) for _, kept in texts)
            texts.append((name, BoundedText(max(room, _LIMIT // _PIECES))))
            self._pieces.append(texts[-1])
        next(kept for origin, kept in reversed(texts) if origin == name).add(text)

    def add(self, message: Message) -> None:
        """Takes a display or a comm message. Other messages need an execution, and are dropped."""
        if isinstance(message, Display):
            size = sum(map(len, message.blobs.values()))
        elif isinstance(message, Comm):
            size = sum(map(len, message.buffers))
        else:
            return
        self.has_any = True
        if len(self._pieces) >= _PIECES or self._blobs + size > _BLOBS:
            self._dropped += 1
            return
        self._blobs += size
        self._pieces.append(message)

    def take(self, execution_id: str) -> list[Message]:
        """Returns all of it as messages of an execution, and starts over."""
        messages: list[Message] = []
        for piece in self._pieces:
            if isinstance(piece, tuple):
                messages.append(Output(execution_id, piece[0], piece[1].text))
            else:
                piece.id = execution_id
                messages.append(piece)
        if self._dropped:
            notice = f"[{self._dropped:,} displays between cells were dropped]\n"
            messages.append(Output(execution_id, "stderr", notice))
        self.forget()
        return messages

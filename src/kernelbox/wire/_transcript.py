"""What an execution has written and shown so far, in order and in bounded memory."""

from __future__ import annotations

import base64
from collections import deque

from kernelbox.wire._bounded import BoundedText
from kernelbox.wire._messages import Clear, Display, Output
from kernelbox.wire._results import OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A cell may show more than anybody reads: the first and the last this many outputs are kept.
_ITEMS = 500

# Binary displays kept in a result, as bytes; image files are written for all of them.
_BLOB_BYTES = 32 * 1024 * 1024


class Transcript:
    """Collects an execution's outputs; every view of them (`stdout`, `text`, `items`) is bounded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cut = False
        self._clear_next = False
        self.reset()

    def reset(self) -> None:
        """Forgets what was shown, as `clear_output` asks."""
        self.stdout = BoundedText(self._limit)
        self.stderr = BoundedText(self._limit)
        self._first: list[OutputItem] = []
        self._last: deque[OutputItem] = deque(maxlen=_ITEMS)
        self._dropped = 0
        self._stream: tuple[OutputItem, BoundedText] | None = None
        self._blob_room = _BLOB_BYTES
        self.return_value: str | None = None

    def add_output(self, message: Output) -> OutputItem:
        """Takes written text; returns it as an event."""
        self._before_output()
        (self.stdout if message.name == "stdout" else self.stderr).add(message.text)
        if self._stream is None or self._stream[0].name != message.name:
            self._end_stream()
            item = OutputItem("stream", name=message.name)
            self._stream = (item, BoundedText(self._limit))
            self._append(item)
        self._stream[1].add(message.text)
        return OutputItem("stream", text=message.text, name=message.name)

    def add_display(self, message: Display) -> OutputItem:
        """Takes a rich output; returns it as an event."""
        self._before_output()
        self._end_stream()
        self._cut |= message.cut
        item = OutputItem(
            message.kind,  # type: ignore[arg-type]  # the guest's closed set
            text=_as_text(message.data.get("text/plain")),
            data={**message.data, **self._encode_blobs(message.blobs)},
            metadata=message.metadata,
            display_id=message.display_id or None,
        )
        if message.kind == "update_display_data" and self._update(item):
            return item
        if message.kind == "execute_result":
            self.return_value = item.text
        self._append(item)
        return item

    def add_error(self, text: str) -> None:
        """Takes the traceback that ends the execution."""
        self._end_stream()
        self._append(OutputItem("error", text=text))

    def clear(self, message: Clear) -> OutputItem:
        if message.wait:
            self._clear_next = True
        else:
            self.reset()
        return OutputItem("clear_output", metadata={"wait": message.wait})

    @property
    def text(self) -> str:
        """Everything a model should read, in order; what a display shows begins and ends a line."""
        whole = BoundedText(self._limit)
        at_line_start = True
        for item in self.items:
            if not item.text:
                continue
            if item.kind == "stream":
                whole.add(item.text)
                at_line_start = item.text.endswith("\n")
            else:
                whole.add(("" if at_line_start else "\n") + item.text.rstrip("\n") + "\n")
                at_line_start = True
        self._cut |= bool(whole.cut)
        return whole.text.rstrip()

    @property
    def items(self) -> list[OutputItem]:
        self._end_stream()
        if not self._dropped:
            return [*self._first, *self._last]
        notice = OutputItem("stream", text=f"[… {self._dropped:,} outputs cut …]\n", name="stderr")
        return [*self._first, notice, *self._last]

    @property
    def truncated(self) -> bool:
        return bool(self._cut or self._dropped or self.stdout.cut or self.stderr.cut)

    def _before_output(self) -> None:
        if self._clear_next:
            self._clear_next = False
            self.reset()

    def _end_stream(self) -> None:
        if self._stream is not None:
            item, collected = self._stream
            item.text = collected.text
            self._stream = None

    def _append(self, item: OutputItem) -> None:
        if len(self._first) < _ITEMS:
            self._first.append(item)
            return
        if len(self._last) == _ITEMS:
            self._dropped += 1
        self._last.append(item)

    def _update(self, update: OutputItem) -> bool:
        """Changes the displays that carry the update's id, as a notebook does in place."""
        shown = [item for item in (*self._first, *self._last) if item.display_id == update.display_id]
        for item in shown:
            item.data, item.metadata, item.text = update.data, update.metadata, update.text
        return bool(shown) and update.display_id is not None

    def _encode_blobs(self, blobs: dict[str, bytes]) -> dict[str, Any]:
        encoded = {}
        for mime, blob in blobs.items():
            if len(blob) > self._blob_room:
                self._cut = True
                continue
            self._blob_room -= len(blob)
            encoded[mime] = base64.b64encode(blob).decode("ascii")
        return encoded


def _as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None

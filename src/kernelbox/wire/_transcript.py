"""What an execution has written and shown so far, in order and in bounded memory."""

from __future__ import annotations

import base64
from collections import deque

from kernelbox.wire._bounded import BoundedText, bound
from kernelbox.wire._messages import Clear, Display, Output
from kernelbox.wire._results import OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A cell may show more than anybody reads: the first and the last this many outputs are kept.
_ITEMS = 500

# Characters of pictures and markup kept in a result: one picture of the largest size, in base64. Events carry all.
_DATA_ROOM = 48 * 1024 * 1024


class Transcript:
    """Collects an execution's outputs; every view of them (`stdout`, `text`, `items`) is bounded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._clear_next = False
        self.reset()

    def reset(self) -> None:
        """Forgets what was shown, as `clear_output` asks."""
        self.stdout = BoundedText(self._limit)
        self.stderr = BoundedText(self._limit)
        self._reading = _Reading(self._limit)
        self._outdated = False
        self._first: list[OutputItem] = []
        self._last: deque[OutputItem] = deque()
        self._dropped = 0
        self._stream: tuple[OutputItem, BoundedText] | None = None
        self._room = _DATA_ROOM
        self._cut = False
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
        event = OutputItem("stream", text=message.text, name=message.name)
        self._reading.add(event)
        return event

    def add_display(self, message: Display) -> OutputItem:
        """Takes a rich output; returns it as an event, whole."""
        self._before_output()
        self._end_stream()
        self._cut |= message.cut
        event = OutputItem(
            message.kind,  # type: ignore[arg-type]  # a closed set, checked on arrival
            data={mime: writable(value) if isinstance(value, str) else value for mime, value in message.data.items()},
            metadata=message.metadata,
            display_id=message.display_id or None,
        )
        for mime, blob in message.blobs.items():
            event.data[mime] = base64.b64encode(blob).decode("ascii")
        if isinstance(text := event.data.get("text/plain"), str):
            event.text = event.data["text/plain"] = bound(text, self._limit)
            self._cut |= event.text is not text
        if message.kind == "execute_result":
            self.return_value = event.text
        if message.kind != "update_display_data" or not self._update(event):
            self._append(OutputItem(event.kind, event.text, None, event.data, event.metadata, event.display_id))
            self._reading.add(event)
        return event

    def add_error(self, text: str, *, by_cell: bool) -> None:
        """Takes what ends the execution: the traceback of the cell, or why there is none."""
        if by_cell:
            self._before_output()
        self._end_stream()
        item = OutputItem("error", text=text)
        self._append(item)
        self._reading.add(item)

    def clear(self, message: Clear) -> OutputItem:
        if message.wait:
            self._clear_next = True
        else:
            self.reset()
        return OutputItem("clear_output", metadata={"wait": message.wait})

    @property
    def text(self) -> str:
        """Everything a model should read, in order; what a display shows begins and ends a line."""
        return self._read().text.rstrip()

    @property
    def items(self) -> list[OutputItem]:
        if self._stream is not None:
            self._stream[0].text = self._stream[1].text
        if not self._dropped:
            return [*self._first, *self._last]
        notice = OutputItem("stream", text=f"\n[… {self._dropped:,} outputs cut …]\n", name="stderr")
        return [*self._first, notice, *self._last]

    @property
    def truncated(self) -> bool:
        return bool(self._cut or self._dropped or self.stdout.cut or self.stderr.cut or self._read().cut)

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
        else:
            if len(self._last) == _ITEMS:
                self._room += _weight(self._last.popleft().data)
                self._dropped += 1
            self._last.append(item)
        item.data = self._fit(item.data)

    def _update(self, update: OutputItem) -> bool:
        """Changes the displays that carry the update's id, as a notebook does in place."""
        if update.display_id is None:
            return False
        shown = [item for item in (*self._first, *self._last) if item.display_id == update.display_id]
        for item in shown:
            self._room += _weight(item.data)
            item.data, item.metadata, item.text = self._fit(update.data), update.metadata, update.text
        self._outdated |= bool(shown)
        return bool(shown)

    def _fit(self, data: dict[str, Any]) -> dict[str, Any]:
        """Returns what there is room for of a display, and takes that room."""
        kept = {}
        for mime, value in data.items():
            weight = _weight({mime: value})
            if weight > self._room:
                self._cut = True
            else:
                self._room -= weight
                kept[mime] = value
        return kept

    def _read(self) -> BoundedText:
        if self._outdated:
            self._outdated = False
            self._reading = _Reading(self._limit)
            for item in self.items:
                self._reading.add(item)
        return self._reading.text


class _Reading:
    """Outputs as text, one after the other."""

    def __init__(self, limit: int) -> None:
        self.text = BoundedText(limit)
        self._in_line = False

    def add(self, item: OutputItem) -> None:
        if not item.text:
            return
        if item.kind == "stream":
            self.text.add(item.text)
            self._in_line = not item.text.endswith("\n")
        else:
            self.text.add(("\n" if self._in_line else "") + item.text.rstrip("\n") + "\n")
            self._in_line = False


def writable(text: str) -> str:
    """Returns text that every file and socket takes: lone surrogates as the escapes that Python shows."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _weight(data: dict[str, Any]) -> int:
    # Plain text is bounded by itself, and other JSON by the guest.
    return sum(len(value) for mime, value in data.items() if isinstance(value, str) and mime != "text/plain")

"""What an execution has written and shown so far, in order and in bounded memory."""

from __future__ import annotations

import binascii

from kernelbox.wire._framing import to_json
from kernelbox.wire._json import load
from kernelbox.wire._messages import Clear, Display, Output
from kernelbox.wire._output_limit import BoundedText, bound, value_limit
from kernelbox.wire._results import IMAGE_TYPES, ErrorInfo, OutputItem, Picture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable
    from typing import Any
else:
    from _collections import deque  # `collections` loads more, which every call of the command line would pay

# A cell may show more than a person or a model reads: the first and the last this many outputs are kept.
_ITEMS = 500

# Bytes of a result's outputs: text, markup, pictures in base64, metadata and display ids together. The largest picture
# that a guest sends takes two thirds of it. Events carry everything, but are not kept.
ROOM = 64 * 1024 * 1024

# The bytes of an empty output: the object, two dictionaries, its place in a list and a text of one character.
_ITEM_WEIGHT = 640

# Characters that are joined within a millisecond or two.
_LONG = 4_000_000

# A character takes four bytes at most.
_CHARACTER_WEIGHT = 4


# Digits of a whole number that needs no reader of JSON.
_SHORT = 16


class Transcript:
    """Collects an execution's outputs; every view of them (`stdout`, `text`, `items`) is bounded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._clear_next = False
        self.reset()

    def reset(self) -> None:
        """Forgets what was shown, as `clear_output` asks."""
        self._reading = _Reading(self._limit)
        self.stdout = BoundedText(self._limit)
        self.stderr = BoundedText(self._limit)
        self._trimmed = ("", "")
        self._outdated = False
        self._first: list[_Kept] = []
        self._last: deque[_Kept] = deque()
        self._dropped = 0
        self._stream: tuple[_Kept, BoundedText] | None = None
        self._room = ROOM - 2 * _ITEMS * _ITEM_WEIGHT
        self._cut = False
        self.return_value: str | None = None
        self.value: Any = None

    def add_output(self, message: Output) -> OutputItem:
        """Takes written text; returns it as an event."""
        self._before_output()
        (self.stdout if message.name == "stdout" else self.stderr).add(message.text)
        if self._stream is None or self._stream[0].item.name != message.name:
            self._end_stream()
            kept = self._append(OutputItem("stream", name=message.name))
            self._stream = (kept, BoundedText(self._text_limit()))
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
            event.data[mime] = binascii.b2a_base64(blob, newline=False).decode("ascii")
        text = event.data.get("text/plain")
        if isinstance(text, str):
            event.text = event.data["text/plain"] = bound(text, self._limit)
            self._cut |= event.text is not text
        if message.kind == "execute_result":
            self.return_value = bound(text, value_limit(self._limit)) if isinstance(text, str) else None
            value = message.value  # a number, most often
            self.value = int(value) if value.isdigit() and len(value) < _SHORT else _read_value(value)
        elif message.kind == "error":
            name, said = (writable(str(message.metadata.get(part, ""))) for part in ("ename", "evalue"))
            lines = (event.text or "").rstrip("\n").split("\n")
            event = self._error_item(ErrorInfo(name, bound(said, self._limit), lines))
        if event.data and not event.data.keys().isdisjoint(IMAGE_TYPES):
            event.picture = Picture()
        if message.kind != "update_display_data" or not self._update(event):
            self._append(event)
            self._reading.add(event)
        return event

    def add_error(self, error: ErrorInfo, *, by_cell: bool) -> None:
        """Takes the cell's error, or the reason why it did not finish."""
        if by_cell:
            self._before_output()
        self._end_stream()
        item = self._error_item(error)
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
        whole = self._read().text
        if self._trimmed[0] is not whole:
            self._trimmed = (whole, whole.rstrip())
        return self._trimmed[1]

    @property
    def is_long(self) -> bool:
        """Whether it takes long to join the texts."""
        return self.stdout.held + self.stderr.held > _LONG

    def put_together(self) -> None:
        """Joins the texts, so that reading them is quick later."""
        for collected in (self.stdout, self.stderr, *(() if self._stream is None else self._stream[1:])):
            assert collected.text is not None
        assert self.text is not None

    @property
    def items(self) -> list[OutputItem]:
        if self._stream is not None:
            self._stream[0].item.text = self._stream[1].text
        first, last = ([kept.item for kept in part] for part in (self._first, self._last))
        if not self._dropped:
            return [*first, *last]
        notice = OutputItem("stream", text=f"\n[… {self._dropped:,} outputs cut …]\n", name="stderr")
        return [*first, notice, *last]

    @property
    def truncated(self) -> bool:
        reading = self._read()
        cut = self._cut or self._dropped or (self._stream is not None and self._stream[1].cut)
        return bool(cut or self.stdout.cut or self.stderr.cut or reading.cut)

    def _before_output(self) -> None:
        if self._clear_next:
            self._clear_next = False
            self.reset()

    def _end_stream(self) -> None:
        if self._stream is not None:
            kept, collected = self._stream
            self._stream = None
            self._cut |= bool(collected.cut)
            kept.item.text = collected.text
            if self._limit > 0:  # otherwise the caller wants all text
                self._charge(kept, weigh(kept.item.text))

    def _error_item(self, error: ErrorInfo) -> OutputItem:
        return OutputItem("error", text=bound(f"{error.ename}: {error.evalue}", self._limit), data=error.to_dict())

    def _text_limit(self) -> int:
        """Returns how many characters of a stream fit; 0 means all."""
        return min(self._limit, max(1, self._room // _CHARACTER_WEIGHT)) if self._limit > 0 else 0

    def _append(self, item: OutputItem) -> _Kept:
        kept = _Kept(OutputItem(item.kind, None, item.name, {}, {}, None))
        if len(self._first) < _ITEMS:
            self._first.append(kept)
        else:
            if len(self._last) == _ITEMS:
                self._room += self._last.popleft().weight
                self._dropped += 1
            self._last.append(kept)
        self._fill(kept, item, _weigh_parts(item))
        return kept

    def _update(self, update: OutputItem) -> bool:
        """Changes the displays that carry the update's id, as a notebook does in place."""
        if update.display_id is None:
            return False
        shown = [kept for kept in (*self._first, *self._last) if kept.item.display_id == update.display_id]
        parts = _weigh_parts(update)
        for kept in shown:
            self._room += kept.weight
            kept.weight = 0
            self._fill(kept, update, parts)
        self._outdated |= bool(shown)
        return bool(shown)

    def _fill(self, kept: _Kept, shown: OutputItem, parts: dict[str, int]) -> None:
        """Copies what fits of a shown output to a kept one, the readable part first."""
        item = kept.item
        item.text = item.display_id = None
        item.picture = shown.picture
        if shown.text is not None and self._fits(kept, parts[_TEXT]):
            item.text = shown.text
        if shown.display_id and self._fits(kept, parts[_DISPLAY_ID]):
            item.display_id = shown.display_id
        item.data = {mime: value for mime, value in shown.data.items() if self._fits(kept, parts[mime])}
        item.metadata = shown.metadata if shown.metadata and self._fits(kept, parts[_METADATA]) else {}

    def _fits(self, kept: _Kept, weight: int) -> bool:
        """Reserves room for a part of an output; False if there is not enough."""
        if weight > self._room:
            self._cut = True
            return False
        self._charge(kept, weight)
        return True

    def _charge(self, kept: _Kept, weight: int) -> None:
        self._room -= weight
        kept.weight += weight

    def _read(self) -> BoundedText:
        if self._outdated:
            self._outdated = False
            self._reading = _Reading(self._limit)
            for item in self.items:
                self._reading.add(item)
        return self._reading.text


# The parts of an output other than its MIME types; the leading space tells them apart.
_TEXT, _DISPLAY_ID, _METADATA = " text", " display id", " metadata"


def _weigh_parts(shown: OutputItem) -> dict[str, int]:
    """Returns the size of each part of an output, so that an update of a thousand displays is weighed once."""
    parts = {mime: weigh(mime) + weigh(value) for mime, value in shown.data.items()}
    parts[_TEXT] = 0 if shown.text is None else weigh(shown.text)
    parts[_DISPLAY_ID] = weigh(shown.display_id) if shown.display_id else 0
    parts[_METADATA] = weigh(shown.metadata) if shown.metadata else 0
    return parts


class _Kept:
    """An output of the future result, and the bytes it was counted with."""

    __slots__ = ("item", "weight")

    def __init__(self, item: OutputItem) -> None:
        self.item = item
        self.weight = 0


class _Reading:
    """Outputs as text, one after the other."""

    def __init__(self, limit: int) -> None:
        self.text = BoundedText(limit)
        self._in_line = False

    def add(self, item: OutputItem) -> None:
        text = item.readable
        if not text:
            return
        if item.kind == "stream":
            self.text.add_bounded(text)
            self._in_line = not text.endswith("\n")
        else:
            self.text.add("\n" if self._in_line else "")
            self.text.add_bounded(text.rstrip("\n"))
            self.text.add("\n")
            self._in_line = False


def read_outputs(items: Iterable[OutputItem], limit: int) -> str:
    """Returns outputs as one text, in order and bounded."""
    reading = _Reading(limit)
    for item in items:
        reading.add(item)
    return reading.text.text.rstrip()


def _read_value(text: str) -> Any:
    """Returns the value of a cell; None if there is none, or a cell has forged what is not JSON."""
    if not text:
        return None
    try:
        value = load(text.encode())
        if "\\u" in text:
            to_json(value).encode()  # halves of characters can be spelled so
    except ValueError:
        return None
    return value


def writable(text: str) -> str:
    """Returns text that every file and socket accepts: lone surrogates become the escapes that Python shows."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def weigh(value: object) -> int:
    """Returns the bytes that a JSON value takes, without recursion, because displays may nest deeply."""
    if type(value) is str:
        return value.__sizeof__()
    total, rest = 0, [value]
    while rest:
        part = rest.pop()
        total += part.__sizeof__() + _COLLECTED
        if isinstance(part, dict):
            rest += part
            rest += part.values()
        elif isinstance(part, list):
            rest += part
    return total


# What sys.getsizeof adds for the garbage collector, which is more than texts and numbers take.
_COLLECTED = 16

"""Messages to bytes and back.

A frame is two big-endian 32-bit lengths, a JSON array `[kind, field, …]` and raw bytes:

    +--------+--------+----------------------+------------------+
    | header | binary | JSON of `header` len | `binary` bytes   |
    +--------+--------+----------------------+------------------+

Text written by cells and binary displays travel in the raw part, so that neither is escaped. JSON needs only a small C
module of the standard library; msgspec takes 35 ms to import, which every command line call would pay.
"""

from __future__ import annotations

import struct
from _json import encode_basestring, make_encoder

from kernelbox.wire import _messages as m
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._json import Converter, load, refuse, type_name
from kernelbox.wire._schema import SCHEMA, find_fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

keep_builtins(globals())

_LENGTHS = struct.Struct("!II")

# A frame is at most this long: more than one display may hold (the guest cuts it earlier), and little enough that a
# reader does not swap.
MAX_FRAME = 64 * 1024 * 1024

# Characters of a message's JSON. Reading it takes up to four bytes for each, because one emoji makes all characters
# that wide. An escaped error with its traceback always fits, and so does the longest value that is text.
MAX_TEXT = 36_000_000

# Bytes of one Output: a kernel sends what it reads from a pipe in much smaller pieces.
_MAX_OUTPUT = 8 * 1024 * 1024

# A frame of more bytes than this is removed from the buffer before it is read, to save a copy.
_LARGE = 1024 * 1024

_CONTINUATIONS = bytes(range(0x80, 0xC0))


class ProtocolError(ConnectionError):
    """Raised when the bytes received are not messages; the connection can no longer be used."""


def encode(message: m.Message) -> bytes:
    """Returns the frame for a message; raises TypeError and ValueError for values that cannot be sent."""
    kind = type(message)
    values = [getattr(message, name) for name in message.__slots__]
    if (index := _ANY_VALUE.get(kind)) is not None:
        values[index] = Converter().convert(values[index])
    if kind in _FROM_CELLS and (complaint := find_fault(kind.__name__, values)):
        raise ValueError(complaint)
    binary = b""
    if kind is m.Output:
        binary = values.pop().encode("utf-8", "backslashreplace")
    elif kind in _WITH_PAYLOAD:
        binary = values.pop()
    elif type(message) is m.Display and message.blobs:
        values[-1] = {mime: len(blob) for mime, blob in message.blobs.items()}
        binary = b"".join(message.blobs.values())
    elif kind in _WITH_BUFFERS and values[-1]:
        binary = b"".join(values[-1])
        values[-1] = [len(buffer) for buffer in values[-1]]
    text = to_json([kind.__name__, *values])
    if len(text) > MAX_TEXT:
        raise ProtocolError(f"a {kind.__name__} of {len(text):,} characters does not fit a frame ({MAX_TEXT:,})")
    header = text.encode("utf-8", "surrogatepass")
    if kind not in _UNCHANGED and b"\xed" in header and any(half in header for half in _HALVES):
        header = _escape_halves(text).encode("utf-8", "surrogatepass")
    if len(header) + len(binary) > MAX_FRAME:
        size = len(header) + len(binary)
        raise ProtocolError(f"a {kind.__name__} of {size:,} bytes does not fit a frame ({MAX_FRAME:,})")
    return _LENGTHS.pack(len(header), len(binary)) + header + binary


# Messages with a field that takes any value, from user code or from a tool, and the index of that field.
_ANY_VALUE: dict[type[m.Message], int] = {m.Ask: 4, m.Comm: 2, m.Payload: 1, m.Query: 2, m.Reply: 1}

# Messages whose last field is the raw part.
_WITH_PAYLOAD = frozenset({m.Answer, m.Query, m.Reply})

# Messages whose last field is a list of raw parts.
_WITH_BUFFERS = frozenset({m.Execute, m.Comm})

# Messages whose fields a cell may have chosen. They are checked before they are sent, so that the cell gets the error.
# `build_display` has already checked a Display.
_FROM_CELLS = frozenset({m.Ask, m.Comm, m.Payload, m.Reply})

# Lone surrogates, which UTF-8 cannot encode, arrive unchanged from the host: paths and code may contain them. In what
# guests and templates send they become the escapes that Python shows, so that it can be written to any file.
# No host reads what a keeper and copies of its kernels say to each other.
_UNCHANGED = frozenset(
    {
        *(m.Execute, m.Interrupt, m.Watch, m.Answer, m.Query, m.Spawn),
        *(m.Copy, m.Foster, m.Release, m.Measure, m.Measured, m.Adopt, m.Adopted, m.Thaw),
    }
)

# How the encoding of a surrogate begins: U+D800 to U+DFFF.
_HALVES = tuple(bytes((0xED, second)) for second in range(0xA0, 0xC0))


def _escape_halves(text: str) -> str:
    """Returns JSON whose lone surrogates are visible escapes; two backslashes in JSON are one.

    This does not use a codec's error handler, because a cell can replace those.
    """
    return "".join([f"\\\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text])


def to_json(value: Any) -> str:
    """Returns plain values as JSON; raises ValueError for nan and infinity. Like `encode_json`, without its choices."""
    return "".join(make_encoder({}, refuse, encode_basestring, None, ":", ",", False, False, False)(value, 0))


class Decoder:
    """Turns a stream of bytes, which may arrive in any pieces, into messages."""

    def __init__(self) -> None:
        self.pending = 0
        """Bytes received of a message that is not complete yet."""
        self._buffer = bytearray()
        self._failure = ""

    def feed(self, data: bytes) -> list[m.Message]:
        """Takes the bytes that arrived and returns the messages they complete."""
        if self._failure:
            raise ProtocolError(self._failure)  # the first bad bytes end the stream
        self._buffer += data
        try:
            frames, used = self._take()
            messages = _decode(frames)
            del self._buffer[:used]  # not before: if the caller's stack was full, the same bytes are read again
            return messages
        except ProtocolError as exc:
            self._failure = str(exc)
            self._buffer.clear()
            raise
        finally:
            self.pending = len(self._buffer)

    def _take(self) -> tuple[list[tuple[bytearray, bytearray]], int]:
        """Returns the headers and raw parts of the frames that are complete, and how much of the buffer they are."""
        frames: list[tuple[bytearray, bytearray]] = []
        start = 0
        while len(self._buffer) - start >= 8:
            header, binary = _LENGTHS.unpack_from(self._buffer, start)
            if header + binary > MAX_FRAME:
                raise ProtocolError(f"a frame announces {header + binary:,} bytes; the limit is {MAX_FRAME:,}")
            split, end = start + 8 + header, start + 8 + header + binary
            if len(self._buffer) < end:
                break
            parts = self._buffer[start + 8 : split], self._buffer[split:end]
            start = end
            if start > _LARGE:
                del self._buffer[:start]  # now, so that a large frame is not in memory twice while it is read
                start = 0
            frames.append(parts)
        return frames, start


def _decode(frames: list[tuple[bytearray, bytearray]]) -> list[m.Message]:
    """Returns the messages in some frames; raises if any frame is not a message."""
    arrays: list[Any] = []
    fields: list[tuple[str, type[m.Message], list[Any]]] = []
    messages: list[m.Message] = []
    header = bytearray()
    try:
        for header, _ in frames:
            if len(header) > MAX_TEXT and len(header.translate(None, _CONTINUATIONS)) > MAX_TEXT:
                raise ValueError("too much text")
            arrays.append(load(header))
        for (header, binary), array in zip(frames, arrays, strict=True):  # noqa: B007  # the error names the header
            fields.append(_fields(array, binary))
        for (header, _), array, (kind, cls, values) in zip(frames, arrays, fields, strict=True):
            if complaint := find_fault(kind, values):
                raise ProtocolError(complaint)
            # A surrogate is written as one of these escapes or has this byte, but whole characters may have it too.
            if cls not in _UNCHANGED and (b"\\ud" in header or b"\\uD" in header or b"\xed" in header):
                to_json(array).encode()
            messages.append(cls(*values))
    except (ValueError, TypeError, KeyError) as exc:
        raise ProtocolError(f"not a message: {bytes(header[:80])!r}") from exc
    return messages


def _fields(array: Any, binary: bytearray) -> tuple[str, type[m.Message], list[Any]]:
    """Returns the name and the class of the message in an array, and its field values including the raw part."""
    if not isinstance(array, list):
        raise TypeError(f"an array was expected, not {type(array).__name__}")
    kind, *values = array
    cls, checks = SCHEMA[kind]
    if cls is m.Output:
        if len(binary) > _MAX_OUTPUT:
            raise ProtocolError(f"an Output has {len(binary):,} bytes; the limit is {_MAX_OUTPUT:,}")
        values.append(binary.decode("utf-8", "replace"))
    elif cls in _WITH_PAYLOAD:
        values.append(bytes(binary))
    elif cls is m.Display and values:
        if values[-1] != {} or binary:
            parts = _split("Display.blobs", values[-1], dict, binary)
            values[-1] = dict(zip(values[-1], parts, strict=True))
    elif cls in _WITH_BUFFERS and values:
        values[-1] = _split(f"{kind}.buffers", values[-1], list, binary)
    elif binary:
        raise ProtocolError(f"{kind} has no raw bytes, {len(binary)} came")
    if len(values) != len(checks):
        raise ProtocolError(f"{kind} has {len(values)} fields, not {len(checks)}")
    return kind, cls, values


def _split(field: str, given: Any, expected: type[dict[str, Any]] | type[list[Any]], binary: bytearray) -> list[bytes]:
    """Returns the parts of the raw bytes that have these sizes, which are a list or the values of a dict."""
    if not isinstance(given, expected):
        raise ProtocolError(f"{field} cannot be a {type_name(given)}")
    sizes = list(given.values()) if isinstance(given, dict) else given
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ProtocolError(f"{field} has something that is not a number of bytes")
    if sum(sizes) != len(binary):
        raise ProtocolError(f"{field} does not name the {len(binary)} bytes that came")
    parts, start = [], 0
    for size in sizes:
        parts.append(bytes(memoryview(binary)[start : start + size]))
        start += size
    return parts

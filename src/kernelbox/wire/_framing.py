"""Messages to bytes and back.

A frame is two big-endian 32-bit lengths, a JSON array `[kind, field, …]` and raw bytes:

    +--------+--------+----------------------+------------------+
    | header | binary | JSON of `header` len | `binary` bytes   |
    +--------+--------+----------------------+------------------+

Text written by cells and binary displays travel in the raw part, so that neither is escaped. The standard
library's json is used because it loads in 2 ms; msgspec takes 35, which the command line would pay on every call.
"""

from __future__ import annotations

import base64
import json
import struct

from kernelbox.wire import _messages as m

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LENGTHS = struct.Struct("!II")

# A frame is at most this long: above what a cell may show in one display (the guest cuts before), below what would
# make a reader swap.
MAX_FRAME = 64 * 1024 * 1024


class ProtocolError(ConnectionError):
    """Raised when the bytes received are not messages; the connection is of no further use."""


def encode(message: m.Message) -> bytes:
    """Returns the frame for a message."""
    values = [getattr(message, name) for name in message.__slots__]
    binary = b""
    if type(message) is m.Output:
        binary = values.pop().encode("utf-8", "backslashreplace")
    elif type(message) is m.Display and message.blobs:
        values[-1] = {mime: len(blob) for mime, blob in message.blobs.items()}
        binary = b"".join(message.blobs.values())
    header = _to_json([type(message).__name__, *values]).encode()
    if len(header) + len(binary) > MAX_FRAME:
        size = len(header) + len(binary)
        raise ProtocolError(f"a {type(message).__name__} of {size:,} bytes does not fit a frame ({MAX_FRAME:,})")
    return _LENGTHS.pack(len(header), len(binary)) + header + binary


def _as_json(value: Any) -> Any:
    """Returns what Jupyter sends for a value that JSON has no form for: dates, bytes, sets, numbers of numpy."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if hasattr(value, "isoformat"):
        return value.isoformat()
    for method, form in (("__iter__", list), ("__index__", int), ("__float__", float)):
        if hasattr(value, method):
            return form(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


# What json's encoder and decoder call themselves. Their methods are not used: a cell can replace them, and would so
# change what its client is asked, and what it has answered.
_make_encoder = json.encoder.c_make_encoder  # type: ignore[attr-defined]  # typeshed has only what is documented
_quote = json.encoder.encode_basestring_ascii
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # the same


def _to_json(value: Any) -> str:
    return "".join(_make_encoder({}, _as_json, _quote, None, ":", ",", False, False, True)(value, 0))


def _from_json(text: str) -> Any:
    try:
        value, end = _scan(text, 0)
    except StopIteration as exc:
        raise ValueError("no JSON") from exc
    if end != len(text):
        raise ValueError("more than one value")
    return value


class Decoder:
    """Turns a stream of bytes into messages, whatever pieces it arrives in."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._failure = ""

    def feed(self, data: bytes) -> list[m.Message]:
        """Takes the bytes that arrived and returns the messages they complete."""
        if self._failure:
            raise ProtocolError(self._failure)  # nothing is read behind bytes that were not a message
        self._buffer += data
        try:
            return self._take()
        except ProtocolError as exc:
            self._failure = str(exc)
            self._buffer.clear()
            raise

    @property
    def pending(self) -> int:
        """Bytes received of a message that is not complete yet."""
        return len(self._buffer)

    def _take(self) -> list[m.Message]:
        buffer = self._buffer
        messages: list[m.Message] = []
        start = 0
        while len(buffer) - start >= 8:
            header, binary = _LENGTHS.unpack_from(buffer, start)
            if header + binary > MAX_FRAME:
                raise ProtocolError(f"a frame announces {header + binary:,} bytes; the limit is {MAX_FRAME:,}")
            end = start + 8 + header + binary
            if len(buffer) < end:
                break
            split = start + 8 + header
            messages.append(_decode(buffer[start + 8 : split], buffer[split:end]))
            start = end
        if start:
            del buffer[:start]
        return messages


def _decode(header: bytearray, binary: bytearray) -> m.Message:
    try:
        return _build(_from_json(header.decode()), binary)
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ProtocolError(f"not a message: {bytes(header[:80])!r}") from exc


def _build(array: Any, binary: bytearray) -> m.Message:
    if not isinstance(array, list):
        raise TypeError(f"an array was expected, not {type(array).__name__}")
    kind, *values = array
    cls, checks = _SCHEMA[kind]
    if cls is m.Output:
        values.append(binary.decode("utf-8", "replace"))
    elif cls is m.Display and values:
        values[-1] = _unpack_blobs(values[-1], binary)
    elif binary:
        raise ProtocolError(f"{kind} has no raw bytes, {len(binary)} came")
    if len(values) != len(checks):
        raise ProtocolError(f"{kind} has {len(values)} fields, not {len(checks)}")
    for value, (name, check) in zip(values, checks, strict=True):
        if not check(value):
            raise ProtocolError(f"{kind}.{name} cannot be {value!r:.80}")
    return cls(*values)


def _unpack_blobs(sizes: Any, binary: bytearray) -> dict[str, bytes]:
    if not isinstance(sizes, dict) or not all(type(size) is int and size >= 0 for size in sizes.values()):
        raise ProtocolError(f"Display.blobs cannot be {sizes!r:.80}")
    if sum(sizes.values()) != len(binary):
        raise ProtocolError(f"Display.blobs does not name the {len(binary)} bytes that came")
    blobs, start = {}, 0
    for mime, size in sizes.items():
        blobs[mime] = bytes(binary[start : start + size])
        start += size
    return blobs


def _is_map_of(check: Any) -> Any:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_list_of(check: Any) -> Any:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_str(value: object) -> bool:
    return type(value) is str


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_id(value: object) -> bool:
    """Tells whether the state file, which says what runs, has room for an execution's id."""
    return type(value) is str and 0 < len(value) <= 32 and value.isascii() and "\0" not in value


def _is_one_of(*words: str) -> Any:
    return lambda value: type(value) is str and value in words


# How a field's annotation is checked on arrival: kernels run untrusted code, and it can write to the socket.
_CHECKS: dict[str, Any] = {
    "str": _is_str,
    "Language": _is_one_of("python", "bash"),
    "int": _is_int,
    "bool": lambda value: type(value) is bool,
    "float": lambda value: type(value) in (int, float),
    "int | None": lambda value: value is None or _is_int(value),
    "list[str]": _is_list_of(_is_str),
    "dict[str, str]": _is_map_of(_is_str),
    "dict[str, bytes]": _is_map_of(lambda value: type(value) is bytes),
    "dict[str, Any]": lambda value: isinstance(value, dict),
    "dict[str, list[str]] | None": lambda value: value is None or _is_map_of(_is_list_of(_is_str))(value),
    "Any": lambda value: True,
}

# Fields that take less than their annotation says.
_NARROWER = {
    "Execute.id": _is_id,
    "Output.name": _is_one_of("stdout", "stderr"),
    "Display.kind": _is_one_of("display_data", "execute_result", "update_display_data", "error"),
    "Done.status": _is_one_of("ok", "error", "aborted"),
}

_SCHEMA = {
    cls.__name__: (
        cls,
        [(name, _NARROWER.get(f"{cls.__name__}.{name}", _CHECKS[hint])) for name, hint in cls.__annotations__.items()],
    )
    for cls in vars(m).values()
    if isinstance(cls, type) and issubclass(cls, m.Message) and cls is not m.Message
}

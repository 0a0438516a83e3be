"""Long JSON, encoded and sent in pieces, so that other requests are served meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator

# Characters that are encoded, and bytes that are sent, in one step: a millisecond of work.
PIECE = 256 * 1024

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def dump_in_pieces(value: object) -> Iterator[bytes]:
    """Yields what `wire._json.dump` returns, in pieces."""
    waiting: list[str] = []
    size = 0
    for part in _parts(value):
        waiting.append(part)
        size += len(part)
        if size >= PIECE:
            yield _join(waiting)
            waiting, size = [], 0
    yield _join(waiting)


def cut(data: bytes | bytearray) -> Iterator[bytes]:
    """Yields the pieces of data that is to be sent."""
    view = memoryview(data)
    for start in range(0, len(data), PIECE):
        yield bytes(view[start : start + PIECE])


def _parts(value: object) -> Iterator[str]:
    if isinstance(value, str) and len(value) > PIECE:
        yield '"'
        for start in range(0, len(value), PIECE):
            yield _encoder.encode(value[start : start + PIECE])[1:-1]
        yield '"'
    elif isinstance(value, dict) and value:
        before = "{"
        for key, item in value.items():
            yield f"{before}{_encoder.encode({key: 0})[1:-2]}"  # the key as it is written, with its colon
            yield from _parts(item)
            before = ","
        yield "}"
    elif isinstance(value, list) and value:
        before = "["
        for item in value:
            yield before
            yield from _parts(item)
            before = ","
        yield "]"
    else:
        yield _encoder.encode(value)


def _join(parts: list[str]) -> bytes:
    return "".join(parts).encode("utf-8", "backslashreplace")

"""MIME bundles: what a rich output carries, bounded, as the message that crosses the wall."""

from __future__ import annotations

import base64

from kernelbox.wire._bounded import bound
from kernelbox.wire._messages import Display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Types that travel as bytes. Formatters give them raw or, when the type is already meant for JSON, in base64.
_BINARY = {"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "application/pdf"}

# Types whose text can be cut in the middle and still be read; others are shown whole or not at all.
_READABLE = {"text/plain", "text/markdown", "text/latex"}

# A readable type is cut at the caller's limit; HTML or JSON is a hundred times as verbose as what it says.
_MARKUP_FACTOR = 100

# Characters of one text, without a limit of the caller's: escaped as JSON it must fit a frame, beside others.
_LONGEST_TEXT = 4_000_000

# All pictures of one display together: half a frame.
_BLOB_ROOM = 32 * 1024 * 1024


def build_display(
    execution_id: str,
    kind: str,
    data: dict[str, Any],
    metadata: dict[str, Any] | None,
    *,
    text_limit: int,
    display_id: str = "",
    execution_count: int | None = None,
) -> Display:
    """Returns the message for a MIME bundle, bounded."""
    limit = min(text_limit, _LONGEST_TEXT) if text_limit > 0 else _LONGEST_TEXT
    texts: dict[str, Any] = {}
    blobs: dict[str, bytes] = {}
    cut, room = False, _BLOB_ROOM
    for mime, value in data.items():
        blob = _as_blob(mime, value)
        if blob is not None and len(blob) <= room:
            blobs[mime] = blob
            room -= len(blob)
        elif blob is not None:
            cut = True
        elif isinstance(value, str) and mime in _READABLE:
            texts[mime] = bound(value, limit)
            cut |= texts[mime] is not value
        elif len(value if isinstance(value, str) else repr(value)) > min(limit * _MARKUP_FACTOR, _LONGEST_TEXT):
            cut = True
        else:
            texts[mime] = value
    if cut and "text/plain" not in texts:
        texts["text/plain"] = f"[a display of {', '.join(data)} was too large to show]"
    return Display(execution_id, kind, texts, dict(metadata or {}), display_id, execution_count, cut, blobs)


def _as_blob(mime: str, value: object) -> bytes | None:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if mime in _BINARY and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=False)
        except ValueError:
            return None
    return None

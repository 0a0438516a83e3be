"""MIME bundles: the contents of a rich output, cut to their limits, as the message that crosses the wall."""

from __future__ import annotations

import base64

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._json import MAX_VALUES, Converter, TooLarge
from kernelbox.wire._messages import Display
from kernelbox.wire._output_limit import WHOLE_VALUE, bound
from kernelbox.wire._schema import MAX_DISPLAY_ID, MAX_MIME_TYPE, MAX_MIME_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

keep_builtins(globals())

# Types that travel as bytes. Formatters return them raw or, for JSON, in base64.
_BINARY = {"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "application/pdf"}

# Types whose text can be cut in the middle and still be read; others are shown whole or not at all.
_READABLE = {"text/plain", "text/markdown", "text/latex"}

_PLAIN = "text/plain"

# A readable type is cut at the caller's limit; HTML or JSON is a hundred times as verbose as what it says.
_MARKUP_FACTOR = 100

# Characters of one text or JSON value if the caller sets no limit, and of all of a display's texts and metadata.
# A character takes 7 bytes of JSON at most, so all of them fit a frame beside the pictures.
_LONGEST_TEXT = 4_000_000
_TEXT_ROOM = 4_500_000

# All pictures of one display together: half a frame.
_BLOB_ROOM = 32 * 1024 * 1024


def build_display(
    execution_id: str,
    kind: str,
    data: object,
    metadata: object = None,
    *,
    text_limit: int,
    display_id: object = "",
    execution_count: int | None = None,
    as_json: str = "",
) -> Display:
    """Returns the message for a MIME bundle, bounded.

    Raises TypeError and ValueError for anything that is not a bundle or has no form in JSON. Exceptions of user code
    that produces the parts pass through.
    """
    bundle, parts = _Bundle(text_limit), _check_dict(data)
    if dict.__contains__(parts, _PLAIN):
        bundle.add(_PLAIN, dict.__getitem__(parts, _PLAIN))  # before others take its room
    for mime, value in dict.items(parts):
        if bundle.full:
            bundle.cut = True
            break
        if mime != _PLAIN:
            bundle.add(mime, value)
    described = bundle.describe(_check_dict(metadata)) if metadata else {}
    bundle.note_what_is_missing()
    shown_as = _check_display_id(display_id)
    return Display(
        execution_id, kind, bundle.texts, described, shown_as, execution_count, bundle.cut, as_json, bundle.blobs
    )


class _Bundle:
    """Collects the parts of a display and leaves out those that have no room."""

    def __init__(self, text_limit: int) -> None:
        self.texts: dict[str, Any] = {}
        self.blobs: dict[str, bytes] = {}
        self.cut = False
        self._limit = min(text_limit, _LONGEST_TEXT) if text_limit > 0 else _LONGEST_TEXT
        # Plain text is a cell's value, or kept whole in the log and cut by the host.
        self._plain_limit = max(self._limit, WHOLE_VALUE)
        self._text_room = _TEXT_ROOM
        self._blob_room = _BLOB_ROOM
        self._value_room = MAX_VALUES
        self._missing: list[str] = []

    @property
    def full(self) -> bool:
        return len(self.texts) + len(self.blobs) == MAX_MIME_TYPES - 1  # the last place is for a note

    def add(self, mime: object, value: object) -> None:
        if not issubclass(type(mime), str):
            raise TypeError(f"a MIME type is a string, not {mime!r:.80}")
        mime = str.__str__(mime)  # a subclass would have the user's methods
        if len(mime) > MAX_MIME_TYPE:
            self.cut = True
        elif issubclass(type(value), bytes | bytearray | memoryview):
            self._add_bytes(mime, value)
        elif not issubclass(type(value), str):
            self._add_json(mime, value)
        elif mime in _BINARY and (blob := _decode(str.__str__(value))) is not None:
            self._add_bytes(mime, blob)
        else:
            self._add_text(mime, str.__str__(value))

    def describe(self, metadata: object) -> dict[str, Any]:
        """Returns the metadata, or none of it if it is too large."""
        try:
            described: dict[str, Any] = self._convert(metadata, self._text_room)
        except TooLarge:
            self.cut = True
            return {}
        return described

    def note_what_is_missing(self) -> None:
        if self._missing and _PLAIN not in self.texts:
            note = f"[a display of {', '.join(self._missing)} was too large to show]"
            self.texts[_PLAIN] = bound(note, self._limit)

    def _add_bytes(self, mime: str, value: Any) -> None:
        view = memoryview(value)
        if view.nbytes > self._blob_room:
            self._leave_out(mime)
        else:
            self._blob_room -= view.nbytes
            self.blobs[mime] = view.tobytes()

    def _add_text(self, mime: str, text: str) -> None:
        limit = self._plain_limit if mime == _PLAIN else self._limit
        if len(text) > limit and mime in _READABLE:
            text = bound(text, limit)
            self.cut = True
        if len(text) > min(limit * _MARKUP_FACTOR, _LONGEST_TEXT, self._text_room):
            self._leave_out(mime)
        else:
            self._text_room -= len(text)
            self.texts[mime] = text

    def _add_json(self, mime: str, value: object) -> None:
        try:
            room = min(self._limit * _MARKUP_FACTOR, _LONGEST_TEXT, self._text_room)
            self.texts[mime] = self._convert(value, room)
        except TooLarge:
            self._leave_out(mime)

    def _convert(self, value: object, room: int) -> Any:
        """Returns the plain JSON value of `value`, and reduces the room by what it needs."""
        converter = Converter(room, self._value_room)
        converted = converter.convert(value)
        self._text_room -= room - converter.characters
        self._value_room = converter.values
        return converted

    def _leave_out(self, mime: str) -> None:
        self.cut = True
        self._missing.append(mime)


def _check_dict(bundle: object) -> dict[Any, Any]:
    if not issubclass(type(bundle), dict):
        raise TypeError(f"data and metadata of a display are dictionaries, not {bundle!r:.80}")
    return bundle  # type: ignore[return-value]  # issubclass, because __class__ can lie


def _check_display_id(display_id: object) -> str:
    text = str.__str__(display_id if issubclass(type(display_id), str) else str(display_id))
    if len(text) > MAX_DISPLAY_ID:
        raise ValueError(f"a display_id has at most {MAX_DISPLAY_ID:,} characters, not {len(text):,}")
    return text


def _decode(text: str) -> bytes | None:
    """Returns the bytes of a base64 text; None if it is empty or not base64."""
    try:
        packed = text.encode("ascii").translate(None, b" \t\r\n")
        return base64.b64decode(packed, validate=True) or None
    except ValueError:
        return None

"""JSON within limits: any value is made plain before it is sent, and text is checked before it is parsed.

Both sides have the same limits. So each can parse, compare, copy, show and write what the other sends without running
out of stack or memory.
"""

from __future__ import annotations

import binascii
import math

# What `json` is made of: importing that loads `re` and `enum`, which takes longer than the rest of a short command.
from _json import encode_basestring, encode_basestring_ascii, make_encoder, make_scanner

from kernelbox.wire._builtins import keep_builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

keep_builtins(globals())

# Levels of lists and objects in a value. Charts and widgets nest about twenty. A tenth of the interpreter's own limit
# leaves room for callers with a deep stack, and for copy.deepcopy, which takes two frames a level.
MAX_DEPTH = 100

# Lists, objects and their items. A value of this many takes about 100 MB at worst, and is converted in 0.2 s.
MAX_VALUES = 200_000

# Characters of all texts in a value: they fit a frame even if all are escaped (7 bytes at most).
MAX_CHARACTERS = 8_000_000

# Python reads and writes this many digits in every process: sys.set_int_max_str_digits cannot be lower.
_MAX_DIGITS = 640
_MAX_BITS = 2_100

# The levels that a message adds around a value: the array of fields, and a field that maps MIME types or names.
_MESSAGE_DEPTH = 3

# Each value is counted by the comma before it or the bracket that it opens, an empty list by both.
_MAX_SEPARATORS = 2 * MAX_VALUES + 10_000


class TooLarge(ValueError):
    """Raised when a value has more parts or more text than can be sent, or is read."""


class Converter:
    """Turns values of any kind into plain JSON values; all values that one instance converts share its limits.

    Dates, bytes, sets and numpy's numbers are converted as Jupyter does. Exceptions of user code that produces the
    parts pass through; endless parts end at the limit. `characters` and `values` are what is left of the limits. With
    `strict`, nan, infinity and keys that are not text are errors instead of becoming text.
    """

    def __init__(self, characters: int = MAX_CHARACTERS, values: int = MAX_VALUES, *, strict: bool = False) -> None:
        self.characters = characters
        self.values = values
        self._strict = strict

    def convert(self, value: object, depth: int = 0) -> Any:
        """Returns the plain value; raises TypeError, ValueError and TooLarge."""
        kind = type(value)
        if kind is str or issubclass(kind, str):
            return self._text(exact(value))
        if value is None or kind is bool:
            self._charge(4)
            return value
        if issubclass(kind, int):
            return self._int(int.__int__(value))  # type: ignore[arg-type]  # issubclass, because __class__ can lie
        if issubclass(kind, float):
            return self._float(float.__float__(value))  # type: ignore[arg-type]  # as above
        if depth >= MAX_DEPTH:
            raise ValueError(f"a value that is nested more than {MAX_DEPTH} levels deep, or in itself, cannot be sent")
        if issubclass(kind, dict):
            return self._dict(value, depth + 1)
        if issubclass(kind, list | tuple):
            items: Any = list.__iter__ if issubclass(kind, list) else tuple.__iter__
            return self._list(items(value), depth + 1)
        if issubclass(kind, bytes | bytearray | memoryview):
            return self._bytes(memoryview(value))  # type: ignore[arg-type]  # as above
        return self._other(value, depth + 1)

    def _text(self, text: str) -> str:
        self._charge(len(text))
        return text

    def _int(self, number: int) -> int:
        if number.bit_length() > _MAX_BITS:
            raise ValueError(f"a whole number of more than {_MAX_DIGITS} digits cannot be sent; use its text")
        self._charge(number.bit_length() // 3)
        return number

    def _float(self, number: float) -> float | str:
        self._charge(8)
        if math.isfinite(number):
            return number
        if self._strict:
            raise ValueError(f"{number} has no form in JSON")
        return repr(number)  # as Jupyter does

    def _bytes(self, view: memoryview) -> str:
        self._charge(view.nbytes * 4 // 3)
        return binascii.b2a_base64(view.tobytes(), newline=False).decode("ascii")

    def _list(self, items: Any, depth: int) -> list[Any]:
        self._charge(0)
        return [self.convert(item, depth) for item in items]

    def _dict(self, value: Any, depth: int) -> dict[str, Any]:
        self._charge(0)
        return {self._key(key): self.convert(item, depth) for key, item in dict.items(value)}

    def _key(self, key: object) -> str:
        if issubclass(type(key), str):
            return self._text(exact(key))
        if not self._strict and (key is None or issubclass(type(key), int | float)):
            return encode_json(self.convert(key))
        raise TypeError(f"keys must be text, not {type_name(key)}")

    def _other(self, value: Any, depth: int) -> Any:
        if hasattr(value, "isoformat"):
            return self.convert(value.isoformat(), depth)
        if hasattr(value, "__iter__"):
            return self._list(iter(value), depth)
        for method, form in (("__index__", int), ("__float__", float)):
            if hasattr(value, method):
                return self.convert(form(value), depth)
        raise TypeError(f"{type_name(value)} is not JSON serializable")

    def _charge(self, characters: int) -> None:
        """Counts a value against the limits: its text, and two characters for quotes, brackets or a comma."""
        self.values -= 1
        self.characters -= characters + 2
        if self.values < 0 or self.characters < 0:
            raise TooLarge(f"a value of more than {MAX_VALUES:,} parts or {MAX_CHARACTERS:,} characters cannot be sent")


def exact(text: Any) -> str:
    """Returns the same text as a plain str: a subclass would have the user's methods."""
    return text if type(text) is str else str.__str__(text)


def type_name(value: object) -> str:
    """Returns the name of a value's type, cut if it is long, without asking a metaclass, which might lie."""
    return exact(type.__dict__["__name__"].__get__(type(value)))[:1000]


def load(data: bytes | bytearray) -> Any:
    """Parses JSON from an untrusted writer; raises ValueError for anything that a Converter would not produce.

    nan and infinity become text, as in a Converter.
    """
    if len(data) > MAX_DEPTH:
        check_shape(data)
    scan = _scan if len(data) > _MAX_DIGITS else _scan_short
    text = data.decode("utf-8", "surrogatepass")
    try:
        value, end = scan(text, 0)
    except StopIteration as exc:
        raise ValueError("not JSON") from exc
    if end != len(text):
        raise ValueError("more than one value")
    return value


def encode_json(
    value: object,
    *,
    ascii_only: bool = False,
    separators: tuple[str, str] = (":", ","),
    sort_keys: bool = False,
) -> str:
    """Returns plain values as JSON on one line; `separators` stand after keys and between items.

    This is the C function behind json's encoder. The Python methods around it are not used: a cell could replace them
    and so change what its client is asked.
    """
    quote = encode_basestring_ascii if ascii_only else encode_basestring
    return "".join(make_encoder({}, refuse, quote, None, *separators, sort_keys, False, True)(value, 0))


def refuse(value: object) -> Any:
    raise TypeError(f"{type_name(value)} is not JSON serializable")


def dump(value: object) -> bytes:
    """Returns JSON on one line; lone surrogates, which UTF-8 cannot encode, become JSON's escapes."""
    return encode_json(value).encode("utf-8", "backslashreplace")


def check_shape(data: bytes | bytearray, most: int = _MAX_SEPARATORS) -> None:
    """Raises ValueError for JSON with too many levels, TooLarge for more than `most` commas and opening brackets.

    It does not parse: the parser recurses, and may make an object of every two bytes.
    """
    opened = data.count(b"[") + data.count(b"{")
    if opened <= MAX_DEPTH and opened + data.count(b",") <= most:
        return  # this counts those in texts too, so there can only be fewer
    brackets = outside_texts(data, most).translate(_ROUND, _NO_BRACKETS)
    for _ in range(MAX_DEPTH + _MESSAGE_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"()", b"")  # the innermost level
    if brackets:
        raise ValueError("nested too deeply, or not closed")


def outside_texts(data: bytes | bytearray, most: int) -> bytes:
    """Returns JSON without its texts; raises TooLarge if it has more than `most` commas and opening brackets."""
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 4 * most:
        raise TooLarge("too many texts")
    outside = b"".join(unescaped.split(b'"')[::2])
    if outside.count(b"[") + outside.count(b"{") + outside.count(b",") > most:
        raise TooLarge("too many values")
    return outside


_ROUND = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _read_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)


def _read_float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else repr(number)


_CONSTANTS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


class _Rules:
    """How a scanner reads: the attributes of a `json.JSONDecoder` that the C function asks for."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = staticmethod(_read_float)
    parse_constant = staticmethod(_CONSTANTS.__getitem__)

    def __init__(self, parse_int: Any) -> None:
        self.parse_int = parse_int


# The C function behind json's decoder: a cell could replace the Python methods around it, and so change the answers
# that it gets. Most messages are too short for a number of too many digits.
_scan_short: Any = make_scanner(_Rules(int))  # type: ignore[arg-type]  # any object with these attributes
_scan: Any = make_scanner(_Rules(_read_int))  # type: ignore[arg-type]  # the same

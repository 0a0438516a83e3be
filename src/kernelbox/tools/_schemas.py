"""Reduces a server's JSON schemas to what describes values, without I/O.

Everything else is dropped: references to files and addresses, names of Python types to import, extensions.
"""

from __future__ import annotations

import json
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Limits of what is read of a schema: anything deeper or later allows any value.
_LEVELS = 40
_PARTS = 5_000

# Characters. A description is for reading; a name that is longer would fill a line.
_LONGEST_TEXT = 4_000
_LONGEST_NAME = 200

# Values of a choice. For more, only their type is kept: Python compares each value with all others.
_MOST_CHOICES = 1_000

_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
_SCALARS = ("string", "integer", "number", "boolean", "null")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_CHOICES = ("anyOf", "oneOf", "allOf")

# Surrogates: halves of characters.
_HALVES = re.compile("[\ud800-\udfff]")


def make_safe(schema: object, *, lenient: bool = False) -> dict[str, Any]:
    """Returns a schema that holds nothing but descriptions of values.

    A lenient one, for answers of a server, allows unnamed properties and has no patterns: a server could write a
    pattern that takes forever to match its answer.
    """
    reader = _Reader(schema if isinstance(schema, dict) else {}, lenient)
    safe = reader.read(schema, 0)
    if reader.definitions:
        safe["$defs"] = reader.definitions
    return safe


class _Reader:
    """Reads one schema. Definitions are read when they are first referred to."""

    def __init__(self, root: dict[Any, Any], lenient: bool) -> None:
        self.definitions: dict[str, Any] = {}
        self._root = root
        self._lenient = lenient
        self._names: dict[str, str] = {}
        self._parts = 0

    def read(self, schema: object, level: int, *, limits: bool = True) -> dict[str, Any]:
        """Returns what a schema says about a value. Without `limits`, inside lists and choices, this is only its type:
        Python has no short way to say more there, and the server checks everything."""
        self._parts += 1
        if not isinstance(schema, dict) or level > _LEVELS or self._parts > _PARTS:
            return {}
        if isinstance(reference := schema.get("$ref"), str):
            return self._refer(reference, schema, level)
        safe = {**self._read_type(schema), **(_read_limits(schema, patterns=not self._lenient) if limits else {})}
        if isinstance(description := schema.get("description"), str):
            safe["description"] = _clean(description)
        for key in _CHOICES:
            if isinstance(choices := schema.get(key), list) and choices:
                safe[key] = [self.read(choice, level + 1, limits=False) for choice in choices]
        if isinstance(properties := schema.get("properties"), dict):
            safe.update(self._read_properties(properties, schema.get("required"), level))
        if isinstance(items := schema.get("items"), dict):
            safe["items"] = self.read(items, level + 1, limits=False)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            safe["additionalProperties"] = self.read(extra, level + 1, limits=False)
        elif isinstance(extra, bool) and (extra or not self._lenient):
            safe["additionalProperties"] = extra
        _keep_default(schema, safe)
        return safe

    def _read_type(self, schema: dict[Any, Any]) -> dict[str, Any]:
        safe: dict[str, Any] = {}
        match schema.get("type"):
            case str(kind) if kind in _TYPES:
                safe["type"] = kind
            case list(kinds) if kinds and all(kind in _TYPES for kind in kinds):
                safe["type"] = list(kinds)
        if schema.get("nullable") is True and isinstance(safe.get("type"), str):
            safe["type"] = [safe["type"], "null"]
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            if not all(value is None or isinstance(value, str | int) for value in values):
                safe.pop("type", None)  # Python has no type for such a choice; the server checks it
            elif len(values) <= _MOST_CHOICES and all(map(_is_value, values)):
                safe["enum"] = values
                self._parts += len(values) // 10  # reading one is cheaper than reading a part
        return safe

    def _read_properties(self, properties: dict[Any, Any], required: object, level: int) -> dict[str, Any]:
        kept = {
            name: self.read(value, level + 1) for name, value in properties.items() if _is_text(name, _LONGEST_NAME)
        }
        listed = required if isinstance(required, list) else []
        needed = [name for name in listed if isinstance(name, str) and name in kept]
        return {"properties": kept, **({"required": needed} if needed else {})}

    def _refer(self, reference: str, schema: dict[Any, Any], level: int) -> dict[str, Any]:
        """Returns a reference to one of our definitions; a reference to anywhere else allows any value."""
        target = _follow(self._root, reference)
        if target is None:
            return {}
        if target.get("type") in _SCALARS or ("enum" in target and "properties" not in target):
            kept = {key: schema[key] for key in ("description", "default") if key in schema}
            return self.read({**target, **kept}, level + 1, limits=False)
        if reference not in self._names:
            last = re.sub(r"\W+", " ", reference.rpartition("/")[2], flags=re.ASCII).title().replace(" ", "")
            name = last if last[:1].isalpha() else f"Type{last}"
            while name in self.definitions:
                name += "_"
            self._names[reference] = name
            self.definitions[name] = {}  # it may refer to itself
            self.definitions[name] = self.read(target, level + 1)
        safe: dict[str, Any] = {"$ref": f"#/$defs/{self._names[reference]}"}
        if isinstance(description := schema.get("description"), str):
            safe["description"] = _clean(description)
        if "default" in schema and schema["default"] is None:
            return {"anyOf": [safe, {"type": "null"}], "default": None}
        return safe


def _follow(root: dict[Any, Any], reference: str) -> dict[Any, Any] | None:
    """Returns what a JSON pointer into the same document leads to (RFC 6901)."""
    if not reference.startswith("#"):
        return None
    found: object = root
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found if isinstance(found, dict) else None


def _read_limits(schema: dict[Any, Any], *, patterns: bool) -> dict[str, Any]:
    safe = {key: schema[key] for key in _NUMBERS if _is_number(schema.get(key))}
    safe.update({key: schema[key] for key in _COUNTS if _is_number(schema.get(key)) and 0 <= schema[key] < 2**31})
    if patterns and isinstance(pattern := schema.get("pattern"), str) and _is_pattern(pattern):
        safe["pattern"] = pattern
    return safe


def _keep_default(schema: dict[Any, Any], safe: dict[str, Any]) -> None:
    """Keeps a default that is a plain value, and describes any other in words. The server applies them."""
    if "default" not in schema:
        return
    default = schema["default"]
    if _is_value(default):
        safe["default"] = default
        return
    try:
        said = json.dumps(default)
    except (TypeError, ValueError, RecursionError):
        return
    if len(said) <= _LONGEST_NAME:
        safe["description"] = f"{safe.get('description', '')} (default: {said})".strip()


def _is_value(value: object) -> bool:
    return value is None or isinstance(value, bool) or _is_number(value) or _is_text(value, _LONGEST_TEXT)


def _is_text(value: object, longest: int) -> bool:
    """Tells whether a value is a text that is short enough, and can be written to a file: half a character cannot."""
    return isinstance(value, str) and len(value) <= longest and not _HALVES.search(value)


def _is_number(value: object) -> bool:
    """Tells whether a value is a number that is also one as a float."""
    return (type(value) is int or type(value) is float) and abs(value) <= sys.float_info.max


def _is_pattern(pattern: str) -> bool:
    """Tells whether Python can compile a pattern; they are written for JavaScript."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return _is_text(pattern, _LONGEST_NAME)


def _clean(text: str) -> str:
    """Returns a text without control characters, and short enough to read."""
    kept = "".join(char if char.isprintable() or char == "\n" else " " for char in text[:_LONGEST_TEXT])
    return kept.strip()


def clean_text(value: object) -> str:
    """Cleans a description that is not part of a schema in the same way."""
    return _clean(value) if isinstance(value, str) else ""

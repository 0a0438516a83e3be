"""Classes for the values that a schema describes.

Every text in a class is made here: names by `_naming`, values by `repr`, types from a closed set. So nothing that a
server says becomes code. The schemas have been reduced by `_schemas.make_safe`.
"""

from __future__ import annotations

import math

from kernelbox.tools._naming import class_name, field_names, item_name
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from kernelbox.tools._naming import ClassNames

    Schema = dict[str, Any]

    # The alternatives of a type, each as it is written: `("str", "None")`.
    Type = tuple[str, ...]

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

# Constraints that a field can have, by the type of its values.
_LENGTHS = {"minLength": "min_length", "maxLength": "max_length"}
_COUNTS = {"minItems": "min_length", "maxItems": "max_length"}
_BOUNDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
_ROUNDED_UP = ("ge", "lt")

# Alternatives of one type. More become `Any`: Python parses a long chain of `|` by recursion.
_MOST_ALTERNATIVES = 50

# Fields of all classes of one schema. A schema has fewer parts, but can use the same parts many times.
_MOST_FIELDS = 10_000

# Classes inside classes. Anything deeper becomes `Any`: pydantic handles them by recursion.
_LEVELS = 40


@dataclass(frozen=True, slots=True)
class ModelField:
    """One field of a class, in Python; `default` is None if it must be given, `alias` is empty without one."""

    name: str
    annotation: str
    default: str | None
    alias: str
    constraints: tuple[tuple[str, str], ...]
    description: str


@dataclass(frozen=True, slots=True)
class ModelClass:
    """One class. `root` is the type that it stands for, if it has no fields of its own."""

    name: str
    description: str
    fields: tuple[ModelField, ...]
    root: str | None = None
    extra: str = ""


def make_params(schema: Schema, names: ClassNames) -> list[ModelClass]:
    """Returns the classes for the arguments of a tool; the last one is `Params`."""
    made = _Maker(schema, names)
    said = {key: value for key, value in made.without_reference(schema).items() if key != "enum"}
    made.add("Params", {**said, "type": "object"})
    return made.classes


def make_result(schema: Schema, names: ClassNames) -> list[ModelClass]:
    """Returns the classes for what a tool returns; the last one is `Result`."""
    made = _Maker(schema, names, prefix="Result")
    if schema.get("type") == "object" and not schema.get("properties"):
        schema = {"additionalProperties": True, **schema}  # keeps the values, although no property is named
    made.add("Result", schema)
    return made.classes


class _Maker:
    """Makes the classes of one schema; each comes after those that it refers to, unless they refer to each other."""

    def __init__(self, schema: Schema, names: ClassNames, prefix: str = "") -> None:
        """`prefix` is put before the name of a class that is taken."""
        self.classes: list[ModelClass] = []
        self._definitions: Schema = schema.get("$defs", {})
        self._names = names
        self._prefix = prefix
        self._own = {prefix}
        self._defined: dict[str, str] = {}
        self._room = _MOST_FIELDS
        self._level = 0
        # Results by the identity of the schema, so a schema that contains itself is handled once.
        self._named: dict[int, str] = {}
        self._merges: dict[int, Schema] = {}
        self._choices: dict[int, list[Schema]] = {}

    def add(self, name: str, schema: Schema) -> None:
        """Makes the class for the whole schema."""
        schema = self._merged(schema)
        if len(variants := self._variants(schema)) == 1:
            schema = self._merged(variants[0])
        self._add(name, schema, is_class=_is_object(schema))

    def without_reference(self, schema: Schema) -> Schema:
        """Returns what a schema refers to."""
        return _joined(self._parts(schema, set())) if "$ref" in schema else schema

    def _add(self, name: str, schema: Schema, *, is_class: bool) -> None:
        description = schema.get("description", "")
        self._level += 1
        if is_class:
            fields = tuple(self._fields(schema))
            made = ModelClass(name, description, fields, None, _extra(schema))
        else:
            made = ModelClass(name, description, (), " | ".join(self._type(schema, name)))
        self._level -= 1
        self.classes.append(made)

    def _new_name(self, wanted: str) -> str:
        if self._prefix and wanted in self._names and wanted not in self._own:
            wanted = f"{self._prefix}{wanted}"
        name = self._names.add(wanted)
        self._own.add(name)
        return name

    def _fields(self, schema: Schema) -> Iterator[ModelField]:
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        self._room -= len(properties)
        types = {name: self._type(value, class_name(name)) for name, value in properties.items()}
        used = frozenset(made.name for made in self.classes) | {*self._defined.values()}
        names = field_names(properties, used)
        for name, value in properties.items():
            yield _field(name, names[name], value, types[name], required=name in required)

    def _type(self, schema: Schema, name: str) -> Type:
        """Returns the type of a schema's values; `name` is wanted for their class, if they need one."""
        if "$ref" in schema:
            return (self._definition(schema["$ref"]),)
        if "enum" in schema:
            return _literal(schema)
        if "allOf" in schema:
            return self._type(self._merged(schema), name)
        if "anyOf" in schema or "oneOf" in schema:
            return _unique(text for variant in self._variants(schema) for text in self._type(variant, name))
        return _unique(self._type_of_kind(kind, schema, name) for kind in _kinds(schema))

    def _type_of_kind(self, kind: str, schema: Schema, name: str) -> str:
        match kind:
            case "array":
                items = schema.get("items", {})
                keeps_name = _choices(items) or _kinds(items) == ["array"]
                return f"list[{' | '.join(self._type(items, name if keeps_name else item_name(name)))}]"
            case "object" if id(schema) in self._named:
                return self._named[id(schema)]
            case "object" if self._may_be_class(schema):
                new = self._named[id(schema)] = self._new_name(name)
                self._add(new, schema, is_class=True)
                return new
            case "object":
                values = schema.get("additionalProperties")
                return f"dict[str, {' | '.join(self._type(values if isinstance(values, dict) else {}, name))}]"
            case _:
                return _SCALARS.get(kind, "Any")

    def _may_be_class(self, schema: Schema) -> bool:
        return 0 < len(schema.get("properties", ())) <= self._room and self._level < _LEVELS

    def _definition(self, reference: str) -> str:
        """Returns the class of a definition, which is made where it is first referred to."""
        if reference in self._defined:
            return self._defined[reference]
        wanted = reference.rpartition("/")[2]
        found = self._merged(self._definitions[wanted])
        if "$ref" in found:
            self._defined[reference] = "Any"  # a definition that only refers to itself says nothing
            self._defined[reference] = self._definition(found["$ref"])
        elif self._level < _LEVELS:
            name = self._defined[reference] = self._new_name(class_name(wanted))
            self._add(name, found, is_class=_is_object(found) and self._may_be_class(found))
        else:
            return "Any"
        return self._defined[reference]

    def _merged(self, schema: Schema) -> Schema:
        """Returns one schema that says what all parts of `allOf` say."""
        if "allOf" not in schema:
            return schema
        if id(schema) not in self._merges:
            self._merges[id(schema)] = self._merge(schema)
        return self._merges[id(schema)]

    def _merge(self, schema: Schema) -> Schema:
        said = [part for part in schema["allOf"] if part]
        own = {key: value for key, value in schema.items() if key != "allOf"}
        parts = self._parts(schema, set())
        if len(said) == 1 and "properties" not in own:
            return self._merged(said[0])
        if any("properties" in part for part in parts):
            return _joined(parts)
        return self._merged(said[0]) if said else own

    def _parts(self, schema: Schema, seen: set[str]) -> list[Schema]:
        """Returns the parts of a schema, through references and `allOf`, itself last; each definition appears once."""
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in seen:
                return []
            seen.add(reference)
            return self._parts(self._definitions[reference.rpartition("/")[2]], seen)
        inner = [part for option in schema.get("allOf", ()) for part in self._parts(option, seen)]
        return [*inner, schema]

    def _variants(self, schema: Schema) -> list[Schema]:
        """Returns the alternatives of a value; each includes what the schema says beside the choice."""
        options = _choices(schema)
        if not options or not schema.get("properties"):
            return options or [schema]
        if id(schema) not in self._choices:
            self._choices[id(schema)] = self._combine(schema, options)
        return self._choices[id(schema)]

    def _combine(self, schema: Schema, options: list[Schema]) -> list[Schema]:
        own = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
        variants: list[Schema] = []
        for option in options[:_MOST_ALTERNATIVES]:
            variant = _joined([own, *self._parts(option, set())])
            if variant not in variants:
                variants.append(variant)
        return variants


def _joined(parts: list[Schema]) -> Schema:
    """Returns an object with the properties of all parts."""
    properties = {name: value for part in parts for name, value in part.get("properties", {}).items()}
    required = [name for part in parts for name in part.get("required", ())]
    said = {
        key: value for part in parts for key, value in part.items() if key in ("description", "additionalProperties")
    }
    return {**said, "type": "object", "properties": properties, "required": required}


def _choices(schema: Schema) -> list[Schema]:
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


def _kinds(schema: Schema) -> list[str]:
    kinds = schema.get("type", [])
    if not kinds:
        return ["object" if schema.get("properties") else "array" if "items" in schema else "any"]
    return [kinds] if isinstance(kinds, str) else kinds


def _is_object(schema: Schema) -> bool:
    """Tells whether a schema describes a class, with or without fields."""
    if "$ref" in schema or "enum" in schema or _choices(schema):
        return False
    is_map = not schema.get("properties") and isinstance(schema.get("additionalProperties"), dict)
    return _kinds(schema)[0] == "object" and not is_map


def _extra(schema: Schema) -> str:
    match schema.get("additionalProperties"):
        case None:
            return ""
        case False:
            return "forbid"
        case _:
            return "allow"


def _field(name: str, field: str, schema: Schema, kind: Type, *, required: bool) -> ModelField:
    default = None
    if not required:
        default = repr(schema.get("default"))
        if default == "None" and "None" not in kind:
            kind = (*kind, "None")
    alias = "" if name == field else repr(name)
    description = schema.get("description", "")
    return ModelField(field, " | ".join(kind), default, alias, _constraints(schema, kind), description)


def _constraints(schema: Schema, kind: Type) -> tuple[tuple[str, str], ...]:
    """Returns the constraints of a field. Pydantic can check them only if the values have one type."""
    one = [text for text in kind if text != "None"]
    if len(one) != 1:
        return ()
    found: dict[str, str] = {}
    if one[0] == "str":
        found = {word: repr(int(schema[key])) for key, word in _LENGTHS.items() if key in schema}
        if "pattern" in schema:
            found["pattern"] = repr(schema["pattern"])
    elif one[0].startswith("list["):
        found = {word: repr(int(schema[key])) for key, word in _COUNTS.items() if key in schema}
    elif one[0] == "float":
        found = {word: repr(float(schema[key])) for key, word in _BOUNDS.items() if key in schema}
    elif one[0] == "int":
        for key, word in _BOUNDS.items():
            if key in schema:
                found[word] = repr(math.ceil(schema[key]) if word in _ROUNDED_UP else math.floor(schema[key]))
    return tuple(sorted(found.items()))


def _literal(schema: Schema) -> Type:
    values = [value for value in schema["enum"] if value is not None]
    has_none = len(values) < len(schema["enum"]) or "null" in _kinds(schema)
    found = (f"Literal[{', '.join(map(repr, values))}]",) if values else ()
    return (*found, "None") if has_none else found


def _unique(texts: Iterable[str]) -> Type:
    """Returns alternatives without repetitions, None last."""
    found = dict.fromkeys(texts)
    if len(found) > _MOST_ALTERNATIVES:
        return ("Any",)
    return tuple(sorted(found, key="None".__eq__))

"""Classes made of schemas: whatever a server says, a module is text from a closed set, and its classes can be used."""

from __future__ import annotations

import ast
import functools
import json
import math
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from tests.tools.test_golden import GOLDEN, SERVERS

from kernelbox.guest.tools import _arguments
from kernelbox.tools._modules import build_files
from kernelbox.tools._naming import item_name, module_names

# Texts that have a meaning in Python, in pydantic or in a schema, or that try to leave the string they stand in.
WORDS = [
    *(
        "",
        "_",
        "-",
        "1",
        "a",
        "a-b",
        "a_b",
        "a b",
        "items",
        "Items",
        "é",
        "ℌ",
        "٣",
        "\u0300",
        "\u202e",
        "\ud800",
        "x" * 300,
    ),
    *(
        "None",
        "class",
        "match",
        "int",
        "list",
        "str",
        "Any",
        "Literal",
        "Field",
        "BaseModel",
        "RootModel",
        "ConfigDict",
    ),
    *(
        "Params",
        "Result",
        "run",
        "call",
        "root",
        "self",
        "annotations",
        "model_config",
        "model_dump",
        "model_x",
        "copy",
    ),
    *("__class__", "__init__", "__pydantic_fields__", "params", "Item", "Item1", "#", "#/$defs/Item", "#/$defs/a-b"),
    *(
        '"',
        "'",
        '"""',
        "'''",
        "\\",
        '\\"""',
        '"); open("mark", "w"); ("',
        "\n",
        "\r",
        "\x0b",
        "\x1c",
        "\u2028",
        "{x}",
        "#",
    ),
    *(
        '"""\nopen("mark", "w")#',
        "x]; open('mark', 'w')",
        "'] = open('mark', 'w')",
        "a\nimport os",
        "(a+)+$",
        "[",
        "\\Z",
    ),
]
TYPES = ("string", "integer", "number", "boolean", "object", "array", "null", "strange")
REFERENCES = ("#", "#/properties/a", *(f"#/$defs/{name}" for name in ("A", "B", "Item", "a-b", "Any")), "/etc/passwd")
NUMBERS = (0, 1, -3, 1.5, math.nan, math.inf, True, 10**30, -(10**400), 5e-324, -1e308)
COUNTS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)


class Stranger:
    """Writes schemas as nobody should, by chance."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def text(self) -> str:
        if self.random.random() < 0.8:
            return self.random.choice(WORDS)
        return "".join(chr(self.random.randrange(0x3000)) for _ in range(self.random.randrange(6)))

    def value(self) -> object:
        match self.random.randrange(5):
            case 0:
                return self.random.choice(NUMBERS)
            case 1:
                return self.random.choice((None, True, False, [], {}, ["a"], {"a": 1}))
            case _:
                return self.text()

    def schema(self, level: int = 0) -> Any:
        if self.random.random() < 0.03:
            return self.value()
        chosen = {key: value() for key, value in self.parts(level).items() if self.random.random() < 0.12}
        if self.random.random() < 0.7:
            chosen["type"] = self.random.choice(TYPES)
        return chosen

    def parts(self, level: int) -> dict[str, Callable[[], object]]:
        simple: dict[str, Callable[[], object]] = {
            "type": lambda: self.random.choices(TYPES, k=self.random.randrange(3)),
            "enum": lambda: [self.value() for _ in range(self.random.randrange(4))],
            "required": lambda: [self.text() for _ in range(3)],
            "nullable": lambda: True,
            **dict.fromkeys(("const", "default", "title", "customTypePath", "$id"), self.value),
            **dict.fromkeys(("description", "pattern"), self.text),
            **{key: lambda: self.random.choice(NUMBERS) for key in COUNTS},
        }
        if level > 3:
            return simple
        inner = functools.partial(self.schema, level + 1)
        return {
            **simple,
            "$ref": lambda: self.random.choice(REFERENCES),
            "items": inner,
            **dict.fromkeys(("additionalProperties", "not"), inner),
            **{key: lambda: [inner() for _ in range(self.random.randrange(4))] for key in ("anyOf", "oneOf", "allOf")},
            **{key: lambda: {self.text(): inner() for _ in range(5)} for key in ("properties", "patternProperties")},
        }

    def root(self) -> Any:
        properties = {self.text(): self.schema() for _ in range(self.random.randrange(6))}
        definitions = {name: self.schema() for name in ("A", "B", "Item", "a-b", "Any")}
        beside = self.schema()
        more = beside if isinstance(beside, dict) else {}
        return {"type": "object", "properties": properties, **more, "$defs": definitions}


# All that a module may be made of.
NODES = (
    *(
        ast.Module,
        ast.Expr,
        ast.Constant,
        ast.ImportFrom,
        ast.alias,
        ast.ClassDef,
        ast.Pass,
        ast.Name,
        ast.Load,
        ast.Store,
    ),
    *(
        ast.Assign,
        ast.AnnAssign,
        ast.Call,
        ast.keyword,
        ast.Subscript,
        ast.Tuple,
        ast.BinOp,
        ast.BitOr,
        ast.UnaryOp,
        ast.USub,
    ),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.arguments, ast.arg, ast.Return, ast.Await),
)
IMPORTS = {"__future__", "typing", "pydantic", "kernelbox.guest.tools"}
CALLED = {"ConfigDict", "Field", "call", "call_async"}


def write(name: str, schema: object, output: object = None, description: str = "") -> str:
    """Returns the module of a tool."""
    tool = {"name": name, "description": description, "inputSchema": schema, "outputSchema": output}
    return build_files("server", description, [tool], {name: "module"})["module.py"]


def check_nodes(source: str) -> None:
    """Fails if a module holds anything but classes with fields and the two functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        assert isinstance(node, NODES), ast.dump(node)[:200]
        match node:
            case ast.ImportFrom(module=module):
                assert module in IMPORTS
            case ast.Call(func=func):
                assert isinstance(func, ast.Name)
                assert func.id in CALLED
            case ast.Name(id=name) | ast.ClassDef(name=name):
                assert name.isidentifier()
                assert not name.startswith("_")
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert functions == ["run", "run_async"]
    kinds = {type(node) for node in tree.body}
    assert kinds <= {ast.Expr, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef}


def load(source: str) -> types.ModuleType:
    """Returns a module with its classes made, as they are in a kernel. Warnings are errors."""
    module = sys.modules["written"] = types.ModuleType("written")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Possible (nested set|set )", FutureWarning)  # a server's pattern
        exec(compile(source, "written", "exec", dont_inherit=True), vars(module))
        for made in list(classes(module)):
            made.model_rebuild()
    return module


def classes(module: types.ModuleType) -> Iterator[type[BaseModel]]:
    for value in list(vars(module).values()):
        if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == "written":
            yield value


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=True))
def test_any_schema_gives_a_module_of_nothing_but_classes_and_they_can_be_used(random: Random) -> None:
    stranger = Stranger(random)
    output = stranger.root() if random.random() < 0.5 else stranger.schema()
    source = write(stranger.text(), stranger.root(), output, stranger.text())
    check_nodes(source)
    source.encode()
    assert issubclass(load(source).Params, BaseModel)


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=True))
def test_arguments_travel_under_the_names_that_the_server_knows(random: Random) -> None:
    stranger = Stranger(random)
    names = [name for name in {stranger.text(): None for _ in range(10)} if len(name) <= 200 and name.isprintable()]
    params = load(write("t", {"type": "object", "properties": {name: {"type": "string"} for name in names}})).Params
    sent = {name: f"value {number}" for number, name in enumerate(names)}
    assert _arguments(params.model_validate(sent)) == sent
    by_field = {field: f"value {number}" for number, field in enumerate(params.model_fields)}
    assert _arguments(params(**by_field)) == sent


@pytest.mark.parametrize("server", SERVERS)
def test_the_classes_of_a_real_server_can_be_used(server: str) -> None:
    listed = json.loads((GOLDEN / f"{server}.json").read_text())
    modules = module_names([tool["name"] for tool in listed["tools"]])
    for name, source in build_files(server, "", listed["tools"], modules).items():
        if name.endswith(".py") and name != "__init__.py":
            check_nodes(source)
            load(source)


@pytest.mark.parametrize(
    ("schema", "fits", "fails"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd", 1]),
        ({"type": "string", "pattern": "^[a-z]+$"}, ["ab"], ["A", ""]),
        ({"type": ["string", "null"], "minLength": 2}, ["ab", None], ["a"]),
        ({"type": "integer", "minimum": 1.5, "maximum": 3.5}, [2, 3], [1, 4, "x", 2.5]),
        ({"type": "integer", "exclusiveMinimum": 1.5, "exclusiveMaximum": 3.5}, [2, 3], [1, 4]),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2], [1, 3]),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, [0, 0.5], [-1, 1]),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            [[1], [1, 2]],
            [[], [1, 2, 3], ["x"]],
        ),
        ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2]),
        ({"type": ["integer", "boolean"]}, [1, True], ["x", None]),
        (
            {"anyOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": "null"}]},
            [{"a": 1}, None],
            [3],
        ),
        (
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]},
            [{"a": 1, "b": 2}],
            [{"b": 1}],
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"a": 1}], [{"a": "x"}]),
        ({"properties": {"a": {}}, "additionalProperties": False}, [{}, {"a": 1}], [{"b": 1}]),
    ],
)
def test_a_field_takes_what_its_schema_says(schema: object, fits: list[object], fails: list[object]) -> None:
    params = load(write("t", {"type": "object", "properties": {"x": schema}, "required": ["x"]})).Params
    for value in fits:
        assert _arguments(params(x=value)) == {"x": value}
    for value in fails:
        with pytest.raises(ValidationError):
            params(x=value)


def test_a_schema_that_is_a_part_of_itself_gives_a_class_that_refers_to_itself() -> None:
    tree = {
        "properties": {
            "child": {"allOf": [{"$ref": "#/$defs/Tree"}, {"properties": {"more": {"type": "string"}}}]},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        }
    }
    schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": tree}}
    given = {"tree": {"child": {"child": {"more": "x"}, "more": "y"}, "children": [{"children": []}]}}
    params = load(write("t", schema)).Params
    assert _arguments(params(**given)) == given


@pytest.mark.parametrize(
    "definition",
    [
        {"$ref": "#/$defs/A"},
        {"allOf": [{"$ref": "#/$defs/A"}]},
        {"anyOf": [{"$ref": "#/$defs/A"}]},
        {"items": {"$ref": "#/$defs/A"}},
    ],
)
def test_a_definition_of_nothing_but_itself_stops_nobody(definition: object) -> None:
    source = write("t", {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": definition}})
    assert _arguments(load(source).Params()) == {}


def test_parts_that_are_used_many_times_do_not_multiply_without_end() -> None:
    many = {f"p{number}": {"type": "string"} for number in range(500)}
    uses = {f"u{number}": {"allOf": [{"$ref": "#/$defs/Many"}, {"properties": {"x": {}}}]} for number in range(500)}
    source = write("t", {"type": "object", "properties": uses, "$defs": {"Many": {"properties": many}}})
    assert len(source) < 1_000_000
    assert "u499: dict[str, Any] | None = None" in source


def test_more_alternatives_than_python_reads_are_any() -> None:
    options = [{"type": "object", "properties": {f"p{number}": {}}} for number in range(60)]
    assert "x: Any | None = None" in write("t", {"type": "object", "properties": {"x": {"anyOf": options}}})


def test_what_a_tool_returns_without_a_word_about_it_is_not_lost() -> None:
    result = load(write("t", {"type": "object"}, {"type": "object"})).Result.model_validate({"a": 1})
    assert result.a == 1


ITEMS = """Entities Entity, UserIds UserId, SQLQueries SQLQuery, URLs URL, Addresses Address, Boxes Box,
Branches Branch, Databases Database, SubTasks SubTask, Children Child, Status StatusItem, Grid GridItem,
Data Datum, News News, S SItem, 日本 日本Item, Ties Tie, Heroes Hero,
Movies Movie, Statuses Status, OtherPeople OtherPerson"""


def test_the_items_of_a_list_are_called_as_one_of_them_is() -> None:
    pairs = [pair.split() for pair in ITEMS.split(",")]
    assert [item_name(plural) for plural, _ in pairs] == [item for _, item in pairs]
    source = write("t", {"properties": {"keys": {"type": "array", "items": {"properties": {"a": {}}}}}})
    assert "keys: list[Key] | None = None" in source

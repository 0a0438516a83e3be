"""Generated packages: names, schemas, hostile schemas, pages, replacement, and what a type checker says of them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import succeed
from tests.support.executor import run, text
from tests.support.tools import PLAIN, SDK, executing, generate, plain

from kernelbox import InvalidInput, KernelBoxConfig, StoreFailed, ToolServerFailed, generate_mcp_sources
from kernelbox.tools._package import write_package
from kernelbox.tools._servers import Servers


def tool(name: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {}, **more.pop("schema", {})}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **more}


SEARCH = tool(
    "search",
    {
        "query": {"type": "string", "description": "What to look for: 'a', \"b\", '''c''', \"\"\"d\"\"\", ${E}."},
        "max-results": {"type": "integer", "default": 10, "minimum": 1, "maximum": 50},
        "from": {"type": ["string", "null"], "default": None},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "filters": {"type": "array", "items": {"$ref": "#/$defs/Filter"}},
        "list": {"type": "array", "items": {"type": "string", "minLength": 1}},
        "odd \"name'\n": {"type": "string"},
    },
    schema={
        "required": ["query"],
        "additionalProperties": False,
        "$defs": {
            "Filter": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "inner": {"$ref": "#/$defs/Filter"}},
                "required": ["field"],
            }
        },
    },
    outputSchema={
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/Filter"}}, "from": {"type": "string"}},
        "required": ["items"],
        "$defs": {"Filter": {"type": "object", "properties": {"title": {"type": "string"}}}},
    },
)


async def ask(root: Path, code: str) -> str | None:
    async with executing(root) as executor:
        return await text(executor, code)


def test_aliases_nulls_defaults_and_nested_objects_come_through_in_both_directions(home: Path, tmp_path: Path) -> None:
    spec = plain(
        tmp_path, tools=[SEARCH, tool("echo")], structured={"search": {"items": [{"title": "x"}], "from": "y"}}
    )
    assert generate(tmp_path, spec) == ["search", "echo"]
    echoing = (
        (tmp_path / "mcptools/plain/search.py").read_text().replace('"search"', '"echo"').replace(", Result)", ")")
    )
    (tmp_path / "mcptools/plain/echoing.py").write_text(echoing)
    code = """
from mcptools.plain.search import Params, Result, run
from mcptools.plain.echoing import Params as Other, run as echo
result: Result = run(Params(query="q"))
print(result.items[0].title, result.from_)
print(echo(Other(query="q")))
args = dict(query="q", max_results=3, from_=None, mode="slow", list_=["a"], odd__name__="z")
print(echo(Other(**args, filters=[{"field": "f", "inner": {"field": "g"}}])))
print(echo(Other(**{"query": "q", "max-results": 4, "from": "x"})))
"""
    told = (run(lambda: ask(tmp_path, code)) or "").splitlines()
    assert told[0] == "x y"
    assert [json.loads(line) for line in told[1:]] == [
        {"query": "q"},
        {
            "query": "q",
            "max-results": 3,
            "from": None,
            "mode": "slow",
            "list": ["a"],
            "odd \"name'\n": "z",
            "filters": [{"field": "f", "inner": {"field": "g"}}],
        },
        {"query": "q", "max-results": 4, "from": "x"},
    ]


def test_arguments_that_do_not_fit_fail_before_anybody_is_asked(home: Path, tmp_path: Path) -> None:
    generate(tmp_path, plain(tmp_path, tools=[SEARCH]))
    code = """
from mcptools.plain.search import Params, run
def change():
    params = Params(query="q")
    params.query = 7
    return params
for make in (
    lambda: Params(),
    lambda: Params(query=1),
    lambda: Params(query="q", max_results=99),
    lambda: Params(query="q", mode="medium"),
    lambda: Params(query="q", unknown=1),
    change,
):
    try:
        run(make())
    except ValueError:
        print("no")
"""

    async def scenario() -> list[Any]:
        async with executing(tmp_path) as executor:
            return [item async for item in executor.stream(code)]

    assert [item.text for item in run(scenario)] == ["\n".join(["no"] * 6)]


def test_every_name_of_a_tool_gives_a_module_of_its_own(home: Path, tmp_path: Path) -> None:
    names = ["a-b", "a_b", "A.B", "class", "3d", "__init__", "é", "a/../b", "", "import os", "run", "None", "x" * 300]
    names += ["__path__", "_server", "__getattr__", "annotations", "server", "nul\0", "\x1b[31m\u202e"]
    modules = generate(tmp_path, plain(tmp_path, tools=[tool(name) for name in names]))
    assert len({module.casefold() for module in modules}) == len(names)
    assert modules[1] == "a_b"
    lines = [f"from mcptools.plain.{module} import Params, run" for module in modules]
    expected = [f"{name!r}" for name in names]
    lines += [f"from mcptools.plain import {module} as found\nfound.run" for module in modules]
    told = run(lambda: ask(tmp_path, "\n".join(lines) + "\nprint('imported')"))
    assert told == "imported"
    sources = [(tmp_path / f"mcptools/plain/{module}.py").read_text() for module in modules]
    assert all(name[1:-1] in source for name, source in zip(expected, sources, strict=True))


def test_what_a_cell_puts_in_the_place_of_a_package_is_neither_waited_for_nor_replaced(
    home: Path, tmp_path: Path
) -> None:
    package = tmp_path / "mcptools/plain"
    package.mkdir(parents=True)
    os.mkfifo(package / "tools.json")
    with pytest.raises(InvalidInput, match="was not generated"):
        generate(tmp_path, PLAIN)


def test_a_directory_for_packages_that_is_a_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "mcptools").symlink_to(elsewhere)
    with pytest.raises(InvalidInput, match="it is a link"):
        generate(tmp_path, PLAIN)
    assert list(elsewhere.iterdir()) == []


def test_a_package_behind_a_link_is_neither_written_nor_removed(home: Path, tmp_path: Path) -> None:
    generate(tmp_path, PLAIN)
    kept = (tmp_path / "mcptools").rename(tmp_path / "kept")
    before = sorted(kept.rglob("*"))
    (tmp_path / "mcptools").symlink_to(kept)
    with pytest.raises(StoreFailed, match="Not a directory"):
        write_package(str(tmp_path / "mcptools"), "plain", {"tools.json": "{}"})
    assert succeed("tools", "remove", "plain") == {"removed": "plain", "package_removed": False}
    assert sorted(kept.rglob("*")) == before


def test_all_pages_of_a_list_are_read(home: Path, tmp_path: Path) -> None:
    names = [f"tool{number}" for number in range(7)]
    assert generate(tmp_path, plain(tmp_path, tools=[tool(name) for name in names], page=2)) == names


HOSTILE: list[dict[str, Any]] = [
    {"customTypePath": "os.system", "properties": {"a": {"type": "string", "customTypePath": "os.system"}}},
    {"customBasePath": "os.PathLike", "properties": {"a": {"type": "string"}}},
    {"properties": {"a": {"$ref": "/etc/passwd"}, "b": {"$ref": "file:///etc/passwd#/x"}, "c": {"$ref": "http://x/y"}}},
    {"properties": {"a": {"type": "string", "default": '"); open("{mark}", "w"); ("'}}},
    {"properties": {'a"); open("{mark}", "w"); ("': {"type": "string"}}},
    {"properties": {"a": {"enum": ['"]; open("{mark}", "w"); x: Literal["']}}},
    {"title": 'X(BaseModel): pass\nopen("{mark}", "w")\nclass Y', "properties": {"a": {"type": "string"}}},
    {"description": '"""\nopen("{mark}", "w")\n"""', "properties": {"a": {"description": '"""\nopen("{mark}", "w")#'}}},
    {"description": "ends with a backslash \\", "properties": {"a": {"description": '\\"""\nopen("{mark}", "w")\\'}}},
    {
        "properties": {"a": {"$ref": "#/$defs/X\nopen('{mark}', 'w')"}},
        "$defs": {"X\nopen('{mark}', 'w')": {"type": "object"}},
    },
    {"properties": {"a": {"type": "string", "pattern": "(a+)+$"}, "b": {"type": "string", "pattern": "(?<"}}},
    {"properties": {"a": {"$ref": "#/$defs/BaseModel"}}, "$defs": {"BaseModel": {"type": "object", "properties": {}}}},
    {"properties": {"a": {"$ref": "#/$defs/Any"}}, "$defs": {"Any": {"type": "object", "properties": {"b": {}}}}},
    {"properties": {"__class__": {"type": "string"}, "model_fields": {}, "model_dump": {"type": "string"}}},
    {"properties": {"self": {"$ref": "#"}, "params": {"type": "string"}, "call": {"type": "string"}}},
    {"allOf": [{"$ref": "#"}], "properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}},
    {"$defs": [], "items": [], "enum": {}, "additionalProperties": 3, "anyOf": {}, "allOf": [3], "default": [[]]},
    {"properties": {"a": {"type": "strange"}, "b": {"type": []}, "c": {"enum": [[1], {}]}}},
    {"properties": {f"p{n}": {"type": "string"} for n in range(500)}},
    {"properties": {"a": {"type": "object", "properties": {"b": {}}, "required": [["b"], {}, 3, None, "b"]}}},
]


def test_hostile_schemas_neither_run_code_nor_read_files_nor_stop_the_others(home: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    text_of = json.dumps([*HOSTILE, deep]).replace("{mark}", str(mark))
    tools = [
        {"name": f"t{n}", "description": 'x"""\nopen("m", "w")\\', "inputSchema": schema, "outputSchema": schema}
        for n, schema in enumerate({"type": "object", **schema} for schema in json.loads(text_of))
    ]
    spec = plain(tmp_path, tools=[*tools, SEARCH], instructions='"""\nopen("m", "w")\\')
    modules = generate(tmp_path, spec)
    assert len(modules) == len(tools) + 1
    sources = {module: (tmp_path / f"mcptools/plain/{module}.py").read_text() for module in modules}
    assert Path("/etc/passwd").read_text().splitlines()[0] not in "".join(sources.values())
    lines = "".join(f"from mcptools.plain.{module} import Params, run\n" for module in modules)
    assert run(lambda: ask(tmp_path, lines + "print('imported')")) == "imported"
    assert not mark.exists()
    assert not (tmp_path / "m").exists()
    assert "class Filter" in sources["search"]


def test_a_choice_of_more_values_than_anybody_reads_and_a_default_of_a_page_are_left_to_the_server(
    home: Path, tmp_path: Path
) -> None:
    few, many = ([f"v{n}" for n in range(count)] for count in (3, 100_000))
    properties = {
        "few": {"type": "string", "enum": few},
        "many": {"type": "string", "enum": many},
        "one": {"type": "string", "const": "x" * 100_000},
        "usual": {"type": "string", "default": "y" * 100_000},
    }
    generate(
        tmp_path, plain(tmp_path, tools=[{"name": "t", "inputSchema": {"type": "object", "properties": properties}}])
    )
    source = (tmp_path / "mcptools/plain/t.py").read_text()
    assert "few: Literal['v0', 'v1', 'v2'] | None = None" in source
    assert "many: str | None = None" in source
    assert "one: str | None = None" in source
    assert "usual: str | None = None" in source
    assert len(source) < 2_000


def test_an_answer_that_is_nested_too_deeply_and_a_list_that_is_not_valid_are_told(home: Path, tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}}
    with pytest.raises(ToolServerFailed, match="nested too deeply"):
        generate(tmp_path, plain(tmp_path, tools=[{"name": "x", "inputSchema": deep}]))
    with pytest.raises(ToolServerFailed, match=r"does not allow \(tools.0.inputSchema.type: Field required"):
        generate(tmp_path, plain(tmp_path, tools=[{"name": "x", "inputSchema": {}}]))


def test_tools_that_share_a_schema_get_the_same_classes(home: Path, tmp_path: Path) -> None:
    part = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"part": {"$ref": "#/$defs/Part"}}, "$defs": {"Part": part}}
    twins = [{"name": name, "inputSchema": schema, "outputSchema": schema} for name in ("one", "two", "six")]
    generate(tmp_path, plain(tmp_path, tools=twins))
    one, two, six = ((tmp_path / f"mcptools/plain/{name}.py").read_text() for name in ("one", "two", "six"))
    assert "class ResultPart" in one
    assert one == two.replace("two", "one") == six.replace("six", "one")


def test_a_server_that_fails_leaves_the_old_package_alone(home: Path, tmp_path: Path) -> None:
    generate(tmp_path, plain(tmp_path, tools=[SEARCH]))
    before = (tmp_path / "mcptools/plain/search.py").read_text()
    with pytest.raises(ToolServerFailed, match="closed the connection"):
        generate(tmp_path, {"command": "false"})
    assert (tmp_path / "mcptools/plain/search.py").read_text() == before
    assert Servers(KernelBoxConfig.from_env()).find("plain") is not None
    generate(tmp_path, plain(tmp_path, tools=[tool("other")]))
    assert sorted(path.name for path in (tmp_path / "mcptools/plain").glob("*.py")) == ["__init__.py", "other.py"]
    assert sorted(path.name for path in (tmp_path / "mcptools").iterdir()) == ["__init__.py", "plain"]


def test_packages_that_are_generated_at_once_do_not_disturb_each_other(home: Path, tmp_path: Path) -> None:
    async def scenario() -> list[list[str]]:
        root = tmp_path / "mcptools"
        names = ["plain", "plain", "other"]
        return await asyncio.gather(*(generate_mcp_sources(name, PLAIN, root) for name in names))

    first, second, third = run(scenario)
    assert first == second == third
    assert sorted(path.name for path in (tmp_path / "mcptools").iterdir()) == ["__init__.py", "other", "plain"]
    assert {"plain", "other"} <= set(Servers(KernelBoxConfig.from_env()).all())


def test_a_package_that_was_not_generated_or_is_another_servers_is_not_replaced(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mcptools/mine").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="was not generated"):
        generate(tmp_path, PLAIN, "mine")
    generate(tmp_path, PLAIN, "a-b")
    with pytest.raises(InvalidInput, match="which server 'a-b' has"):
        generate(tmp_path, PLAIN, "a_b")


@pytest.mark.parametrize("name", ["", "kernelbox", "x" * 101, "a\nb", 3])
def test_a_server_cannot_have_just_any_name(home: Path, tmp_path: Path, name: Any) -> None:
    with pytest.raises(InvalidInput):
        generate(tmp_path, PLAIN, name)


def test_secrets_are_not_written_into_the_package(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "swordfish")
    generate(tmp_path, {**PLAIN, "env": {"TOKEN": "${A_SECRET}", "LITERAL": "hunter2"}})
    written = "".join(path.read_text() for path in (tmp_path / "mcptools").rglob("*") if path.is_file())
    assert "swordfish" not in written
    assert "hunter2" not in written
    kept = Servers(KernelBoxConfig.from_env()).find("plain")
    assert kept is not None
    assert dict(kept.env)["TOKEN"] == "${A_SECRET}"


@pytest.mark.slow  # pyright fetches what it is made of
def test_the_generated_code_passes_pyright_and_so_does_code_that_uses_it(home: Path, tmp_path: Path) -> None:
    generate(tmp_path, plain(tmp_path, tools=[SEARCH, tool("echo")]))
    (tmp_path / "use.py").write_text(
        "from mcptools.plain.search import Params, Result, run, run_async\n"
        "result: Result = run(Params(query='q', max_results=3, from_=None, mode='fast'))\n"
        "title: str | None = result.items[0].title\n"
        "async def f() -> Result:\n    return await run_async(Params(query='q'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "mcptools", "use.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "0 errors" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_module_of_an_average_tool_is_short(home: Path, tmp_path: Path) -> None:
    generate(tmp_path, SDK, "tests")
    source = (tmp_path / "mcptools/tests/image_search.py").read_text()
    assert len(source.splitlines()) < 60
    assert '    query: str\n    """What to look for."""\n' in source
    assert "def run(params: Params) -> Result:" in source


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("root_dir", 5),
        ("root_dir", None),
        ("root_dir", ""),
        ("root_dir", b"/"),
        ("root_dir", "\0"),
        ("connect_timeout", "5"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_its_name(tmp_path: Path, option: str, value: Any) -> None:
    given: dict[str, Any] = {"root_dir": tmp_path, option: value}
    with pytest.raises(InvalidInput, match=f"^{option} cannot be "):
        run(lambda: generate_mcp_sources("x", {"command": "true"}, **given))

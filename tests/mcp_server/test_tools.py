"""The tools as a client sees them: over stdio and HTTP, in both generations of the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.mcp_server import GENERATIONS, Served, call, failure, http_client, run, stdio_client, text


@pytest.mark.parametrize("mode", GENERATIONS)
def test_the_tools_of_ipybox_are_there_with_their_arguments_and_defaults(
    tmp_path: Path, own_home: Path, mode: str
) -> None:
    async def scenario() -> None:
        async with stdio_client(tmp_path, mode=mode) as client:
            tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            assert {name: arguments(schema) for name, schema in tools.items()} == {
                "execute_ipython_cell": {"code": ..., "timeout": 120, "max_output_chars": 5000},
                "install_package": {"package_name": ...},
                "register_mcp_server": {"server_name": ..., "server_params": ...},
                "reset": {},
            }
            await text(client, "reset")
            assert await text(client, "execute_ipython_cell", code="x = 20\nprint('hi')\nx + 1") == (
                "hi\n21\n[variables: added x]"
            )
            assert await text(client, "execute_ipython_cell", code="import os; os.getcwd()") == (
                f"{str(tmp_path)!r}\n[variables: added os]"
            )
            await text(client, "reset")
            assert "NameError" in await failure(client, "execute_ipython_cell", code="x")

    run(scenario)


@pytest.mark.parametrize("mode", GENERATIONS)
def test_kernels_are_told_apart_by_name(served: Served, mode: str) -> None:
    async def scenario() -> None:
        async with http_client(served, mode) as client:
            for name in ("a", "b"):
                await text(client, "execute", code=f"label = {name!r}", kernel=name)
            assert await text(client, "execute", code="label", kernel="a") == "'a'"
            listed = (await call(client, "list_kernels")).structured_content
            assert listed is not None
            assert {"a", "b"} <= {kernel["name"] for kernel in listed["kernels"]}
            await text(client, "restart_kernel", kernel="a")
            assert "NameError" in await failure(client, "execute", code="label", kernel="a")
            assert await text(client, "execute", code="label", kernel="b") == "'b'"
            await text(client, "close_kernel", kernel="b")
            for tool in ("close_kernel", "restart_kernel", "interrupt", "list_variables"):
                assert "there is no kernel 'b'" in await failure(client, tool, kernel="b")

    run(scenario)


def test_every_tool_says_what_it_does_and_whether_it_changes_anything(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            for tool in (await client.list_tools()).tools:
                assert tool.description
                assert len(tool.description) < 300
                assert "\n" not in tool.description
                assert '"title"' not in tool.model_dump_json(exclude={"title", "annotations"})
                assert tool.annotations is not None
                reads = tool.name.startswith(("list_", "read_"))
                assert tool.annotations.read_only_hint is reads
                if reads:
                    assert tool.output_schema is not None
                for name, schema in tool.input_schema["properties"].items():
                    assert schema.get("description") or schema.get("enum") or name in ("job_id", "text"), (
                        tool.name,
                        name,
                    )

    run(scenario)


def test_variables_are_listed_with_their_types(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            await text(client, "execute", code="numbers = [1, 2]", kernel="variables")
            found = (await call(client, "list_variables", kernel="variables")).structured_content
            assert found is not None
            [variable] = found["variables"]
            assert (variable["name"], variable["type"], variable["preview"]) == ("numbers", "list", "[1, 2]")

    run(scenario)


def test_a_kernel_that_dies_of_a_listing_is_told_by_its_name_and_the_next_call_gets_a_fresh_one(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            code = "import os\nclass Ending:\n  def __repr__(self): os._exit(3)\nending = Ending()"
            await text(client, "execute", code=code, kernel="ending")
            told = await failure(client, "list_variables", kernel="ending")
            assert told.endswith("'ending' died: the process exited with status 3; the next call starts a fresh kernel")
            assert "42" in await text(client, "execute", code="6 * 7", kernel="ending")

    run(scenario)


def test_a_file_can_be_written_read_by_range_and_found_by_a_kernel(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            await text(client, "write_file", path="notes/a.txt", text="one two three")
            part = (await call(client, "read_file", path="notes/a.txt", start=4, length=3)).structured_content
            assert part == {"text": "two", "start": 4, "end": 7, "size": 13}
            listed = (await call(client, "list_files", path="notes")).structured_content
            assert listed == {"entries": [{"name": "a.txt", "kind": "file", "size": 13}], "total": 1}
            assert "'one two three'" in await text(client, "execute", code="open('notes/a.txt').read()", kernel="f")
            assert json.loads(await text(client, "list_files", path="notes")) == listed
            assert " " not in await text(client, "list_files", path="notes")
            for path in ("../x", "/etc/passwd", ".env", "notes"):
                assert (await failure(client, "read_file", path=path)).startswith(f"the path cannot be '{path}': ")

    run(scenario)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "code is missing"),
        ({"code": 1}, "code is 1; use a text"),
        ({"code": None}, "code is None; use a text"),
        ({"code": "1", "timeout": 0}, "timeout is 0; use a number above 0"),
        ({"code": "1", "timeout": "soon"}, "timeout is 'soon'; use a number"),
        ({"code": "1", "timeout": "nan"}, "timeout is 'nan'; use a number up to 86400"),
        ({"code": "1", "timeout": 1e6}, "timeout is 1000000.0; use a number up to 86400"),
        ({"code": "1", "max_output_chars": 1.5}, "max_output_chars is 1.5; use a whole number"),
        ({"code": "1", "time": 1}, "there is no argument 'time'; use code, timeout, max_output_chars"),
        ({"time": 1}, "code is missing; there is no argument 'time'; use code, timeout, max_output_chars"),
    ],
)
def test_wrong_arguments_are_told_in_a_sentence_and_nothing_runs(
    served: Served, wrong: dict[str, Any], said: str
) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            answer = await failure(client, "execute_ipython_cell", **wrong)
            assert answer == f"execute_ipython_cell: {said}"

    run(scenario)


def test_a_wrong_value_is_shown_in_short(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            assert len(await failure(client, "execute_ipython_cell", code=["x" * 1000] * 1000)) < 200

    run(scenario)


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a tool and their defaults; those that must be given have none."""
    return {name: described.get("default", ...) for name, described in schema["properties"].items()}

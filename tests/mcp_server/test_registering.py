"""`register_mcp_server`: tools of other servers, called from cells and approved by the person at the client."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cells import wait_for_end
from tests.support.mcp_server import GENERATIONS, Person, failure, run, stdio_client, text
from tests.support.tools import PLAIN, cell, plain


@pytest.mark.slow
@pytest.mark.parametrize("mode", GENERATIONS)
def test_tools_of_a_registered_server_are_called_from_a_cell_with_approval(
    tmp_path: Path, own_home: Path, mode: str
) -> None:
    person = Person()

    async def scenario() -> None:
        async with stdio_client(tmp_path, mode=mode, elicitation_callback=person) as client:
            names = await text(client, "register_mcp_server", server_name="plain", server_params=PLAIN)
            assert {"echo", "pid"} <= set(names.split())
            shown = await text(client, "execute_ipython_cell", code=cell("echo", text="hello"))
            assert '"hello"' in shown

    run(scenario)
    [asked] = person.asked
    assert "plain.echo" in asked
    assert "text: 'hello'" in asked


@pytest.mark.slow
def test_a_tool_that_is_declined_is_not_called_and_servers_end_with_ours(tmp_path: Path, own_home: Path) -> None:
    async def scenario() -> int:
        code = cell("pid")
        async with stdio_client(tmp_path, elicitation_callback=Person("decline")) as client:
            await text(client, "register_mcp_server", server_name="plain", server_params=PLAIN)
            assert "ApprovalRejectedError" in await failure(client, "execute_ipython_cell", code=code)
        async with stdio_client(tmp_path, "--approve", "all") as client:
            first = int((await text(client, "execute_ipython_cell", code=code)).split()[0])
            await text(client, "reset")
            wait_for_end(first)
            return int((await text(client, "execute_ipython_cell", code=code)).split()[0])

    wait_for_end(run(scenario))


@pytest.mark.slow
def test_a_variable_of_the_workspace_reaches_the_server_and_not_the_kernel(tmp_path: Path, own_home: Path) -> None:
    (tmp_path / ".env").write_text("SECRET=s3cret\n")

    async def scenario() -> None:
        async with stdio_client(tmp_path, "--approve", "all") as client:
            params = {**PLAIN, "env": {"GIVEN": "${SECRET}"}}
            await text(client, "register_mcp_server", server_name="plain", server_params=params)
            shown = await text(client, "execute_ipython_cell", code=cell("environment", name="GIVEN"))
            assert shown.startswith("s3cret\n")
            code = "import os; print(os.environ.get('SECRET'), os.environ.get('GIVEN'))"
            assert "None None" in await text(client, "execute_ipython_cell", code=code)

    run(scenario)
    written = [path.read_bytes() for path in (tmp_path / "mcptools").rglob("*") if path.is_file()]
    assert written
    assert not any(b"s3cret" in content for content in written)


def test_a_server_that_cannot_be_registered_is_told(tmp_path: Path, own_home: Path) -> None:
    async def scenario() -> None:
        async with stdio_client(tmp_path) as client:
            for name, params in (
                ("x", {}),
                ("x", {"command": "/nowhere/at/all"}),
                ("x", {**PLAIN, "env": {"A": "${NOT_SET_ANYWHERE}"}}),
                ("kernelbox", plain(tmp_path)),
                ("", plain(tmp_path)),
            ):
                said = await failure(client, "register_mcp_server", server_name=name, server_params=params)
                assert not said.startswith("Error executing"), (name, said)

    run(scenario)
    assert not (tmp_path / "mcptools" / "x").exists()

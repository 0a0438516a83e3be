"""`kernelbox mcp --sandbox`: tools, files, pictures and approvals work, and a model runs nothing outside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from tests.support.cells import PICTURE
from tests.support.mcp_server import (
    GENERATIONS,
    Person,
    call,
    failure,
    links,
    pictures,
    run,
    stdio_client,
    text,
    text_of,
)
from tests.support.tools import PLAIN, cell, generate

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="sandboxed kernels need Linux")


@pytest.mark.slow
@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_sandboxed_cell_calls_the_tools_that_the_user_has_added_with_approval(
    tmp_path: Path, own_home: Path, mode: str
) -> None:
    generate(tmp_path, PLAIN)
    person = Person()

    async def scenario() -> None:
        async with stdio_client(tmp_path, "--sandbox", mode=mode, elicitation_callback=person) as client:
            assert '"hello"' in await text(client, "execute_ipython_cell", code=cell("echo", text="hello"))
            assert "inside" in await text(client, "execute_ipython_cell", code="!echo inside")

    run(scenario)
    assert ["plain.echo" in asked for asked in person.asked] == [True, False]


@pytest.mark.slow
def test_nothing_is_installed_from_a_sandboxed_server(tmp_path: Path, own_home: Path) -> None:
    async def scenario() -> None:
        async with stdio_client(tmp_path, "--sandbox", "--approve", "all") as client:
            said = await failure(client, "install_package", package_name="tiny-package")
            assert "outside of the sandbox" in said
            assert "tiny-package was not installed" in said
            assert "pip requirement" in await failure(client, "install_package", package_name="--upgrade")

    run(scenario)


@pytest.mark.slow
def test_a_server_that_would_run_outside_of_the_sandbox_is_added_only_where_all_is_approved(
    tmp_path: Path, own_home: Path
) -> None:
    mark = tmp_path / "ran outside"
    params = {"command": "touch", "args": [str(mark)]}

    async def scenario() -> None:
        async with stdio_client(tmp_path, "--sandbox", elicitation_callback=Person()) as client:
            said = await failure(client, "register_mcp_server", server_name="evil", server_params=params)
            assert "'evil' was not added" in said
            assert "kernelbox tools add" in said
        assert not mark.exists()
        async with stdio_client(tmp_path, "--sandbox", "--approve", "all") as client:
            assert "echo" in await text(client, "register_mcp_server", server_name="plain", server_params=PLAIN)
            assert '"x"' in await text(client, "execute_ipython_cell", code=cell("echo", text="x"))

    run(scenario)


@pytest.mark.slow
def test_files_and_pictures_of_a_sandboxed_cell_are_those_of_the_workspace(tmp_path: Path, own_home: Path) -> None:
    (tmp_path / ".env").write_text("SECRET=s3cret\nKERNEL_ENV_GIVEN_ID=given\n")

    async def scenario() -> None:
        async with stdio_client(tmp_path, "--sandbox", "--toolset", "all") as client:
            await text(client, "write_file", path="data.txt", text="6 7")
            code = "a, b = map(int, open('data.txt').read().split())\nopen('sum.txt', 'w').write(str(a * b))"
            await text(client, "execute", code=code)
            assert '"text":"42"' in (await text(client, "read_file", path="sum.txt")).replace(" ", "")
            code = "import os; print(os.environ.get('GIVEN_ID'), os.environ.get('SECRET'), open('.env').read())"
            shown = await failure(client, "execute", code=code)
            assert "s3cret" not in shown
            assert "given None" in await text(client, "execute", code=code.replace(", open('.env').read()", ""))
            drawn = await call(client, "execute", code=PICTURE)
            assert len(pictures(drawn)) == len(links(drawn)) == 1

    run(scenario)


@pytest.mark.slow
def test_files_that_a_sandboxed_cell_cannot_read_or_write_are_not_read_or_written_for_a_model(
    tmp_path: Path, own_home: Path
) -> None:
    workspace = tmp_path / "workspace"
    for path in (".git/hooks/pre-commit", ".bashrc", "deep/er/.git/config", "secrets/key", "kept/data.txt"):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text("s3cret")
    (workspace / "policy.json").write_text('{"rules": []}')
    rules = {"filesystem": {"denyRead": ["secrets"], "allowWrite": ["."], "denyWrite": ["kept"]}}
    (tmp_path / "sandbox.json").write_text(json.dumps(rules))

    async def scenario() -> None:
        words = ("--sandbox", "--sandbox-config", str(tmp_path / "sandbox.json"), "--toolset", "all")
        kept = (
            ".git/hooks/pre-commit",
            ".bashrc",
            "deep/er/.git/config",
            "kept/data.txt",
            "kept/new.txt",
            "policy.json",
        )
        async with stdio_client(workspace, *words, "--policy", str(workspace / "policy.json")) as client:
            for path in kept:
                assert "do not allow writing to it" in await failure(client, "write_file", path=path, text="x")
                assert "OSError" in await failure(client, "execute", code=f"open({path!r}, 'w')")
            for path in ("secrets/key", "secrets"):
                tool = "list_files" if path == "secrets" else "read_file"
                assert "the rules of the sandbox hide it" in await failure(client, tool, path=path)
                assert "hide it" in await failure(client, "write_file", path=f"{path}/x", text="x")
            assert "s3cret" in await text(client, "read_file", path="kept/data.txt")
            await text(client, "write_file", path="deep/er/new/file.txt", text="x")

    run(scenario)
    assert (workspace / ".git/hooks/pre-commit").read_text() == "s3cret"


@pytest.mark.slow
def test_a_link_that_a_sandboxed_cell_puts_in_the_place_of_its_pictures_leads_nowhere(
    tmp_path: Path, own_home: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    workspace = tmp_path / "workspace"
    for made in (elsewhere, workspace):
        made.mkdir()
    (elsewhere / "private.png").write_text("s3cret")

    async def scenario() -> None:
        for plant in (f"import os; os.symlink({str(elsewhere)!r}, 'images')", "1"):  # the second server finds the link
            async with stdio_client(workspace, "--sandbox") as client:
                await text(client, "execute_ipython_cell", code=plant)
                drawn = await call(client, "execute_ipython_cell", code=PICTURE)
                assert "images could not be written" in text_of(drawn)
                assert not pictures(drawn)
                assert not links(drawn)
                with pytest.raises(MCPError, match="link"):
                    await client.read_resource("kernelbox://images/private.png")

    run(scenario)
    assert [path.name for path in elsewhere.iterdir()] == ["private.png"]

"""MCP as a part of the service: at /mcp, for the same callers, kernels, limits and metrics."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from tests.support.bounded import DEADLINE, run
from tests.support.homes import new_home
from tests.support.server import Served, serving

# Of the user, of two callers, and of one that may only look.
SECRET, ANN, BOB, LOOKER = (f"a-secret-of-{name}-and-long-enough" for name in ("all", "ann", "bob", "looker"))

TOKENS = f"""
[[token]]
name = "ann"
secret = "{ANN}"

[[token]]
name = "bob"
secret = "{BOB}"

[[token]]
name = "looker"
secret = "{LOOKER}"
scopes = ["read"]
"""

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@contextlib.contextmanager
def serving_mcp(folder: Path) -> Iterator[Served]:
    """Starts a server with MCP, and tokens of several callers; `log` in the folder is its log."""
    tokens, workspace = folder / "tokens.toml", folder / "workspace"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    workspace.mkdir()
    with new_home() as home:
        words = ("--mcp", "kernels,files", "--tokens", str(tokens))
        env = {"KERNELBOX_HOME": str(home), "KERNELBOX_TOKEN": SECRET, "LOG": str(folder / "log")}
        with serving(workspace, *words, **env) as server:
            yield server
            server.http.delete("/kernels", headers={"Authorization": f"Bearer {SECRET}"})


@pytest.fixture(scope="module")
def mcp_served(key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_mcp(tmp_path_factory.mktemp("mcp")) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(served: Served, token: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE) as connection:
        transport = streamable_http_client(f"{served.url}/mcp", http_client=connection)
        async with Client(transport, mode="2026-07-28") as client:
            yield client


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def call(served: Served, token: str, tool: str, **arguments: object) -> str:
    """Calls a tool that must succeed; returns its text."""

    async def scenario() -> str:
        async with connected(served, token) as client:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result
            return text_of(result)

    return run(scenario)


def ask(served: Served, token: str, path: str) -> httpx2.Response:
    return served.http.get(path, headers={"Authorization": f"Bearer {token}"})


def hello(client: httpx2.Client, **headers: str) -> httpx2.Response:
    usual = {"Accept": "application/json, text/event-stream"}
    return client.post("/mcp", json=HELLO, headers=usual | headers)


def test_without_the_option_there_is_no_mcp(served: Served) -> None:
    answer = hello(served.http)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.slow
def test_a_tool_call_runs_in_the_kernels_of_the_service(mcp_served: Served) -> None:
    assert call(mcp_served, SECRET, "execute", code="x = 6 * 7; x", kernel="shared").startswith("42")
    bearer = {"Authorization": f"Bearer {SECRET}"}
    answer = mcp_served.http.post("/kernels/shared/execute", json={"code": "x"}, headers=bearer)
    assert answer.json()["return_value"] == "42"


def test_cells_of_tools_are_counted(mcp_served: Served) -> None:
    def count() -> float:
        lines = ask(mcp_served, SECRET, "/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("kernelbox_executions_total{"))

    before = count()
    call(mcp_served, SECRET, "execute", code="1", kernel="counted")
    assert count() == before + 1


def test_each_caller_has_its_own_kernels_and_folder(mcp_served: Served) -> None:
    call(mcp_served, ANN, "execute", code="open('mine.txt', 'w').write('a'); secret = 1", kernel="work")
    call(mcp_served, BOB, "execute", code="assert 'secret' not in globals()", kernel="work")
    assert (mcp_served.workspace / "ann" / "mine.txt").exists()
    assert "mine.txt" in call(mcp_served, ANN, "list_files")
    assert "mine.txt" not in call(mcp_served, BOB, "list_files")
    listed = json.loads(call(mcp_served, BOB, "list_kernels"))
    assert {kernel["name"] for kernel in listed["kernels"]} == {"work"}
    names = {kernel["name"] for kernel in ask(mcp_served, SECRET, "/kernels").json()["kernels"]}
    assert names >= {"ann:work", "bob:work"}
    assert ask(mcp_served, ANN, "/kernels/work").json()["alive"] is True


def test_a_session_cannot_be_used_by_another_caller(mcp_served: Served) -> None:
    session = hello(mcp_served.http, Authorization=f"Bearer {ANN}").headers["Mcp-Session-Id"]
    for token, status in ((ANN, 200), (BOB, 404), (SECRET, 404)):
        answer = hello(mcp_served.http, Authorization=f"Bearer {token}", **{"Mcp-Session-Id": session})
        assert answer.status_code == status, token


def test_a_token_without_all_scopes_is_refused(mcp_served: Served) -> None:
    answer = hello(mcp_served.http, Authorization=f"Bearer {LOOKER}")
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    assert hello(mcp_served.http).status_code == 401


@pytest.mark.slow
def test_requests_are_logged_with_their_caller(tmp_path: Path, key_file: Path) -> None:
    with serving_mcp(tmp_path) as server:
        answer = hello(server.http, Authorization=f"Bearer {ANN}")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    logged = [line for line in lines if line.get("request_id") == answer.headers["X-Request-ID"]]
    assert [(line["path"], line["status"], line["caller"]) for line in logged] == [("/mcp", 200, "ann")]


@pytest.mark.slow
def test_mcp_alone_can_listen_at_a_unix_socket(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(home))
        path = home.with_suffix(".sock")
        command = [sys.executable, "-m", "kernelbox", "mcp", "--workspace", str(tmp_path), "--http", f"unix:{path}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert (told["url"], told["path"]) == (f"unix:{path}", "/mcp")
            with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), base_url="http://any") as client:
                assert hello(client).status_code == 401  # also to the user's own programs
                assert hello(client, Authorization=f"Bearer {told['token']}").status_code == 200
                assert client.get("/health").status_code == 401
            process.terminate()
            assert process.wait(DEADLINE) == 0
        assert not path.exists()


@pytest.mark.slow
def test_no_more_kernels_are_opened_through_mcp_than_the_server_may_have(tmp_path: Path, key_file: Path) -> None:
    async def scenario() -> None:
        async with connected(server, server.token) as client:
            for name, is_refused in (("one", False), ("two", False), ("three", True), ("one", False)):
                result = await client.call_tool("execute", {"code": "6 * 7", "kernel": name})
                assert result.is_error == is_refused, text_of(result)
                assert ("there are 2 kernels, which is the limit" if is_refused else "42") in text_of(result)

    with new_home() as home, serving(tmp_path, "--mcp", "--max-kernels", "2", KERNELBOX_HOME=str(home)) as server:
        run(scenario)
        assert len(server.http.get("/kernels").json()["kernels"]) == 2
        server.http.delete("/kernels")

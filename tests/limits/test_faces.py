"""Limits in every face: given in its way, held by its kernels, refused in its words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import fail, kernelbox, succeed
from tests.support.executor import run as run_async
from tests.support.mcp_server import run as run_mcp
from tests.support.mcp_server import stdio_client
from tests.support.mcp_server import text as mcp_text
from tests.support.server import serving

from kernelbox import CodeExecutionError, CodeExecutor, InvalidInput, KernelExists, get_or_create, list_kernels, status
from kernelbox.gateway import ExecutionError, KernelClient, KernelGateway

pytestmark = pytest.mark.usefixtures("home")

BOMB = "x = [bytearray(8_000_000) for _ in range(60)]\nimport time\nwhile True: time.sleep(1)"
TOLD = "out of memory (limit 150 MB, peak "


def test_an_executors_kernel_has_its_limits_and_keeps_them_when_it_is_reset() -> None:
    async def scenario() -> list[str]:
        told = []
        async with CodeExecutor(limits={"memory": "150MB"}) as executor:
            for _ in range(2):
                with pytest.raises(CodeExecutionError) as failed:
                    await executor.execute(BOMB)
                told.append(failed.value.evalue)
                await executor.reset()
        return told

    for told in run_async(scenario):
        assert told.startswith(TOLD)


def test_an_executor_refuses_a_live_kernel_with_other_limits_and_takes_one_with_the_same() -> None:
    get_or_create("shared", limits={"memory": "300MB"})

    async def start(**options: Any) -> None:
        async with CodeExecutor(name="shared", **options):
            pass

    run_async(start)
    run_async(lambda: start(limits={"memory": "300MB"}))
    with pytest.raises(KernelExists, match="limits memory=300 MB, not 1 GB"):
        run_async(lambda: start(limits={"memory": "1GB"}))
    with pytest.raises(InvalidInput, match="the limit memory cannot be 'much'"):
        CodeExecutor(limits={"memory": "much"})


def test_the_command_line_creates_kernels_with_limits() -> None:
    record = succeed("create", "--name", "a", "--limit", "memory=300MB", "--limit", "file-size=1MB")
    assert record["limits"] == {"memory": 300_000_000, "file_size": 1_000_000}
    shown = succeed("status", "--name", "a")["kernel"]
    assert shown["limits"] == record["limits"]
    assert shown["usage"].keys() == {"memory", "cpu", "processes"}
    lines = kernelbox("status", "--name", "a", "--pretty").stdout.splitlines()
    assert "limits           memory 300 MB, file_size 1 MB" in lines
    assert any(line.startswith("usage            memory ") for line in lines)
    (listed,) = succeed("list")["kernels"]
    assert listed["usage"]["memory"] > 0


def test_exec_opens_a_new_name_with_limits_and_refuses_others_for_a_live_kernel() -> None:
    done = kernelbox("exec", "--name", "new", "--limit", "memory=150MB", BOMB)
    assert done.json["error"]["evalue"].startswith(TOLD)
    assert succeed("exec", "--name", "new", "--limit", "memory=150MB", "1 + 1")["return_value"] == "2"
    assert succeed("exec", "--name", "new", "1 + 1")["return_value"] == "2"
    assert status("new").limits == {"memory": 150_000_000}
    assert "has limits memory=150 MB, not 1 GB" in fail("exec", "--name", "new", "--limit", "memory=1GB", "1")
    assert "--with are for a kernel that --name opens" in fail("exec", "--id", "new", "--limit", "cpu=5", "1", status=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("memory=much", "--limit memory cannot be 'much'"),
        ("ram=1GB", "use NAME=VALUE with one of memory"),
        ("x", "NAME="),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_every_command(text: str, sentence: str) -> None:
    assert sentence in fail("create", "--name", "a", "--limit", text, status=2)
    assert sentence in fail("exec", "--name", "a", "--limit", text, "1", status=2)
    assert sentence in fail("serve", "--port", "0", "--limit", text, status=2)
    assert sentence in kernelbox("mcp", "--limit", text).stderr, "its stdout is for the protocol"


@pytest.mark.slow
def test_over_http_kernels_have_at_most_what_the_server_allows(tmp_path: Path, home: Path) -> None:
    with serving(tmp_path, "--limit", "files=200", KERNELBOX_HOME=str(home), KERNELBOX_LIMIT_MEMORY="150MB") as served:
        most = {"memory": 150_000_000, "files": 200}
        opened = served.post("/kernels", {"name": "default"}).json()
        assert opened["limits"] == most
        opened = served.post("/kernels", {"name": "less", "limits": {"memory": "100MB", "cpu": "10min"}}).json()
        assert opened["limits"] == {**most, "memory": 100_000_000, "cpu": 600}
        for beyond in ({"memory": "1GB"}, {"memory": 0}, {"files": 1000}):
            refused = served.post("/kernels", {"name": "more", "limits": beyond})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
            assert "this server allows at most" in refused.json()["detail"]
        for wrong in ({"memory": "much"}, {"ram": 5}, {"memory": True}, "512MB"):
            assert served.post("/kernels", {"name": "more", "limits": wrong}).status_code == 422
        shown = served.http.get("/kernels/default").json()["kernel"]
        assert shown["limits"] == most
        assert shown["usage"]["memory"] > 0
        assert isinstance(shown["usage"]["memory"], int)
        assert served.execute("default", BOMB)["error"]["evalue"].startswith(TOLD)
        assert served.post("/kernels/less/restart").json()["limits"]["cpu"] == 600


@pytest.mark.slow
def test_over_http_a_session_is_opened_with_limits_or_has_them(tmp_path: Path, home: Path) -> None:
    with serving(tmp_path, KERNELBOX_HOME=str(home)) as served:
        assert served.post("/sessions/s", {"limits": {"files": 300}}).json()["limits"] == {"files": 300}
        assert served.post("/sessions/s").json()["limits"] == {"files": 300}
        refused = served.post("/sessions/s", {"limits": {"files": 400}})
        assert (refused.status_code, refused.json()["code"]) == (409, "kernel_exists")
        assert "limits files=300, not 400" in refused.json()["detail"]
        metrics = served.http.get("/metrics").text
        assert 'kernelbox_kernel_limit{kernel="s",limit="files"} 300.0' in metrics
        assert 'kernelbox_kernel_processes{kernel="s"}' in metrics
        assert 'kernelbox_kernel_cpu_seconds{kernel="s"}' in metrics


@pytest.mark.slow
def test_an_mcp_server_gives_its_kernels_limits(tmp_path: Path) -> None:
    async def scenario() -> str:
        words = ("--toolset", "kernels", "--approve", "all", "--limit", "memory=150MB")
        async with stdio_client(tmp_path, *words) as client:
            return await mcp_text(client, "list_kernels") + str(await client.call_tool("execute", {"code": BOMB}))

    assert TOLD in run_mcp(scenario)
    done = kernelbox("mcp", "--workspace", str(tmp_path), "--limit", "memory=1GB", "--print-config", "cursor")
    assert json.loads(done.stdout)["mcpServers"]["kernelbox"]["args"][-2:] == ["--limit", "memory=1GB"]


def test_a_gateway_gives_its_kernels_limits(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with KernelGateway("localhost", 0, working_dir=tmp_path, limits={"memory": "150MB"}) as gateway:
            async with KernelClient("localhost", gateway.port, images_dir=tmp_path) as client:
                with pytest.raises(ExecutionError) as failed:
                    await client.execute(BOMB)
                return failed.value.evalue

    assert TOLD in run_async(scenario)
    assert list_kernels() == []
    with pytest.raises(InvalidInput, match="a limit's name cannot be 'ram'"):
        KernelGateway(limits={"ram": 1})

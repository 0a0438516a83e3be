"""Plots, bash, tools, approvals, timeouts, deaths, limits and ends work in a sandbox, from every face."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import PICTURE, eventually
from tests.support.command_line import CTRL_C, CTRL_D, Terminal
from tests.support.executor import accept, answer_all, reject
from tests.support.executor import run as run_async
from tests.support.mcp_server import call as call_tool
from tests.support.mcp_server import failure, pictures, stdio_client, text
from tests.support.mcp_server import run as run_mcp
from tests.support.sandbox import LEVEL, namespace, needs_linux, processes_in_namespace
from tests.support.server import serving
from tests.support.tools import PLAIN, cell, executing, generate

from kernelbox import CodeExecutionError, KernelRecord, list_kernels, status
from kernelbox.gateway import ExecutionError, KernelClient, KernelGateway

pytestmark = [needs_linux, pytest.mark.usefixtures("home")]

LIMITS = {"memory": "200MB", "files": 100}
BOMB = "x = [bytearray(8_000_000) for _ in range(60)]\nimport time\nwhile True: time.sleep(1)"
TOLD = "out of memory (limit 200 MB, peak "
DEATH, CAUSE = "import os; os._exit(3)", "exited with status 3"
LEAK, LEAKED = "leaked = []\nwhile True: leaked.append(open('/dev/null'))", "Too many open files"
DAEMON = "import subprocess; p = subprocess.Popen(['setsid', 'sleep', '1000'])"
ENDLESS = "print('begun', flush=True)\nimport time\ntime.sleep(1000)"


def record() -> KernelRecord:
    """Returns the one kernel that lives, which must be sandboxed."""
    (found,) = (record for record in list_kernels() if record.alive)
    assert found.sandbox == LEVEL
    assert found.limits == {"memory": 200_000_000, "files": 100}
    return found


@pytest.mark.slow
def test_an_executor_s_sandboxed_kernel_does_all_that_others_do(workspace: Path) -> None:
    generate(workspace, PLAIN)

    async def scenario() -> str:
        options: dict[str, Any] = {"sandbox": True, "sandbox_level": LEVEL, "limits": LIMITS}
        async with executing(workspace, mcp_servers={"plain": PLAIN}, approve_shell_cmds=True, **options) as executor:
            asked, result = await answer_all(executor, cell("echo", text="hello"), accept)
            assert [request.tool_name for request in asked] == ["echo"]
            assert "hello" in str(result)
            assert len((await executor.execute(PICTURE)).images) == 1
            assert (await executor.execute("x=5; echo $x", language="bash")).text == "5"
            with pytest.raises(CodeExecutionError, match="ApprovalRejectedError"):
                await answer_all(executor, "!touch made", reject)
            with pytest.raises(TimeoutError):
                await executor.execute("kept = 1\nimport time; time.sleep(1000)", timeout=BEGUN)
            assert (await executor.execute("kept")).text == "1"
            with pytest.raises(CodeExecutionError, match=LEAKED):
                await executor.execute(LEAK)
            for code, told in ((DEATH, CAUSE), (BOMB, TOLD)):
                await executor.reset()
                with pytest.raises(CodeExecutionError) as died:
                    await executor.execute(code)
                assert told in died.value.evalue
            await executor.reset()
            await executor.execute(DAEMON)
            return namespace(record().pid)

    inside = run_async(scenario)
    assert not (workspace / "made").exists()
    eventually(lambda: not processes_in_namespace(inside))


@pytest.mark.slow
def test_a_sandboxed_kernel_of_the_http_service_does_all_that_others_do(workspace: Path) -> None:
    generate(workspace, PLAIN)
    words = [word for name, amount in LIMITS.items() for word in ("--limit", f"{name}={amount}")]
    with serving(workspace, "--sandbox", "--sandbox-level", LEVEL, *words) as served:
        assert served.post("/kernels", {"name": "boxed"}).json()["sandbox"] == LEVEL
        assert '"hello"' in served.execute("boxed", cell("echo", text="hello"), approve="all")["output"]
        assert "ApprovalRejected" in served.execute("boxed", cell("echo", text="hello"))["error"]["ename"]
        assert len(served.execute("boxed", PICTURE)["images"]) == 1
        assert served.execute("boxed", "x=5; echo $x", language="bash")["output"] == "5\n"
        assert served.execute("boxed", "kept = 1\nimport time; time.sleep(1000)", timeout=BEGUN)["status"] == "timeout"
        assert served.execute("boxed", "kept")["return_value"] == "1"
        said: list[dict[str, Any]] = []
        running = threading.Thread(target=lambda: said.append(served.execute("boxed", ENDLESS)))
        running.start()
        eventually(lambda: served.post("/kernels/boxed/interrupt").json()["interrupted"])
        running.join()
        assert said[0]["error"]["ename"] == "KeyboardInterrupt"
        assert LEAKED in served.execute("boxed", LEAK)["error"]["evalue"]
        for code, told in ((DEATH, CAUSE), (BOMB, TOLD)):
            assert told in served.execute("boxed", code)["error"]["evalue"]
            assert served.post("/kernels/boxed/restart").json()["sandbox"] == LEVEL
        served.execute("boxed", DAEMON)
        inside = namespace(record().pid)
        assert served.http.delete("/kernels/boxed").is_success
        eventually(lambda: not processes_in_namespace(inside))


@pytest.mark.slow
def test_a_sandboxed_kernel_of_the_mcp_server_does_all_that_others_do(workspace: Path) -> None:
    words = [word for name, amount in LIMITS.items() for word in ("--limit", f"{name}={amount}")]

    async def scenario() -> str:
        walls = ("--sandbox", "--sandbox-level", LEVEL, *words)
        async with stdio_client(workspace, *walls, "--toolset", "kernels", "--approve", "all") as client:
            assert len(pictures(await call_tool(client, "execute", code=PICTURE))) == 1
            assert await text(client, "execute", code="x=5; echo $x", language="bash") == "5"
            assert "timed out" in await failure(client, "execute", code="kept = 1\n" + ENDLESS, timeout=BEGUN)
            assert await text(client, "execute", code="kept") == "1"
            running = asyncio.ensure_future(failure(client, "execute", code=ENDLESS))
            while '"was_running":true' not in (await text(client, "interrupt")).replace(" ", ""):
                assert not running.done()
            assert "KeyboardInterrupt" in await running
            assert LEAKED in await failure(client, "execute", code=LEAK)
            for code, told in ((DEATH, CAUSE), (BOMB, TOLD)):
                assert told in await failure(client, "execute", code=code)
                await text(client, "restart_kernel", kernel="default")
            await text(client, "execute", code=DAEMON)
            inside = namespace(record().pid)
            await text(client, "close_kernel", kernel="default")
            return inside

    inside = run_mcp(scenario)
    eventually(lambda: not processes_in_namespace(inside))


@pytest.mark.slow
def test_a_sandboxed_kernel_of_a_gateway_does_all_that_others_do(workspace: Path) -> None:
    async def scenario() -> str:
        walls: dict[str, Any] = {"sandbox": True, "sandbox_level": LEVEL, "limits": LIMITS}
        async with KernelGateway("127.0.0.1", 0, working_dir=workspace, **walls) as gateway:
            async with KernelClient("127.0.0.1", gateway.port, images_dir=workspace / "shown") as client:
                assert len((await client.execute(PICTURE)).images) == 1
                assert (await client.execute("%%bash\necho 5")).text == "5"
                with pytest.raises(TimeoutError):
                    await client.execute("kept = 1\nimport time; time.sleep(1000)", timeout=BEGUN)
                assert (await client.execute("kept")).text == "1"
                items = client.stream(ENDLESS)
                assert await anext(items) == "begun\n"
                await client.interrupt()
                with pytest.raises(ExecutionError, match="KeyboardInterrupt"):
                    await anext(items)
                with pytest.raises(ExecutionError, match=LEAKED):
                    await client.execute(LEAK)
                for code, told in ((DEATH, CAUSE), (BOMB, TOLD)):
                    await client.reset()
                    with pytest.raises(ExecutionError) as died:
                        await client.execute(code)
                    assert told in died.value.evalue
                await client.reset()
                await client.execute(DAEMON)
                return namespace(record().pid)

    inside = asyncio.run(scenario())
    eventually(lambda: not processes_in_namespace(inside))


def test_a_console_opens_a_sandboxed_kernel(workspace: Path) -> None:
    terminal = Terminal(
        "boxed", "--sandbox", "--sandbox-level", LEVEL, "--limit", "memory=200MB", "--limit", "files=100"
    )
    try:
        terminal.wait_for_prompt(1)
        assert status("boxed").sandbox == LEVEL
        terminal.enter("open('/etc/kernelbox-test', 'w')")
        terminal.expect("Read-only file system")
        terminal.wait_for_prompt(2)
        terminal.enter("print('run' + 'ning', flush=True); import time; time.sleep(1000)")
        terminal.expect("running")
        terminal.type(CTRL_C)
        terminal.expect("interrupted")
        terminal.wait_for_prompt(3)
        record()
        terminal.type(CTRL_D)
    finally:
        terminal.child.close(force=True)

"""Long cells, cancelled calls, dead kernels and vanished clients: nothing is left running."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.cells import eventually, is_running, wait_for_end
from tests.support.mcp_server import (
    GENERATIONS,
    Served,
    begin_call,
    call,
    command,
    failure,
    http_client,
    run,
    send,
    stdio_client,
    text,
)

from kernelbox import checkpoint, get_or_create, list_kernels, status

# Writes its pid to a file, so that a test knows that it runs, and runs until it is stopped.
ENDLESS = """
import os, time, pathlib
pathlib.Path({mark!r}).write_text(str(os.getpid()))
while True: time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", GENERATIONS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_cancelling_a_call_interrupts_its_cell(
    served: Served, tmp_path: Path, own_home: Path, mode: str, transport: str
) -> None:
    mark = tmp_path / "mark"

    async def scenario() -> None:
        connect = (
            http_client(served, mode) if transport == "http" else stdio_client(tmp_path, "--toolset", "all", mode=mode)
        )
        async with connect as client:
            await text(client, "execute", code="kept = 1", kernel="cancelled")
            async with anyio.create_task_group() as calls:
                calls.start_soon(run_endless, client, str(mark))
                await until_written(mark)
                calls.cancel_scope.cancel()
            assert await text(client, "execute", code="kept", kernel="cancelled") == "1"

    async def run_endless(client: Any, name: str) -> None:
        await call(client, "execute", code=ENDLESS.format(mark=name), kernel="cancelled", timeout=3600)

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_client_that_vanishes_in_a_call_over_http_has_its_cell_interrupted(
    served: Served, tmp_path: Path, mode: str
) -> None:
    mark = tmp_path / "mark"
    code = ENDLESS.format(mark=str(mark))
    client = subprocess.Popen([sys.executable, "-c", CLIENT, served.url, served.token, mode, code])
    eventually(lambda: mark.exists() and mark.read_text())
    client.kill()
    client.wait()

    async def scenario() -> None:
        async with http_client(served) as other:
            assert await text(other, "execute", code="1 + 1", kernel="vanished", timeout=30) == "2"

    run(scenario)


CLIENT = """
import asyncio, sys, httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
url, token, mode, code = sys.argv[1:]

async def main():
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=600) as connection:
        async with Client(streamable_http_client(url, http_client=connection), mode=mode) as client:
            await client.call_tool("execute", {"code": code, "kernel": "vanished", "timeout": 3600})

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["eof", "terminated", "killed"])
def test_nothing_is_left_when_the_client_or_the_server_ends(tmp_path: Path, own_home: Path, end: str) -> None:
    mark, child = tmp_path / "mark", tmp_path / "child"
    server = subprocess.Popen(command(tmp_path, "--approve", "all"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    with server.stdin, server.stdout:
        code = (
            f"import subprocess\np = subprocess.Popen(['sleep', '1000'])\nopen({str(child)!r}, 'w').write(str(p.pid))\n"
        )
        send(
            server.stdin, *begin_call("execute_ipython_cell", code=code + ENDLESS.format(mark=str(mark)), timeout=3600)
        )
        eventually(lambda: mark.exists() and mark.read_text())
        if end == "eof":
            server.stdin.close()
        else:
            server.send_signal(signal.SIGTERM if end == "terminated" else signal.SIGKILL)
        server.wait()
    for pid in (int(mark.read_text()), int(child.read_text())):
        wait_for_end(pid)
    assert [record for record in list_kernels() if record.alive] == []
    if end != "killed":
        assert list(own_home.glob("runtime/template-*")) == []


def test_an_orderly_end_says_nothing_and_succeeds(tmp_path: Path, own_home: Path) -> None:
    done = subprocess.run(command(tmp_path), input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_log_names_each_call_and_none_of_its_secrets(tmp_path: Path, own_home: Path) -> None:
    server = subprocess.Popen(
        command(tmp_path, "--log-level", "INFO"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "300"},
    )
    params = {"command": "/nonexistent", "env": {"TOKEN": "s3cret"}}
    calls = {
        "execute_ipython_cell": {"code": "'s3cret'", "timeout": 7},
        "register_mcp_server": {"server_name": "search", "server_params": params},
    }
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        send(server.stdin, *begin_call("reset"))
        for number, (tool, arguments) in enumerate(calls.items(), 3):
            request = {"name": tool, "arguments": arguments}
            send(server.stdin, {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": request})
        for _ in range(2 + len(calls)):
            server.stdout.readline()
        _, said = server.communicate()
    log = " ".join(said.decode().split())
    assert "reset(): done after" in log
    assert re.search(r"execute_ipython_cell\(code: 8 characters, timeout=7\.0, .*\): done after", log)
    assert "register_mcp_server(server_name='search', server_params): failed: " in log
    assert "s3cret" not in log


@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_long_cell_sends_progress_with_the_last_line_it_wrote(served: Served, mode: str) -> None:
    heard: list[str | None] = []
    enough = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        enough.set()

    async def scenario() -> None:
        async with http_client(served, mode) as client:
            stop = served.workspace / f"stop-{mode}"
            code = f"import time, os\nprint('step 1')\nwhile not os.path.exists({str(stop)!r}): time.sleep(0.01)"
            async with anyio.create_task_group() as calls:
                calls.start_soon(run_reporting, client, code)
                await enough.wait()
                await anyio.Path(stop).touch()

    async def run_reporting(client: Any, code: str) -> None:
        arguments = {"code": code, "kernel": f"progress-{mode}"}
        await client.call_tool("execute", arguments, progress_callback=on_progress)

    run(scenario)
    assert heard[0] == "step 1"


def test_a_cell_that_outlives_its_timeout_goes_on_as_a_job(served: Served, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waiting = f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    code = f"import os, time\nprint('begun')\n{waiting}\n'done'"

    async def scenario() -> None:
        async with http_client(served) as client:
            arguments = {"kernel": "job", "timeout": 0.5, "on_timeout": "background"}
            handle = re.search(r"as job (\w+)", await text(client, "execute", code=code, **arguments))
            assert handle is not None
            await until_output(client, handle[1], "begun")
            assert "still running" in await text(client, "job", job_id=handle[1], timeout=0.01)
            await anyio.Path(gate).touch()
            assert "begun\n'done'" in await text(client, "job", job_id=handle[1])
            assert "begun\n'done'" in await text(client, "job", job_id=handle[1]), "it can be read again"

    run(scenario)


def test_a_job_can_be_cancelled_and_its_output_is_kept(served: Served) -> None:
    code = "kept = 1\nprint('begun', flush=True)\nimport time\nwhile True: time.sleep(0.01)"

    async def scenario() -> None:
        async with http_client(served) as client:
            arguments = {"kernel": "stopped", "timeout": 0.5, "on_timeout": "background"}
            handle = re.search(r"as job (\w+)", await text(client, "execute", code=code, **arguments))
            assert handle is not None
            await until_output(client, handle[1], "begun")
            said = await failure(client, "job", job_id=handle[1], action="cancel")
            assert said.startswith("begun\n")
            assert await text(client, "execute", code="kept", kernel="stopped") == "1"
            assert "there is no job" in await failure(client, "job", job_id="0" * 32)

    run(scenario)


def test_a_cell_can_be_interrupted_by_another_call(served: Served, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def scenario() -> None:
        async with http_client(served) as client:
            async with anyio.create_task_group() as calls:
                calls.start_soon(expect_interrupt, client)
                await until_written(mark)
                stopped = (await call(client, "interrupt", kernel="interrupted")).structured_content
                assert stopped == {"was_running": True}
            idle = (await call(client, "interrupt", kernel="interrupted")).structured_content
            assert idle == {"was_running": False}

    async def expect_interrupt(client: Any) -> None:
        code = ENDLESS.format(mark=str(mark))
        assert "KeyboardInterrupt" in await failure(client, "execute", code=code, kernel="interrupted", timeout=3600)

    run(scenario)


def test_a_timeout_says_so_and_keeps_what_was_written(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            code = "print('before')\nimport time\ntime.sleep(1000)"
            said = await failure(client, "execute_ipython_cell", code=code, timeout=3)
            assert said.startswith("before\n")
            assert "timed out after 3 s" in said

    run(scenario)


def test_a_kernel_that_dies_is_told_once_and_then_replaced(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            said = await failure(
                client, "execute", code="x = 1\nimport os, signal\nos.kill(os.getpid(), 9)", kernel="dies"
            )
            assert "killed by SIGKILL" in said
            assert "the next call runs in a fresh kernel" in said
            assert "NameError" in await failure(client, "execute", code="x", kernel="dies")
            shown = await text(client, "execute", code="import os; os.getpid()", kernel="dies2")
            pid = int(shown.partition("\n")[0])
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: not is_running(pid))
            assert "killed by SIGKILL" in await failure(client, "execute", code="1", kernel="dies2")
            assert await text(client, "execute", code="1", kernel="dies2") == "1"

    run(scenario)


def test_a_kernel_with_a_checkpoint_that_dies_between_calls_is_not_said_to_be_fresh(
    tmp_path: Path, own_home: Path
) -> None:
    async def scenario() -> None:
        async with stdio_client(tmp_path, "--toolset", "kernels", "--keep-kernels") as client:
            await text(client, "execute", code="x = 1", kernel="kept")
            checkpoint("kept")
            await text(client, "execute", code="x = 2", kernel="kept")
            pid = status("kept").pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_for_end(pid)
            said = await failure(client, "execute", code="x = 3", kernel="kept")
            assert "killed by SIGKILL" in said
            assert "the kernel was restored from checkpoint 1; execution 2 is lost; nothing was run" in said
            assert "variables are lost" not in said
            assert await text(client, "execute", code="x", kernel="kept") == "1"

    run(scenario)


@pytest.mark.slow
def test_kernels_that_are_kept_are_found_by_other_processes(tmp_path: Path, own_home: Path) -> None:
    other = get_or_create("other", cwd="/", tags={"of": "others"})

    async def scenario() -> None:
        async with stdio_client(tmp_path, "--toolset", "kernels", "--keep-kernels") as client:
            await text(client, "execute", code="x = 5", kernel="shared")
            await text(client, "execute", code="1", kernel=other.name)
        assert [record.name for record in list_kernels() if record.alive] == [other.name, "shared"]
        async with stdio_client(tmp_path, "--toolset", "kernels", "--keep-kernels") as client:
            assert await text(client, "execute", code="x", kernel="shared") == "5"

    run(scenario)


def test_variables_for_kernels_come_from_the_workspace_and_the_prefix(tmp_path: Path, own_home: Path) -> None:
    loading = [
        "OPENSSL_CONF",
        "GCONV_PATH",
        "MAKEFLAGS",
        "PERL5LIB",
        "MPLBACKEND",
        "BASH_ENV",
        "NEW_ONE",
        "KERNELBOX_TOKEN",
    ]
    lines = ['KERNEL_ENV_API_KEY="a b"', "SECRET=1", "KERNEL_ENV_BOTH_TOKEN=file", "PYTHONSTARTUP=/x", "LC_KEY=x"]
    added = [f"KERNEL_ENV_{name}=/x" for name in ["ENVIRONMENT", *loading]]
    (tmp_path / ".env").write_text("\n".join([*lines, *added]))

    async def scenario() -> None:
        env = {"KERNEL_ENV_BOTH_TOKEN": "given", "OTHER_SECRET": "1"}
        async with stdio_client(tmp_path, "--allow-env", "ENVIRONMENT", env=env) as client:
            # Of the server's own variables kernels get those that begin with LC_: it has none by a file.
            names = ["SECRET", "OTHER_SECRET", "KERNEL_ENV_BOTH_TOKEN", "PYTHONSTARTUP", "LC_KEY", *loading]
            known = ["API_KEY", "BOTH_TOKEN", "ENVIRONMENT"]
            # MPLBACKEND is the kernel's own.
            other = "os.environ.get(name, 'module').startswith('module')"
            code = f"import os; {{name: os.environ[name] for name in {[*known, *names]} if not {other}}}"
            assert (await text(client, "execute_ipython_cell", code=code)).startswith(
                "{'API_KEY': 'a b', 'BOTH_TOKEN': 'given', 'ENVIRONMENT': '/x'}"
            )

    run(scenario)


async def until_output(client: Any, job_id: str, expected: str) -> None:
    """Waits until a job in the background has written something."""
    while expected not in await text(client, "job", job_id=job_id, action="output"):  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(0.01)


async def until_written(path: Path) -> None:
    """Waits until a file has something in it."""
    await asyncio.to_thread(eventually, lambda: path.exists() and path.read_text())

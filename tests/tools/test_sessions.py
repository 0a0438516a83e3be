"""Sessions with tool servers: opened at first use, shared, closed for good, and what a bad server does to them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import eventually, is_running, wait_for_end
from tests.support.executor import run, text
from tests.support.tools import PLAIN, cell, executing, failure, generate, plain, until

from kernelbox import ToolEvent, ToolServerFailed


def test_cells_share_a_session_and_reset_ends_its_server(project: Path) -> None:
    async def scenario() -> list[int]:
        async with executing(project) as executor:
            pids = [int(await text(executor, cell("pid")) or 0) for _ in range(2)]
            await executor.reset()
            assert not is_running(pids[0])
            pids.append(int(await text(executor, cell("pid")) or 0))
        return pids

    first, second, third = run(scenario)
    assert first == second != third
    assert not is_running(third)


def test_stop_ends_what_a_server_has_started(project: Path) -> None:
    async def scenario() -> None:
        async with executing(project) as executor:
            await executor.execute(cell("leave", marks=str(project)))

    run(scenario)
    for name in ("server", "child"):
        assert not is_running(int((project / name).read_text()))


def test_a_killed_application_leaves_no_server_behind(project: Path) -> None:
    code = f"""
import asyncio, os, signal
from kernelbox import CodeExecutor
async def main():
    executor = CodeExecutor(working_dir={str(project)!r}, images_dir={str(project / "images")!r})
    await executor.start()
    await executor.execute({cell("leave", marks=str(project))!r})
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=100)
    assert done.returncode == -signal.SIGKILL
    for name in ("server", "child"):
        wait_for_end(int((project / name).read_text()))


def test_a_fork_of_the_application_has_servers_of_its_own_and_keeps_none_of_its_parents(project: Path) -> None:
    code = f"""
import os, signal, sys
from kernelbox import execute, get_or_create
kernel = get_or_create("forking", cwd={str(project)!r})
def call(code):
    result = execute(kernel, code, approve=lambda request: True)
    assert result.ok, result.text
    return result.output
before = call({cell("pid")!r})
child = os.fork()
if child == 0:
    assert call({cell("pid")!r}) != before
    from kernelbox.tools._toolbox import close_shared
    close_shared()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert call({cell("pid")!r}) == before
call({cell("leave", marks=str(project))!r})
holder = os.fork()
if holder == 0:
    signal.pause()
open({str(project / "holder")!r}, "w").write(str(holder))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=100)
    assert done.returncode == -signal.SIGKILL
    holder = int((project / "holder").read_text())
    try:
        for name in ("server", "child"):
            wait_for_end(int((project / name).read_text()))
        assert is_running(holder)
    finally:
        os.kill(holder, signal.SIGKILL)
        wait_for_end(holder)


def test_a_server_that_crashes_fails_that_call_and_is_started_again_for_the_next(project: Path) -> None:
    async def scenario() -> tuple[str, str | None]:
        async with executing(project) as executor:
            return await failure(executor, cell("crash")), await text(executor, cell("echo", a=1))

    failed, told = run(scenario)
    assert failed == "plain.crash: it closed the connection"
    assert told == '{"a": 1}'


def test_a_server_that_crashes_has_its_last_words_told(project: Path) -> None:
    async def scenario() -> str:
        async with executing(project) as executor:
            return await failure(executor, cell("crash", words="Traceback:\n\x1b[31mno licence\n"))

    assert run(scenario) == "plain.crash: it closed the connection; it said: Traceback:\n [31mno licence"


def test_a_server_that_died_between_two_calls_is_not_noticed_by_the_second(project: Path) -> None:
    async def scenario() -> str | None:
        async with executing(project) as executor:
            pid = int(await text(executor, cell("pid")) or 0)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: executor._executor._toolbox._sessions["plain"].ended)  # a pipe tells it
            return await text(executor, cell("echo", a=1))

    assert run(scenario) == '{"a": 1}'


@pytest.mark.slow
def test_a_server_that_hangs_is_replaced(project: Path) -> None:
    async def scenario() -> str | None:
        async with executing(project) as executor:
            hanging = asyncio.create_task(executor.execute(cell("hang", marks=str(project))))
            await until((project / "hung").exists)
            executor.cancel()
            assert (await hanging).cancelled
            return await text(executor, cell("hang", marks=str(project)))

    assert run(scenario) == "fine"


def test_a_call_that_keeps_its_server_busy_is_not_ended_for_one_that_was_cancelled(home: Path, tmp_path: Path) -> None:
    generate(tmp_path, plain(tmp_path, serial=True))
    code = f"""
import asyncio
from pathlib import Path
from mcptools.plain import echo, meet
marks = Path({str(tmp_path)!r})
busy = asyncio.create_task(meet.run_async(meet.Params(marks=str(marks), name="busy", others=["free"])))
while not (marks / "busy").exists():
    await asyncio.sleep(0.01)
try:
    await asyncio.wait_for(echo.run_async(echo.Params()), 2)  # it is not read, because its server is busy
except TimeoutError:
    print("given up")
print(await echo.run_async(echo.Params(a=1)))
(marks / "free").touch()
print(await busy)
"""

    async def scenario() -> str | None:
        async with executing(tmp_path) as executor:
            return await text(executor, code)

    assert run(scenario) == 'given up\n{"a": 1}\nbusy met'


def test_a_server_that_says_that_its_tools_have_changed_is_asked_for_them_again(project: Path) -> None:
    async def scenario() -> str:
        async with executing(project) as executor:
            await executor.execute(cell("echo"))
            await executor.execute(cell("change", without="echo"))
            return await failure(executor, cell("echo"))

    assert "it has no tool 'echo' now; generate its package again" in run(scenario)


def test_calls_that_come_at_once_ask_for_the_tools_once(project: Path) -> None:
    lists = project / "lists"
    servers = {"plain": plain(project, lists=str(lists))}
    code = """
import asyncio
from mcptools.plain import echo
print(len(await asyncio.gather(*(echo.run_async(echo.Params(n=n)) for n in range(100)))))
"""

    async def scenario() -> str | None:
        async with executing(project, mcp_servers=servers) as executor:
            await text(executor, code)
            return await text(executor, code)

    assert run(scenario) == "100"
    assert lists.read_text() == "listed\n"


@pytest.mark.slow
def test_a_server_that_does_not_list_its_tools_fails_that_call_and_is_replaced(project: Path) -> None:
    hangs = project / "hangs"
    hangs.touch()
    servers = {"plain": plain(project, hangs=str(hangs))}

    async def scenario() -> tuple[str, str | None]:
        async with executing(project, mcp_servers=servers, connect_timeout=4) as executor:
            return await failure(executor, cell("echo", a=1)), await text(executor, cell("echo", a=1))

    failed, told = run(scenario)
    assert "it did not list its tools within 4 s" in failed
    assert told == '{"a": 1}'


def test_a_list_of_more_tools_than_anybody_has_is_not_read(tmp_path: Path, home: Path) -> None:
    tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(10_001)]
    with pytest.raises(ToolServerFailed, match="its list of tools has more than 10,000 tools"):
        generate(tmp_path, plain(tmp_path, tools=tools, page=4_000))


def test_noise_on_stdout_and_a_flood_on_stderr_do_no_harm(project: Path) -> None:
    async def scenario() -> list[str | None]:
        async with executing(project) as executor:
            return [await text(executor, cell("noisy")), await text(executor, cell("echo", a=1))]

    assert run(scenario) == ["still here", '{"a": 1}']


def test_an_answer_of_50_megabytes_arrives_and_a_larger_one_is_refused(project: Path) -> None:
    code = "from mcptools.plain import large\nprint(len(large.run(large.Params(size=50_000_000))))"

    async def scenario() -> tuple[str | None, str, str | None]:
        async with executing(project) as executor:
            told = await text(executor, code)
            refused = await failure(executor, cell("large", size=70_000_000))
            return told, refused, await text(executor, cell("echo", a=1))

    told, refused, after = run(scenario)
    assert told == "50000000"
    assert "more than the 67,108,864 that a kernel takes" in refused
    assert after == '{"a": 1}'


@pytest.mark.slow
def test_an_answer_of_more_values_than_the_host_has_memory_for_is_refused(project: Path) -> None:
    async def scenario() -> tuple[str | None, str, str | None]:
        async with executing(project) as executor:
            told = await text(executor, cell("values", count=100_000))
            refused = await failure(executor, cell("values", count=2_000_000))
            return told, refused, await text(executor, cell("echo", a=1))

    assert run(scenario) == (
        "many",
        "plain.values: its answer cannot be read: it is not valid, nested too deeply, or has too many values",
        '{"a": 1}',
    )


def test_an_error_of_many_megabytes_fails_that_call_with_its_beginning(project: Path) -> None:
    async def scenario() -> tuple[str, str | None]:
        async with executing(project) as executor:
            refused = await failure(executor, cell("refuse", size=70_000_000))
            return refused, await text(executor, cell("echo", a=1))

    refused, after = run(scenario)
    assert refused.startswith("plain.refuse: no!!!")
    assert len(refused) < 30_000
    assert after == '{"a": 1}'


def test_what_a_server_says_of_its_progress_is_cut(project: Path) -> None:
    async def scenario() -> list[int]:
        async with executing(project, approve_tool_calls=False) as executor:
            stream = executor.stream(cell("report", size=1_000_000), chunks=True)
            return [len(item.text) async for item in stream if isinstance(item, ToolEvent) and item.kind == "progress"]

    assert run(scenario) == [2000, 2000]


def endless_schema() -> dict[str, Any]:
    """Returns a schema that is short, and takes a million million steps to compare a value with."""
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    return {"type": "object", "$defs": {**levels, "l40": {}}, "allOf": [{"$ref": "#/$defs/l0"}]}


def test_a_schema_that_takes_for_ever_to_follow_stops_nothing(home: Path, tmp_path: Path) -> None:
    tool = {"name": "slow", "inputSchema": {"type": "object"}, "outputSchema": endless_schema()}
    generate(tmp_path, plain(tmp_path, tools=[tool], structured={"slow": {}}))

    async def scenario() -> str | None:
        async with executing(tmp_path) as executor:
            return await text(executor, cell("slow"))

    assert run(scenario) is not None


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
def test_a_server_that_asks_the_client_for_something_gets_an_error(project: Path, method: str) -> None:
    async def scenario() -> str | None:
        async with executing(project) as executor:
            return await text(executor, cell("ask", method=method))

    assert "not supported" in (run(scenario) or "").lower()


def test_an_answer_that_is_no_result_fails_that_call(project: Path) -> None:
    async def scenario() -> tuple[str, str | None]:
        async with executing(project) as executor:
            return await failure(executor, cell("broken")), await text(executor, cell("echo", a=1))

    failed, told = run(scenario)
    assert failed.startswith("plain.broken: ")
    assert told == '{"a": 1}'


def test_a_server_that_cannot_be_started_says_why(home: Path, project: Path) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence')"]}
    missing = {"command": "/nonexistent/program"}
    elsewhere = {**PLAIN, "cwd": "/nonexistent"}

    async def scenario() -> list[str]:
        failures = []
        for params in (silent, missing, elsewhere):
            async with executing(project, mcp_servers={"plain": params}) as executor:
                failures.append(await failure(executor, cell("echo")))
        return failures

    silent_one, missing_one, elsewhere_one = run(scenario)
    assert "no licence" in silent_one
    assert "cannot start '/nonexistent/program': No such file or directory" in missing_one
    assert "/nonexistent" in elsewhere_one


def test_a_server_that_does_not_answer_is_given_up_after_connect_timeout(project: Path) -> None:
    marks = project / "pid"
    code = f"import os, time; open({str(marks)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    params = {"command": sys.executable, "args": ["-c", code]}

    async def scenario() -> str:
        async with executing(project, mcp_servers={"plain": params}, connect_timeout=3) as executor:
            return await failure(executor, cell("echo"))

    assert "did not answer within 3 s" in run(scenario)
    eventually(lambda: not marks.exists() or not is_running(int(marks.read_text())))


def test_variables_are_filled_in_when_the_server_is_started_and_do_not_reach_the_kernel(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {**PLAIN, "env": {"TOKEN": "key-${A_SECRET}", "PLAIN": "it's \"$HOME\"\n'''"}}
    show = "import os\nprint('A_SECRET' in os.environ, 'TOKEN' in os.environ)"

    async def scenario() -> list[str | None]:
        async with executing(project, mcp_servers={"plain": params}) as executor:
            missing = await failure(executor, cell("environment", name="TOKEN"))
            monkeypatch.setenv("A_SECRET", "42")
            return [
                missing,
                await text(executor, cell("environment", name="TOKEN")),
                await text(executor, cell("environment", name="PLAIN")),
                await text(executor, show),
            ]

    missing, token, plain_one, shown = run(scenario)
    assert "the variable ${A_SECRET}, which is not set here" in (missing or "")
    assert (token, plain_one, shown) == ("key-42", "it's \"$HOME\"\n'''", "False False")

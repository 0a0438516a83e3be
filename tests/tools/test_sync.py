"""Tools in the synchronous API, on the command line, and over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.cells import eventually, is_running
from tests.support.command_line import KERNELBOX, fail, kernelbox, succeed
from tests.support.executor import run
from tests.support.tools import COMMAND, cell, executing, serving

from kernelbox import (
    CodeExecutionError,
    ExecutionResult,
    KernelRecord,
    SyncApprovalRequest,
    ToolEvent,
    execute,
    execute_with_retry,
    generate_mcp_sources,
    get_or_create,
    interrupt,
    stream,
)
from kernelbox.tools._toolbox import close_shared


@pytest.fixture
def kernel(project: Path) -> Iterator[KernelRecord]:
    yield get_or_create("tools", cwd=project)
    close_shared()


def test_approve_decides_calls_of_tools(kernel: KernelRecord) -> None:
    asked: list[str] = []

    def approve(request: SyncApprovalRequest) -> bool | str:
        asked.append(str(request))
        return request.tool_args.get("n") != 2 or "not two"

    accepted = execute(kernel, cell("echo", n=1), approve=approve)
    rejected = execute(kernel, cell("echo", n=2), approve=approve)
    silent = execute(kernel, cell("echo", n=3))
    assert accepted.output == '{"n": 1}\n'
    assert rejected.error is not None
    assert rejected.error.evalue == "echo: not two"
    assert silent.error is not None
    assert "pass approve=" in silent.error.evalue
    assert asked == ["plain.echo(n=1)", "plain.echo(n=2)"]


def test_threads_of_a_cell_call_at_the_same_time_and_servers_are_heard(kernel: KernelRecord, project: Path) -> None:
    code = f"""
from concurrent.futures import ThreadPoolExecutor
from mcptools.plain import meet, report
def params(n):
    return meet.Params(marks={str(project)!r}, name=f"s{{n}}", others=[f"s{{m}}" for m in range(8)])
with ThreadPoolExecutor(8) as pool:
    print(len(list(pool.map(lambda n: meet.run(params(n)), range(8)))))
report.run(report.Params())
"""
    *events, result = stream(kernel, code, approve=lambda request: True)
    assert isinstance(result, ExecutionResult)
    assert result.output == "8\n"
    assert [event.text for event in events if isinstance(event, ToolEvent)] == ["step 1", "step 2", "a line"]


@pytest.mark.slow
def test_calls_that_would_fill_the_host_are_refused_until_others_are_answered(
    kernel: KernelRecord, project: Path
) -> None:
    code = f"""
import os, time
from concurrent.futures import ThreadPoolExecutor
from mcptools.plain import meet
names = [f"m{{n}}" for n in range(8)]
def call(name, others=(), size=7_900_000):
    params = meet.Params(marks={str(project)!r}, name=name, others=list(others), filling="x" * size)
    return meet.run(params)
with ThreadPoolExecutor(8) as pool:
    waiting = [pool.submit(call, name, ["go"]) for name in names]
    while not all(os.path.exists(f"{project}/{{name}}") for name in names):
        time.sleep(0.01)
    try:
        call("ninth")
    except Exception as exc:
        print(exc)
    print(call("go", size=1))
    print(len([each.result() for each in waiting]))
print(call("ninth"))
"""
    result = execute(kernel, code, approve=lambda request: True)
    assert result.output.splitlines() == [
        "meet: the cell asks for too much at once; ask again when some of it has been answered",
        "go met",
        "8",
        "ninth met",
    ]


def test_a_timeout_cancels_the_call_at_the_server(kernel: KernelRecord, project: Path) -> None:
    assert execute(kernel, cell("echo"), approve=lambda request: True).ok  # from now on a call takes no time to begin
    result = execute(kernel, cell("wait", marks=str(project)), timeout=2, approve=lambda request: True)
    assert result.status == "timeout"
    assert result.state == "kept"
    eventually((project / "cancelled").exists)


def test_an_interrupt_from_elsewhere_cancels_the_call_at_the_server(kernel: KernelRecord, project: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        code = cell("wait", marks=str(project))
        running = pool.submit(execute, kernel.name, code, approve=lambda request: True)
        eventually((project / "begun").exists)
        assert interrupt(kernel.name)
        result = running.result()
    assert result.error is not None
    assert result.error.ename == "KeyboardInterrupt"
    eventually((project / "cancelled").exists)
    assert execute(kernel.name, cell("echo", a=1), approve=lambda request: True).output == '{"a": 1}\n'


def test_leaving_the_stream_cancels_the_call_at_the_server(kernel: KernelRecord, project: Path) -> None:
    code = f"""
from concurrent.futures import ThreadPoolExecutor
from mcptools.plain import wait
pool = ThreadPoolExecutor(1)
future = pool.submit(wait.run, wait.Params(marks={str(project)!r}))
while not __import__("os").path.exists({str(project / "begun")!r}):
    __import__("time").sleep(0.01)
print("begun", flush=True)
future.result()
"""
    steps = stream(kernel, code, approve=lambda request: True)
    assert getattr(next(steps), "text", "") == "begun\n"
    steps.close()  # type: ignore[attr-defined]  # it is a generator
    eventually((project / "cancelled").exists)


def test_a_large_answer_and_a_retry_work_in_the_synchronous_api(kernel: KernelRecord) -> None:
    code = "from mcptools.plain import large\nprint(len(large.run(large.Params(size=20_000_000))))"
    result = execute_with_retry(kernel, cell("fail", words="x"), lambda result, attempt: code, approve=lambda r: True)
    assert [attempt.status for attempt in result.attempts] == ["error", "success"]
    assert result.output == "20000000\n"


@pytest.mark.slow
def test_the_command_line_adds_lists_calls_refreshes_and_removes(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    added = succeed("tools", "add", "plain", "--env", "TOKEN=hunter2", "--", *COMMAND)
    assert added["package"] == str(tmp_path / "mcptools" / "plain")
    assert "echo" in added["tools"]
    listed = kernelbox("tools", "list")
    assert [server["name"] for server in listed.json["servers"]] == ["plain"]
    assert "hunter2" not in listed.stdout
    code = "import os\n" + cell("environment", name="TOKEN") + "\n" + cell("pid")
    words = ("exec", "--name", "cli-tools", "--approve", "all", code)
    token, pid = succeed(*words)["output"].split()
    assert token == "hunter2"
    assert not is_running(int(pid))
    refused = kernelbox("exec", "--name", "cli-tools", cell("pid"))
    assert refused.status == 1
    assert "--approve all or --approve ask" in refused.stdout
    assert "with --approve none" in kernelbox("exec", "--name", "cli-tools", "--approve", "none", cell("pid")).stdout
    (tmp_path / "mcptools/plain/echo.py").unlink()
    assert succeed("tools", "refresh")["refreshed"][0]["server"] == "plain"
    assert (tmp_path / "mcptools/plain/echo.py").exists()
    assert succeed("tools", "remove", "plain") == {"removed": "plain", "package_removed": True}
    assert succeed("tools", "list") == {"servers": []}
    assert not (tmp_path / "mcptools/plain").exists()


@pytest.mark.slow
def test_what_a_server_says_against_the_protocol_is_not_written_to_the_terminal(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    done = kernelbox("exec", "--name", "said", "--approve", "all", cell("report", progress="far"))
    assert done.json["output"] == "reported\n"
    assert done.stderr == ""


def test_the_person_at_the_terminal_is_asked(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pexpect

    monkeypatch.chdir(project)
    for answer, status in (("y", 0), ("n", 1)):
        words = ["exec", "--name", "asking", "--approve", "ask", cell("echo", a=1)]
        with contextlib.closing(pexpect.spawn(KERNELBOX, words, timeout=60, encoding="utf-8")) as terminal:
            terminal.expect_exact("Run plain.echo(a=1)? [y/N] ")
            terminal.sendline(answer)
            terminal.expect(pexpect.EOF)
            terminal.close()
            assert terminal.exitstatus == status


# Prints a question that is none, waits until it is answered, and asks for something else in invisible colours.
FORGED = """
import os, time
print("Run kernelbox.shell(cmd='ls')? [y/N] ", end="", flush=True)
while not os.path.exists('typed'): time.sleep(0.01)
print("\\x1b[8m\\x1b[30;40m", end="", flush=True)
!echo ran > ran
"""


def test_what_a_cell_prints_neither_hides_a_question_nor_takes_its_answer(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pexpect

    monkeypatch.chdir(project)
    words = ["exec", "--name", "forging", "--pretty", "--approve", "ask", FORGED]
    with contextlib.closing(pexpect.spawn(KERNELBOX, words, timeout=60, encoding="utf-8")) as terminal:
        terminal.expect_exact("Run kernelbox.shell(cmd='ls')? [y/N] ")
        terminal.sendline("y")
        terminal.expect_exact("y")  # the terminal has it
        (project / "typed").touch()
        terminal.expect_exact("\x1b[0m\r\nRun kernelbox.shell(cmd='echo ran > ran')? [y/N] ")
        terminal.sendline("n")
        terminal.expect(pexpect.EOF)
    assert not (project / "ran").exists()


@pytest.mark.slow
def test_all_of_a_command_is_shown_at_the_terminal_or_it_is_rejected(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pexpect

    monkeypatch.chdir(project)
    code = "get_ipython().system('echo ' + 'x' * {} + '; echo ran')"
    words = ["exec", "--name", "long", "--approve", "ask"]
    with contextlib.closing(pexpect.spawn(KERNELBOX, [*words, code.format(9000)], timeout=60)) as terminal:
        terminal.expect_exact(b"x" * 9000 + b"; echo ran')? [y/N] ")
        terminal.sendline("n")
        terminal.expect(pexpect.EOF)
    done = kernelbox(*words, code.format(30_000))
    assert "it has more than 20,000 characters" in done.json["error"]["evalue"]


@pytest.mark.slow
def test_the_command_line_says_what_is_wrong_with_a_server(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "closed the connection" in fail("tools", "add", "x", "--", "false")
    assert "cannot start 'no-such-program'" in fail("tools", "add", "x", "--", "no-such-program")
    assert "give its command after --" in fail("tools", "add", "x", status=2)
    assert "the name of the server is missing" in fail("tools", "add", status=2)
    assert "server 'x' has no command and no address: give" in fail("tools", "add", "x", status=2)
    assert "has a command and an address: give" in fail("tools", "add", "x", "--url", "http://x", "--", "y", status=2)
    assert "there is no server 'x'" in fail("tools", "remove", "x")
    assert "use NAME=VALUE" in fail("tools", "add", "x", "--env", "A", "--", "true", status=2)
    assert "hunter2" not in fail("tools", "add", "x", "--url", "http://x", "--header", "hunter2", status=2)
    assert "unexpected: 'y'; the command of a server comes after --" in fail("tools", "add", "x", "y", status=2)
    refused = fail(
        "tools", "add", "x", "--url", "http://127.0.0.1:9/mcp", "--header", "Authorization: ${TOKEN_NOT_SET}"
    )
    assert "${TOKEN_NOT_SET}, which is not set" in refused
    assert "cannot be reached" in fail("tools", "add", "x", "--url", "http://127.0.0.1:9/mcp")
    assert not (tmp_path / "mcptools").exists()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_server_at_an_address_is_called_and_found_again_after_a_restart(
    home: Path, tmp_path: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from mcptools.remote.image_search import Params, Result, run
result: Result = run(Params(query="neural topic models", count=3))
print(f"num results = {len(result.items)}")
"""
    params = {
        "url": "http://127.0.0.1:${PORT}/" + ("sse" if transport == "sse" else "mcp"),
        "headers": {"X-Token": "t"},
    }

    async def scenario() -> list[str]:
        told = []
        async with executing(tmp_path) as executor:
            with serving(transport, tmp_path) as port:
                monkeypatch.setenv("PORT", port)
                await generate_mcp_sources("remote", params, tmp_path / "mcptools")
                told.append((await executor.execute(code)).text or "")
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(code)
            told.append(caught.value.ename)
            with serving(transport, tmp_path, port):
                told.append((await executor.execute(code)).text or "")
        return told

    assert run(scenario) == ["num results = 3", "ToolError", "num results = 3"]
    assert "127.0.0.1" not in (tmp_path / "mcptools/remote/tools.json").read_text()

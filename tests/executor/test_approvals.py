"""Approvals in real cells: every way to run a command asks, what was shown is what runs, and every ending is clean."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import eventually
from tests.support.executor import DEADLINE, accept, answer_all, collect, reject, run, text

import kernelbox
from kernelbox import (
    ApprovalClosed,
    ApprovalPolicy,
    ApprovalRequest,
    ApprovalRule,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    InvalidInput,
    SyncApprovalRequest,
)
from kernelbox.api._configured import kernels
from kernelbox.base._config import KernelBoxConfig
from kernelbox.core._cell_options import CellOptions
from kernelbox.core.approvals._approval_gate import Gate
from kernelbox.core.approvals._memory import Sessions
from kernelbox.shells._asyncio_asks import CellAsks
from kernelbox.shells._asyncio_run import Run
from kernelbox.tools._toolbox import Toolbox
from kernelbox.wire._messages import Ask, Execute

pytestmark = pytest.mark.usefixtures("home")


# How a command is written in a cell, and what is asked for it: tool, command, program.
WAYS = {
    "!": ("!{c}", "shell", "{c}", None),
    "!!": ("!!{c}", "shell", "{c}", None),
    "x = !": ("x = !{c}", "shell", "{c}", None),
    "%sx": ("%sx {c}", "shell", "{c}", None),
    "%system": ("x = %system {c}", "shell", "{c}", None),
    "%%sx": ("%%sx\n{c}", "shell", "{c}\n", None),
    "%%!": ("%%!\n{c}", "shell", "{c}\n", None),
    "%alias": ("%alias make_it {c}\n%make_it", "shell", "{c} ", None),
    "built-in alias": ("%mkdir {f}", "shell", "mkdir {f}", None),
    "get_ipython().system": ("get_ipython().system('{c}')", "shell", "{c}", None),
    "get_ipython().system_raw": ("get_ipython().system_raw('{c}')", "shell", "{c}", None),
    "get_ipython().getoutput": ("get_ipython().getoutput('{c}')", "shell", "{c}", None),
    "%%bash": ("%%bash\n{c}\n", "shell_magic", "{c}\n", None),
    "%%sh": ("%%sh\n{c}\n", "shell_magic", "{c}\n", "sh"),
    "%%bash -e": ("%%bash -e\n{c}\n", "shell_magic", "{c}\n", "bash -e"),
    "%%bash --out": ("%%bash --out x\n{c}\n", "shell_magic", "{c}\n", "bash --out x"),
    "%%script": ("%%script sh\n{c}\n", "shell_magic", "{c}\n", "sh"),
    "%%script --bg": ("%%script --bg --proc p sh\n{c}\n", "shell_magic", "{c}\n", "--bg --proc p sh"),
    "%%bash --bg": ("%%bash --bg\n{c}\n", "shell_magic", "{c}\n", "bash --bg"),
    "%%python": ("%%python\nopen('{f}', 'w')\n", "shell_magic", "open('{f}', 'w')\n", "python"),
    "%%perl": ("%%perl\nprint 1;\n", "shell_magic", "print 1;\n", "perl"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_run_a_command_asks_and_a_rejected_one_does_not_run(way: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    code, tool, command, program = (
        part and part.replace("{c}", f"touch {made}").replace("{f}", str(made)) for part in WAYS[way]
    )
    assert code is not None

    async def scenario() -> ApprovalRequest:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            seen: list[ApprovalRequest] = []

            async def refuse(request: ApprovalRequest) -> None:
                seen.append(request)
                await request.reject("no")

            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, refuse)
            assert caught.value.ename == "ApprovalRejectedError"
            assert caught.value.evalue.endswith(": no")
            (request,) = seen
            return request

    request = run(scenario)
    assert (request.server_name, request.tool_name) == ("kernelbox", tool)
    assert request.tool_args == {"cmd": command, **({"program": program} if program else {})}
    assert not made.exists()


@pytest.mark.parametrize("magic", ["pip", "conda", "mamba", "micromamba", "uv"])
def test_every_package_manager_asks(tmp_path: Path, magic: str) -> None:
    history = tmp_path / "conda-meta" / "history"  # by which IPython knows an environment of conda's
    history.parent.mkdir()
    history.touch()
    # Neither is run; that they are there is enough for the question.
    (tmp_path / "pip.py").touch()
    (tmp_path / "uv").touch(mode=0o755)
    env = {"PYTHONPATH": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    async def scenario() -> list[ApprovalRequest]:
        seen: list[ApprovalRequest] = []

        async def refuse(request: ApprovalRequest) -> None:
            seen.append(request)
            await request.reject()

        async with CodeExecutor(approve_shell_cmds=True, kernel_env=env) as executor:
            with pytest.raises(CodeExecutionError):
                await answer_all(executor, f"import sys; sys.prefix = {str(tmp_path)!r}\n%{magic} install x", refuse)
        return seen

    (request,) = run(scenario)
    words = request.tool_args["cmd"].split()
    assert words[0].endswith(magic) or words[1:3] == ["-m", magic]
    assert "install" in words
    assert words[-1] == "x"


def test_an_accepted_command_runs_and_its_output_is_the_cells() -> None:
    async def scenario() -> tuple[list[str], str | None]:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            code = "name = 'world'\n!echo hello {name}\nx = !echo captured $name\nx[0]"
            requests, result = await answer_all(executor, code, accept)
            assert result is not None
            return [request.tool_args["cmd"] for request in requests], result.text

    commands, shown = run(scenario)
    assert commands == ["echo hello world", "echo captured world"]
    assert shown == "hello world\n'captured world'"


def test_what_is_shown_is_what_runs_even_if_a_value_changes_each_time_it_is_formatted() -> None:
    code = (
        "class Sly:\n"
        "    count = 0\n"
        "    def __format__(self, spec):\n        Sly.count += 1\n        return f'seen-{Sly.count}'\n"
        "    __str__ = lambda self: format(self)\n"
        "sly = Sly()\n!echo {sly}"
    )

    async def scenario() -> tuple[str, str | None]:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            (request,), result = await answer_all(executor, code, accept)
            assert result is not None
            return request.tool_args["cmd"], result.text

    command, shown = run(scenario)
    assert command == f"echo {shown}"


@pytest.mark.parametrize("command", ["find . -maxdepth 0 -exec echo {} \\;", """echo '{"a": 1}'""", "echo ${HOME:+x}"])
def test_braces_that_are_the_shells_own_are_left_alone(command: str) -> None:
    async def scenario() -> str:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            (request,), _ = await answer_all(executor, f"!{command}", accept)
            return str(request.tool_args["cmd"])

    assert run(scenario) == command


def test_a_rejection_can_be_caught_in_the_cell_which_then_goes_on() -> None:
    code = (
        "from kernelbox import ApprovalRejectedError\n"
        "try:\n    get_ipython().system('ls')\nexcept ApprovalRejectedError as error:\n    print('caught', error)"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            _, result = await answer_all(executor, code, lambda request: request.reject("too early"))
            assert result is not None
            return result.text

    assert run(scenario) == "caught shell 'ls': too early"


def test_bash_cells_ask_as_a_whole() -> None:
    async def scenario() -> tuple[list[dict[str, Any]], str | None]:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            requests, result = await answer_all(executor, "x=1\necho $x", accept, language="bash")
            with pytest.raises(CodeExecutionError, match="ApprovalRejectedError"):
                await answer_all(executor, "echo no", reject, language="bash")
            assert result is not None
            return [request.tool_args for request in requests], result.text

    requests, shown = run(scenario)
    assert requests == [{"cmd": "x=1\necho $x", "program": "bash"}]
    assert shown == "1"


def test_execute_accepts_by_itself() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            return await text(executor, "!echo hello")

    assert run(scenario) == "hello"


def test_without_approve_shell_cmds_nobody_is_asked() -> None:
    async def scenario() -> list[type]:
        async with CodeExecutor() as executor:
            return [type(item) async for item in executor.stream("!echo hello")]

    assert run(scenario) == [CodeExecutionResult]


def test_approve_tool_calls_false_leaves_shell_approvals_on() -> None:
    async def scenario() -> int:
        async with CodeExecutor(approve_tool_calls=False, approve_shell_cmds=True) as executor:
            requests, _ = await answer_all(executor, "!echo hello", accept)
            return len(requests)

    assert run(scenario) == 1


def test_a_deny_rule_stops_execute_too_and_says_why() -> None:
    async def scenario() -> CodeExecutionError:
        async with CodeExecutor() as executor:
            executor.approval_policy.deny("shell", args={"cmd": "rm *"}, reason="we keep things")
            assert await text(executor, "!echo fine") == "fine"
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute("!rm -rf build")
            return caught.value

    assert "we keep things" in run(scenario).evalue


def test_rules_decide_before_anybody_is_asked() -> None:
    policy = ApprovalPolicy().allow("shell", args={"cmd": "echo *"}).deny(args={"cmd": "*secret*"})

    async def scenario() -> tuple[list[str], str | None]:
        async with CodeExecutor(approve_shell_cmds=True, approval_policy=policy) as executor:
            code = (
                "!echo allowed\n!true\ntry:\n    get_ipython().system('echo secret')\nexcept Exception: print('denied')"
            )
            requests, result = await answer_all(executor, code, accept)
            assert result is not None
            return [request.tool_args["cmd"] for request in requests], result.text

    assert run(scenario) == (["true"], "allowed\ndenied")


def test_a_default_of_deny_rejects_what_no_rule_allows() -> None:
    policy = ApprovalPolicy(default="deny").allow("shell", args={"cmd": "echo *"})

    async def scenario() -> str | None:
        async with CodeExecutor(approval_policy=policy) as executor:
            with pytest.raises(CodeExecutionError, match="not allowed by the approval policy"):
                await executor.execute("!touch x")
            return await text(executor, "!echo fine")

    assert run(scenario) == "fine"


def test_remember_execution_covers_the_same_command_in_a_loop_and_ends_with_the_cell() -> None:
    async def scenario() -> list[str]:
        asked: list[str] = []

        async def remember(request: ApprovalRequest) -> None:
            asked.append(request.tool_args["cmd"])
            await request.accept(remember="execution")

        async with CodeExecutor(approve_shell_cmds=True) as executor:
            await answer_all(executor, "for i in range(6):\n    get_ipython().system(f'echo {i % 2}')", remember)
            await answer_all(executor, "!echo 0", remember)
        return asked

    assert run(scenario) == ["echo 0", "echo 1", "echo 0"]


def test_patterns_say_that_more_than_the_same_command_is_remembered() -> None:
    async def scenario() -> list[str]:
        asked: list[str] = []

        async def remember(request: ApprovalRequest) -> None:
            asked.append(request.tool_args["cmd"])
            await request.accept(remember="execution", args={"cmd": "echo *"})

        async with CodeExecutor(approve_shell_cmds=True) as executor:
            code = "for i in range(6):\n    get_ipython().system(f'echo {i}')\n!echo $HOME"
            await answer_all(executor, code, remember)
        return asked

    assert run(scenario) == ["echo 0", "echo $HOME"]


# A cell that no interrupt ends, so that its kernel is restarted.
STUBBORN = """
import time
while True:
    try:
        time.sleep(100)
    except KeyboardInterrupt: pass
"""


async def _reset(executor: CodeExecutor) -> None:
    await executor.reset()


async def _stop_and_start(executor: CodeExecutor) -> None:
    await executor.stop()
    await executor.start()


async def _restart_elsewhere(executor: CodeExecutor) -> None:
    await asyncio.to_thread(kernelbox.restart, "shared")


async def _die(executor: CodeExecutor) -> None:
    with pytest.raises(CodeExecutionError, match="KernelDied"):
        await executor.execute("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    await asyncio.to_thread(kernelbox.restart, "shared")


async def _force_a_restart(executor: CodeExecutor) -> None:
    with pytest.raises(TimeoutError) as caught:
        await executor.execute(STUBBORN, 0.1)
    assert caught.value.state == "lost"  # type: ignore[attr-defined]  # it is an ExecutionTimeout


@pytest.mark.parametrize("end", [_reset, _stop_and_start, _restart_elsewhere, _die, _force_a_restart])
def test_remember_session_lasts_as_long_as_the_kernels_process(
    end: Callable[[CodeExecutor], Awaitable[None]],
) -> None:
    async def scenario() -> list[str]:
        asked: list[str] = []

        async def remember(request: ApprovalRequest) -> None:
            asked.append(request.tool_args["cmd"])
            await request.accept(remember="session", args={"cmd": "echo *"})

        async with CodeExecutor(name="shared", approve_shell_cmds=True) as executor:
            for command in ("echo 1", "echo 2"):
                await answer_all(executor, f"!{command}", remember)
            await end(executor)
            await answer_all(executor, "!echo 3", remember)
        return asked

    assert run(scenario) == ["echo 1", "echo 3"]


def test_answering_twice_or_after_the_end_is_an_error_and_disturbs_nothing() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            (request,), _ = await answer_all(executor, "!echo 1", accept)
            with pytest.raises(ApprovalClosed, match="already accepted"):
                await request.accept()
            held: list[ApprovalRequest] = []
            async for item in executor.stream("!echo 2"):
                assert isinstance(item, ApprovalRequest)
                held.append(item)
                break
            assert await text(executor, "1 + 1") == "2"
            with pytest.raises(ApprovalClosed, match="rejected: the execution was left"):
                await held[0].accept()
            return await text(executor, "!echo 3")

    assert run(scenario) == "3"


def test_no_answer_in_time_rejects_with_that_reason() -> None:
    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(approve_shell_cmds=True, approval_timeout=0.2) as executor:

            async def ignore(request: ApprovalRequest) -> None:
                """Says nothing."""

            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, "!echo hello", ignore)
            assert await text(executor, "1 + 1") == "2"
            return caught.value

    error = run(scenario)
    assert error.ename == "ApprovalRejectedError"
    assert "no answer within 0.2 s" in error.evalue


# Two threads ask, and something is written in between; then all three wait to be read.
TWO_ASKS = """
import threading, time
asks = get_ipython().kernel.asks
def ask(number):
    try: get_ipython().getoutput(f'echo {number}')
    except Exception: pass
def wait_for(count):
    while len(asks.open) < count: time.sleep(0.001)
print('begun', flush=True)
threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
threads[0].start(); wait_for(1)
print('between', flush=True)
threads[1].start(); wait_for(2)
open(MARK, 'w').close()
[thread.join() for thread in threads]
"""


def test_a_request_has_its_whole_time_from_when_it_is_shown(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def scenario() -> list[bool]:
        shown: list[bool] = []
        async with CodeExecutor(approve_shell_cmds=True, approval_timeout=0.2) as executor:
            async for item in executor.stream(f"MARK = {str(mark)!r}{TWO_ASKS}", chunks=True):
                match item:
                    case CodeExecutionChunk(text="begun\n"):
                        await asyncio.to_thread(eventually, mark.exists)
                    case ApprovalRequest():
                        shown.append(item.open)
                        await asyncio.to_thread(_wait_for_the_end_of, item)  # the other one waits to be shown
        return shown

    assert run(scenario) == [True, True]


def _wait_for_the_end_of(request: ApprovalRequest) -> None:
    eventually(lambda: not request.open)


def test_what_is_asked_in_an_execution_that_ends_before_it_is_read_leaves_no_task_behind(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def scenario() -> set[Any]:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            async for item in executor.stream(f"MARK = {str(mark)!r}{TWO_ASKS}", chunks=True):
                match item:
                    case CodeExecutionChunk(text="begun\n"):
                        await asyncio.to_thread(eventually, mark.exists)
                    case CodeExecutionChunk(text="between\n"):
                        await executor.cancel()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert run(scenario) == set()


def test_a_decision_that_is_still_being_made_is_cancelled_when_the_execution_ends() -> None:
    class Slow(Gate):
        async def decide(self, *args: object) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    begun, ended = asyncio.Event(), asyncio.Event()

    async def scenario() -> None:
        here, record = kernels(), await asyncio.to_thread(kernelbox.get_or_create, "shared")
        gate = Slow(record, ApprovalPolicy(), Sessions(), shell="ask", tools="ask")
        request = Execute("x", "!echo", approve_shell=True)
        execution = await Run.begin(here.kernel(record), request, timeout=DEADLINE)
        asks = CellAsks(execution, gate, Toolbox(KernelBoxConfig()), CellOptions())
        execution.call_at_end(asks.end)
        while not begun.is_set():
            for event in await execution.next():
                if isinstance(event, Ask):
                    asks.take(event)
                    await begun.wait()
        await execution.stop()
        await ended.wait()

    run(scenario)
    assert ended.is_set()


def test_a_policy_that_fails_raises_in_the_application_and_the_kernel_is_free() -> None:
    class Broken(ApprovalPolicy):
        def decide(self, *args: object, **options: object) -> Any:
            raise LookupError("broken")

    async def scenario() -> str | None:
        async with CodeExecutor(approval_policy=Broken(default="ask")) as executor:
            with pytest.raises(LookupError, match="broken"):
                await executor.execute("!echo hello")
            return await text(executor, "1 + 1")

    assert run(scenario) == "2"
    with pytest.raises(LookupError, match="broken"):
        kernelbox.execute("sync", "!echo hello", policy=Broken(default="ask"))
    assert kernelbox.execute("sync", "1 + 1").return_value == "2"


@pytest.mark.parametrize("policy", ["deny", True, {}, ApprovalRule(action="deny")])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(InvalidInput, match="policy"):
        CodeExecutor(approval_policy=policy)
    with pytest.raises(InvalidInput, match="policy"):
        kernelbox.execute("sync", "1", policy=policy)
    with pytest.raises(InvalidInput, match="policy"):
        kernelbox.stream("sync", "1", policy=policy)
    with pytest.raises(InvalidInput, match="policy"):
        kernelbox.execute_with_retry("sync", "1", lambda result, attempt: None, policy=policy)


def test_the_timeout_counts_the_wait_for_an_approval_and_frees_the_kernel() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            kept: list[ApprovalRequest] = []
            told = r"timed out after 2 s while kernelbox\.shell\(cmd='echo hello'\) waited for an answer; the cell was"
            with pytest.raises(TimeoutError, match=told):
                await collect(executor.stream("!echo hello", timeout=2), kept)
            with pytest.raises(ApprovalClosed):
                await kept[0].accept()
            return await text(executor, "1 + 1")

    assert run(scenario) == "2"


def test_the_timeout_strikes_while_the_consumer_thinks_about_an_approval() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:

            async def think(request: ApprovalRequest) -> None:
                assert await text(executor, "1 + 1") == "2"  # once the time is up the kernel is free
                with pytest.raises(ApprovalClosed):
                    await request.accept()

            with pytest.raises(TimeoutError):
                await answer_all(executor, "!echo hello", think, timeout=2)
            return await text(executor, "2 + 2")

    assert run(scenario) == "4"


def test_the_wait_for_approvals_can_be_excluded_from_the_timeout() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor, CodeExecutor() as other:

            async def think(request: ApprovalRequest) -> None:
                with pytest.raises(TimeoutError):  # so long that a cell which began later has timed out
                    await other.execute("while True: pass", timeout=2)
                await request.accept()

            code = "!echo one\n!echo two"
            _, result = await answer_all(executor, code, think, timeout=2, exclude_approval_wait=True)
            assert result is not None
            with pytest.raises(TimeoutError, match=f"after {BEGUN:g} s; the cell"):  # the cell's own time still counts
                await answer_all(executor, "!echo\nwhile True: pass", accept, timeout=BEGUN, exclude_approval_wait=True)
            return result.text

    assert run(scenario) == "one\ntwo"


def test_the_wait_for_approvals_counts_only_against_a_timeout_that_was_passed() -> None:
    def stops(executor: CodeExecutor, **options: Any) -> object:
        items: Any = executor.stream("1", **options)
        return items.ag_frame.f_locals["options"].stop_clock

    assert stops(CodeExecutor()) is True
    assert stops(CodeExecutor(), timeout=120) is False
    assert stops(CodeExecutor(), timeout=None) is False
    assert stops(CodeExecutor(ipybox=True), timeout=120) is True


def test_a_wait_for_approval_can_be_cancelled() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            results: list[CodeExecutionResult] = []
            async for item in executor.stream("!echo hello"):
                match item:
                    case ApprovalRequest():
                        await executor.cancel()
                    case CodeExecutionResult():
                        results.append(item)
            assert [result.cancelled for result in results] == [True]
            return await text(executor, "1 + 1")

    assert run(scenario) == "2"


def test_several_threads_of_a_cell_may_ask_at_once_and_each_gets_its_own_answer() -> None:
    code = (
        "import threading\n"
        "from kernelbox import ApprovalRejectedError\n"
        "answers = {}\n"
        "def ask(number):\n"
        "    try:\n"
        "        get_ipython().getoutput(f'echo {number}')\n"
        "        answers[number] = 'ran'\n"
        "    except ApprovalRejectedError as error:\n"
        "        answers[number] = 'rejected'\n"
        "threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print([answers[n] for n in range(8)])"
    )

    async def scenario() -> str | None:
        waiting: list[ApprovalRequest] = []
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            async for item in executor.stream(code):
                match item:
                    case ApprovalRequest():
                        waiting.append(item)
                        if len(waiting) == 8:  # all are open at the same time
                            for request in reversed(waiting):
                                number = int(request.tool_args["cmd"].split()[1])
                                await (request.accept() if number % 2 else request.reject())
                    case CodeExecutionResult():
                        return item.text
        raise AssertionError

    assert run(scenario) == str(["rejected", "ran"] * 4)


def test_a_thousand_calls_in_a_loop_are_each_answered_and_a_rejection_in_the_middle_ends_it() -> None:
    code = "for number in range(1000):\n    get_ipython().kernel.asks.ask('kernelbox', 'shell', {'cmd': str(number)})"

    async def scenario() -> tuple[int, str]:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            requests, _ = await answer_all(executor, code, accept)

            async def stop_at_500(request: ApprovalRequest) -> None:
                await (request.reject() if request.tool_args["cmd"] == "500" else request.accept())

            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, stop_at_500)
            return len(requests), caught.value.evalue

    assert run(scenario) == (1000, "shell '500': rejected")


def test_a_call_of_a_server_that_is_not_there_is_refused_even_when_accepted() -> None:
    async def scenario() -> tuple[ApprovalRequest, CodeExecutionError]:
        seen: list[ApprovalRequest] = []

        async def take(request: ApprovalRequest) -> None:
            seen.append(request)
            await request.accept()

        code = "raise RuntimeError(get_ipython().kernel.asks.ask('github', 'search', {'q': [1]}).decode())"
        async with CodeExecutor() as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, take)
        return seen[0], caught.value

    request, error = run(scenario)
    assert (request.server_name, request.tool_name, request.tool_args) == ("github", "search", {"q": [1]})
    assert "there is no server 'github'" in error.evalue


def test_an_answer_from_anybody_but_the_client_that_was_asked_does_not_count(home: Path, tmp_path: Path) -> None:
    """The cell connects to its own kernel and accepts its own question."""
    made = tmp_path / "made"
    code = f"""
import glob, os, socket, threading, time
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Answer
kernel = get_ipython().kernel
(path,) = glob.glob({str(home)!r} + '/runtime/' + os.environ['KERNELBOX_KERNEL_ID'] + '/socket')
client = socket.socket(socket.AF_UNIX); client.connect(path)
def forge():
    while not kernel.asks.open: time.sleep(0.001)
    for number in (*range(1, 50), *kernel.asks.open):
        client.send(encode(Answer(kernel.outbox.execution_id, number, True)))
    print('forged', flush=True)
threading.Thread(target=forge).start()
!touch {made}
"""

    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            pending: list[ApprovalRequest] = []

            async def consume() -> None:
                forged = False
                async for item in executor.stream(code, chunks=True):
                    match item:
                        case ApprovalRequest():
                            pending.append(item)
                        case CodeExecutionChunk():
                            forged = True
                    if forged and pending:
                        assert not made.exists()
                        await pending.pop().reject("by the one who was asked")

            with pytest.raises(CodeExecutionError) as caught:
                await consume()
            return caught.value

    error = run(scenario)
    assert "by the one who was asked" in error.evalue
    assert not made.exists()


def test_what_a_thread_asks_is_rejected_when_its_cell_has_ended() -> None:
    code = """
import threading, time
said = []
def ask():
    try: get_ipython().system("true")
    except Exception as error: said.append(str(error))
thread = threading.Thread(target=ask)
thread.start()
while not get_ipython().kernel.asks.open: time.sleep(0.001)
"""

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            async for _ in executor.stream(code):
                pass  # what is asked is not answered
            return (await executor.execute("thread.join(30); print(said)")).text

    assert "the cell that asked has ended" in (run(scenario) or "")


@pytest.mark.parametrize(
    ("before", "endings"),
    [
        ("", ("'ApprovalRejectedError'", "'KeyboardInterrupt'")),  # its cell is interrupted as well
        ("import signal; signal.signal(signal.SIGINT, lambda *_: None)\n", ("'ApprovalRejectedError'",)),
    ],
    ids=["", "in a cell that cannot be interrupted"],
)
def test_when_the_client_vanishes_the_command_is_rejected_and_the_kernel_usable(
    tmp_path: Path, before: str, endings: tuple[str, ...]
) -> None:
    made = tmp_path / "made"
    code = (
        f"{before}ending = ''\n"
        f"try:\n    get_ipython().system('touch {made}')\nexcept BaseException as error: ending = type(error).__name__"
    )
    stream = kernelbox.stream("shared", code, approve=True)
    assert isinstance(next(stream), SyncApprovalRequest)
    record = kernelbox.get_or_create("shared")
    for connection in _connections(stream):
        connection.close()
    ending = kernelbox.execute(record, "ending", timeout=DEADLINE).return_value
    assert ending in endings
    assert not made.exists()
    stream.close()  # type: ignore[attr-defined]  # it is a generator


def _connections(stream: Any) -> list[Any]:
    """Finds the connection that a stream holds, to cut it as the death of its process would."""
    found, frames = [], [stream]
    while frames:
        generator = frames.pop()
        if getattr(generator, "gi_frame", None) is not None:
            found += [v for k, v in generator.gi_frame.f_locals.items() if k == "connection"]
            frames += [v for v in generator.gi_frame.f_locals.values() if hasattr(v, "gi_frame")]
            frames.append(generator.gi_yieldfrom)
    return found


def test_a_restart_does_not_lose_the_approvals(tmp_path: Path) -> None:
    made = tmp_path / "made"

    async def scenario() -> None:
        async with CodeExecutor(name="shared", approve_shell_cmds=True) as executor:
            with pytest.raises(CodeExecutionError, match="KernelDied"):
                await executor.execute("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
            await executor.reset()
            with pytest.raises(CodeExecutionError, match="ApprovalRejectedError"):
                await answer_all(executor, f"!touch {made}", reject)

    run(scenario)
    assert not made.exists()


def test_what_a_cell_leaves_behind_may_not_run_commands_that_the_cell_could_not(tmp_path: Path) -> None:
    made, tried = tmp_path / "made", tmp_path / "tried"
    code = f"""
import threading, time
from kernelbox import ApprovalRejectedError
outcome = []
def later():
    while get_ipython().kernel.outbox.peer is not None: time.sleep(0.01)
    try: get_ipython().system('touch {made}')
    except ApprovalRejectedError as error: outcome.append(str(error))
    open({str(tried)!r}, 'w').close()
threading.Thread(target=later, daemon=True).start()
"""

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            await executor.execute(code)
            await asyncio.to_thread(eventually, tried.exists)
            return await text(executor, "print(*outcome)")

    assert run(scenario) == "shell: no cell is running for which it could be approved"
    assert not made.exists()


# -- the synchronous API -----------------------------------------------------------------------------------------


def test_approve_is_called_with_each_command_and_decides() -> None:
    seen: list[str] = []

    def approve(request: SyncApprovalRequest) -> bool | str:
        seen.append(request.tool_args["cmd"])
        return True if "yes" in seen[-1] else "says no"

    result = kernelbox.execute("sync", "!echo yes\n!echo other", approve=approve)
    assert seen == ["echo yes", "echo other"]
    assert result.output == "yes\n"
    assert result.error is not None
    assert result.error.ename == "ApprovalRejectedError"
    assert "says no" in result.error.evalue


@pytest.mark.parametrize(("returned", "kind"), [(None, "NoneType"), (1, "int")])
def test_a_function_that_returns_neither_true_nor_a_reason_rejects_and_says_that_only_true_accepts(
    home: Path, returned: Any, kind: str
) -> None:
    result = kernelbox.execute("sync", "!echo hello", approve=lambda request: returned)
    assert result.error is not None
    assert (result.output, result.error.ename) == ("", "ApprovalRejectedError")
    assert f"returned a {kind}; only True accepts" in result.error.evalue


def test_bash_cells_of_the_synchronous_api_ask_too() -> None:
    result = kernelbox.execute("sync", "echo hello", language="bash", approve=lambda request: False)
    assert result.output == ""
    assert result.error is not None
    assert result.error.ename == "ApprovalRejectedError"


def test_an_exception_in_approve_reaches_the_caller_and_the_kernel_is_free() -> None:
    def approve(request: SyncApprovalRequest) -> bool:
        raise LookupError

    with pytest.raises(LookupError):
        kernelbox.execute("sync", "!echo", approve=approve)
    assert kernelbox.execute("sync", "1 + 1").return_value == "2"


def test_a_sync_stream_yields_requests_and_rejects_what_is_not_answered_in_the_loop() -> None:
    items = list(kernelbox.stream("sync", "!echo hello", approve=True))
    assert isinstance(items[0], SyncApprovalRequest)
    assert isinstance(items[-1], kernelbox.ExecutionResult)
    assert items[-1].error is not None
    assert "not answered before the next output" in items[-1].error.evalue


def test_execute_with_retry_passes_approve_on() -> None:
    result = kernelbox.execute_with_retry(
        "sync",
        "!echo no",
        lambda result, attempt: "!echo yes",
        approve=lambda request: "yes" in request.tool_args["cmd"],
    )
    assert result.output == "yes\n"
    assert len(result.attempts) == 2


def test_a_sync_answer_can_be_remembered() -> None:
    seen: list[str] = []

    def approve(request: SyncApprovalRequest) -> None:
        seen.append(request.tool_args["cmd"])
        request.accept(remember="session")

    for number in (0, 1, 0, 1):
        assert kernelbox.execute("sync", f"!echo {number}", approve=approve).output == f"{number}\n"
    assert kernelbox.execute("other", "!echo 0", approve=approve).output == "0\n"
    assert seen == ["echo 0", "echo 1", "echo 0"]


def _kill(kernel: str) -> None:
    result = kernelbox.execute(kernel, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert result.state == "lost"


def _overrun(kernel: str) -> None:
    assert kernelbox.execute(kernel, STUBBORN, timeout=BEGUN).ending == "restarted"


@pytest.mark.parametrize("end", [kernelbox.restart, kernelbox.destroy, _kill, _overrun])
def test_what_a_sync_answer_remembers_ends_with_the_kernels_process(end: Callable[[str], object]) -> None:
    seen: list[str] = []

    def approve(request: SyncApprovalRequest) -> None:
        seen.append(request.tool_args["cmd"])
        request.accept(remember="session", args={})

    for command in ("echo 1", "echo 2"):
        assert kernelbox.execute("sync", f"!{command}", approve=approve).ok
    end("sync")
    assert kernelbox.execute("sync", "!echo 3", approve=approve).ok
    assert seen == ["echo 1", "echo 3"]


def test_a_sync_answer_for_the_execution_is_forgotten_after_it() -> None:
    seen: list[str] = []

    def approve(request: SyncApprovalRequest) -> None:
        seen.append(request.tool_args["cmd"])
        request.accept(remember="execution")

    for _ in range(2):
        assert kernelbox.execute("sync", "!echo 1\n!echo 1", approve=approve).output == "1\n1\n"
    assert seen == ["echo 1", "echo 1"]


def test_a_policy_decides_in_the_synchronous_api_before_approve_is_called() -> None:
    policy = ApprovalPolicy().allow("shell", args={"cmd": "echo *"}).deny(args={"cmd": "rm *"}, reason="we keep things")
    seen: list[str] = []

    def approve(request: SyncApprovalRequest) -> bool:
        seen.append(request.tool_args["cmd"])
        return True

    result = kernelbox.execute("sync", "!echo 1\n!true\n!rm x", approve=approve, policy=policy)
    assert seen == ["true"]
    assert result.output == "1\n"
    assert result.error is not None
    assert result.error.evalue == "shell 'rm x': we keep things"


@pytest.mark.parametrize(
    "policy", [ApprovalPolicy().ask("shell"), ApprovalPolicy(default="ask"), ApprovalPolicy().allow("shell_magic")]
)
def test_with_a_policy_and_nobody_to_ask_what_would_be_asked_is_rejected(policy: ApprovalPolicy) -> None:
    result = kernelbox.execute("sync", "!echo 1", policy=policy)
    assert result.output == ""
    assert result.error is not None
    assert result.error.ename == "ApprovalRejectedError"
    assert "no approve= was passed" in result.error.evalue
    assert not [item for item in kernelbox.stream("sync", "!echo 1", policy=policy) if not _is_result(item)]


def _is_result(item: object) -> bool:
    return isinstance(item, kernelbox.ExecutionResult)


def test_a_rule_for_commands_of_bash_does_not_cover_a_script_of_another_program() -> None:
    policy = ApprovalPolicy().allow("shell*", args={"cmd": "*"})
    assert kernelbox.execute("sync", "%%bash\necho 1; echo 2", policy=policy).output == "1\n2\n"
    result = kernelbox.execute("sync", "%%script cat\nhello", policy=policy)
    assert result.output == ""
    assert result.error is not None
    assert "the policy does not allow it" in result.error.evalue
    policy.allow("shell_magic", args={"cmd": "*", "program": "cat"})
    assert kernelbox.execute("sync", "%%script cat\nhello", policy=policy).output == "hello\n"


def test_a_policy_allows_in_the_synchronous_api_without_approve() -> None:
    policy = ApprovalPolicy(default="deny").allow("shell", args={"cmd": "echo *"})
    assert kernelbox.execute("sync", "!echo 1", policy=policy).output == "1\n"
    denied = kernelbox.execute_with_retry("sync", "!ls", lambda result, attempt: "!echo 2", policy=policy)
    assert denied.output == "2\n"
    assert [attempt.status for attempt in denied.attempts] == ["error", "success"]


def test_approve_holds_commands_also_beside_a_policy_that_does_not_concern_the_shell() -> None:
    policy = ApprovalPolicy().deny(server="github")
    result = kernelbox.execute("sync", "!echo 1", approve=lambda request: "asked", policy=policy)
    assert result.error is not None
    assert result.error.evalue == "shell 'echo 1': asked"


@pytest.mark.parametrize(
    "policy",
    [
        ApprovalPolicy(),
        ApprovalPolicy().allow("bash", args={"cmd": "git *"}),  # there is no such tool
        ApprovalPolicy().ask("Shell"),
        ApprovalPolicy().allow(server="github"),
        ApprovalPolicy().deny("rm"),
    ],
)
@pytest.mark.parametrize("language", ["python", "bash"])
def test_a_policy_without_a_word_about_the_shell_allows_no_command(
    policy: ApprovalPolicy, language: Any, tmp_path: Path
) -> None:
    touch = f"touch {tmp_path / 'made'}"
    result = kernelbox.execute("sync", touch if language == "bash" else f"!{touch}", language=language, policy=policy)
    assert result.error is not None
    assert "the policy does not allow it" in result.error.evalue
    assert not (tmp_path / "made").exists()


def test_an_approve_function_that_is_async_is_refused_before_anything_runs(tmp_path: Path) -> None:
    async def approve(request: object) -> bool:
        return True

    with pytest.raises(InvalidInput, match="plain function, or AsyncKernel"):
        kernelbox.execute("sync", f"!touch {tmp_path / 'made'}", approve=approve)  # type: ignore[arg-type]  # a mistake
    assert not (tmp_path / "made").exists()


def test_a_rule_of_a_policy_about_another_server_is_kept() -> None:
    policy = ApprovalPolicy().deny(server="github", reason="not that one")
    result = kernelbox.execute("sync", "get_ipython().kernel.asks.ask('github', 'search', {})", policy=policy)
    assert result.error is not None
    assert result.error.evalue == "search: not that one"


def test_a_request_of_a_sync_stream_that_was_left_cannot_be_answered_any_more(tmp_path: Path) -> None:
    made = tmp_path / "made"
    stream = kernelbox.stream("sync", f"!touch {made}", approve=True)
    request = next(stream)
    assert isinstance(request, SyncApprovalRequest)
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    with pytest.raises(ApprovalClosed, match="rejected"):
        request.accept()
    assert kernelbox.execute("sync", "1 + 1").return_value == "2"
    assert not made.exists()


def test_a_function_that_python_takes_for_false_is_called_all_the_same() -> None:
    class Approve(list[str]):
        def __call__(self, request: SyncApprovalRequest) -> str:
            return "asked"

    result = kernelbox.execute("sync", "!echo 1", approve=Approve())
    assert result.error is not None
    assert result.error.evalue == "shell 'echo 1': asked"


@pytest.mark.parametrize("approve", ["yes", 1, 0, []])
def test_what_cannot_approve_is_refused(approve: Any) -> None:
    with pytest.raises(InvalidInput, match="approve"):
        kernelbox.stream("sync", "1", approve=approve)


def test_execute_takes_a_function_only() -> None:
    with pytest.raises(InvalidInput, match="approve"):
        kernelbox.execute("sync", "1", approve=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", ["!ls {1 + 1}", "x = !ls", "%sx ls", "%%bash\nls\necho"])
def test_a_traceback_shows_commands_as_the_user_wrote_them(code: str) -> None:
    result = kernelbox.execute("sync", code, approve=lambda request: False)
    assert f"> 1 {code.splitlines()[0]}" in result.text
    assert "get_ipython" not in result.text


def test_edit_starts_no_editor() -> None:
    result = kernelbox.execute("sync", "%edit", approve=lambda request: True)
    assert result.error is not None
    assert "no screen" in result.error.evalue


def test_a_process_that_the_cell_forked_cannot_ask_and_does_not_wait() -> None:
    code = (
        "import os\npid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n        get_ipython().system('ls')\n"
        "    except Exception as error:\n        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "_ = os.waitpid(pid, 0)"
    )
    result = kernelbox.execute("sync", code, approve=lambda request: True)
    assert result.output == "shell: a process that the cell forked cannot ask\n"

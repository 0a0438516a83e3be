"""What programs and test doubles written for ipybox rely on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.executor import DEADLINE, accept, answer_all, reject, run, text

from kernelbox import (
    ApprovalClosed,
    ApprovalRequest,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    ExecutionTimeout,
)


@pytest.fixture(autouse=True)
def _in_a_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def play(scenario: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(scenario, DEADLINE))


def test_a_request_that_a_test_double_makes_passes_its_answer_on() -> None:
    async def scenario() -> None:
        answers: list[bool] = []

        async def respond(accepted: bool) -> None:
            answers.append(accepted)

        request = ApprovalRequest(server_name="srv", tool_name="tool", tool_args={"a": 1}, respond=respond)
        assert (request.server_name, request.tool_name, request.tool_args) == ("srv", "tool", {"a": 1})
        assert str(request) == "srv.tool(a=1)"
        await request.accept()
        await ApprovalRequest("srv", "tool", {}, respond).reject()
        await ApprovalRequest("srv", "tool", {}).accept()
        assert answers == [True, False]

    play(scenario())


def test_the_response_is_there_before_it_has_been_passed_on() -> None:
    async def scenario() -> None:
        passed_on = asyncio.Event()

        async def respond(accepted: bool) -> None:
            await passed_on.wait()

        request = ApprovalRequest("srv", "tool", {}, respond)
        accepting = asyncio.create_task(request.accept())
        assert await request.response() is True
        assert not accepting.done()
        passed_on.set()
        await accepting
        assert await request.response() is True

    play(scenario())


def test_all_who_want_to_know_the_decision_hear_of_it_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        heard: list[object] = []
        request = ApprovalRequest("srv", "tool", {})
        request.on_decision(heard.append)
        request.on_decision(lambda accepted: 1 / 0)
        request.on_decision(heard.append)
        await request.reject()
        assert heard == [False, False]
        request.on_decision(heard.append)
        assert heard == [False, False, False]
        with pytest.raises(ApprovalClosed):
            await request.accept()
        assert len(heard) == 3

    with caplog.at_level(logging.ERROR):
        play(scenario())
    assert "a function passed to on_decision has failed" in caplog.text


def test_the_request_of_a_cell_tells_its_decision_too() -> None:
    async def scenario() -> list[bool]:
        heard: list[bool] = []
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            async for item in executor.stream("!echo hi"):
                if isinstance(item, ApprovalRequest):
                    item.on_decision(heard.append)
                    waiting = asyncio.create_task(item.response())
                    await item.accept()
                    heard.append(await waiting)
        return heard

    assert run(scenario) == [True, True]


def test_an_error_can_be_made_of_a_sentence() -> None:
    for error in (CodeExecutionError("it failed"), ExecutionTimeout("it failed")):
        assert str(error) == "it failed"
        assert (error.text, error.images, error.ename, error.traceback) == (None, [], "", "")
    assert isinstance(ExecutionTimeout("x"), TimeoutError)
    assert str(CodeExecutionError()) == ""


def test_what_an_executor_was_made_with_can_be_read(tmp_path: Path) -> None:
    executor = CodeExecutor(
        kernel_env={"A": "b"},
        working_dir=str(tmp_path),
        images_dir=f"{tmp_path}/pictures",
        approve_shell_cmds=True,
        require_shell_escape=True,
        approve_tool_calls=False,
        approval_timeout=5,
        log_level="ERROR",
    )
    assert (executor.kernel_env, executor.working_dir, executor.images_dir) == (
        {"A": "b"},
        tmp_path,
        tmp_path / "pictures",
    )
    assert (executor.approve_shell_cmds, executor.require_shell_escape) == (True, True)
    assert (executor.approve_tool_calls, executor.approval_timeout, executor.log_level) == (False, 5, "ERROR")
    assert (CodeExecutor().working_dir, CodeExecutor().kernel_env) == (None, {})
    with pytest.raises(ValueError, match="approve_shell_cmds"):
        CodeExecutor(require_shell_escape=True)


def test_a_cancel_that_nobody_awaits_ends_the_cell() -> None:
    async def scenario() -> tuple[CodeExecutionResult, str | None]:
        async with CodeExecutor() as executor:
            executor.cancel()  # there is nothing to cancel
            async for item in executor.stream("print('begins')\nimport time\ntime.sleep(600)", chunks=True):
                match item:
                    case CodeExecutionChunk():
                        executor.cancel()
                    case CodeExecutionResult():
                        result = item
            return result, await text(executor, "print('goes on')")

    result, after = run(scenario)
    assert (result.text, result.images, result.cancelled, after) == ("begins", [], True, "goes on")


def test_with_ipyboxs_ways_a_cancelled_cell_has_an_empty_result() -> None:
    async def scenario() -> CodeExecutionResult:
        async with CodeExecutor(ipybox=True) as executor:
            async for item in executor.stream("print('begins')\nimport time\ntime.sleep(600)", chunks=True):
                match item:
                    case CodeExecutionChunk():
                        executor.cancel()
                    case CodeExecutionResult():
                        result = item
            assert await text(executor, "print('goes on')") == "goes on"
            return result

    result = run(scenario)
    assert (result.text, result.images, result.cancelled) == (None, [], True)


def test_the_notice_of_a_restored_directory_has_a_line_of_its_own(tmp_path: Path) -> None:
    notice = f"[kernelbox] cwd reset to {tmp_path}"

    async def scenario() -> list[str | None]:
        async with CodeExecutor(working_dir=tmp_path) as executor:
            codes = ["", "\nprint('a')", "\nprint('a', end='')", "\n'a'", "\nprint('a\\n')"]
            return [await text(executor, f"import os; os.chdir('/'){code}") for code in codes]

    assert run(scenario) == [notice, f"a\n{notice}", f"a\n{notice}", f"'a'\n{notice}", f"a\n\n{notice}"]


def test_chunks_add_up_to_the_text_with_the_notice(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str | None]:
        chunks, result = "", None
        async with CodeExecutor(working_dir=tmp_path) as executor:
            async for item in executor.stream("import os\nos.chdir('/')\nprint('a', end='')", chunks=True):
                if isinstance(item, CodeExecutionChunk):
                    chunks += item.text
                elif isinstance(item, CodeExecutionResult):
                    result = item.text
        return chunks, result

    chunks, result = run(scenario)
    assert chunks.rstrip() == result == f"a\n[kernelbox] cwd reset to {tmp_path}"


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("import subprocess; subprocess.run(['true'])", "subprocess"),
        ("import subprocess; subprocess.Popen(['true']).wait()", "subprocess"),
        ("import subprocess; subprocess.getoutput('true')", "subprocess"),
        ("import os; os.system('true')", "os.system()"),
        ("import os; os.popen('true')", "os.popen()"),
        ("import os; os.execvp('true', ['true'])", "os.execvp()"),
        ("import os; os.spawnl(os.P_WAIT, '/bin/true', 'true')", "os.spawnl()"),
        ("import os; os.posix_spawn('/bin/true', ['true'], os.environ)", "os.posix_spawn()"),
        ("import pty; pty.spawn(['true'])", "pty.spawn()"),
    ],
)
def test_a_direct_call_is_refused_by_the_name_that_the_cell_used(code: str, call: str) -> None:
    async def scenario() -> str:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(code)
            return str(caught.value)

    said = run(scenario)
    assert said.startswith(f"RuntimeError: Direct {call} calls are not allowed")
    assert "use !command" in said


@pytest.mark.parametrize("code", ["!echo secret", "%%bash\necho secret", "x = !echo secret"])
def test_a_rejection_says_so(code: str) -> None:
    async def scenario() -> str:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, reject)
            return str(caught.value)

    said = run(scenario)
    assert "ApprovalRejectedError" in said
    assert said.splitlines()[0].endswith(": rejected")


def test_an_answer_that_does_not_come_is_an_expired_request() -> None:
    async def scenario() -> str:
        async with CodeExecutor(approve_shell_cmds=True, approval_timeout=0.2) as executor:
            with pytest.raises(CodeExecutionError, match=r"expired: no answer within 0\.2 s") as caught:
                async for _ in executor.stream("!echo late"):
                    pass
            return caught.value.ename

    assert run(scenario) == "ApprovalRejectedError"


def test_commands_that_are_accepted_are_shown_with_their_variables_and_run() -> None:
    async def scenario() -> None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            cells = {
                "x = 'world'\n!echo {x}": [("shell", "echo world")],
                "!echo one\n!echo two": [("shell", "echo one"), ("shell", "echo two")],
                "!echo {undefined_variable}": [("shell", "echo {undefined_variable}")],
                "%%sh\necho a\necho b": [("shell_magic", "echo a\necho b")],
            }
            for code, expected in cells.items():
                seen = []
                async for item in executor.stream(code):
                    if isinstance(item, ApprovalRequest):
                        seen.append((item.tool_name, item.tool_args["cmd"].strip()))
                        await accept(item)
                assert seen == expected

    run(scenario)

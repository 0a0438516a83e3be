"""Calling tools from cells: approvals, results, errors, parallel calls, interrupts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import wait_for_end
from tests.support.executor import accept, answer_all, reject, run, text
from tests.support.tools import PLAIN, cell, executing, failure, generate, plain, until

from kernelbox import (
    ApprovalClosed,
    ApprovalPolicy,
    ApprovalRequest,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    ExecutionTimeout,
    ToolEvent,
)

NO_PARAMS = "from kernelbox.guest.tools import call\nimport pydantic\nclass Params(pydantic.BaseModel): ..."


def test_an_accepted_call_runs_and_returns_what_the_tool_returned(project: Path) -> None:
    async def scenario() -> tuple[list[ApprovalRequest], CodeExecutionResult | None]:
        async with executing(project) as executor:
            return await answer_all(executor, cell("echo", query="neural topic models", count=3), accept)

    requests, result = run(scenario)
    assert [(request.server_name, request.tool_name, request.tool_args) for request in requests] == [
        ("plain", "echo", {"query": "neural topic models", "count": 3})
    ]
    assert result is not None
    assert json.loads(result.text or "") == {"query": "neural topic models", "count": 3}


def test_a_rejected_call_does_not_reach_the_server(project: Path) -> None:
    async def scenario() -> CodeExecutionError:
        async with executing(project) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, cell("leave", marks=str(project)), reject)
        return caught.value

    error = run(scenario)
    assert error.ename == "ApprovalRejectedError"
    assert not (project / "server").exists()


def test_execute_accepts_by_itself_unless_a_rule_denies(project: Path) -> None:
    async def scenario() -> tuple[str | None, str]:
        policy = ApprovalPolicy().deny("fail", server="plain", reason="never that")
        async with executing(project, approval_policy=policy) as executor:
            told = await text(executor, cell("echo", a=1))
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(cell("fail", words="x"))
        return told, caught.value.evalue

    told, refused = run(scenario)
    assert told == '{"a": 1}'
    assert "never that" in refused


def test_the_words_of_a_server_are_the_error_in_the_cell(project: Path) -> None:
    async def scenario() -> CodeExecutionError:
        async with executing(project) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(cell("fail", words="there is no such thing"))
        return caught.value

    error = run(scenario)
    assert (error.ename, error.evalue) == ("ToolError", "there is no such thing")


def test_a_picture_is_shown_and_returned_as_bytes(project: Path) -> None:
    code = "from mcptools.plain import picture\ndata = picture.run(picture.Params())\nprint(data[1:4], data.mime_type)"

    async def scenario() -> CodeExecutionResult:
        async with executing(project) as executor:
            return await executor.execute(code)

    result = run(scenario)
    assert "b'PNG' image/png" in (result.text or "")
    assert [image.read_bytes()[1:4] for image in result.images] == [b"PNG"]


def test_a_picture_that_is_none_is_an_error_of_the_tool(project: Path) -> None:
    async def scenario() -> tuple[set[str], str | None]:
        async with executing(project) as executor:
            failed = {await failure(executor, cell("torn", data=data)) for data in ("AAA", "!!!!", "_-_-", "é")}
            return failed, await text(executor, cell("torn", data="AA\nAA\n"))

    failed, unnamed = run(scenario)
    assert failed == {"torn answered with a picture, a sound or a file that is not base64"}
    assert unnamed == r"b'\x00\x00\x00'"  # and no picture is shown


def test_half_of_a_character_in_an_answer_is_marked_as_such(project: Path) -> None:
    async def scenario() -> str | None:
        async with executing(project) as executor:
            return await text(executor, cell("half"))

    assert run(scenario) == "cut \ufffd, whole \U0001f600, written \\ud83d"


def test_resources_and_links_come_back_beside_text_and_pictures(project: Path) -> None:
    code = """
from mcptools.plain import mixed
words, picture, memo, blob, link = mixed.run(mixed.Params())
print(words, picture.mime_type, memo.uri, memo.text, blob.data[1:4], link.uri, link.name, link.text)
"""

    async def scenario() -> str | None:
        async with executing(project) as executor:
            return await text(executor, code)

    assert "words image/png memo://1 a memo b'PNG' memo://3 three None" in (run(scenario) or "")


def test_a_server_that_is_called_while_the_executor_stops_is_ended_too(project: Path) -> None:
    code = f"""
from mcptools.plain import leave
while True:
    leave.run(leave.Params(marks={str(project)!r}))
"""

    async def scenario() -> None:
        async with executing(project) as executor:
            calling = asyncio.create_task(executor.execute(code))
            await until((project / "server").exists)
        with contextlib.suppress(CodeExecutionError):
            await calling

    run(scenario)
    wait_for_end(int((project / "server").read_text()))


def test_calls_of_threads_and_tasks_run_at_the_same_time(project: Path) -> None:
    """Each call returns when all have come to the server: one after the other, none would."""
    code = f"""
import asyncio
from concurrent.futures import ThreadPoolExecutor
from mcptools.plain import meet
def params(kind, n):
    return meet.Params(marks={str(project)!r}, name=f"{{kind}}{{n}}", others=[f"{{kind}}{{m}}" for m in range(12)])
with ThreadPoolExecutor(12) as pool:
    print(len(list(pool.map(lambda n: meet.run(params("thread", n)), range(12)))))
print(len(await asyncio.gather(*(meet.run_async(params("task", n)) for n in range(12)))))
"""

    async def scenario() -> str | None:
        async with executing(project) as executor:
            return await text(executor, code)

    assert run(scenario) == "12\n12"


def test_a_timeout_cancels_the_call_at_the_server_and_the_kernel_goes_on(project: Path) -> None:
    async def scenario() -> str | None:
        async with executing(project) as executor:
            await executor.execute("x = 1\n" + cell("echo"))  # from now on a call takes no time to begin
            waiting = asyncio.create_task(executor.execute(cell("wait", marks=str(project)), timeout=2))
            with pytest.raises(ExecutionTimeout):
                await waiting
            await until((project / "cancelled").exists)
            return await text(executor, "print(x)\n" + cell("echo", a=1))

    assert run(scenario) == '1\n{"a": 1}'


def test_cancelling_the_execution_cancels_the_call_at_the_server(project: Path) -> None:
    async def scenario() -> CodeExecutionResult:
        async with executing(project) as executor:
            waiting = asyncio.create_task(executor.execute(cell("wait", marks=str(project))))
            await until((project / "begun").exists)
            executor.cancel()
            await until((project / "cancelled").exists)
            return await waiting

    assert run(scenario).cancelled


def test_a_task_that_the_cell_cancels_is_cancelled_at_the_server_while_the_cell_goes_on(project: Path) -> None:
    code = f"""
import asyncio, pathlib
from mcptools.plain import wait
marks = pathlib.Path({str(project)!r})
task = asyncio.create_task(wait.run_async(wait.Params(marks=str(marks))))
while not (marks / "begun").exists():
    await asyncio.sleep(0.01)
task.cancel()
while not (marks / "cancelled").exists():
    await asyncio.sleep(0.01)
print("gone on")
"""

    async def scenario() -> str | None:
        async with executing(project) as executor:
            return await text(executor, code)

    assert run(scenario) == "gone on"


def test_what_a_server_says_while_a_tool_runs_comes_as_events(project: Path) -> None:
    async def scenario() -> list[Any]:
        async with executing(project) as executor:
            seen = []
            async for item in executor.stream(cell("report"), chunks=True):
                if isinstance(item, ApprovalRequest):
                    await item.accept()
                elif isinstance(item, ToolEvent):
                    seen.append(item)
            return seen

    told = [(event.kind, event.server_name, event.tool_name, event.text, event.progress) for event in run(scenario)]
    assert told == [
        ("progress", "plain", "report", "step 1", 1),
        ("progress", "plain", "report", "step 2", 2),
        ("log", "plain", "report", "a line", None),
    ]


def test_arguments_that_json_has_no_form_for_are_an_error_of_the_cell(project: Path) -> None:
    code = """
from mcptools.plain import echo
print(echo.run(echo.Params(a=(1, 2), b={"c": None}, d=[{"e": 1.5}], f=True)))
for value in (float("nan"), [float("inf")], object(), {1: 2}, "x" * 9_000_000):
    try:
        echo.run(echo.Params(a=value))
    except (TypeError, ValueError) as exc:
        print("no")
try:
    echo.run({"a": 1})
except TypeError as exc:
    print(exc)
"""

    async def scenario() -> list[str]:
        policy = ApprovalPolicy().ask(args={"f": True})
        async with executing(project, approval_policy=policy) as executor:
            requests, result = await answer_all(executor, code, accept)
            assert len(requests) == 1
            assert result is not None
            return (result.text or "").splitlines()

    first, *others = run(scenario)
    assert json.loads(first) == {"a": [1, 2], "b": {"c": None}, "d": [{"e": 1.5}], "f": True}
    assert others == ["no"] * 5 + ["pass Params(…), not dict"]


def test_a_thousand_calls_in_a_loop_all_come_back(project: Path) -> None:
    code = "from mcptools.plain import echo\nprint(sum(echo.run(echo.Params(n=n)) != '' for n in range(1000)))"

    async def scenario() -> str | None:
        async with executing(project) as executor:
            return await text(executor, code)

    assert run(scenario) == "1000"


def test_a_rejection_in_the_middle_of_a_loop_ends_that_call_only(project: Path) -> None:
    code = """
from kernelbox import ApprovalRejectedError
from mcptools.plain import echo
for n in range(4):
    try:
        print(echo.run(echo.Params(n=n)))
    except ApprovalRejectedError as exc:
        print("refused", exc)
"""

    async def take(request: ApprovalRequest) -> None:
        await (request.reject("not two") if request.tool_args["n"] == 2 else request.accept())

    async def scenario() -> CodeExecutionResult | None:
        async with executing(project) as executor:
            return (await answer_all(executor, code, take))[1]

    result = run(scenario)
    assert result is not None
    assert result.text == '{"n": 0}\n{"n": 1}\nrefused echo: not two\n{"n": 3}'


def test_calls_that_come_at_once_share_one_session_also_the_first_ones(project: Path) -> None:
    code = """
import asyncio
from mcptools.plain import pid
print(len(set(await asyncio.gather(*(pid.run_async(pid.Params()) for _ in range(20))))))
"""

    async def scenario() -> str | None:
        async with executing(project) as executor:
            return await text(executor, code)

    assert run(scenario) == "1"


def test_a_request_that_the_cell_no_longer_waits_for_cannot_be_answered(project: Path) -> None:
    code = """
import asyncio
from mcptools.plain import echo
try:
    await asyncio.wait_for(echo.run_async(echo.Params(a=1)), 0.5)
except TimeoutError:
    print("gone on")
"""

    async def scenario() -> tuple[ApprovalRequest, CodeExecutionResult]:
        async with executing(project) as executor:
            async for item in executor.stream(code):
                if isinstance(item, ApprovalRequest):
                    request = item
                if isinstance(item, CodeExecutionResult):
                    with pytest.raises(ApprovalClosed):
                        await request.accept()
                    return request, item
        raise AssertionError("no result")

    request, result = run(scenario)
    assert result.text == "gone on"
    assert not request.open


def test_tools_can_be_called_where_shell_commands_are_guarded(project: Path) -> None:
    async def scenario() -> tuple[list[ApprovalRequest], CodeExecutionResult | None]:
        async with executing(project, approve_shell_cmds=True, require_shell_escape=True) as executor:
            return await answer_all(executor, cell("echo", a=1) + "\n!echo shell", accept)

    requests, result = run(scenario)
    assert [request.server_name for request in requests] == ["plain", "kernelbox"]
    assert result is not None
    assert result.text == '{"a": 1}\nshell'


def test_a_tool_on_a_later_page_whose_result_does_not_fit_its_schema_says_so(home: Path, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema} for name in ("one", "two", "three")
    ]
    structured = {"one": {"n": 1}, "two": {"n": 2}, "three": {"n": "many"}}
    generate(tmp_path, plain(tmp_path, tools=tools, page=1, structured=structured))

    async def scenario() -> tuple[str | None, str]:
        async with executing(tmp_path) as executor:
            told = await text(executor, cell("two"))
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(cell("three"))
            return told, caught.value.evalue

    told, failed = run(scenario)
    assert told == "n=2"
    assert "many" in failed


def test_a_server_that_nobody_added_is_named_in_the_error(home: Path) -> None:
    code = f"{NO_PARAMS}\ncall('unknown', 'x', Params())"

    async def scenario() -> str:
        async with CodeExecutor() as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(code)
        return caught.value.evalue

    assert "there is no server 'unknown' here" in run(scenario)


def test_a_cell_cannot_say_what_the_server_is(project: Path) -> None:
    """What a generated package says of its server is not read by the host: a changed one reaches nothing else."""
    module = project / "mcptools" / "plain" / "echo.py"
    source = module.read_text()
    module.write_text(source.replace('"plain"', '"/bin/sh -c true"'))

    async def scenario() -> str:
        async with executing(project) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(cell("echo"))
        return caught.value.evalue

    assert "there is no server '/bin/sh -c true' here" in run(scenario)


def test_servers_of_an_executor_are_its_own(home: Path, project: Path) -> None:
    code = f"{NO_PARAMS}\nprint(call('mine', 'pid', Params()))"

    async def scenario() -> str | None:
        async with executing(project, mcp_servers={"mine": PLAIN}) as executor:
            told = await text(executor, code)
        async with executing(project) as other:
            with pytest.raises(CodeExecutionError, match="there is no server 'mine' here"):
                await other.execute(code)
        return told

    assert (run(scenario) or "").isdigit()

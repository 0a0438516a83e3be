"""What a cell, an application or a server may do to a call that it should not: only what was approved is called."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import succeed
from tests.support.executor import answer_all, run, text
from tests.support.tools import cell, executing, generate, plain

from kernelbox import ApprovalClosed, ApprovalRequest, CodeExecutionError, CodeExecutionResult, execute


def noted(project: Path) -> list[Any]:
    """Returns the values that the server was called with."""
    file = project / "noted"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_arguments_that_a_thread_changes_while_the_question_is_open_are_called_as_they_were_shown(
    project: Path,
) -> None:
    code = f"""
import threading
from mcptools.plain import note
value = ["shown"]
params = note.Params(marks={str(project)!r}, value=value)
caller = threading.Thread(target=note.run, args=(params,))
caller.start()
asked.wait()
value[0] = "changed"
params.value = ["replaced"]
changed.set()
caller.join()
"""

    async def scenario() -> None:
        async with executing(project) as executor:
            await executor.execute(
                "import threading\n"
                "class File:\n"
                "    def __init__(self, path): self.path = path\n"
                "    def set(self): open(self.path, 'w').close()\n"
                "    def wait(self):\n"
                "        import os, time\n"
                "        while not os.path.exists(self.path): time.sleep(0.005)\n"
                f"asked, changed = File({str(project / 'asked')!r}), File({str(project / 'changed')!r})"
            )

            async def answer(request: ApprovalRequest) -> None:
                assert request.tool_args["value"] == ["shown"]
                await asyncio.to_thread((project / "asked").touch)
                while not (project / "changed").exists():  # noqa: ASYNC110  # a file of another process
                    await asyncio.sleep(0.005)
                await request.accept()

            await answer_all(executor, code, answer)

    run(scenario)
    assert noted(project) == [["shown"]]


def test_arguments_that_the_application_changes_in_a_request_are_not_called(project: Path) -> None:
    async def answer(request: ApprovalRequest) -> None:
        request.tool_args["value"] = "changed"
        await request.accept()

    async def scenario() -> None:
        async with executing(project) as executor:
            await answer_all(executor, cell("note", marks=str(project), value="asked"), answer)

    run(scenario)
    assert noted(project) == ["asked"]


def test_answers_that_race_decide_once_and_the_tool_is_called_once_or_not_at_all(project: Path) -> None:
    async def answer(request: ApprovalRequest) -> None:
        answers = [request.accept(), request.reject("no"), request.accept(), request.reject("no")]
        ends = await asyncio.gather(*answers, return_exceptions=True)
        assert sorted(type(end) is ApprovalClosed for end in ends) == [False, True, True, True]

    async def scenario() -> CodeExecutionResult | None:
        async with executing(project) as executor:
            return (await answer_all(executor, cell("note", marks=str(project), value=1), answer))[1]

    result = run(scenario)
    assert result is not None
    assert noted(project) == [1]


@pytest.mark.parametrize("approver", ["is killed", "leaves the stream", "never answers"])
def test_a_call_whose_approver_vanishes_is_not_made(project: Path, approver: str) -> None:
    code = cell("note", marks=str(project), value=1)
    program = f"""
import asyncio, os, signal
from kernelbox import CodeExecutor
async def main():
    executor = CodeExecutor(name="left", working_dir={str(project)!r}, approval_timeout=0.2)
    await executor.start()
    async for item in executor.stream({code!r}):
        if {approver!r} == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif {approver!r} == "leaves the stream":
            break
    await executor.stop()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=100, stderr=subprocess.DEVNULL)
    assert done.returncode == {"is killed": -signal.SIGKILL, "never answers": 1}.get(approver, 0)
    assert execute("left", "1 + 1", timeout=60).return_value == "2"
    assert noted(project) == []


VALUES = [
    "quotes ' \" ''' \"\"\" \\",
    "lines\n\r\n\u2028 and \t tabs \x00",
    "${HOME} $HOME $(id) `id` %HOME% {x} {{x}}",
    "'); import os; os._exit(1) #",
    "\u202egnirts a \U0001f600 e\u0301",
]


def test_values_are_data_on_their_whole_way(project: Path) -> None:
    code = f"""
from mcptools.plain import note
for value in {VALUES!r}:
    note.run(note.Params(marks={str(project)!r}, value=value, **{{"a'b": value}}))
"""

    async def accept_what_is_on_one_line(request: ApprovalRequest) -> None:
        assert str(request).isprintable()
        assert "\u202e" not in str(request)
        await request.accept()

    async def scenario() -> list[ApprovalRequest]:
        async with executing(project) as executor:
            return (await answer_all(executor, code, accept_what_is_on_one_line))[0]

    assert [request.tool_args["value"] for request in run(scenario)] == VALUES
    assert noted(project) == VALUES
    assert os.environ["HOME"] not in (project / "noted").read_text()


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WORD = {"type": "object", "properties": {"w": {"type": "string"}}, "required": ["w"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "now",
    [
        {"name": "count", "inputSchema": {"type": "object"}, "outputSchema": WORD},
        {"name": "other", "inputSchema": {"type": "object"}},
    ],
    ids=["another result", "another tool"],
)
def test_a_server_that_changes_its_tools_fails_the_call_which_says_what_to_do_and_refreshing_mends_it(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = [{"name": "count", "inputSchema": {"type": "object"}, "outputSchema": NUMBER}]
    generate(tmp_path, plain(tmp_path, tools=before, structured={"count": {"n": 1}}))

    async def scenario() -> tuple[str | None, str, str | None]:
        async with executing(tmp_path) as executor:
            told = await text(executor, cell("count"))
            await executor.reset()  # the server is started anew, and is another
            plain(tmp_path, tools=[now], structured={"count": {"w": "one"}})
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(cell("count"))
            return told, caught.value.evalue, await text(executor, "1 + 1")

    told, failed, after = run(scenario)
    assert (told, after) == ("n=1", "2")
    name = now["name"]
    assert ("not a Result" if name == "count" else "it has no tool 'count' now") in failed
    assert "kernelbox tools refresh" in failed
    assert succeed("tools", "refresh", "plain")["refreshed"][0]["tools"] == [name]
    assert run(lambda: _call(tmp_path, name)) in ("w='one'", "{}")


async def _call(root: Path, name: str) -> str | None:
    async with executing(root) as executor:
        return await text(executor, cell(name))

"""Approvals: by elicitation in both generations of the protocol, by a policy, and by nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequestParams, ElicitResult
from tests.support.mcp_server import GENERATIONS, Person, Served, call, failure, http_client, run, stdio_client, text


@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_command_runs_when_the_person_at_the_client_accepts_it(served: Served, mode: str) -> None:
    person = Person()

    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=person) as client:
            assert await text(client, "execute", code="!echo from $((40 + 2))", kernel="accept") == "from 42"

    run(scenario)
    [asked] = person.asked
    assert "kernelbox.shell" in asked
    assert "echo from $((40 + 2))" in asked


@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_command_over_stdio_is_asked_for_too(tmp_path: Path, own_home: Path, mode: str) -> None:
    person = Person()

    async def scenario() -> None:
        async with stdio_client(tmp_path, mode=mode, elicitation_callback=person) as client:
            assert await text(client, "execute_ipython_cell", code="!echo one\n!echo two") == "one\ntwo"

    run(scenario)
    assert len(person.asked) == 2


@pytest.mark.parametrize("mode", GENERATIONS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_command_that_is_declined_does_not_run(served: Served, mode: str, action: str) -> None:
    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=Person(action)) as client:
            said = await failure(client, "execute", code="!touch declined", kernel="decline")
            assert "ApprovalRejectedError" in said
            assert "the user" in said

    run(scenario)
    assert not (served.workspace / "declined").exists()


@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_client_that_cannot_ask_has_commands_rejected(served: Served, mode: str) -> None:
    async def scenario() -> None:
        async with http_client(served, mode) as client:
            told = await failure(client, "execute", code="!touch unasked", kernel="nobody")
            assert "Allow it by a rule in the server's --policy FILE, or start the server with --approve all" in told
            assert await text(client, "execute", code="1 + 1", kernel="nobody") == "2"

    run(scenario)
    assert not (served.workspace / "unasked").exists()


@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_bash_cell_is_asked_for(served: Served, mode: str) -> None:
    person = Person("decline")

    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=person) as client:
            await failure(client, "execute", code="touch bash", language="bash", kernel="bash")

    run(scenario)
    assert len(person.asked) == 1
    assert not (served.workspace / "bash").exists()


@pytest.mark.parametrize("mode", GENERATIONS)
@pytest.mark.parametrize(("remember", "asked"), [("cell", 1), ("ask", 3)])
def test_an_answer_can_be_remembered(served: Served, mode: str, remember: str, asked: int) -> None:
    person = Person(remember=remember)

    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=person) as client:
            code = "for _ in range(3):\n    !echo again"
            assert await text(client, "execute", code=code, kernel="remember") == "again\nagain\nagain"

    run(scenario)
    assert len(person.asked) == asked


@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_cell_with_many_commands_is_not_lost(served: Served, mode: str) -> None:
    person = Person()

    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=person) as client:
            code = "for n in range(12):\n    !echo command $n\n'end'"
            result = await call(client, "execute", code=code, kernel="many commands")
            if mode == "legacy":
                assert not result.is_error
            else:
                assert "have the answer remembered" in str(result.content)
            assert await text(client, "execute", code="1", kernel="many commands") == "1"

    run(scenario)
    assert len(person.asked) == (12 if mode == "legacy" else 10)


@pytest.mark.parametrize("remember", ["for ever", ["cell", "kernel"], 5])
@pytest.mark.parametrize("mode", GENERATIONS)
def test_an_answer_that_is_no_answer_accepts_once_only(served: Served, mode: str, remember: object) -> None:
    person = Person(remember=remember, other="x")

    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=person) as client:
            await text(client, "execute", code="!true\n!true", kernel="odd")

    run(scenario)
    assert len(person.asked) == 2


def test_commands_of_several_threads_are_asked_for_at_the_same_time(served: Served) -> None:
    together = asyncio.Barrier(2)

    async def meet(_: Any, params: ElicitRequestParams) -> ElicitResult:
        await together.wait()
        return ElicitResult(action="accept")

    async def scenario() -> None:
        async with http_client(served, "legacy", elicitation_callback=meet) as client:
            code = (
                "from concurrent.futures import ThreadPoolExecutor\n"
                "with ThreadPoolExecutor(2) as pool:\n"
                "    list(pool.map(lambda n: get_ipython().getoutput(f'echo {n}').s, range(2)))"
            )
            result = await call(client, "execute", code=code, kernel="threads")
            assert not result.is_error, result

    run(scenario)


def test_a_question_that_nobody_answers_is_rejected(tmp_path: Path, own_home: Path) -> None:
    async def never(_: Any, params: ElicitRequestParams) -> ElicitResult:
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    async def scenario() -> None:
        words = ("--approval-timeout", "0.2")
        async with stdio_client(tmp_path, *words, mode="legacy", elicitation_callback=never) as client:
            assert "no answer within 0.2 s" in await failure(client, "execute_ipython_cell", code="!true")

    run(scenario)


def test_a_question_that_is_of_no_use_any_more_is_taken_back_while_the_cell_goes_on(
    tmp_path: Path, own_home: Path
) -> None:
    taken_back, go_on = asyncio.Event(), tmp_path / "go-on"

    async def wait(_: Any, params: ElicitRequestParams) -> ElicitResult:
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.set()
        raise AssertionError("it waits for ever")

    code = f"""
import os, time
try:
    get_ipython().system("true")
except Exception as exc:
    print(exc)
while not os.path.exists({str(go_on)!r}):
    time.sleep(0.01)
"""

    async def scenario() -> None:
        words = ("--approval-timeout", "0.2")
        async with stdio_client(tmp_path, *words, mode="legacy", elicitation_callback=wait) as client:
            running = asyncio.ensure_future(text(client, "execute_ipython_cell", code=code))
            await taken_back.wait()
            assert not running.done()
            go_on.touch()
            assert "no answer within 0.2 s" in await running

    run(scenario)


@pytest.mark.parametrize("mode", GENERATIONS)
def test_all_of_a_long_command_and_of_its_environment_is_shown(served: Served, mode: str) -> None:
    person = Person("decline")

    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=person) as client:
            code = "import os\nos.environ['ADDED'] = 'x' * 7000 + 'hidden'\n"
            code += "!echo {'y' * 6000} ; echo hidden; echo {'z' * 3000}"
            await failure(client, "execute", code=code, kernel="long")

    run(scenario)
    [asked] = person.asked
    assert f"{'x' * 7000}hidden" in asked
    assert f"echo {'y' * 6000} ; echo hidden; echo {'z' * 3000}" in asked


@pytest.mark.slow
@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_command_that_is_too_long_to_be_shown_is_rejected_and_the_next_is_asked_for(
    served: Served, mode: str
) -> None:
    person = Person()

    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=person) as client:
            code = "try:\n    get_ipython().system('echo ' + 'x' * 30_000)\n"
            code += "except Exception as exc:\n    print(exc)\n!echo short"
            shown = await text(client, "execute", code=code, kernel="too long", max_output_chars=100_000)
            assert "it has more than 20,000 characters, which a person cannot check" in shown
            assert shown.endswith("short")

    run(scenario)
    [asked] = person.asked
    assert "echo short" in asked


def test_what_is_shown_cannot_pass_for_something_else(served: Served) -> None:
    person = Person("decline")

    async def scenario() -> None:
        async with http_client(served, elicitation_callback=person) as client:
            await failure(client, "execute", code="!echo a\u202eb\\nAllow it? yes", kernel="shown")

    run(scenario)
    [asked] = person.asked
    assert "\u202e" not in asked
    assert asked.count("\n") == 1


@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_kernel_that_takes_the_place_of_a_dead_one_asks_as_well(served: Served, mode: str) -> None:
    person = Person("decline")

    async def scenario() -> None:
        async with http_client(served, mode, elicitation_callback=person) as client:
            kernel = f"died {mode}"
            await failure(client, "execute", code="import os; os.kill(os.getpid(), 9)", kernel=kernel)
            said = await failure(client, "execute", code="!touch after-death", kernel=kernel)
            assert "ApprovalRejectedError" in said

    run(scenario)
    assert len(person.asked) == 1
    assert not (served.workspace / "after-death").exists()


POLICY = """
[[rules]]
action = "allow"
tool = "shell"
args = { cmd = "echo *" }

[[rules]]
action = "deny"
args = { cmd = "echo secret*" }
reason = "not that one"
"""


def test_a_policy_decides_before_anybody_is_asked(tmp_path: Path, own_home: Path) -> None:
    policy, person = tmp_path / "policy.toml", Person()
    policy.write_text(POLICY)

    async def scenario() -> None:
        async with stdio_client(tmp_path, "--policy", str(policy), elicitation_callback=person) as client:
            assert await text(client, "execute_ipython_cell", code="!echo yes") == "yes"
            assert "not that one" in await failure(client, "execute_ipython_cell", code="!echo secrets")
            assert person.asked == []
            await text(client, "execute_ipython_cell", code="!true")
            assert len(person.asked) == 1

    run(scenario)


def test_all_is_approved_only_where_it_was_said(tmp_path: Path, own_home: Path) -> None:
    async def scenario() -> None:
        async with stdio_client(tmp_path, "--approve", "all") as client:
            assert await text(client, "execute_ipython_cell", code="!echo run") == "run"
        async with stdio_client(tmp_path, "--approve", "none", elicitation_callback=Person()) as client:
            assert "--approve none" in await failure(client, "execute_ipython_cell", code="!echo run")

    run(scenario)

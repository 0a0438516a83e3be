"""Calls that meet: at the same time, in one kernel, with what is no text, and with keys of other calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import ElicitResult, InputRequiredResult
from tests.support.mcp_server import Person, Served, call, failure, http_client, run, text


def test_calls_to_one_kernel_run_one_after_the_other(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            await text(client, "execute", code="seen = []", kernel="queue")
            code = "seen.append('in'); import time; time.sleep(0.02); seen.append('out'); None"
            await asyncio.gather(*(text(client, "execute", code=code, kernel="queue") for _ in range(8)))
            assert await text(client, "execute", code="seen == ['in', 'out'] * 8", kernel="queue") == "True"

    run(scenario)


def test_calls_to_two_kernels_run_at_the_same_time(served: Served, tmp_path: Path) -> None:
    def meeting(mine: str, other: str) -> str:
        paths = (str(tmp_path / mine), str(tmp_path / other))
        waiting = f"while not os.path.exists({paths[1]!r}): time.sleep(0.01)"
        return f"import os, time\nopen({paths[0]!r}, 'w')\n{waiting}\nprint('met')"

    async def scenario() -> None:
        async with http_client(served) as client:
            shown = await asyncio.gather(
                text(client, "execute", code=meeting("a", "b"), kernel="left"),
                text(client, "execute", code=meeting("b", "a"), kernel="right"),
            )
            assert [answer.partition("\n")[0] for answer in shown] == ["met", "met"]

    run(scenario)


def test_many_calls_for_a_new_name_open_one_kernel(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            calls = [text(client, "execute", code="import os; print(os.getpid())", kernel="new") for _ in range(6)]
            pids = {shown.partition("\n")[0] for shown in await asyncio.gather(*calls)}
            assert len(pids) == 1

    run(scenario)


def test_a_restart_ends_the_cell_that_runs(served: Served, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def scenario() -> None:
        async with http_client(served) as client:
            async with anyio.create_task_group() as calls:
                calls.start_soon(expect_restart, client)
                while not await anyio.Path(mark).exists():  # noqa: ASYNC110  # a file has no event
                    await anyio.sleep(0.01)
                await text(client, "restart_kernel", kernel="again")
            assert await text(client, "execute", code="1", kernel="again") == "1"

    async def expect_restart(client: Client) -> None:
        code = f"open({str(mark)!r}, 'w')\nimport time\nwhile True: time.sleep(0.01)"
        assert "lost" in await failure(client, "execute", code=code, kernel="again", timeout=3600)

    run(scenario)


@pytest.mark.parametrize(
    "code", ["print('\\ud800')", "'\\ud800'", "raise ValueError('\\udfff')", "print(b'\\xff'.decode('latin-1'))"]
)
def test_what_is_no_text_arrives_escaped(served: Served, code: str) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            result = await call(client, "execute", code=code, kernel="odd text")
            assert result.content

    run(scenario)


@pytest.mark.parametrize("name", ["", " ", "x" * 2000, "a\nb", "a\x00b", "\u2028"])
def test_a_name_that_no_kernel_can_have_is_refused(served: Served, name: str) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            assert "name" in await failure(client, "execute", code="1", kernel=name)

    run(scenario)


@pytest.mark.parametrize("name", ["-x", "../x", "a/b", "é 漢", "$(id)", "x" * 900])
def test_a_name_is_only_a_name(served: Served, name: str) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            assert await text(client, "execute", code="1", kernel=name) == "1"
            await text(client, "close_kernel", kernel=name)

    run(scenario)


@pytest.mark.slow
def test_no_more_kernels_are_opened_than_a_client_can_look_after(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            opened = []
            for number in range(80):
                result = await call(client, "execute", code="1", kernel=f"many-{number}")
                if result.is_error:
                    break
                opened.append(f"many-{number}")
            for name in opened:
                await text(client, "close_kernel", kernel=name)
            assert result.is_error
            assert "close one" in str(result.content)

    run(scenario)


def test_the_state_of_one_call_does_not_answer_another(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served, elicitation_callback=Person("decline")) as client:
            session = client.session
            first = await session.call_tool("execute", {"code": "!echo 1", "kernel": "s"}, allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            assert first.input_requests is not None
            answers: dict[str, Any] = {key: ElicitResult(action="accept") for key in first.input_requests}
            for arguments, state in (
                ({"code": "!echo 2", "kernel": "s"}, first.request_state),
                ({"code": "!echo 1", "kernel": "s"}, "forged"),
                ({"code": "!echo 1", "kernel": "s"}, (first.request_state or "")[:-2] + "xx"),
            ):
                with pytest.raises(MCPError):
                    await session.call_tool("execute", arguments, input_responses=answers, request_state=state)
            done = await session.call_tool(
                "execute",
                {"code": "!echo 1", "kernel": "s"},
                input_responses=answers,
                request_state=first.request_state,
            )
            assert not done.is_error

    run(scenario)

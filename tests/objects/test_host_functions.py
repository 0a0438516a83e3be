"""Functions of the application in cells: plain functions there, calls that are asked for here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounded import DEADLINE, run
from tests.support.colours import Colour

from kernelbox import (
    ApprovalPolicy,
    ApprovalRequest,
    AsyncKernel,
    CodeExecutor,
    InvalidInput,
    Kernel,
    ToolError,
    execute,
)


def search(query: str, *, limit: int = 3, **more: str) -> list[str]:
    """Finds documents."""
    return [f"{query} {number}" for number in range(limit)] + list(more.values())


async def fetch(address: str) -> dict[str, str]:
    """Fetches a page."""
    await asyncio.sleep(0)
    return {"address": address}


def fail() -> None:
    raise LookupError("the index is gone")


@pytest.fixture(params=[False, True], ids=["Kernel", "AsyncKernel"])
def colour(request: pytest.FixtureRequest, home: Path) -> Iterator[Colour]:
    colour = Colour(request.param)
    yield colour
    colour.close()


def test_a_cell_calls_functions_of_the_host(colour: Colour) -> None:
    kernel = colour.open(tools=[search, fetch])
    found = colour.call(kernel.execute, "search('cats', limit=2, also='dogs')")
    assert found.return_value == "['cats 0', 'cats 1', 'dogs']", found.text
    assert colour.call(kernel.execute, "await fetch('here')").return_value == "{'address': 'here'}"
    colour.call(kernel.stop)


def test_functions_have_their_signature_and_docstring(colour: Colour) -> None:
    kernel = colour.open(tools=[search, fetch])
    shown = colour.call(kernel.execute, "import inspect; print(inspect.signature(search)); print(search.__doc__)")
    assert shown.output == "(query: 'str', *, limit: 'int' = 3, **more: 'str') -> 'list[str]'\nFinds documents.\n"
    assert colour.call(kernel.execute, "inspect.iscoroutinefunction(fetch)").return_value == "True"
    wrong = colour.call(kernel.execute, "search()")
    assert wrong.text.split("\n\n")[1:] == ["TypeError: search() missing a required argument: 'query'"]
    colour.call(kernel.stop)


def test_what_a_function_raises_is_a_tool_error_with_its_words(colour: Colour) -> None:
    kernel = colour.open(tools=[fail])
    failed = colour.call(kernel.execute, "fail()")
    assert failed.error.ename == "ToolError"
    assert failed.error.evalue == "LookupError: the index is gone"
    colour.call(kernel.stop)


def test_a_tool_error_of_the_host_arrives_as_it_was_raised_and_can_be_caught(colour: Colour) -> None:
    def refuse() -> None:
        raise ToolError("try again tomorrow")

    kernel = colour.open(tools=[refuse])
    code = "from kernelbox import ToolError\ntry:\n    refuse()\nexcept ToolError as exc:\n    print(exc)"
    assert colour.call(kernel.execute, code).output == "try again tomorrow\n"
    colour.call(kernel.stop)


@pytest.mark.parametrize(
    ("value", "said"), [({1, 2}, "what odd returned is not JSON: Object of type set"), (b"x", "type bytes")]
)
def test_a_value_that_is_not_json_is_a_tool_error(colour: Colour, value: object, said: str) -> None:
    kernel = colour.open(tools={"odd": lambda: value})
    assert said in colour.call(kernel.execute, "odd()").error.evalue
    colour.call(kernel.stop)


def test_an_argument_that_is_not_json_is_said_without_frames_of_ours(colour: Colour) -> None:
    kernel = colour.open(tools=[search])
    failed = colour.call(kernel.execute, "search(object())")
    assert failed.text == "Cell In[1], line 1\n----> 1 search(object())\n\nTypeError: object is not JSON serializable"
    colour.call(kernel.stop)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Later:
    async def __call__(self) -> str:
        return "later"


async def cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("kind", [SystemExit, StopIteration, KeyboardInterrupt, Unspeakable])
def test_whatever_a_function_raises_the_cell_goes_on(colour: Colour, kind: type[BaseException]) -> None:
    def leave() -> None:
        raise kind

    kernel = colour.open(tools=[leave], timeout=30)
    assert colour.call(kernel.execute, "leave()").error.evalue.startswith(kind.__name__)
    colour.call(kernel.stop)


def test_a_function_that_awaits_something_cancelled_fails_alone(colour: Colour) -> None:
    kernel = colour.open(tools=[cancelled], timeout=30)
    assert "CancelledError" in colour.call(kernel.execute, "await cancelled()").error.evalue
    colour.call(kernel.stop)


def test_an_object_with_an_asynchronous_call_is_awaited(colour: Colour) -> None:
    kernel = colour.open(tools={"later": Later()})
    assert colour.call(kernel.execute, "later()").return_value == "'later'"
    colour.call(kernel.stop)


def test_forged_arguments_cannot_replace_those_that_the_policy_has_seen(colour: Colour) -> None:
    def send(cc: str = "", to: str = "", *, text: str = "", **more: str) -> list[str]:
        return [cc, to, text]

    policy = ApprovalPolicy().deny("send", server="host", args={"to": "eve*"}).deny("send", args={"text": "secret*"})
    kernel = colour.open(tools=[send], policy=policy)
    forge = (
        "import gc\n"
        "from kernelbox.guest.serve._asks import PendingAsks\n"
        "asks = next(o for o in gc.get_objects() if type(o) is PendingAsks)\n"
        "asks.ask('host', 'send', {args})\n"
    )
    for args in ({"to": "ann", "more": {"to": "eve"}}, {"text": "x", "more": {"text": "secret"}}, {"more": 5}):
        answer = colour.call(kernel.execute, forge.replace("{args}", repr(args)))
        assert "Error: " in answer.return_value, answer.text
        assert "eve" not in answer.return_value
    colour.call(kernel.stop)


def test_a_cell_can_call_only_what_was_passed_to_it(home: Path) -> None:
    with Kernel("shared", destroy=True, tools=[search]) as kernel:
        kernel.execute("search('x')")
        without = execute("shared", "search('x')")
        assert without.error is not None
        assert "no function 'search' was passed to this cell" in without.error.evalue
        other = execute("shared", "search('x')", tools=[fail])
        assert other.error is not None
        assert "no function 'search' was passed to this cell" in other.error.evalue
        assert execute("shared", "search('x', limit=1)", tools=[search]).return_value == "['x 0']"


def test_a_call_can_pass_functions_in_place_of_the_kernels_own(colour: Colour) -> None:
    kernel = colour.open(tools=[fail])
    found = colour.call(kernel.execute, "search('x', limit=1)", tools=[search])
    assert found.return_value == "['x 0']", found.text
    assert colour.call(kernel.stream, "search('x', limit=1)", tools=[search])[-1].return_value == "['x 0']"
    again = colour.call(kernel.retry, "1/0", lambda *_: "search('x', limit=1)", tools=[search])
    assert again.return_value == "['x 0']", again.text
    assert "no function 'search' was passed" in colour.call(kernel.execute, "search('x')").text
    assert "no function 'search' was passed" in colour.call(kernel.execute, "search('x')", tools=[]).text
    colour.call(kernel.stop)


def test_functions_are_no_variables_and_not_reported_as_changed(colour: Colour) -> None:
    kernel = colour.open(tools=[search])
    colour.call(kernel.execute, "found = search('x')")
    assert [variable.name for variable in colour.call(kernel.variables)] == ["found"]
    colour.call(kernel.stop)

    async def main() -> None:
        async with CodeExecutor(tools=[search], approve_tool_calls=False) as executor:
            result = await executor.execute("found = search('x')")
            assert result.changed == {"added": ["found"], "changed": [], "removed": []}

    run(main)


def test_each_call_is_approved_under_the_server_host(colour: Colour) -> None:
    asked: list[Any] = []

    def approve(request: Any) -> bool | str:
        asked.append((request.server_name, request.tool_name, request.tool_args))
        return request.tool_args["query"] == "cats" or "only cats"

    kernel = colour.open(tools=[search], approve=approve)
    assert colour.call(kernel.execute, "search('cats', limit=1)").return_value == "['cats 0']"
    refused = colour.call(kernel.execute, "search('dogs')")
    assert refused.error.ename == "ApprovalRejectedError"
    assert "only cats" in refused.error.evalue
    assert asked == [("host", "search", {"query": "cats", "limit": 1}), ("host", "search", {"query": "dogs"})]
    colour.call(kernel.stop)


def test_a_policy_decides_before_anyone_is_asked(colour: Colour) -> None:
    policy = ApprovalPolicy().deny("search", server="host", args={"query": "secret*"}, reason="not that")
    kernel = colour.open(tools=[search], policy=policy)
    assert colour.call(kernel.execute, "search('cats', limit=0)").return_value == "[]"
    assert "not that" in colour.call(kernel.execute, "search('secret plans')").text
    colour.call(kernel.stop)


def test_an_executor_yields_the_calls_for_approval(home: Path) -> None:
    async def main() -> None:
        async with CodeExecutor(tools=[search]) as executor:
            asked = []
            async for item in executor.stream("print(search('x', limit=1))"):
                if isinstance(item, ApprovalRequest):
                    asked.append((item.server_name, item.tool_name))
                    await item.accept()
            assert asked == [("host", "search")]
            assert (await executor.execute("search('y', limit=1)")).text == "['y 0']"

    run(main)


def test_calls_of_threads_and_tasks_run_side_by_side(colour: Colour) -> None:
    together = threading.Barrier(16, timeout=DEADLINE)  # more than an event loop has threads

    def meet(number: int) -> int:
        together.wait()
        return number

    kernel = colour.open(tools=[meet])
    code = "from concurrent.futures import ThreadPoolExecutor\nlist(ThreadPoolExecutor(16).map(meet, range(16)))"
    assert colour.call(kernel.execute, code).return_value == str(list(range(16)))
    colour.call(kernel.stop)


def test_asynchronous_functions_gather(home: Path) -> None:
    async def main() -> None:
        arrived = asyncio.Barrier(3)

        async def meet(number: int) -> int:
            async with asyncio.timeout(DEADLINE):
                await arrived.wait()
            return number

        async with AsyncKernel(tools=[meet]) as kernel:
            done = await kernel.execute("import asyncio\nawait asyncio.gather(*map(meet, range(3)))")
            assert done.return_value == "[0, 1, 2]"

    run(main)


def test_a_call_is_cancelled_with_its_cell(home: Path) -> None:
    async def main() -> None:
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with AsyncKernel(tools=[wait]) as kernel:
            job = kernel.submit("await wait()", timeout=30)
            await began.wait()
            assert (await job.cancel()).ending == "interrupted"
            await cancelled.wait()

    run(main)


def test_a_function_that_uses_the_kernel_that_called_it_gets_a_timeout(home: Path) -> None:
    def again() -> list[str]:
        result = kernel.execute("1", timeout=0.3)
        return [result.status, result.ending]

    with Kernel(tools=[again]) as kernel:
        assert kernel.execute("again()", timeout=DEADLINE).value == ["timeout", "never ran"]
        assert kernel.execute("1").ok


def test_a_thousand_calls_in_a_loop_arrive(home: Path) -> None:
    with Kernel(tools={"double": lambda number: 2 * number}) as kernel:
        assert kernel.execute("sum(double(n) for n in range(1000))").return_value == str(999 * 1000)


def test_a_sandboxed_cell_calls_functions_too(home: Path, tmp_path: Path) -> None:
    with Kernel(cwd=tmp_path, sandbox=True, tools=[search]) as kernel:
        assert kernel.execute("search('x', limit=1)").return_value == "['x 0']"


def test_positional_and_variable_arguments_arrive_as_they_were_passed(home: Path) -> None:
    def take(first: int, /, second: int, *rest: int, last: int = 0, **named: int) -> list[Any]:
        return [first, second, rest, last, named]

    with Kernel(tools=[take]) as kernel:
        assert kernel.execute("take(1, 2, 3, 4, last=5, more=6)").return_value == "[1, 2, [3, 4], 5, {'more': 6}]"


NOT_TOOLS = {
    "a text": "search",
    "a number in a list": [1],
    "not a name": {"not a name": search},
    "a keyword": {"class": search},
    "the same name twice": [search, search],
    "a number": 5,
}


@pytest.mark.parametrize("tools", NOT_TOOLS.values(), ids=NOT_TOOLS)
def test_what_cannot_be_called_is_refused(home: Path, tools: Any) -> None:
    with pytest.raises(InvalidInput, match="tools"):
        Kernel(tools=tools)


@pytest.mark.parametrize("sandbox", [False, True])
def test_functions_are_found_where_no_package_of_tools_was_generated(
    home: Path, tmp_path: Path, *, sandbox: bool
) -> None:
    with Kernel(cwd=tmp_path, tools=[search], sandbox=sandbox) as kernel:
        assert kernel.execute("import mcptools; mcptools.search('documents')").text == "host.search: Finds documents."
        assert "host: 1 tools: search" in kernel.execute("mcptools").text
        (tmp_path / "mcptools" / "later").mkdir(parents=True)
        (tmp_path / "mcptools" / "later" / "__init__.py").write_text("found = 'generated later'")
        assert kernel.execute("import mcptools.later; mcptools.later.found").value == "generated later"


def test_functions_are_found_among_the_tools(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mcptools").mkdir()
    (tmp_path / "mcptools" / "__init__.py").write_text(
        "from kernelbox.guest.discovery import install\ninstall(__name__)\n"
    )
    with Kernel(cwd=tmp_path, tools=[search]) as kernel:
        found = kernel.execute("import mcptools; mcptools.search('documents')")
        assert found.return_value == "host.search: Finds documents."
        assert kernel.execute("mcptools.help('host.search')").text.startswith("search(query, limit, more) -> list[str]")

"""The fields of a result, the same on every face that runs cells in this process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import DEADLINE

from kernelbox import (
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    ExecutionResult,
    InvalidInput,
    KernelRecord,
    destroy,
    execute,
    execute_with_retry,
    stream,
)
from kernelbox.wire._messages import Display
from kernelbox.wire.results._transcript import Transcript

PLOT = "import matplotlib.pyplot as plt\nfor n in (1, 2):\n    plt.plot([n]); plt.show(); print('after', n)"


@pytest.mark.parametrize(
    "code",
    [
        "1 + 1",
        "-1.5",
        "'é\\n\"'",
        "True",
        "[1, {'a': [None, False]}]",
        "{}",
        "[]",
        "10**600",
        "''",
        "{'k': 'v' * 1000}",
    ],
)
def test_a_value_that_is_json_arrives_as_it_is(kernel: KernelRecord, code: str) -> None:
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.value, type(result.value)) == (eval(code), type(eval(code)))


@pytest.mark.parametrize(
    "code",
    [
        "(1, 2)",
        "float('nan')",
        "[float('inf')]",
        "{1: 2}",
        "{'a': (1,)}",
        "b'x'",
        "type('S', (str,), {})('x')",
        "type('D', (dict,), {})()",
        "'\\ud800'",
        "10**700",
        "'x' * 1_000_001",
        "[0] * 100_001",
        "x = []; x.append(x); x",
        "object()",
        "1;",
        "x = 1",
        "print(1)",
        "None",
    ],
)
def test_what_is_not_json_has_no_value(kernel: KernelRecord, code: str) -> None:
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.ok, result.value) == (True, None)


def test_a_value_is_not_kept_from_an_earlier_cell_or_output(kernel: KernelRecord) -> None:
    execute(kernel, "5", timeout=DEADLINE)
    assert execute(kernel, "object()", timeout=DEADLINE).value is None
    cleared = execute(kernel, "from IPython.display import clear_output\nclear_output(wait=True)\n5", timeout=DEADLINE)
    assert (cleared.return_value, cleared.value) == ("5", 5)


@pytest.mark.parametrize("forged", ["{", '"\\ud800"', "1 2", "[" * 5000, "NaN!"])
def test_a_forged_value_is_none(forged: str) -> None:
    transcript = Transcript(0)
    transcript.add_display(Display("a", "execute_result", {"text/plain": "x"}, {}, value=forged))
    assert (transcript.return_value, transcript.value) == ("x", None)


def test_a_figure_is_named_with_its_file_in_the_text(kernel: KernelRecord, tmp_path: Path) -> None:
    result = execute(kernel, PLOT, timeout=DEADLINE, images_dir=tmp_path)
    first, second = result.images
    assert result.text == f"[image 1: {first}]\nafter 1\n[image 2: {second}]\nafter 2"
    assert len(repr(result)) < 200
    text, *pictures = result.to_content("openai", max_image_px=64)
    assert (text["text"], len(pictures)) == (result.text, 2)


def test_a_figure_that_could_not_be_written_is_still_told(kernel: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = execute(kernel, PLOT, timeout=DEADLINE, images_dir=tmp_path / "file" / "images")
    assert result.text.startswith("[image]\nafter 1\n[image]\nafter 2\n[kernelbox] images could not be written")


def test_chunks_name_figures_as_the_text_does(home: Path, tmp_path: Path) -> None:
    async def scenario() -> tuple[str, CodeExecutionResult]:
        async with CodeExecutor(images_dir=tmp_path) as executor:
            *chunks, last = [item async for item in executor.stream(PLOT, chunks=True)]
        assert isinstance(last, CodeExecutionResult)
        return "".join(getattr(chunk, "text", "") for chunk in chunks), last

    chunks, result = asyncio.run(scenario())
    assert chunks.rstrip() == result.text
    assert f"[image 2: {result.images[1]}]" in chunks


def test_a_result_says_which_kernel_it_is_from_and_whether_it_was_opened(home: Path) -> None:
    first, second = (execute("fresh", "1", timeout=DEADLINE) for _ in range(2))
    assert (first.name, first.opened, second.opened, second.home) == ("fresh", True, False, str(home))
    assert first.kernel_id == second.kernel_id != ""
    *_, streamed = stream("streamed", "1", timeout=DEADLINE)
    assert isinstance(streamed, ExecutionResult)
    assert streamed.opened
    execute("fresh", "import os; os._exit(1)", timeout=DEADLINE)
    assert execute("fresh", "1", timeout=DEADLINE).opened
    destroy("fresh")


def test_a_record_that_was_opened_before_is_not_opened_by_its_first_cell(kernel: KernelRecord) -> None:
    result = execute(kernel, "1", timeout=DEADLINE)
    assert (result.kernel_id, result.name, result.opened) == (kernel.kernel_id, kernel.name, False)


def test_an_executor_has_the_fields_of_the_other_face(home: Path) -> None:
    async def scenario() -> tuple[CodeExecutionResult, CodeExecutionResult, CodeExecutionError]:
        async with CodeExecutor(name="both") as executor:
            done = await executor.execute("import sys\nprint('o'); print('e', file=sys.stderr)\n{'a': 1}")
            bash = await executor.execute("echo hi", language="bash")
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute("echo no; exit 4", language="bash")
            return done, bash, caught.value

    done, bash, failure = asyncio.run(scenario())
    other = execute("both", "import sys\nprint('o'); print('e', file=sys.stderr)\n{'a': 1}", timeout=DEADLINE)
    names = "status ok text stdout output stderr return_value value exit_code error outputs images state ending"
    same = [*names.split(), "kernel_id", "name", "opened", "home", "truncated"]
    assert {name: getattr(done, name) for name in same} == {name: getattr(other, name) for name in same}
    assert (bash.exit_code, bash.stdout) == (0, "hi\n")
    assert failure.result is not None
    assert (failure.result.exit_code, failure.result.output, failure.text) == (4, "no\n", str(failure.result))


def test_a_budget_shortens_the_text_and_nothing_else(kernel: KernelRecord) -> None:
    code = "for n in range(1000): print('line', n)\n'the value'"
    result = execute(kernel, code, timeout=DEADLINE, budget=300)
    assert len(result.text) <= 300
    assert (result.text.startswith("line 0\n"), result.text.endswith("line 999\n'the value'")) == (True, True)
    assert (result.truncated, result.output.count("\n"), result.value) == (True, 1000, "the value")
    assert result.tokens <= 80
    *_, last = stream(kernel, code, timeout=DEADLINE, budget=300)
    assert isinstance(last, ExecutionResult)
    assert last.text == result.text
    retried = execute_with_retry(kernel, code, lambda result, attempt: None, timeout=DEADLINE, budget=300)
    assert retried.text == result.text


def test_a_budget_keeps_the_users_frames_of_an_error(kernel: KernelRecord) -> None:
    code = "import json\ndef mine(n):\n    return mine(n - 1) if n else json.loads('{' + 'x' * 500)\nmine(3)"
    result = execute(kernel, code, timeout=DEADLINE, budget=450)
    assert "frames in json …]" in result.text
    assert "json.loads('{' + 'x' * 500)" in result.text
    assert result.error is not None
    assert result.text.endswith(f"JSONDecodeError: {result.error.evalue}")


@pytest.mark.parametrize("budget", [-1, 1.5, "many", True])
def test_a_budget_that_is_no_number_is_refused(budget: Any) -> None:
    with pytest.raises(InvalidInput, match="budget cannot be"):
        execute("unused", "1", budget=budget)


def test_a_result_shows_a_table_in_a_notebook(kernel: KernelRecord) -> None:
    pytest.importorskip("pandas")
    result = execute(kernel, "import pandas\npandas.DataFrame({'a': [1]})", timeout=DEADLINE)
    bundle = result._repr_mimebundle_()
    assert "<table" in bundle["text/html"]
    assert "<style" not in bundle["text/html"]
    assert json.dumps(bundle)

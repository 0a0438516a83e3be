"""How much of what a cell says is kept: limits of each call, and values that arrive whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.cells import DEADLINE, run, value
from tests.support.command_line import fail, succeed

from kernelbox import ExecutionResult, InvalidInput, KernelRecord, execute, execute_with_retry, stream

LIMIT = 10_000  # the default of KERNELBOX_OUTPUT_CHAR_LIMIT
WHOLE = 1_000_000  # what is kept of a value whatever the limit


def test_a_call_has_a_limit_of_its_own(kernel: KernelRecord) -> None:
    code = "print('head' + 'x' * 20_000 + 'tail')"
    whole = "head" + "x" * 20_000 + "tail\n"
    for limit in (0, -1, len(whole), 10**12):
        result = execute(kernel, code, output_char_limit=limit)
        assert (result.output, result.truncated) == (whole, False)
    for limit in (1, 63, 64, 100, len(whole) - 1):
        result = execute(kernel, code, output_char_limit=limit)
        assert result.truncated
        assert max(len(result.output), len(result.text), len(result.outputs[0].text or "")) <= limit
    assert len(execute(kernel, code).output) <= LIMIT  # the next call has the configured one again


def test_the_limit_of_a_call_holds_for_errors_and_displays_too(kernel: KernelRecord) -> None:
    shown = execute(kernel, "display({'text/plain': 'x' * 500}, raw=True)", output_char_limit=100)
    assert len(shown.outputs[0].text or "") <= 100
    failed = execute(kernel, "raise ValueError('x' * 500)", output_char_limit=100)
    assert failed.error is not None
    assert len("\n".join(failed.error.traceback)) <= 100
    assert len(execute(kernel, "raise ValueError('x' * 50_000)", output_char_limit=0).text) > 50_000


def test_every_function_that_runs_code_takes_a_limit(kernel: KernelRecord) -> None:
    code = "print('x' * 20_000)"
    *_, streamed = stream(kernel, code, output_char_limit=0)
    assert isinstance(streamed, ExecutionResult)
    assert len(streamed.output) == 20_001
    tried = execute_with_retry(kernel, f"{code}\n1/0", lambda *_: None, max_attempts=2, output_char_limit=0)
    assert [len(attempt.output) for attempt in tried.attempts] == [20_001, 20_001]
    words = ("exec", "--name", kernel.name)
    assert len(succeed(*words, "--output-char-limit", "0", code)["output"]) == 20_001
    assert len(succeed(*words, "--output-char-limit", "100", code)["output"]) <= 100


@pytest.mark.parametrize("limit", ["1", True, 1.5, float("inf"), object()])
def test_a_limit_that_is_no_number_is_refused(limit: Any, kernel: KernelRecord) -> None:
    with pytest.raises(InvalidInput, match="output_char_limit"):
        execute(kernel, "1", output_char_limit=limit)


def test_a_limit_beyond_all_numbers_keeps_all(kernel: KernelRecord) -> None:
    assert execute(kernel, "print('x' * 20_000)", output_char_limit=10**5000).output == "x" * 20_000 + "\n"


@pytest.mark.parametrize("limit", ["many", "1.5", "", "²", "9" * 5000])
def test_a_limit_that_is_no_number_is_refused_on_the_command_line(limit: str, home: object) -> None:
    assert "not a number of characters" in fail("exec", "--name", "x", f"--output-char-limit={limit}", "1", status=2)


@pytest.mark.parametrize("limit", [None, 1, 100])
def test_an_answer_in_json_arrives_whole_whatever_is_kept_of_the_text(limit: int | None, kernel: KernelRecord) -> None:
    rows = [{"id": n, "name": f"row {n}"} for n in range(2_000)]
    code = "import json\nprint('x' * 20_000)\njson.dumps([{'id': n, 'name': f'row {n}'} for n in range(2_000)])"
    result = run(kernel, code) if limit is None else execute(kernel, code, output_char_limit=limit)
    assert result.return_value is not None
    assert json.loads(result.return_value.strip("'")) == rows
    assert max(len(result.text), *(len(item.text or "") for item in result.outputs)) <= (limit or LIMIT)
    assert result.truncated


def test_what_an_exception_says_arrives_whole(kernel: KernelRecord) -> None:
    result = execute(kernel, "raise ValueError('head' + 'x' * 50_000 + 'tail')", timeout=DEADLINE)
    assert result.error is not None
    assert result.error.evalue == "head" + "x" * 50_000 + "tail"
    assert max(len(result.text), len("\n".join(result.error.traceback))) <= LIMIT
    assert result.truncated


@pytest.mark.parametrize("size", [WHOLE - 2, WHOLE - 1])
def test_a_value_is_whole_up_to_a_million_characters_and_then_head_and_tail(size: int, kernel: KernelRecord) -> None:
    shown = value(kernel, f"'y' * {size}")
    assert (shown == repr("y" * size)) == (size == WHOLE - 2)
    assert len(shown) <= WHOLE
    result = execute(kernel, f"raise ValueError('y' * {size + 2})", timeout=DEADLINE)
    assert result.error is not None
    assert (result.error.evalue == "y" * (size + 2)) == (size == WHOLE - 2)
    assert len(result.error.evalue) <= WHOLE

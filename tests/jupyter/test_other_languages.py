"""Kernels for other languages, and kernels with habits of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, Running, run

from kernelbox import ExecutionResult, KernelRecord, OutputItem, destroy, execute, get_or_create, stream


def test_a_bash_kernel_keeps_its_variables(bash: KernelRecord) -> None:
    run(bash, "greeting=hello; cd /")
    assert run(bash, "echo $greeting from $PWD").output == "hello from /\n"


@pytest.mark.parametrize("language", ["python", "bash"])
def test_a_bash_kernel_runs_cells_of_its_own_language(bash: KernelRecord, language: str) -> None:
    assert run(bash, "echo $((6 * 7))", language=language).output == "42\n"


def test_a_bash_kernel_streams_what_it_writes(bash: KernelRecord, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    code = f"echo one; while [ ! -e '{go_on}' ]; do sleep 0.01; done; echo two"
    texts = []
    for event in stream(bash, code, timeout=DEADLINE):
        if isinstance(event, OutputItem):
            texts.append(event.text)
            go_on.touch()
        elif isinstance(event, ExecutionResult):
            assert event.output == "one\ntwo\n"
    assert texts[0] == "one\n"


def test_a_failing_command_is_an_error(bash: KernelRecord) -> None:
    result = execute(bash, "echo before; false", timeout=DEADLINE)
    assert (result.status, result.output) == ("error", "before\n")
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("Error", "1")


def test_a_timeout_interrupts_bash_and_keeps_its_variables(bash: KernelRecord) -> None:
    run(bash, "precious=1")
    result = execute(bash, "echo begun; sleep 1000", timeout=BEGUN)
    assert (result.status, result.ending, result.state) == ("timeout", "interrupted", "kept")
    assert run(bash, "echo $precious").output == "1\n"


def test_bash_cells_are_refused_by_kernels_that_know_none(odd: KernelRecord) -> None:
    result = execute(odd, "echo hello", language="bash")
    assert result.status == "error"
    assert result.error is not None
    assert result.error.evalue.startswith("this kernel runs odd and has no bash cells")
    assert run(odd, "say still here").output == "still here\n"


def test_interrupts_go_as_messages_to_kernels_that_want_them(odd: KernelRecord) -> None:
    result = execute(odd, "say in\nwait", timeout=BEGUN)
    assert (result.status, result.ending, result.state) == ("timeout", "interrupted", "kept")
    assert run(odd, "say on").output == "on\n"


def test_a_kernel_can_ask_for_tcp() -> None:
    record = get_or_create("over tcp", kernel_type="odd-tcp")
    assert json.loads(Path(record.connection_file).read_text())["transport"] == "tcp"
    assert run(record, "say hello").output == "hello\n"
    destroy(record)


def test_a_cell_whose_idle_is_lost_ends_and_says_that_output_may_be_missing() -> None:
    record = get_or_create("forgetful", kernel_type="odd-forgetful")
    result = run(record, "say hello")
    assert (result.output, result.truncated) == ("hello\n", True)
    destroy(record)


def test_a_cell_whose_reply_is_lost_ends_as_interrupted_without_any_timeout() -> None:
    record = get_or_create("silent", kernel_type="odd-silent")
    result = execute(record, "say hello", timeout=None)
    assert (result.output, result.ending, result.state, result.truncated) == ("hello\n", "interrupted", "kept", True)
    destroy(record)


@pytest.mark.parametrize("kernel_type", ["odd", "odd-staying"])
def test_a_kernel_whose_cell_asks_for_its_end_is_ended(kernel_type: str) -> None:
    record = get_or_create(f"leaving {kernel_type}", kernel_type=kernel_type)
    result = execute(record, "say bye\nleave", timeout=DEADLINE)
    assert (result.output, result.ending, result.state) == ("bye\n", "died", "lost")
    assert result.error is not None
    assert result.error.evalue.startswith("the cell called exit()")
    destroy(record)


def test_an_error_without_a_traceback_still_has_text(odd: KernelRecord) -> None:
    result = execute(odd, "fail for good", timeout=DEADLINE)
    assert result.text == "Odd: for good"


def test_a_waiting_cell_runs_after_an_interrupted_one(odd: KernelRecord) -> None:
    waiting = Running(odd, "say in\nwait", timeout=BEGUN).wait_for_output()
    assert run(odd, "say mine").output == "mine\n"
    assert waiting.result().ending == "interrupted"

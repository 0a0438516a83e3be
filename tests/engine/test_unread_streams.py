"""A stream that its caller does not read on: its timeout holds all the same, and the kernel is free for others."""

from __future__ import annotations

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, eventually, value

from kernelbox import ExecutionResult, KernelRecord, OutputItem, SyncApprovalRequest, execute, get_or_create, stream

CELLS = {
    "waits": "print('begun', flush=True)\nimport time\ntime.sleep(1000)",
    "writes": "print('begun', flush=True)\nwhile True: print('x' * 1000)",
    "computes": "print('begun', flush=True)\nwhile True: pass",
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_a_cell_ends_on_time_though_its_caller_does_not_read_on(cell: str, kernel: KernelRecord) -> None:
    execute(kernel, "x = 42")
    steps = stream(kernel, cell, timeout=BEGUN)
    assert isinstance(next(steps), OutputItem)
    assert value(kernel, "x") == "42"  # another call, which waits for the end of the cell
    *_, result = steps
    assert isinstance(result, ExecutionResult)
    assert (result.status, result.ending, result.state) == ("timeout", "interrupted", "kept")


def test_a_cell_that_does_not_stop_costs_the_process_though_its_caller_does_not_read_on(kernel: KernelRecord) -> None:
    steps = stream(kernel, "print('begun', flush=True)\nsum(range(10**13))", timeout=BEGUN)
    next(steps)
    eventually(lambda: execute(kernel.name, "'fresh'", timeout=DEADLINE).return_value == "'fresh'")
    *_, result = steps
    assert isinstance(result, ExecutionResult)
    assert (result.status, result.ending) == ("timeout", "restarted"), result.error
    assert get_or_create(kernel.name).kernel_id == kernel.kernel_id  # no other kernel has taken its place meanwhile


def test_what_a_cell_writes_while_it_is_being_stopped_is_yielded_when_its_caller_comes_back(
    kernel: KernelRecord,
) -> None:
    code = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(1000)\nfinally:\n    print('ended')"
    steps = stream(kernel, code, timeout=BEGUN)
    seen = [next(steps)]
    assert value(kernel, "1 + 1") == "2"
    seen += steps
    assert [item.text for item in seen if isinstance(item, OutputItem)] == ["begun\n", "ended\n"]
    assert isinstance(seen[-1], ExecutionResult)
    assert seen[-1].output == "begun\nended\n"


def test_a_caller_who_leaves_after_the_time_was_up_leaves_the_next_cell_alone(kernel: KernelRecord) -> None:
    steps = stream(kernel, CELLS["waits"], timeout=BEGUN)
    next(steps)
    assert value(kernel, "1 + 1") == "2"
    following = stream(kernel, "print('on', flush=True)\ninput_ended = True\nprint('off')", timeout=DEADLINE)
    next(following)
    steps.close()  # type: ignore[attr-defined]  # a generator
    *_, result = following
    assert isinstance(result, ExecutionResult)
    assert result.output == "on\noff\n"


def test_a_question_that_is_answered_too_late_does_not_hold_the_kernel(kernel: KernelRecord) -> None:
    steps = stream(kernel, "!echo asked", timeout=BEGUN, approve=True)
    request = next(item for item in steps if isinstance(item, SyncApprovalRequest))
    assert value(kernel, "1 + 1") == "2"
    request.accept()
    *_, result = steps
    assert isinstance(result, ExecutionResult)
    assert (result.status, result.ending, result.output) == ("timeout", "interrupted", "")
    assert result.error is not None
    assert (
        f"timed out after {BEGUN:g} s while kernelbox.shell(cmd='echo asked') waited for an answer;"
        in result.error.evalue
    )


def test_a_timeout_after_the_answer_does_not_blame_the_question(kernel: KernelRecord) -> None:
    result = execute(kernel, "!echo asked\nwhile True: pass", timeout=BEGUN, approve=lambda request: True)
    assert result.error is not None
    assert f"timed out after {BEGUN:g} s; the cell was interrupted" in result.error.evalue


def test_a_stream_without_an_end_in_sight_can_be_paused(kernel: KernelRecord) -> None:
    steps = stream(kernel, "print('one', flush=True)\nprint('two')", timeout=1e10)
    assert isinstance(next(steps), OutputItem)
    assert value(kernel, "1 + 1") == "2"
    *_, result = steps
    assert isinstance(result, ExecutionResult)
    assert result.output == "one\ntwo\n"

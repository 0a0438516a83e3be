"""Back from the dead: a kernel that ends comes back from its last checkpoint, and the result says what was lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, run, value, wait_for_end

from kernelbox import (
    KernelDied,
    KernelRecord,
    branch,
    checkpoint,
    checkpoints,
    drop,
    execute,
    get_or_create,
    interrupt,
    status,
)

DEATHS = {
    "SIGKILL": "import os; os.kill(os.getpid(), 9)",
    "a segfault": "import ctypes; ctypes.string_at(0)",
    "os._exit": "import os; os._exit(3)",
    "exit()": "exit()",
}


@pytest.mark.parametrize("code", DEATHS.values(), ids=DEATHS)
def test_a_kernel_that_dies_in_a_cell_comes_back_from_its_checkpoint(kernel: KernelRecord, code: str) -> None:
    run(kernel, "x = 1")
    checkpoint(kernel)
    run(kernel, "x = 2")
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.status, result.state, result.ending) == ("error", "rolled back", "died")
    assert (result.restored_from, result.lost_executions) == (1, [2, 3])
    assert result.error is not None
    assert result.error.ename == "KernelDied"
    assert "restored from checkpoint 1; executions 2 to 3 are lost" in result.error.evalue
    assert "fresh" not in result.text
    assert "its variables are lost" not in result.text
    assert value(kernel, "x") == "1"


def test_a_kernel_that_dies_between_cells_reports_it_once_and_is_back(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    checkpoint(kernel)
    run(kernel, "x = 2")
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGKILL)
    wait_for_end(kernel.pid)
    result = execute(kernel.name, "x = 3", timeout=DEADLINE)
    assert (result.status, result.state, result.restored_from) == ("error", "rolled back", 1)
    assert result.lost_executions == [2]
    assert "killed by SIGKILL" in result.text
    assert value(kernel.name, "x") == "1"


def test_a_kernel_dies_again_and_again_and_is_always_back(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    checkpoint(kernel)
    for _ in range(3):
        result = execute(kernel, "x += 1; import os; os._exit(x)", timeout=DEADLINE)
        assert (result.restored_from, result.lost_executions) == (1, [2])
        assert "status 2" in result.text


def test_a_kernel_that_dies_again_and_again_leaves_no_more_and_more_files(kernel: KernelRecord, home: Path) -> None:
    checkpoint(kernel)
    directory = home / "runtime" / kernel.kernel_id
    counts = []
    for _ in range(12):
        assert execute(kernel, "import os; os._exit(1)", timeout=DEADLINE).restored_from == 1
        counts.append(len(list(directory.glob("reported-*"))))
    assert counts == [1, 2, 3, 4, 5, 6, 7, *[8] * 5]


def test_the_newest_checkpoint_is_taken_and_another_if_that_is_gone(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    checkpoint(kernel)
    run(kernel, "x = 2")
    newest = checkpoint(kernel)
    assert execute(kernel, "import os; os._exit(1)", timeout=DEADLINE).restored_from == 2
    assert value(kernel, "x") == "2"
    os.kill(newest.pid, 9)
    wait_for_end(newest.pid)
    assert execute(kernel, "import os; os._exit(1)", timeout=DEADLINE).restored_from == 1
    assert value(kernel, "x") == "1"


def test_without_a_checkpoint_a_dead_kernel_starts_empty(kernel: KernelRecord) -> None:
    drop(checkpoint(kernel))
    result = execute(kernel.name, "x = 1; import os; os._exit(1)", timeout=DEADLINE)
    assert (result.state, result.restored_from, result.lost_executions) == ("lost", None, [])
    assert result.error is not None
    assert "starts a fresh one" in result.error.evalue
    assert value(kernel.name, "'x' in globals()") == "False"


def test_a_dead_kernel_whose_checkpoints_were_dropped_is_not_said_to_continue_from_one(kernel: KernelRecord) -> None:
    drop(checkpoint(kernel))
    assert kernel.pid is not None
    os.kill(kernel.pid, 9)
    wait_for_end(kernel.pid)
    with pytest.raises(KernelDied) as died:
        checkpoint(kernel)
    assert "continues from a checkpoint" not in str(died.value)


def test_a_request_for_a_copy_of_a_dead_kernel_says_that_a_checkpoint_waits(kernel: KernelRecord) -> None:
    checkpoint(kernel)
    assert kernel.pid is not None
    os.kill(kernel.pid, 9)
    wait_for_end(kernel.pid)
    for copy in (lambda: checkpoint(kernel), lambda: branch(kernel, "other")):
        with pytest.raises(KernelDied, match=r"continues from a checkpoint$"):
            copy()


def test_get_or_create_restores_a_dead_kernel(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    checkpoint(kernel)
    assert kernel.pid is not None
    os.kill(kernel.pid, 9)
    wait_for_end(kernel.pid)
    again = get_or_create(kernel.name)
    assert (again.kernel_id, again.restored_from) == (kernel.kernel_id, 1)
    assert value(again, "x") == "1"


def test_a_cell_that_nothing_stops_is_killed_and_its_kernel_restored(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    checkpoint(kernel)
    result = execute(kernel, "sum(range(10**13))", timeout=1)
    assert (result.status, result.state, result.ending) == ("timeout", "rolled back", "rolled back")
    assert (result.restored_from, result.lost_executions) == (1, [2])
    assert "restored from checkpoint 1" in result.text
    assert value(kernel, "x") == "1"


def test_a_restored_kernel_can_be_interrupted_and_prints(kernel: KernelRecord) -> None:
    checkpoint(kernel)
    execute(kernel, "import os; os._exit(1)", timeout=DEADLINE)
    assert run(kernel, "print('out'); import os; _ = os.system('echo sub')").output == "out\nsub\n"
    result = execute(kernel, "import time; time.sleep(1000)", timeout=0.2)
    assert (result.ending, result.state) == ("interrupted", "kept")
    assert not interrupt(kernel)


def test_the_record_says_that_a_kernel_was_restored(kernel: KernelRecord) -> None:
    checkpoint(kernel)
    execute(kernel, "import os; os._exit(1)", timeout=DEADLINE)
    record = status(kernel)
    assert (record.restored_from, record.lost_executions, record.status) == (1, [1], "idle")
    assert [each.number for each in checkpoints(kernel)] == [1]

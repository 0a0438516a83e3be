"""Checkpoints: a kernel is set back to one, as often as wanted, and only so many are kept."""

from __future__ import annotations

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, Running, eventually, is_running, run, until_queued, value, wait_for_end
from tests.support.store import start_python

from kernelbox import (
    Checkpoint,
    CheckpointNotFound,
    InvalidInput,
    KernelBusy,
    KernelNotFound,
    KernelRecord,
    branch,
    checkpoint,
    checkpoints,
    destroy,
    drop,
    execute,
    get_or_create,
    promote,
    restart,
    rollback,
    status,
)
from kernelbox.api._configured import kernels
from kernelbox.guest.birth._checkpoint_memory import note_evicted
from kernelbox.host.engines.own._keeper_request import measure_checkpoints
from kernelbox.host.process._process import children_of, is_spare, parent_of
from kernelbox.host.store._checkpoint_files import read_evicted


def test_a_rollback_sets_the_variables_back(kernel: KernelRecord) -> None:
    run(kernel, "x = [1, 2]; y = 'kept'")
    checkpoint(kernel)
    run(kernel, "x.append(3); del y; z = 4")
    rollback(kernel)
    assert value(kernel, "x, y, 'z' in globals()") == "([1, 2], 'kept', False)"


def test_a_rollback_keeps_the_name_and_the_id(kernel: KernelRecord) -> None:
    checkpoint(kernel)
    back = rollback(kernel.name)
    assert (back.name, back.kernel_id) == (kernel.name, kernel.kernel_id)
    assert back.pid != kernel.pid
    assert (back.restored_from, status(kernel).status) == (1, "idle")


def test_a_checkpoint_can_be_used_again_and_again(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    made = checkpoint(kernel)
    for _ in range(3):
        rollback(kernel, made)
        assert value(kernel, "x") == "1"
        run(kernel, "x += 1")


def test_two_rollbacks_in_a_row_leave_one_kernel(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    checkpoint(kernel)
    first = rollback(kernel)
    second = rollback(kernel)
    assert first.pid is not None
    wait_for_end(first.pid)
    assert value(kernel, "x") == "1"
    assert status(kernel).pid == second.pid


def test_a_kernel_goes_to_any_of_its_checkpoints_by_number_label_or_object(kernel: KernelRecord) -> None:
    for number in range(3):
        run(kernel, f"x = {number}")
        checkpoint(kernel, f"step {number}")
    last = checkpoints(kernel)[-1]
    rollback(kernel, 1)
    assert value(kernel, "x") == "0"
    rollback(kernel, "step 1")
    assert value(kernel, "x") == "1"
    rollback(kernel, last)
    assert value(kernel, "x") == "2"
    assert [each.number for each in checkpoints(kernel)] == [1, 2, 3]


def test_execution_counts_go_back_and_the_count_of_attempts_does_not(kernel: KernelRecord) -> None:
    run(kernel, "1")
    checkpoint(kernel)
    run(kernel, "2")
    run(kernel, "3")
    back = rollback(kernel)
    assert back.lost_executions == [2, 3]
    assert run(kernel, "4").execution_count == 2
    assert status(kernel).attempt_count == 4


def test_a_running_cell_is_told_that_its_kernel_was_rolled_back(kernel: KernelRecord) -> None:
    checkpoint(kernel)
    running = Running(kernel, "import time; print('on', flush=True); time.sleep(1000)").wait_for_output()
    rollback(kernel)
    result = running.result()
    assert (result.status, result.state, result.ending) == ("error", "rolled back", "rolled back")
    assert result.error is not None
    assert result.error.ename == "RolledBack"
    assert "rolled back to checkpoint 1" in result.error.evalue
    assert (result.restored_from, result.lost_executions) == (1, [1])
    assert "on" in result.output


@pytest.mark.parametrize(("before", "output"), [("", ""), ("_ = os.write(1, b'last words'); ", "last words")])
def test_a_cell_that_has_said_nothing_yet_is_told_that_it_ran_when_its_kernel_was_rolled_back(
    kernel: KernelRecord, tmp_path: Path, before: str, output: str
) -> None:
    begun = tmp_path / "begun"
    begun.write_bytes(b"0")
    run(kernel, f"import mmap, os; shared = mmap.mmap(os.open({str(begun)!r}, os.O_RDWR), 1)")
    checkpoint(kernel)
    running = Running(kernel, f"{before}shared[0] = b'1'[0]; sum(range(10**13))")  # nothing is sent while C code runs
    eventually(lambda: begun.read_bytes() == b"1")
    rollback(kernel)
    result = running.result()
    assert "while the cell ran, the kernel was rolled back" in result.text
    assert result.output == output


def test_a_cell_that_waits_is_told_that_its_kernel_was_rolled_back(kernel: KernelRecord, tmp_path: Path) -> None:
    checkpoint(kernel)
    queued = tmp_path / "queued"
    code = f"print('in', flush=True)\n{until_queued(1)}open({str(queued)!r}, 'w').close(); time.sleep(1000)"
    running = Running(kernel, code).wait_for_output()  # first, or the other cell could come before it
    waiting = Running(kernel, "1")
    eventually(queued.exists)
    rollback(kernel)
    result = waiting.result()
    assert (result.state, result.ending, result.output) == ("rolled back", "rolled back", "")
    running.result()


@pytest.mark.parametrize("then", ["rolled back", "promoted"])
def test_a_client_that_comes_late_is_told_of_the_rollback_that_ended_its_cell(kernel: KernelRecord, then: str) -> None:
    first, second = checkpoint(kernel), checkpoint(kernel)
    copy = branch(kernel, f"{kernel.name}-b")
    code = "from kernelbox import execute; told = execute({!r}, 'import time; time.sleep(1000)'); "
    code += "print(told.state, told.ending, told.restored_from)"
    client = start_python(code.format(kernel.name))
    eventually(lambda: status(kernel).status == "running")
    client.send_signal(signal.SIGSTOP)
    rollback(kernel, first)
    if then == "promoted":
        promote(copy)
    else:
        rollback(kernel, second)
    client.send_signal(signal.SIGCONT)
    said, _ = client.communicate(timeout=DEADLINE)
    assert said == "rolled back rolled back 1\n"


def test_a_checkpoint_waits_for_the_running_cell(kernel: KernelRecord) -> None:
    running = Running(kernel, "print('on', flush=True)\nimport time; time.sleep(0.3); x = 1").wait_for_output()
    checkpoint(kernel)
    assert running.result().ok
    run(kernel, "x = 2")
    rollback(kernel)
    assert value(kernel, "x") == "1"


def test_a_cell_that_does_not_end_makes_a_checkpoint_fail_in_time(kernel: KernelRecord) -> None:
    running = Running(kernel, "print('on', flush=True)\nimport time; time.sleep(1000)").wait_for_output()
    with pytest.raises(KernelBusy):
        checkpoint(kernel, timeout=0.2)
    assert not running.ended
    assert checkpoints(kernel) == []
    destroy(kernel)
    running.result()


def test_a_checkpoint_says_what_it_is(kernel: KernelRecord) -> None:
    run(kernel, "data = bytes(30_000_000)")
    made = checkpoint(kernel, "with data")
    (found,) = checkpoints(kernel)
    assert (found.number, found.label, found.execution_count) == (made.number, "with data", 1)
    assert found.kernel_id == kernel.kernel_id
    assert 0 < found.private_bytes < 20_000_000
    assert "with data" in repr(found)


def test_a_dropped_checkpoint_is_gone_with_its_process(kernel: KernelRecord) -> None:
    made = checkpoint(kernel)
    assert drop(made)
    assert not is_running(made.pid)
    assert not drop(made)
    with pytest.raises(CheckpointNotFound, match="no checkpoint"):
        rollback(kernel)
    assert value(kernel, "1") == "1"


def test_a_number_is_not_given_twice(kernel: KernelRecord) -> None:
    drop(checkpoint(kernel))
    assert checkpoint(kernel).number == 2


def test_a_checkpoint_that_is_killed_is_not_listed(kernel: KernelRecord) -> None:
    made = checkpoint(kernel)
    os.kill(made.pid, 9)
    wait_for_end(made.pid)
    eventually(lambda: checkpoints(kernel) == [])


def test_the_oldest_of_too_many_is_dropped_and_reported(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CHECKPOINTS", "2")
    first, second = checkpoint(kernel), checkpoint(kernel)
    third = checkpoint(kernel)
    assert (first.evicted, second.evicted, third.evicted) == ([], [], [1])
    assert [each.number for each in checkpoints(kernel)] == [2, 3]
    wait_for_end(first.pid)
    with pytest.raises(
        CheckpointNotFound, match="no checkpoint 1 any more: only KERNELBOX_CHECKPOINTS of them are kept"
    ):
        rollback(kernel, 1)


def test_a_rollback_after_the_last_checkpoint_was_dropped_does_not_blame_a_limit(
    kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CHECKPOINTS", "1")
    checkpoint(kernel)
    drop(checkpoint(kernel))
    with pytest.raises(CheckpointNotFound) as caught:
        rollback(kernel)
    assert caught.value.why == ""


@pytest.mark.slow
def test_checkpoints_that_take_too_much_memory_are_dropped(
    kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CHECKPOINT_MEMORY", "50MB")
    run(kernel, "data = bytearray(80_000_000)")
    first = checkpoint(kernel)
    run(kernel, "data[:] = b'x' * len(data)")
    assert checkpoint(kernel).evicted == []  # its maker does not wait until all are measured
    wait_for_end(first.pid)
    with pytest.raises(CheckpointNotFound, match="more than KERNELBOX_CHECKPOINT_MEMORY"):
        rollback(kernel, 1)
    assert [(each.number, each.evicted) for each in checkpoints(kernel)] == [(2, [1])]
    assert checkpoint(kernel).evicted == [1]


@pytest.mark.slow
def test_memory_that_only_checkpoints_share_counts_once(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CHECKPOINT_MEMORY", "100MB")
    run(kernel, "data = bytearray(b'x') * 160_000_000")
    made = [checkpoint(kernel) for _ in range(3)]
    run(kernel, "del data")
    checkpoint(kernel)
    for each in made:  # none of the three has it alone
        wait_for_end(each.pid)
    (left,) = checkpoints(kernel)
    assert (left.number, left.evicted) == (4, [1, 2, 3])


@pytest.mark.slow
def test_checkpoints_that_share_their_memory_with_the_kernel_stay(
    kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CHECKPOINT_MEMORY", "100MB")
    run(kernel, "data = bytearray(b'x') * 160_000_000")
    for _ in range(3):
        checkpoint(kernel)
    assert [each.number for each in checkpoints(kernel)] == [1, 2, 3]  # a list measures them, and keeps the limit


def test_two_measurements_at_once_drop_one_checkpoint_for_one_excess(own_home: Path) -> None:
    kernel = get_or_create("a")
    assert kernel.pid is not None
    run(kernel, "data = bytearray(40_000_000)")
    made = []
    for number in range(3):
        run(kernel, f"data[:] = bytes([{number}]) * len(data)")
        made.append(checkpoint(kernel))
    keeper, directory = parent_of(kernel.pid), kernels().store.directory(kernel.kernel_id)
    assert keeper is not None
    eventually(lambda: all(map(_spares, made)))
    before = children_of(keeper)

    def measuring() -> list[int]:
        return [pid for pid in children_of(keeper) if pid not in before and not is_spare(pid)]

    with ThreadPoolExecutor() as pool, contextlib.ExitStack() as stopped:
        for each in made:  # no measurement begins before they go on
            os.kill(each.pid, signal.SIGSTOP)
            stopped.callback(os.kill, each.pid, signal.SIGCONT)
        waiting = [pool.submit(measure_checkpoints, directory, 60_000_000) for _ in range(2)]
        eventually(lambda: len(measuring()) == 2)
        both = measuring()
        os.kill(keeper, signal.SIGSTOP)  # until it can be told of both
        with contextlib.ExitStack() as go_on:
            go_on.callback(os.kill, keeper, signal.SIGCONT)
            stopped.close()
            eventually(lambda: not any(map(is_running, both)))
        for answer in waiting:
            answer.result(timeout=DEADLINE)
    assert [each.number for each in checkpoints(kernel)] == [2, 3]


def test_a_rollback_to_a_checkpoint_that_ends_meanwhile_fails_at_once(kernel: KernelRecord, home: Path) -> None:
    made = checkpoint(kernel)
    eventually(lambda: len(_spares(made)) == 1)
    for pid in (made.pid, *_spares(made)):
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(rollback, kernel)
        eventually(lambda: (home / "runtime" / kernel.kernel_id / "socket.unborn").exists())
        os.kill(made.pid, signal.SIGKILL)
        with pytest.raises(CheckpointNotFound):
            waiting.result(timeout=20)
    assert value(kernel, "1 + 1") == "2"


def test_a_checkpoint_that_is_too_old_is_dropped_though_nobody_asks_and_the_next_one_names_it(
    kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CHECKPOINT_AGE", "0.001")
    made = checkpoint(kernel)
    wait_for_end(made.pid)
    eventually(lambda: checkpoints(kernel) == [])
    with pytest.raises(CheckpointNotFound, match="it was older than KERNELBOX_CHECKPOINT_AGE"):
        rollback(kernel)
    monkeypatch.delenv("KERNELBOX_CHECKPOINT_AGE")
    assert checkpoint(kernel).evicted == [1]
    assert checkpoint(kernel).evicted == []


def test_a_list_names_what_was_dropped_for_it(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        checkpoint(kernel)
    monkeypatch.setenv("KERNELBOX_CHECKPOINTS", "1")
    for _ in range(2):  # until there is a newer one
        assert [(each.number, each.evicted) for each in checkpoints(kernel)] == [(3, [1, 2])]
    assert checkpoint(kernel).evicted == [1, 2, 3]


def test_a_checkpoint_whose_spare_was_killed_can_still_be_used(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    made = checkpoint(kernel)
    eventually(lambda: len(_spares(made)) == 1)
    for pid in _spares(made):
        os.kill(pid, 9)
        wait_for_end(pid)
    run(kernel, "x = 2")
    rollback(kernel)
    assert value(kernel, "x") == "1"
    eventually(lambda: len(_spares(made)) == 1)


def test_a_spare_ends_with_its_checkpoint(kernel: KernelRecord) -> None:
    made = checkpoint(kernel)
    eventually(lambda: len(_spares(made)) == 1)
    spares = _spares(made)
    drop(made)
    for pid in spares:
        wait_for_end(pid)


def test_memory_that_only_a_checkpoint_and_its_spare_have_counts_as_the_checkpoints(kernel: KernelRecord) -> None:
    run(kernel, "data = bytearray(b'x') * 40_000_000")
    made = checkpoint(kernel)
    eventually(lambda: len(_spares(made)) == 1)
    run(kernel, "data[:] = b'y' * len(data)")
    (found,) = checkpoints(kernel)
    assert found.private_bytes > 40_000_000
    eventually(lambda: len(_spares(made)) == 1)


def _spares(made: Checkpoint) -> list[int]:
    """Returns the processes that a checkpoint holds ready: they are in its session."""
    beside = children_of(parent_of(made.pid) or 0)
    return [pid for pid in beside if pid != made.pid and is_running(pid) and os.getsid(pid) == made.pid]


def test_the_list_of_dropped_checkpoints_keeps_the_last_ones_and_stays_small(kernel: KernelRecord) -> None:
    directory = kernels().store.directory(kernel.kernel_id)
    with directory.open() as place:
        for number in range(1, 2001):
            note_evicted(place.fd, number, "number", told=True)
    noted = Path(directory.path_of("checkpoint-evicted"))
    assert noted.stat().st_size < 8192
    assert list(read_evicted(directory)) == list(range(1801, 2001))


@pytest.mark.parametrize("end", [destroy, restart])
def test_checkpoints_end_with_a_kernel_that_is_destroyed_or_restarted(kernel: KernelRecord, end: object) -> None:
    made = [checkpoint(kernel), checkpoint(kernel)]
    assert callable(end)
    end(kernel)
    assert not any(is_running(each.pid) for each in made)


def test_the_files_of_a_rollback_are_gone_afterwards(kernel: KernelRecord, home: Path) -> None:
    checkpoint(kernel)
    rollback(kernel)
    names = os.listdir(home / "runtime" / kernel.kernel_id)
    assert sorted(name for name in names if "unborn" in name or "checkpoint" in name) == [
        "checkpoint-1",
        "checkpoint-last",
    ]


def test_a_kernel_that_there_is_not_has_no_checkpoints(home: Path) -> None:
    with pytest.raises(KernelNotFound):
        checkpoint("nobody")
    with pytest.raises(KernelNotFound):
        rollback("nobody")


@pytest.mark.parametrize("label", ["", "12", "x" * 201, 5])
def test_labels_that_cannot_be_used_are_refused(kernel: KernelRecord, label: object) -> None:
    with pytest.raises(InvalidInput):
        checkpoint(kernel, label)  # type: ignore[arg-type]  # some are


def test_other_clients_go_on_after_a_rollback(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    checkpoint(kernel)
    for _ in range(5):
        running = Running(kernel.name, "for i in range(10**9): pass")
        rollback(kernel)
        running.result()
        assert execute(kernel.name, "x", timeout=DEADLINE).return_value == "1"

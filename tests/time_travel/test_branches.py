"""Branches: copies of a live kernel that live on their own, and can take its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.cells import Running, is_running, run, value, wait_for_end

from kernelbox import (
    InvalidInput,
    KernelDied,
    KernelExists,
    KernelRecord,
    branch,
    checkpoint,
    destroy,
    get_or_create,
    list_kernels,
    promote,
    rollback,
    status,
)


def test_a_branch_has_all_variables_and_a_life_of_its_own(kernel: KernelRecord) -> None:
    run(kernel, "x = [1]\ndef f(): return x")
    copy = branch(kernel, f"{kernel.name}-b")
    run(copy, "x.append(2)")
    assert (value(copy, "f()"), value(kernel, "f()")) == ("[1, 2]", "[1]")
    assert destroy(kernel)
    assert value(copy, "f()") == "[1, 2]"


def test_a_branch_is_a_kernel_like_any_other(kernel: KernelRecord) -> None:
    copy = branch(kernel, f"{kernel.name}-b")
    assert copy.kernel_id != kernel.kernel_id
    assert (copy.parent, copy.status) == (kernel.kernel_id, "idle")
    assert {kernel.name, copy.name} <= {record.name for record in list_kernels()}
    assert value(copy, "__import__('os').environ['KERNELBOX_KERNEL_ID']") == repr(copy.kernel_id)
    assert value(kernel, "__import__('os').environ['KERNELBOX_KERNEL_ID']") == repr(kernel.kernel_id)


def test_several_branches_are_made_at_once(kernel: KernelRecord) -> None:
    run(kernel, "x = 10")
    names = [f"{kernel.name}-{number}" for number in range(4)]
    copies = branch(kernel, names=names)
    for number, copy in enumerate(copies):
        run(copy, f"x += {number}")
    assert [value(name, "x") for name in names] == ["10", "11", "12", "13"]
    assert value(kernel, "x") == "10"


def test_a_branch_can_be_branched_checkpointed_and_rolled_back(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    first = branch(kernel, f"{kernel.name}-1")
    run(first, "x += 1")
    checkpoint(first)
    second = branch(first, f"{kernel.name}-2")
    run(first, "x = 100")
    rollback(first)
    assert [value(each, "x") for each in (kernel, first, second)] == ["1", "2", "2"]


def test_what_a_branch_prints_is_its_own(kernel: KernelRecord) -> None:
    copy = branch(kernel, f"{kernel.name}-b")
    assert run(copy, "print('a'); import os; _ = os.system('echo b')").output == "a\nb\n"
    assert run(kernel, "print('c')").output == "c\n"


def test_the_name_of_a_live_kernel_is_taken(kernel: KernelRecord) -> None:
    other = get_or_create(f"{kernel.name}-other")
    with pytest.raises(KernelExists):
        branch(kernel, other.name)
    with pytest.raises(KernelExists):
        branch(kernel, kernel.name)
    assert value(kernel, "1") == "1"


def test_a_branch_takes_the_name_of_a_dead_kernel(kernel: KernelRecord) -> None:
    other = get_or_create(f"{kernel.name}-other")
    assert other.pid is not None
    os.kill(other.pid, 9)
    wait_for_end(other.pid)
    run(kernel, "x = 1")
    assert value(branch(kernel, other.name), "x") == "1"


@pytest.mark.parametrize("names", [[], ["a", "a"], [""], ["a\nb"], "ab"])
def test_names_that_cannot_be_used_are_refused(kernel: KernelRecord, names: list[str] | str) -> None:
    with pytest.raises(InvalidInput):
        branch(kernel, names=names)


def test_a_branch_needs_one_name_or_several(kernel: KernelRecord) -> None:
    with pytest.raises(InvalidInput):
        branch(kernel)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput):
        branch(kernel, "a", names=["b"])  # type: ignore[call-overload]


def test_a_dead_kernel_cannot_be_branched(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    os.kill(kernel.pid, 9)
    wait_for_end(kernel.pid)
    with pytest.raises(KernelDied, match="SIGKILL"):
        branch(kernel, f"{kernel.name}-b")


def test_a_promoted_branch_takes_the_place_of_its_original(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    good, bad = branch(kernel, names=[f"{kernel.name}-good", f"{kernel.name}-bad"])
    run(good, "x = 'good'")
    run(bad, "x = 'bad'")
    now = promote(good)
    assert (now.name, now.kernel_id) == (kernel.name, kernel.kernel_id)
    assert [value(kernel.name, "x"), value(bad, "x")] == ["'good'", "'bad'"]
    assert value(kernel.name, "__import__('os').environ['KERNELBOX_KERNEL_ID']") == repr(kernel.kernel_id)
    assert good.name not in {record.name for record in list_kernels()}
    assert kernel.pid is not None
    wait_for_end(kernel.pid)
    assert good.pid is not None
    assert not is_running(good.pid)


def test_a_running_cell_is_told_that_a_branch_took_the_place_of_its_kernel(kernel: KernelRecord) -> None:
    checkpoint(kernel)
    rollback(kernel)
    copy = branch(kernel, f"{kernel.name}-b")
    running = Running(kernel, "import time; print('on', flush=True); time.sleep(1000)").wait_for_output()
    now = promote(copy)
    result = running.result()
    assert (result.state, result.restored_from, now.restored_from) == ("lost", None, None)
    assert result.error is not None
    assert f"its branch {copy.name!r} took its place" in result.error.evalue
    assert "checkpoint" not in result.error.evalue


def test_what_is_not_a_branch_cannot_be_promoted(kernel: KernelRecord) -> None:
    with pytest.raises(InvalidInput, match="not a branch"):
        promote(kernel)


def test_a_branch_whose_maker_ends_with_a_process_ends_with_it_too(kernel: KernelRecord, home: Path) -> None:
    owner = get_or_create(f"{kernel.name}-owner")
    run(owner, f"import os; os.environ['KERNELBOX_HOME'] = {str(home)!r}")
    run(owner, f"os.environ['KERNELBOX_KEY_FILE'] = {os.environ['KERNELBOX_KEY_FILE']!r}")
    run(owner, f"import kernelbox; made = kernelbox.get_or_create('{kernel.name}-owned', lifetime='process')")
    run(owner, f"pid = kernelbox.branch(made, '{kernel.name}-branch').pid")
    pid = int(value(owner, "pid"))
    assert is_running(pid)
    destroy(owner)
    wait_for_end(pid)


def test_the_original_goes_on_while_its_branch_dies(kernel: KernelRecord) -> None:
    run(kernel, "import subprocess; child = subprocess.Popen(['sleep', '1000'])")
    copy = branch(kernel, f"{kernel.name}-b")
    assert copy.pid is not None
    os.kill(copy.pid, 9)
    wait_for_end(copy.pid)
    assert value(kernel, "child.poll() is None") == "True"
    assert status(kernel).alive

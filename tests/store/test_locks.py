"""Locks: one holder at a time, although the file goes with its last holder; several names without a deadlock."""

from __future__ import annotations

import os
from pathlib import Path

from tests.store.support import in_many_processes, start_python

from kernelbox import get_or_create, restart, wipe
from kernelbox.api._here import kernels
from kernelbox.host._lock import is_locked, locked
from kernelbox.host._place import Place
from kernelbox.host._records import slug_of

PROCESSES, TURNS = 8, 150


def test_a_lock_has_one_holder_at_a_time_though_each_removes_its_file(tmp_path: Path) -> None:
    directory = tmp_path / "locks"
    directory.mkdir(0o700)
    code = f"""
from kernelbox.host._lock import locked
from kernelbox.host._place import Place
from kernelbox.host._records import slug_of
answer = 0
with Place.open({str(directory)!r}) as place:
    for turn in range({TURNS}):
        with locked(place, "name"):
            try:
                os.close(os.open({str(tmp_path / "inside")!r}, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue  # another process is inside as well
            answer += 1
            os.unlink({str(tmp_path / "inside")!r})
"""
    assert in_many_processes(PROCESSES, code) == [TURNS] * PROCESSES
    assert os.listdir(directory) == []


def test_a_lock_is_seen_while_it_is_held_and_leaves_no_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with Place.open(str(tmp_path)) as place:
        assert not is_locked(place, "name")
        with locked(place, "name"):
            assert is_locked(place, "name")
            assert not is_locked(place, "other")
        assert not is_locked(place, "name")
    assert os.listdir(tmp_path) == []


def test_a_file_that_a_crash_has_left_holds_nobody_up(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "name").touch(0o600)
    with Place.open(str(tmp_path)) as place:
        assert not is_locked(place, "name")
        with locked(place, "name", patience=0.0):
            assert is_locked(place, "name")
    assert os.listdir(tmp_path) == []


def test_wipe_removes_the_lock_of_a_process_that_was_killed_and_no_other(home: Path) -> None:
    get_or_create("a kernel")  # makes the directory
    code = """
import sys
from kernelbox.api._here import kernels
with kernels().store.locking(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""
    with start_python(code, "killed") as killed, start_python(code, "living") as living:
        for process in (killed, living):
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
        killed.kill()
        killed.wait()
        assert sorted(os.listdir(home / "runtime/locks")) == sorted([slug_of("killed"), slug_of("living")])
        wipe()
        assert os.listdir(home / "runtime/locks") == [slug_of("living")]
        living.communicate()
    assert os.listdir(home / "runtime/locks") == []


def test_processes_that_lock_two_names_in_opposite_orders_do_not_wait_for_each_other(home: Path) -> None:
    code = """
from kernelbox.api._here import kernels
names = ("one", "two") if number % 2 else ("two", "one")
for turn in range(100):
    with kernels().store.locking(*names): pass
answer = "done"
"""
    assert in_many_processes(4, code) == ["done"] * 4


def test_a_kernel_that_another_client_has_restarted_since_is_not_restarted_again(home: Path) -> None:
    before = get_or_create("again")
    after = restart("again")
    assert (after.pid, after.start_time) != (before.pid, before.start_time)
    same = kernels().restart(before.kernel_id, ended=before)
    assert (same.pid, same.start_time) == (after.pid, after.start_time)
    assert same.status == "idle"


def test_a_process_that_is_to_be_replaced_and_was_destroyed_meanwhile_says_why_there_is_none(home: Path) -> None:
    record = get_or_create("gone")
    handle = kernels().kernel(record)
    assert kernels().destroy("gone")
    assert "there is no kernel" in handle.replace_process("it must be replaced")

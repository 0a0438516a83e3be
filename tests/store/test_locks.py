"""Locks: one holder at a time, although the file goes with its last holder; several names without a deadlock."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.cells import is_running, run, value, wait_for_end
from tests.support.store import in_many_processes, start_python

from kernelbox import StoreFailed, create, destroy, get_or_create, restart, wipe
from kernelbox.api._configured import kernels
from kernelbox.host.files._lock import is_locked, locked
from kernelbox.host.files._place import Place
from kernelbox.host.store._record_files import slug_of

PROCESSES, TURNS = 8, 150
SECRET = b"of the tests"


def test_a_lock_has_one_holder_at_a_time_though_each_removes_its_file(tmp_path: Path) -> None:
    directory = tmp_path / "locks"
    directory.mkdir(0o700)
    code = f"""
from kernelbox.host.files._lock import locked
from kernelbox.host.files._place import Place
from kernelbox.host.store._record_files import slug_of
answer = 0
SECRET = {SECRET!r}
with Place.open({str(directory)!r}) as place:
    for turn in range({TURNS}):
        with locked(place, "name", SECRET):
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
        with locked(place, "name", SECRET):
            assert is_locked(place, "name")
            assert not is_locked(place, "other")
        assert not is_locked(place, "name")
    assert os.listdir(tmp_path) == []


def test_a_file_that_a_crash_has_left_holds_nobody_up(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "name").touch(0o600)
    with Place.open(str(tmp_path)) as place:
        assert not is_locked(place, "name")
        with locked(place, "name", SECRET, patience=0.0):
            assert is_locked(place, "name")
    assert os.listdir(tmp_path) == []


def test_wipe_removes_the_lock_of_a_process_that_was_killed_and_no_other(home: Path) -> None:
    get_or_create("a kernel")  # makes the directory
    code = """
import sys
from kernelbox.api._configured import kernels
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
        assert set(os.listdir(home / "runtime/locks")) >= {slug_of("killed"), slug_of("living")}
        wipe()
        assert os.listdir(home / "runtime/locks") == [slug_of("living")]
        living.communicate()
    assert os.listdir(home / "runtime/locks") == []


def test_processes_that_lock_two_names_in_opposite_orders_do_not_wait_for_each_other(home: Path) -> None:
    code = """
from kernelbox.api._configured import kernels
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
    reason, set_back = handle.replace_process("it must be replaced")
    assert "there is no kernel" in reason
    assert set_back is None


_SQUATTING = """
import fcntl, os
squats = []
for name in {names!r}:
    squats.append(os.open({locks!r} + "/" + name, os.O_RDWR | os.O_CREAT, 0o600))
    fcntl.flock(squats[-1], fcntl.LOCK_EX)
    os.write(squats[-1], {text!r})
"""


def squat(kernel: str, home: Path, *names: str, text: bytes = b"") -> None:
    """Has a cell take the locks of names."""
    slugs = [name if name == "registry" else slug_of(name) for name in names]
    run(kernel, _SQUATTING.format(names=slugs, locks=str(home / "runtime/locks"), text=text))


@pytest.mark.parametrize("text", [b"", b"1 1 " + b"0" * 64, b"\xff" * 1000])
def test_a_lock_that_a_kernel_holds_of_its_own_name_keeps_nobody_from_it(home: Path, text: bytes) -> None:
    kernel = get_or_create("mine")
    squat("mine", home, "mine", "registry", text=text)
    again = restart("mine")
    assert again.pid != kernel.pid
    squat("mine", home, "mine", "registry", text=text)
    assert destroy("mine")
    assert not is_running(again.pid or 0)


def test_wipe_ends_kernels_that_hold_locks(own_home: Path) -> None:
    kernels_of_home = [get_or_create("one"), get_or_create("two")]
    squat("one", own_home, "one", "two", "registry")
    assert set(wipe()) == {kernel.kernel_id for kernel in kernels_of_home}
    assert not any(is_running(kernel.pid or 0) for kernel in kernels_of_home)


def test_a_lock_that_another_kernel_holds_keeps_nobody_from_opening_a_kernel(home: Path) -> None:
    get_or_create("other")
    squat("other", home, "mine", "registry")
    create("mine")
    assert value("mine", "1 + 1") == "2"
    assert value("other", "len(squats)") == "2", "the kernel that held the lock lives on"


def test_a_lock_that_a_stopped_process_holds_keeps_nobody_from_a_name(home: Path) -> None:
    kernel = get_or_create("mine")
    squat("mine", home, "mine")
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGSTOP)
    assert destroy("mine")
    wait_for_end(kernel.pid)


_HOST_WITH_FORK = """
import os, sys
from kernelbox.api._configured import kernels
with kernels().store.locking("mine"):
    if os.fork() == 0:
        sys.stdin.read()  # the fork has a copy of the descriptor that is locked
        os._exit(0)
    print("locked", flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_lock_that_the_fork_of_a_killed_host_still_holds_keeps_nobody_from_a_name(home: Path) -> None:
    get_or_create("other")
    with start_python(_HOST_WITH_FORK) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "locked\n"
        host.wait()
        assert is_locked(Place.open(str(home / "runtime/locks")), slug_of("mine"))
        get_or_create("mine")
        assert host.stdin is not None
        host.stdin.close()


def test_a_lock_that_a_living_host_holds_is_waited_for(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    code = f"""
from kernelbox.host.files._lock import locked
from kernelbox.host.files._place import Place
import sys
with locked(Place.open({str(tmp_path)!r}), "name", {SECRET!r}):
    print("locked", flush=True)
    sys.stdin.read()
"""
    with start_python(code) as host, Place.open(str(tmp_path)) as place:
        assert host.stdout is not None
        assert host.stdout.readline() == "locked\n"
        with pytest.raises(StoreFailed, match="gave up waiting"), locked(place, "name", SECRET, patience=3.0):
            raise AssertionError("two processes hold the lock")
        host.communicate()
    assert os.listdir(tmp_path) == []

"""Limits in the life of a kernel: they come from where they are given, last as long as it does, and leave nothing."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import eventually, parent_of, wait_for_end
from tests.support.limits import GROUPS, WAYS, death, error, run

from kernelbox import (
    InvalidInput,
    KernelExists,
    Limits,
    StartFailed,
    create,
    destroy,
    execute,
    get_or_create,
    restart,
    status,
)
from kernelbox.host.engines._limiting import prepare_limits

pytestmark = pytest.mark.usefixtures("home")


def test_a_kernel_has_the_limits_it_was_opened_with_and_the_configured_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_LIMIT_FILES", "200")
    monkeypatch.setenv("KERNELBOX_LIMIT_FILE_SIZE", "10MB")
    assert create("a", limits={"memory": "300MB", "file_size": 0}).limits == {"memory": 300_000_000, "files": 200}
    assert get_or_create("b", limits=Limits(cpu=50)).limits == {"cpu": 50, "files": 200, "file_size": 10_000_000}
    execute("c", "1")
    assert status("c").limits == {"files": 200, "file_size": 10_000_000}


def test_a_kernel_that_ends_itself_is_followed_by_one_with_the_same_limits_or_lower_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {"memory": 300_000_000, "files": 100}
    execute(get_or_create("mine", limits=limits), "import os; os._exit(1)")
    assert get_or_create("mine").limits == limits
    execute("mine", "import os; os._exit(1)")
    assert get_or_create("mine", limits={"cpu": None}).limits == limits
    execute("mine", "import os; os._exit(1)")
    monkeypatch.setenv("KERNELBOX_LIMIT_MEMORY", "200MB")
    monkeypatch.setenv("KERNELBOX_LIMIT_FILES", "200")
    assert get_or_create("mine").limits == {"memory": 200_000_000, "files": 100}
    execute("mine", "import os; os._exit(1)")
    with pytest.raises(KernelExists, match="had limits memory=200 MB, not 400 MB, and the next one keeps to that"):
        get_or_create("mine", limits={"memory": "400MB"})
    assert get_or_create("mine", limits={"memory": "150MB"}).limits == {"memory": 150_000_000, "files": 100}


def test_a_kernel_without_limits_has_nothing_of_them(own_home: Path) -> None:
    kernel = get_or_create("plain")
    assert (kernel.limits, kernel.groups) == ({}, [])
    names = {"kernelbox.usage", "kernelbox.guest.walls._limit_watch", "kernelbox.guest.walls._own_limits"}
    assert run(kernel, f"import sys; {names} & sys.modules.keys()").return_value == "set()"


@pytest.mark.parametrize(
    "wrong", [{"memory": "much"}, {"ram": 1}, "512MB", {"processes": 1}, {"disk": -5}, {"cpu": "tomorrow"}]
)
def test_limits_that_make_no_sense_open_no_kernel(wrong: Any) -> None:
    for opening in (get_or_create, create):
        with pytest.raises(InvalidInput, match="limit"):
            opening("new", limits=wrong)
    get_or_create("old")
    with pytest.raises(InvalidInput, match="limit"):
        get_or_create("old", limits=wrong)


def test_a_live_kernel_with_other_limits_is_refused_by_their_names() -> None:
    kernel = get_or_create("mine", limits={"memory": "300MB", "files": 100})
    for same in ({"memory": 300_000_000}, {}, None, Limits(files=100), {"cpu": 0}):
        assert get_or_create("mine", limits=same).pid == kernel.pid
    with pytest.raises(KernelExists, match="and has limits memory=300 MB, not 1 GB; limits cpu=none, not 5 s; leave"):
        get_or_create("mine", limits={"memory": "1GB", "cpu": 5})


@pytest.mark.parametrize("cgroups", WAYS)
def test_a_restart_keeps_the_limits_and_makes_new_groups(cgroups: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    kernel = get_or_create("mine", limits={"memory": "150MB", "files": 100})
    again = restart(kernel)
    assert again.limits == kernel.limits
    assert not any(map(os.path.exists, kernel.groups))
    assert bool(again.groups) == (cgroups == "1")
    assert "Too many open files" in error(again, "leaked = [open('/dev/null') for _ in range(200)]")
    assert death(again, "x = [bytearray(8_000_000) for _ in range(60)]").startswith("out of memory (limit 150 MB")
    after = get_or_create("mine", limits={"memory": "150MB"})
    assert after.limits == {"memory": 150_000_000, "files": 100}
    assert "out of memory (limit 150 MB" not in (after.lost or ""), "it has been told"


@pytest.mark.skipif(not GROUPS, reason="no control groups can be made here")
@pytest.mark.parametrize("end", ["destroyed", "dead", "without its keeper"])
def test_no_group_is_left_of_a_kernel(end: str, own_home: Path) -> None:
    kernel = get_or_create("mine", limits={"memory": "300MB", "processes": 50, "cpu": 50})
    assert len(kernel.groups) > 0
    run(kernel, "import subprocess; p = subprocess.Popen(['sleep', '100'], start_new_session=True)")
    if end == "dead":
        death(kernel, "import os; os._exit(1)")
        assert not any(map(os.path.exists, kernel.groups)), "its keeper removes them"
    elif end == "without its keeper":
        assert kernel.pid is not None
        os.kill(parent_of(kernel.pid), signal.SIGKILL)
    destroy(kernel)
    assert not any(map(os.path.exists, kernel.groups))


@pytest.mark.parametrize("cgroups", WAYS)
def test_a_start_that_fails_leaves_no_group(cgroups: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "1 / 0")
    before = groups_here()
    with pytest.raises(StartFailed, match="ZeroDivisionError"):
        create("mine", limits={"memory": "300MB"})
    eventually(lambda: groups_here() <= before)


def test_the_startup_code_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "x = [bytearray(8_000_000) for _ in range(60)]\nwhile True: pass")
    with pytest.raises(StartFailed, match="out of memory"):
        create("mine", limits={"memory": "150MB"})


def test_a_kernel_that_is_looked_after_ends_with_its_keeper(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    kernel, free = get_or_create("mine", limits={"memory": "300MB"}), get_or_create("free")
    assert kernel.pid is not None
    keeper = parent_of(kernel.pid)
    os.kill(keeper, signal.SIGKILL)
    wait_for_end(kernel.pid)
    assert status(kernel).status == "dead"
    assert run(free, "1 + 1").return_value == "2"


@pytest.mark.parametrize("cgroups", WAYS)
def test_a_kernel_started_cold_is_kept_within_its_limits(cgroups: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")
    kernel = get_or_create("cold", limits={"memory": "150MB", "files": 100})
    assert "Too many open files" in error(kernel, "leaked = [open('/dev/null') for _ in range(200)]")
    assert death(kernel, "x = [bytearray(8_000_000) for _ in range(60)]").startswith("out of memory (limit 150 MB")


@pytest.mark.slow
@pytest.mark.parametrize("cgroups", WAYS)
def test_a_jupyter_kernel_is_kept_within_its_limits(
    cgroups: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    monkeypatch.setenv("KERNELBOX_ENGINE", "jupyter")
    kernel = get_or_create("jupyter", cwd=tmp_path, limits={"memory": "250MB", "files": 200, "disk": "5MB"})
    assert "Too many open files" in error(
        kernel,
        "leaked = []\ntry:\n    for _ in range(400): leaked.append(open('/dev/null'))\nfinally: del leaked[-50:]",
    )
    assert death(kernel, "x = [bytearray(8_000_000) for _ in range(60)]").startswith("out of memory (limit 250 MB")


DAEMON = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        x = [bytearray(8_000_000) for _ in range(60)]
        import time
        time.sleep(100)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("engine", ["kernelbox", "jupyter"])
def test_a_process_whose_parent_has_ended_still_counts(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    monkeypatch.setenv("KERNELBOX_ENGINE", engine)
    kernel = get_or_create(f"daemon-{engine}", limits={"memory": "250MB"})
    assert death(kernel, DAEMON).startswith("out of memory (limit 250 MB")


def test_a_directory_with_too_many_files_to_count_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelbox.host.engines._limiting._MOST_FILES", 3)
    for name in "abcd":
        (tmp_path / name).touch()
    with pytest.raises(StartFailed, match="has more than 3 files, which take too long to count"):
        create("mine", cwd=tmp_path, limits={"disk": "1GB"})


def test_one_process_that_its_keeper_does_not_end_in_time_is_ended_by_the_system() -> None:
    kernel = get_or_create("mine", limits={"cpu": 5})
    assert run(kernel, "import resource; resource.getrlimit(resource.RLIMIT_CPU)").return_value == "(7, 9)"


def test_a_limit_of_time_beyond_all_time_ends_no_kernel() -> None:
    kernel = get_or_create("mine", limits={"cpu": 2**64 // 10**9 - 1})  # with what is added, 0.3 s to the system
    assert run(kernel, "import time\nwhile time.process_time() < 1: pass\n7").return_value == "7"


def test_a_system_that_does_not_tell_what_kernels_use_starts_none_with_such_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = create("mine")
    monkeypatch.setattr(sys, "platform", "darwin")
    record.limits = {"memory": 10**9, "disk": 10**9, "files": 100}
    with pytest.raises(StartFailed, match=r"limits for disk, memory: these need Linux.* only file_size and files can"):
        prepare_limits(record, "/none", use_groups=False)
    record.limits = {"files": 100, "file_size": 10**6}
    assert prepare_limits(record, "/none", use_groups=False) == 0


def test_a_kernel_that_works_far_from_its_limits_is_left_alone(tmp_path: Path) -> None:
    limits = {"memory": "1GB", "cpu": 100, "processes": 100, "files": 500, "file_size": "100MB", "disk": "100MB"}
    kernel = get_or_create("mine", cwd=tmp_path, limits=limits)
    code = """
import multiprocessing, subprocess, threading
threads = [threading.Thread(target=sum, args=(range(10_000),)) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with multiprocessing.get_context("fork").Pool(4) as pool: squares = pool.map(abs, range(100))
subprocess.run(["sh", "-c", "head -c 1000000 /dev/zero > f"], check=True)
x = bytearray(50_000_000)
len(squares), len(x)
"""
    assert run(kernel, code).return_value == "(100, 50000000)"
    assert run(kernel, "%%bash\necho $((6 * 7))").output == "42\n"


def groups_here() -> set[str]:
    """Returns the control groups of kernels that there are."""
    return {
        os.path.join(folder, name)
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith("kernelbox-")
    }

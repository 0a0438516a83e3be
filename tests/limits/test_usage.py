"""What kernels use is shown: by `status` and `list`, in every face."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE
from tests.support.limits import WAYS, run

from kernelbox import create, execute, get_or_create, list_kernels, status
from kernelbox.guest.walls._disk import Disk
from kernelbox.guest.walls._limit_watch import LimitWatch
from kernelbox.usage._disk_usage import Walk
from kernelbox.wire._messages import Spawn

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("cgroups", WAYS)
def test_status_tells_what_a_kernel_and_its_children_use(cgroups: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    kernel = create("mine", limits={"memory": "1GB", "cpu": 1000})
    before = status(kernel).usage
    assert before is not None
    assert 0 < before["memory"] < 60_000_000
    run(kernel, "x = bytearray(100_000_000)\nimport subprocess\np = subprocess.Popen(['sleep', '100'])")
    run(kernel, "import time\nwhile time.process_time() < 0.5: pass")
    after = status(kernel).usage
    assert after is not None
    # Not quite all of it: each process counts its part of a shared page, which falls when the template forks a spare.
    assert 90_000_000 <= after["memory"] - before["memory"] < 140_000_000
    assert after["cpu"] >= 0.4
    assert after["processes"] > before["processes"]


def test_a_plain_kernel_is_measured_too_and_a_dead_one_not() -> None:
    execute("plain", "y = bytearray(50_000_000)", timeout=DEADLINE)
    execute("dead", "import os; os._exit(0)", timeout=DEADLINE)
    usage = {record.name: record.usage for record in list_kernels(usage=True)}
    assert usage["dead"] is None
    assert usage["plain"] is not None
    assert 50_000_000 <= usage["plain"]["memory"] < 110_000_000
    kernels = [get_or_create("plain"), *list_kernels()]
    assert not any(each.usage for each in kernels), "what nobody asks for is not measured"


def test_a_directory_is_added_up_a_part_at_a_time(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(20):
        deep /= "d" * 100
        deep.mkdir()
    (deep / "file").write_bytes(bytes(10_000))
    (tmp_path / "same").hardlink_to(deep / "file")
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "file").write_bytes(bytes(10_000))
    walk, steps = Walk(str(tmp_path), but=(tmp_path / "apart").stat().st_ino), 0
    while not walk.step(3):
        steps += 1
    assert walk.entries == 24
    assert steps == 8
    assert walk.bytes == 21 * 4096 + 3 * 4096 + 4096
    again = walk.again()
    assert again.step(1000)
    assert (again.entries, again.closed) == (24, 0)


def test_names_count_for_what_they_take_in_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for number in range(2000):
        (tmp_path / f"{number:0250}").hardlink_to(tmp_path / "file")
    walk = Walk(str(tmp_path))
    assert walk.step(10_000)
    assert walk.bytes >= tmp_path.stat().st_blocks * 512


def test_a_directory_is_known_to_be_too_large_before_all_of_it_is_counted(tmp_path: Path) -> None:
    disk = Disk(Walk(str(tmp_path)), 0, 5_000_000)
    for number in range(5000):
        (tmp_path / str(number)).touch()
    assert 5_000_000 < disk.measure([], os.getpid()) < 5000 * 4096


def test_no_more_than_some_directories_of_a_deep_tree_are_open_at_once(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(150):
        for name in ("a" * 250, "b" * 250):  # one is gone into while the other waits
            os.mkdir(name, dir_fd=fd)
        below = os.open("a" * 250, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    walk, before = Walk(str(tmp_path)), len(os.listdir("/proc/self/fd"))
    most = 0
    while not walk.step(1):
        most = max(most, len(os.listdir("/proc/self/fd")) - before)
    assert most < 40
    assert walk.closed > 0, "what is deeper is not counted, and that is known"


def test_a_look_that_waits_for_a_processor_does_not_put_off_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = Spawn(kernel_id="", directory="", cwd=str(tmp_path), umask=0, limits={"processes": 10_000})
    state = os.open(tmp_path, os.O_RDONLY)
    watch = LimitWatch(spawn, os.getpid(), 0, state, state, alone=False)
    clock = itertools.count(step=100)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert watch.look() is None
    assert watch.due < next(clock)
    watch.close()

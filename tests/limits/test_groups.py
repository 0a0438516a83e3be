"""Control groups of both versions: where they are made, what is written there, and that they go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cells import eventually
from tests.support.limits import GROUPS

from kernelbox.host.process import _control_groups as making
from kernelbox.host.process._control_groups import make_groups, remove_groups
from kernelbox.usage import _group_usage as reading

UNIFIED = next((each.own for each in making._hierarchies() if each.version == 2), "")  # cgroup2

JOINING = """
import os, sys
for group in sys.argv[1:]:
    with open(f"{group}/cgroup.procs", "w") as file: file.write("0")
x = bytearray(20_000_000)
print("in", flush=True)
while True: pass
"""


@contextlib.contextmanager
def joined(groups: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process in groups; in the end these are removed, and it with them."""
    with subprocess.Popen([sys.executable, "-S", "-c", JOINING, *groups], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"in\n"
            yield process
        finally:
            remove_groups(groups)


@pytest.mark.skipif(not GROUPS, reason="no control groups can be made here")
def test_groups_are_made_with_the_limits_they_keep_and_removed_with_what_is_in_them() -> None:
    groups = make_groups("a" * 32, {"memory": 100_000_000, "processes": 20, "cpu": 50, "files": 100})
    with joined(groups) as process:
        assert {"memory", "processes"} <= {name for group in groups for name in reading.limits(group)}
        for group in groups:
            assert reading.members(group) == [process.pid]
        assert any((reading.cpu_seconds(group) or 0) > 0 for group in groups)
        assert any((reading.memory(group) or 0) > 10_000_000 for group in groups)
        assert [kills for group in groups if (kills := reading.oom_kills(group)) is not None] == [0]
    assert process.returncode == -signal.SIGKILL
    assert not any(map(os.path.exists, groups))


@pytest.mark.skipif(not os.access(f"{UNIFIED or '/none'}/cgroup.procs", os.W_OK), reason="no group can be made here")
def test_a_group_of_the_second_version_counts_processor_time_without_controllers() -> None:
    (parent, *_) = making._parents(UNIFIED, frozenset({"cpuacct"}))
    group = making._make(f"{parent}/kernelbox-test-{os.urandom(4).hex()}", {"cpu": 5})
    with joined([group]) as process:
        assert reading.members(group) == [process.pid]
        eventually(lambda: reading.cpu_seconds(group))
    assert process.returncode == -signal.SIGKILL
    assert not os.path.exists(group)


def test_nothing_but_groups_of_kernels_is_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    remove_groups([str(tmp_path / "mine"), str(tmp_path / "kernelbox-none")])
    assert (tmp_path / "mine").exists()


def test_no_group_is_made_for_what_no_group_keeps() -> None:
    assert make_groups("a" * 32, {"files": 100, "file_size": 10**6, "disk": 10**6}) == []


# A tree of directories with the files of the second version: the real one of this machine may have no controllers.


def lay_out(group: Path, controllers: str, enabled: str = "") -> Path:
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text(controllers)
    (group / "cgroup.subtree_control").write_text(enabled)
    (group / "cgroup.procs").write_text("")
    return group


def test_a_group_of_the_second_version_is_made_beside_our_own_where_that_is_delegated(tmp_path: Path) -> None:
    parent = lay_out(tmp_path / "app.slice", "cpu memory pids", "memory pids")
    own = lay_out(parent / "own.scope", "memory pids")
    (own / "cgroup.subtree_control").unlink()  # a group with processes refuses
    (own / "cgroup.subtree_control").mkdir()
    assert making._parents(str(own), frozenset({"memory", "pids", "cpuacct"})) == [str(parent)]
    assert making._parents(str(own), frozenset({"memory", "io"})) == []


def test_controllers_that_are_there_but_off_are_switched_on(tmp_path: Path) -> None:
    own = lay_out(tmp_path / "own", "memory pids")
    making._parents(str(own), frozenset({"memory", "pids"}))
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_the_settings_are_those_of_the_version(tmp_path: Path) -> None:
    limits = {"memory": 100_000_000.0, "processes": 40}
    second, first = tmp_path / "second", tmp_path / "first"
    for folder, files in (
        (second, ("memory.max", "memory.swap.max", "pids.max")),
        (first, ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")),
    ):
        folder.mkdir()
        for file in files:
            (folder / file).touch()
    assert making._settings(str(second), limits) == [
        ("memory.max", "100000000"),
        ("memory.swap.max", "0"),
        ("pids.max", "40"),
    ]
    assert making._settings(str(first), limits) == [
        ("memory.limit_in_bytes", "100000000"),
        ("memory.memsw.limit_in_bytes", "100000000"),
    ]
    assert making._settings(str(second), {"cpu": 5}) == []


def test_what_a_group_has_used_is_read_in_both_versions(tmp_path: Path) -> None:
    second, first = tmp_path / "second", tmp_path / "first"
    for folder, files in (
        (
            second,
            {
                "memory.stat": "anon 100\nfile 5000\nshmem 20\n",
                "memory.peak": "700\n",
                "memory.events": "low 0\noom 3\noom_kill 2\n",
                "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
                "cgroup.procs": "12\n0\n13\n",
            },
        ),
        (
            first,
            {
                "memory.stat": "rss 1\ntotal_rss 100\ntotal_shmem 20\ntotal_cache 5000\n",
                "memory.max_usage_in_bytes": "700\n",
                "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                "cpuacct.usage": "2500000000\n",
                "cgroup.procs": "12\n0\n13\n",
            },
        ),
    ):
        folder.mkdir()
        for file, text in files.items():
            (folder / file).write_text(text)
        group = str(folder)
        assert (reading.memory(group), reading.peak(group), reading.oom_kills(group)) == (120, 700, 2)
        assert (reading.cpu_seconds(group), reading.members(group)) == (2.5, [12, 13])
    empty = str(tmp_path / "none")
    assert (reading.memory(empty), reading.peak(empty), reading.oom_kills(empty)) == (None, None, None)
    assert (reading.cpu_seconds(empty), reading.members(empty)) == (None, [])

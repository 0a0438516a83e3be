"""Walls: sandbox and limits hold around a kernel, its checkpoints and its branches, as they were."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, eventually, is_running, run, value, wait_for_end
from tests.support.limits import WAYS
from tests.support.sandbox import namespace

from kernelbox import (
    CannotCopy,
    KernelRecord,
    branch,
    checkpoint,
    checkpoints,
    destroy,
    execute,
    get_or_create,
    promote,
    rollback,
    status,
)
from kernelbox.host.engines.own._sandboxed import find_gap

NAMESPACES = ("user", "mnt", "pid", "net", "ipc")


@pytest.fixture
def box(home: Path, tmp_path: Path) -> KernelRecord:
    return get_or_create(f"box-{tmp_path.name}", cwd=tmp_path, sandbox=True)


def pid_of(kernel: KernelRecord) -> int:
    pid = status(kernel).pid
    assert pid is not None
    return pid


def test_a_sandboxed_kernel_is_rolled_back_inside_its_sandbox(box: KernelRecord) -> None:
    run(box, "x = 1")
    before = [namespace(box.pid, kind) for kind in NAMESPACES]
    checkpoint(box)
    for _ in range(2):
        run(box, "x = 2")
        rollback(box)
        pid = pid_of(box)
        assert value(box, "x") == "1"
        assert [namespace(pid, kind) for kind in NAMESPACES] == before
        assert find_gap(pid) == ""


@pytest.mark.parametrize("code", ["import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_a_sandboxed_kernel_comes_back_from_the_dead(box: KernelRecord, code: str) -> None:
    run(box, "x = 1")
    checkpoint(box)
    for _ in range(3):
        result = execute(box, code, timeout=DEADLINE)
        assert (result.restored_from, result.state) == (1, "rolled back"), result.text
        assert value(box, "x") == "1"
        assert find_gap(pid_of(box)) == ""


def test_no_descriptor_in_a_sandbox_leads_out_after_a_rollback(box: KernelRecord) -> None:
    checkpoint(box)
    rollback(box)
    listing = "import os\nfor fd in os.listdir('/proc/self/fd'):\n    try: print(os.readlink(f'/proc/self/fd/{fd}'))\n"
    shown = run(box, listing + "    except OSError: pass").output.splitlines()
    runtime = os.environ["KERNELBOX_HOME"]
    assert not [path for path in shown if path.startswith(runtime) and os.path.isdir(path)]
    (frozen,) = checkpoints(box)
    held = []
    for fd in os.listdir(f"/proc/{frozen.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the checkpoint has closed it meanwhile: it makes its copy ahead
            held.append(os.readlink(f"/proc/{frozen.pid}/fd/{fd}"))
    assert held
    assert not [path for path in held if path.startswith(runtime) and os.path.isdir(path)]


def test_programs_that_a_sandboxed_kernel_has_started_end_with_a_rollback(box: KernelRecord) -> None:
    checkpoint(box)
    run(box, "import subprocess; child = subprocess.Popen(['sleep', '1000'])")
    first = parent_of_namespace(pid_of(box))
    rollback(box)
    eventually(lambda: not [pid for pid in below(first) if "sleep" in command(pid)])
    assert value(box, "1") == "1"


def test_a_sandbox_ends_with_its_kernel_and_all_checkpoints(box: KernelRecord) -> None:
    made = [checkpoint(box), checkpoint(box)]
    rollback(box)
    first = parent_of_namespace(pid_of(box))
    destroy(box)
    assert not any(is_running(pid) for pid in (first, *(each.pid for each in made)))


def test_a_branch_of_a_sandboxed_kernel_is_refused_by_name(box: KernelRecord) -> None:
    with pytest.raises(CannotCopy, match="share the sandbox"):
        branch(box, "other")


@pytest.mark.slow
@pytest.mark.parametrize("cgroups", WAYS)
@pytest.mark.parametrize("sandbox", [None, True])
def test_a_kernel_killed_for_its_memory_comes_back_within_its_limit(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroups: str, sandbox: bool | None
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    kernel = get_or_create(f"limited-{tmp_path.name}", cwd=tmp_path, limits={"memory": "300MB"}, sandbox=sandbox)
    run(kernel, "x = 1; data = bytearray(50_000_000)")
    checkpoint(kernel)
    for _ in range(3):
        result = execute(kernel, "more = []\nwhile True: more.append(bytearray(5_000_000))", timeout=DEADLINE)
        assert (result.state, result.restored_from) == ("rolled back", 1), result.text
        assert value(kernel, "x, len(data)") == "(1, 50000000)"
    assert status(kernel).limits == {"memory": 300_000_000}


@pytest.mark.parametrize("cgroups", WAYS)
def test_a_branch_has_limits_of_its_own(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroups: str
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    kernel = get_or_create(f"limited-{tmp_path.name}", cwd=tmp_path, limits={"memory": "300MB"})
    run(kernel, "x = 1")
    copy = branch(kernel, "copy")
    assert not set(status(copy).groups) & set(status(kernel).groups)
    result = execute(copy, "more = []\nwhile True: more.append(bytearray(5_000_000))", timeout=DEADLINE)
    assert result.state == "lost"
    assert "memory" in result.text
    assert value(kernel, "x") == "1"


@pytest.mark.parametrize("cgroups", WAYS)
def test_a_promoted_branch_has_the_limits_of_its_original(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroups: str
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    kernel = get_or_create(f"limited-{tmp_path.name}", cwd=tmp_path, limits={"memory": "300MB"})
    run(kernel, "x = 1")
    run(branch(kernel, "copy"), "x = 2")
    promote("copy")
    assert value(kernel.name, "x") == "2"
    result = execute(kernel.name, "more = []\nwhile True: more.append(bytearray(5_000_000))", timeout=DEADLINE)
    assert "memory" in result.text
    assert result.state == "lost"


@pytest.mark.parametrize("cgroups", WAYS)
def test_checkpoints_count_with_their_kernel(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroups: str
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    kernel = get_or_create(f"limited-{tmp_path.name}", cwd=tmp_path, limits={"memory": "300MB"})
    change = "\nfor at in range(0, len(data), 1_000_000): data[at : at + 1_000_000] = bytes([n]) * 1_000_000"
    run(kernel, "data = bytearray(60_000_000); n = 1" + change)
    for number in (2, 3):
        checkpoint(kernel)
        run(kernel, f"n = {number}" + change)
    fill = "more = b'x' * 150_000_000; import time; time.sleep(1000)"  # with its data alone it has room
    result = execute(kernel, fill, timeout=DEADLINE)
    assert result.state == "rolled back", result.text


def test_a_limited_kernel_leaves_no_groups_when_it_is_destroyed(home: Path) -> None:
    kernel = get_or_create("limited", limits={"memory": "300MB"})
    groups = status(kernel).groups
    checkpoint(kernel)
    rollback(kernel)
    destroy(kernel)
    eventually(lambda: not any(map(os.path.exists, groups)))


def test_a_kernel_that_dies_takes_neither_groups_nor_sandbox_of_its_checkpoints_along(
    home: Path, tmp_path: Path
) -> None:
    kernel = get_or_create("both", cwd=tmp_path, limits={"memory": "300MB"}, sandbox=True)
    made = checkpoint(kernel)
    pid = pid_of(kernel)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    eventually(lambda: status(kernel).death)
    assert is_running(made.pid)
    assert all(map(os.path.exists, status(kernel).groups))
    rollback(kernel)
    assert value(kernel, "1") == "1"


def parent_of_namespace(pid: int) -> int:
    """Returns the first process of a sandbox, by its pid here: the parent of a copy in it."""
    from kernelbox.host.process._process import Process, read_start_time

    first = Process(pid, read_start_time(pid) or 0).first_of_namespace()
    assert first is not None
    return first.pid


def below(pid: int) -> list[int]:
    from kernelbox.host.process._process import Process

    return [each.pid for each in Process(pid, 0).descendants()]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""

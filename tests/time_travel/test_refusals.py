"""What cannot be copied is said before anything is done, by name and with what to do; the kernel goes on."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from pathlib import Path

import pytest
from tests.support.cells import run, value

from kernelbox import CannotCopy, CodeExecutor, KernelRecord, branch, checkpoint, checkpoints, get_or_create
from kernelbox.host._engines import engine_named

NATIVE_THREAD = """
import ctypes
system = ctypes.CDLL(None)
system.pthread_create(ctypes.byref(ctypes.c_ulong()), None, ctypes.cast(system.pause, ctypes.c_void_p), None)
"""

OBSTACLES = {
    "a Python thread": (
        "import threading, time; threading.Thread(target=time.sleep, args=(1000,), name='busy', daemon=True).start()",
        "Python thread 'busy'",
    ),
    "a thread pool": (
        "from concurrent.futures import ThreadPoolExecutor as P; pool = P(1, 'mine'); pool.submit(int).result()",
        "Python thread 'mine_0'",
    ),
    "a database": (
        "import sqlite3; c = sqlite3.connect('t.db'); c.execute('create table t (x)'); c.commit()",
        "t.db is open; close its connections",
    ),
    "a thread that no library starts again": (
        NATIVE_THREAD,
        "has threads that a copy would lack; use it in another process",
    ),
    "a file that may not be opened again": (
        "import ctypes, os; f = open('f', 'w'); os.chmod('f', 0); ctypes.CDLL(None).setfsuid(65534)",
        "f could not be opened again; close it",
    ),
}

# Puts a device where those of GPUs are. Only this kernel sees it, in a file system of its own.
GPU = """
import ctypes, os, stat
system = ctypes.CDLL(None, use_errno=True)
assert system.unshare(0x20000) == 0  # CLONE_NEWNS
assert system.mount(b"", b"/", b"", 0x44000, None) == 0  # MS_REC | MS_PRIVATE
assert system.mount(b"tmpfs", b"/dev", b"tmpfs", 0, None) == 0
os.mkdir("/dev/dri")
for path in ("/dev/null", "/dev/dri/renderD128"):
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
gpu = open("/dev/dri/renderD128")
"""


@pytest.mark.parametrize("what", OBSTACLES)
def test_what_cannot_be_copied_is_refused_by_name(home: Path, tmp_path: Path, what: str) -> None:
    code, named = OBSTACLES[what]
    kernel = get_or_create("obstacle", cwd=tmp_path)
    run(kernel, code)
    for copy in (lambda: checkpoint(kernel), lambda: branch(kernel, "other")):
        with pytest.raises(CannotCopy) as caught:
            copy()
        assert len(caught.value.reasons) == 1
        assert named in caught.value.reasons[0]
        assert caught.value.reasons[0] in str(caught.value)
    assert checkpoints(kernel) == []
    assert value(kernel, "6 * 7") == "42"


def test_several_reasons_are_all_told(home: Path, tmp_path: Path) -> None:
    kernel = get_or_create("obstacles", cwd=tmp_path)
    run(kernel, OBSTACLES["a Python thread"][0])
    run(kernel, OBSTACLES["a database"][0])
    with pytest.raises(CannotCopy) as caught:
        checkpoint(kernel)
    assert len(caught.value.reasons) == 2


def test_a_kernel_can_be_copied_when_the_obstacle_is_gone(home: Path, tmp_path: Path) -> None:
    kernel = get_or_create("obstacle", cwd=tmp_path)
    run(kernel, OBSTACLES["a database"][0])
    with pytest.raises(CannotCopy):
        checkpoint(kernel)
    run(kernel, "c.close()")
    assert checkpoint(kernel).number == 2


def test_a_thread_that_waits_for_work_of_the_event_loop_is_no_obstacle(kernel: KernelRecord) -> None:
    run(kernel, "import asyncio; x = await asyncio.to_thread(lambda: 5)")
    copy = branch(kernel, f"{kernel.name}-b")
    for each in (kernel, copy):
        assert value(each, "await asyncio.to_thread(lambda: x + 1)") == "6"


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can make devices")
def test_a_kernel_that_has_a_gpu_open_is_refused_by_name(kernel: KernelRecord) -> None:
    run(kernel, GPU)
    for copy in (lambda: checkpoint(kernel), lambda: branch(kernel, "other")):
        with pytest.raises(CannotCopy, match="GPU device /dev/dri/renderD128 is open; use the GPU in another process"):
            copy()
    run(kernel, "gpu.close()")
    assert value(branch(kernel, f"{kernel.name}-b"), "6 * 7") == "42"


def test_a_kernel_that_uses_io_uring_is_refused_by_name(kernel: KernelRecord) -> None:
    run(kernel, "import ctypes, os; ring = ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120))")
    if value(kernel, "ring") == "-1":
        pytest.skip("this system does not allow io_uring")
    for copy in (lambda: checkpoint(kernel), lambda: branch(kernel, "other")):
        with pytest.raises(CannotCopy, match=r"a library uses io_uring.*close what it has open"):
            copy()
    run(kernel, "os.close(ring)")
    assert checkpoint(kernel).number == 2


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_than_linux_are_refused_by_name(
    kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    for is_branch in (False, True):
        (reason,) = engine_named("kernelbox").find_refusals(kernel, branch=is_branch)
        assert f"need Linux, and this is {platform}" in reason


def test_guarded_kernels_are_refused_by_name(home: Path) -> None:
    async def copy() -> None:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            with pytest.raises(CannotCopy, match="it is guarded"):
                await executor.checkpoint()
            with pytest.raises(CannotCopy, match="it is guarded"):
                await executor.branch("other")
            assert (await executor.execute("6 * 7")).return_value == "42"

    asyncio.run(copy())


def test_kernels_in_srt_are_refused_by_name(kernel: KernelRecord) -> None:
    in_srt = KernelRecord(**{**kernel.to_dict(), "sandbox": "srt"})  # srt itself does not run as the superuser
    for is_branch in (False, True):
        (reason,) = engine_named("kernelbox").find_refusals(in_srt, branch=is_branch)
        assert "srt" in reason
        assert "use the native sandbox" in reason


@pytest.mark.skipif(importlib.util.find_spec("ipykernel") is None, reason="needs ipykernel")
def test_kernels_of_jupyters_engine_are_refused_by_name(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_ENGINE", "jupyter")
    kernel = get_or_create("other-engine")
    with pytest.raises(CannotCopy, match="Jupyter's engine"):
        checkpoint(kernel)

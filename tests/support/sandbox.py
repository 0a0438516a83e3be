"""What the tests of sandboxed kernels share: a workspace, a kernel in it, and what the system says of its processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from tests.support.cells import is_running

from kernelbox import KernelRecord
from kernelbox.guest.walls._landlock import LEAST_VERSION
from kernelbox.guest.walls._system_calls import Unarmed, landlock_version

needs_linux = pytest.mark.skipif(os.uname().sysname != "Linux", reason="sandboxed kernels need Linux")

# `test_as_user.py` runs the tests again as an ordinary user, in srt.
LEVEL: Literal["native", "srt"] = "srt" if os.environ.get("TEST_SANDBOX_LEVEL") == "srt" else "native"

of_native = pytest.mark.skipif(LEVEL != "native", reason="in srt it is otherwise")


def has_landlock() -> bool:
    """Tells whether the system has a Landlock that is of use here."""
    try:
        return landlock_version() >= LEAST_VERSION
    except (Unarmed, AttributeError):  # another system has no such call
        return False


def namespace(pid: int | None, kind: str = "pid") -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def private_kilobytes(pid: int) -> int:
    """Returns how much memory a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def processes_in(kernel: KernelRecord) -> list[int]:
    """Returns the processes in a kernel's sandbox."""
    return processes_in_namespace(namespace(kernel.pid))


def processes_in_namespace(name: str) -> list[int]:
    """Returns the live processes of a pid namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if namespace(int(entry.name)) == name and is_running(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found

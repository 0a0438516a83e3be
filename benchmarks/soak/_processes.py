"""The processes below the soak, as /proc has them: whatever they do, they stay below it, because it is a subreaper."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_GUEST = b"kernelbox.guest.birth._template_main"  # until the template has a title
_TITLE, _TEMPLATE, _SPARE = b"kernelbox: ", b"kernelbox: template", b"kernelbox: spare\0"


def keep_orphans() -> None:
    """Makes every orphan below this process its child: none can get out of sight."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this process cannot become a subreaper")


def reap() -> dict[int, int]:
    """Takes the ends of our children, adopted ones included; returns their statuses."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            ended[end[0]] = end[1]
    return ended


def descendants() -> set[int]:
    """Returns the processes below this one that have not ended."""
    children: dict[int, list[int]] = {}
    for pid, parent, state in _all_processes():
        if state not in "ZX":
            children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    rest = [os.getpid()]
    while rest:
        below = [pid for pid in children.get(rest.pop(), ()) if pid not in found]
        found.update(below)
        rest += below
    return found


def count_but_spares() -> int:
    """Returns how many processes there are below this one, without those that wait to become kernels."""
    count = 0
    for pid in descendants():
        with contextlib.suppress(OSError):
            count += not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(_SPARE)
    return count


def guests() -> tuple[dict[int, str], set[int]]:
    """Returns the kernels below this process, with their ids, and the templates."""
    kernels, templates = {}, set()
    for pid in descendants():
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            kernel_id = _kernel_id(pid) if command.startswith(_TITLE) or _GUEST in command else ""
            if kernel_id:
                kernels[pid] = kernel_id
            elif command.startswith(_TEMPLATE) or _GUEST in command:
                templates.add(pid)
    return kernels, templates


def list_descriptors(pid: int) -> list[str]:
    """Returns what a process has open; nothing if it has ended."""
    opened = []
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                opened.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return opened


def describe(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:300]
    return "(gone)"


def _kernel_id(pid: int) -> str:
    """Returns the directory of the state file that a kernel holds open; a template holds none."""
    return next((Path(path).parent.name for path in list_descriptors(pid) if path.endswith("/state")), "")


def _all_processes() -> Iterator[tuple[int, int, str]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                yield int(entry), int(fields[1]), fields[0]

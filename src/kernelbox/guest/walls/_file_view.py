"""What a sandboxed kernel sees of the file system: the host's, read-only, with what its policy hides, shows and adds.

Everything is cloned before anything is mounted, so that what one mount covers another can still show.
"""

from __future__ import annotations

import os

from kernelbox.guest.walls import _system_calls as _calls
from kernelbox.wire._confinement import Confinement, Mount

_SAFE = _calls.MS_NOSUID | _calls.MS_NODEV
_HARMLESS = _calls.MOUNT_ATTR_NOSUID | _calls.MOUNT_ATTR_NODEV

# What a private directory can hold: it is memory. Files and directories of a few hundred bytes each count too.
_PRIVATE = "size=1g,nr_inodes=200k,mode=1777"

# A few empty directories.
_SMALL = "size=64k,nr_inodes=4k"

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}

# Files about the whole system: names of keys, addresses in the Linux kernel's memory. Most are the superuser's.
_TELLING = (
    *("keys", "key-users", "kcore", "kpagecount", "kpageflags", "kpagecgroup"),
    *("slabinfo", "vmallocinfo", "pagetypeinfo", "timer_list", "sched_debug", "latency_stats"),
)

# Where what covers a hidden directory or file is kept.
_COVERS = "/dev/.hidden"


def build_view(confinement: Confinement) -> None:
    """Builds the view in a mount namespace of the process's own; /proc is still the host's."""
    _calls.mount("", "/", "", _calls.MS_REC | _calls.MS_PRIVATE)
    trees = [_calls.clone_tree(mount.path) if mount.kind in ("read", "write") else -1 for mount in confinement.mounts]
    devices = [(name, _calls.clone_own(f"/dev/{name}")) for name in _DEVICES if os.path.exists(f"/dev/{name}")]
    _calls.restrict("/", _calls.MOUNT_ATTR_RDONLY | _HARMLESS)
    _make_devices(devices)
    screens = []
    for wanted, tree in zip(confinement.mounts, trees, strict=True):
        _apply(wanted, tree)
        if wanted.kind == "screen":
            screens.append(wanted.path)
    for path in screens:
        os.chmod(path, 0o111)  # nothing in it is listed; what is mounted below can be reached
        _make_read_only(path, _SAFE)
    _make_read_only("/dev", _calls.MS_NOSUID)


def show_processes() -> None:
    """Mounts /proc, of the namespace that the calling process is in; read-only, or uid 0 could write to /proc/sys."""
    _calls.mount("proc", "/proc", "proc", _calls.MS_RDONLY | _calls.MS_NOSUID | _calls.MS_NODEV | _calls.MS_NOEXEC)
    for path in (f"/proc/{name}" for name in _TELLING):
        if os.access(path, os.R_OK):
            _calls.mount(f"{_COVERS}/file", path, "", _calls.MS_BIND)


def _apply(wanted: Mount, tree: int) -> None:
    path = wanted.path
    match wanted.kind:
        case "private":
            _make_place(path, directory=True)
            _mount_empty(path, _PRIVATE)
        case "screen":
            _make_place(path, directory=True)
            _mount_empty(path, f"{_SMALL},mode=0755")
        case "hide" | "pin":
            _make_place(path, directory=wanted.directory)
            _attach(_calls.clone_own(f"{_COVERS}/{'directory' if wanted.directory else 'file'}"), path)
        case "read" | "write":
            _make_place(path, directory=wanted.directory)
            _calls.restrict(tree, _HARMLESS | (_calls.MOUNT_ATTR_RDONLY if wanted.kind == "read" else 0))
            _attach(tree, path)


def _mount_empty(path: str, options: str) -> None:
    with _calls.place(path) as fd:
        _calls.mount("tmpfs", f"/proc/self/fd/{fd}", "tmpfs", _SAFE, options)


def _attach(tree: int, path: str) -> None:
    try:
        _calls.attach(tree, path)
    finally:
        os.close(tree)


def _make_place(path: str, *, directory: bool) -> None:
    """Makes a place to mount something on, if it is missing: in a private directory, or behind a cover."""
    try:
        os.lstat(path)
        return
    except FileNotFoundError:
        pass
    os.makedirs(path if directory else os.path.dirname(path), 0o755, exist_ok=True)
    if not directory:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def _make_devices(devices: list[tuple[str, int]]) -> None:
    """Makes a /dev with the harmless devices, terminals of its own, and what covers hidden directories and files."""
    _calls.mount("tmpfs", "/dev", "tmpfs", _calls.MS_NOSUID, f"{_SMALL},mode=0755")
    for name, tree in devices:
        os.close(os.open(f"/dev/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        # A read-only mount still lets the device be written to. Only its mode cannot be changed.
        _calls.restrict(tree, _calls.MOUNT_ATTR_RDONLY | _calls.MOUNT_ATTR_NOSUID)
        _calls.attach_own(tree, f"/dev/{name}")
        os.close(tree)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for name in ("shm", "pts"):
        os.mkdir(f"/dev/{name}")
    _calls.mount("tmpfs", "/dev/shm", "tmpfs", _SAFE, _PRIVATE)
    options = "newinstance,ptmxmode=0666,mode=0620"
    _calls.mount("devpts", "/dev/pts", "devpts", _calls.MS_NOSUID | _calls.MS_NOEXEC, options)
    os.makedirs(f"{_COVERS}/directory")
    os.close(os.open(f"{_COVERS}/file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
    os.chmod(f"{_COVERS}/directory", 0)


def _make_read_only(path: str, flags: int) -> None:
    """Makes a file system of our own read-only; what is mounted in it stays as it is."""
    _calls.mount("tmpfs", path, "tmpfs", _calls.MS_REMOUNT | _calls.MS_RDONLY | flags)

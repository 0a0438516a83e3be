"""Sandboxes on the host's side: what a kernel is confined to, and the check that it really is.

The check does not rely on the kernel: it reads the namespaces, capabilities and filters from /proc.
"""

from __future__ import annotations

import os
import re
import signal

from kernelbox.base._cell_places import can_cells_write, first_planted_link
from kernelbox.base._environment import template_environment
from kernelbox.base._errors import StartFailed
from kernelbox.host.engines._interface import Launch
from kernelbox.host.engines.own._path_files import added_folders
from kernelbox.host.files._key import key_path
from kernelbox.host.files._known_homes import HOMES_FOLDER, known_homes
from kernelbox.host.process._loader import is_users_own
from kernelbox.host.process._process import Process, added_filters, parent_of, read_status
from kernelbox.host.store._servers_file import SERVERS_FILE
from kernelbox.sandbox._native import Surroundings, confine, environment_in_sandbox
from kernelbox.sandbox._path_rules import is_writable
from kernelbox.sandbox._paths import absolute, real
from kernelbox.sandbox._sandbox_config import SandboxConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelbox.wire._confinement import Confinement
    from kernelbox.wire._messages import Spawned

_NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
_NAMESPACES_OF_SRT = ("user", "mnt", "pid", "net")
_NS_GET_USERNS = 0xB701
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")

# Separates paths in a variable.
_PARTS = re.compile(rf"[{os.pathsep}\s]+")

# Variables with these endings contain paths, which may be relative.
_OF_PATHS = ("PATH", "HOME", "BASE", "PREFIX", "DIR", "PRELOAD", "AUDIT")


def prepare_box(launch: Launch) -> tuple[Confinement, dict[str, str]]:
    """Returns a kernel's confinement and its environment; raises InvalidInput or StartFailed."""
    config = SandboxConfig.from_text(launch.record.sandbox_config)
    secrets = [launch.config.home, launch.config.runtime_dir, launch.config.registry_path]
    key = key_path(launch.config.key_file)
    secrets += [key, *(os.path.join(os.path.dirname(key), name) for name in (SERVERS_FILE, HOMES_FOLDER))]
    # The homes of other projects. A link that a cell has put in place of one would hide the target of the link.
    secrets += [home for home in known_homes(launch.config.key_file) if first_planted_link(home) is None]
    looked_in = [launch.environment.get(name, "").split(os.pathsep) for name in ("PATH", "PYTHONPATH")]
    code = [path for paths in looked_in for path in paths]
    place = Surroundings(launch.record.cwd, secrets, code, launch.interpreter)
    return confine(config, place), environment_in_sandbox(launch.environment)


def outside_of_box(launch: Launch, confinement: Confinement) -> Launch:
    """Returns the launch for the kernel's template, which runs outside the sandbox.

    Variables that name a path which cells can write are left out (PYTHONPATH, HOME, LD_PRELOAD): the template would
    load code that a cell has left there.
    """
    seen = {mount.path: mount.kind for mount in confinement.mounts if mount.kind != "pin"}  # the last at a path counts

    def can_write(path: str) -> bool:
        return is_writable(path, seen) or can_cells_write(path)

    environment = {
        name: value
        for name, value in template_environment(launch.environment).items()
        if not names_writable(name, value, launch.record.cwd, can_write)
    }
    rest = (launch.config, launch.opening, launch.lifeline, launch.interpreter, launch.disk_before)
    without = tuple(
        path for path in added_folders(launch.interpreter) if names_writable("PATH", path, launch.record.cwd, can_write)
    )
    apart = launch.record.sandbox != "srt" and is_users_own(launch.interpreter.program)  # srt protects the file
    return Launch(launch.record, launch.directory, environment, *rest, without, apart)


def names_writable(name: str, value: str, cwd: str, can_write: Callable[[str], bool]) -> bool:
    """Tells whether a variable names a path that cells can write."""
    return any(map(can_write, _paths_in(name, value, cwd)))


def _paths_in(name: str, value: str, cwd: str) -> Iterator[str]:
    """Yields the paths that a variable may mean: as written, fully resolved, and with only their parents resolved."""
    for part in {*value.split(os.pathsep), *value.split(), *_PARTS.split(value)}:
        if part.startswith("/") or (part and name.endswith(_OF_PATHS)):
            path = absolute(part, cwd)
            found = real(path) or os.path.realpath(path)
            yield path
            if found != path:  # there is a link
                directory, last = os.path.split(path)
                yield found
                yield os.path.join(real(directory) or directory, last)


def require_armed(spawned: Spawned, *, in_srt: bool = False) -> None:
    """Kills a process that is not confined according to the system, and raises StartFailed."""
    missing = find_gap(spawned.pid) or (find_gap_around(spawned.pid) if in_srt else _find_program(spawned.pid))
    if missing:
        Process(spawned.pid, spawned.start_time).signal(signal.SIGKILL)
        raise StartFailed(f"the kernel was killed, because its sandbox is not in force: {missing}; please report this")


def find_gap(pid: int) -> str:
    """Returns what part of the sandbox a process lacks according to the system; "" if none."""
    try:
        status = read_status(pid)
        filters = added_filters(status)
        shared = [name for name in _NAMESPACES if _namespace(pid, name) == _namespace(os.getpid(), name)]
        root = os.statvfs(f"/proc/{pid}/root")
        owns = _namespace(pid, "user") == _namespace(int(status.get("PPid", "0")), "user")
    except OSError as exc:
        return f"its state cannot be read ({exc})"
    if owns:
        return "it shares its template's user namespace, which its sandbox belongs to"
    if shared:
        return f"it shares the host's {', '.join(shared)} namespace"
    if status.get("Seccomp") != "2" or status.get("NoNewPrivs") != "1" or filters < 1:
        return "its system calls are not filtered"
    if any(int(status.get(name, "1"), 16) for name in _CAPABILITIES):
        return "it has capabilities"
    return "" if root.f_flag & os.ST_RDONLY else "its root is not read-only"


def _find_program(pid: int) -> str:
    """Returns what is wrong with the program file of a process, which it can change through /proc/self/exe; "" if the
    file belongs to another user or is only in memory."""
    try:
        program = os.stat(f"/proc/{pid}/exe")
    except OSError as exc:
        return f"its program cannot be checked ({exc})"
    return "its program is a file of this user" if program.st_nlink and program.st_uid == os.geteuid() else ""


def find_gap_around(pid: int) -> str:
    """Returns what part of srt's sandbox the kernel's template lacks according to the system; "" if none."""
    template = parent_of(pid)
    if template is None:
        return "its template is gone"
    try:
        status = read_status(template)
        shared = [name for name in _NAMESPACES_OF_SRT if _namespace(template, name) == _namespace(os.getpid(), name)]
        apart = _namespace(template, "net") != _namespace(pid, "net")
        owner = _owner_of_mounts(template)
    except OSError as exc:
        return f"the state of its template cannot be read ({exc})"
    if shared:
        return f"its template shares the host's {', '.join(shared)} namespace"
    if apart:
        return "it is in another network than its template"
    if status.get("NoNewPrivs") != "1":
        return "its template can gain privileges"
    if owner == _namespace(template, "user") and int(status.get("CapEff", "1"), 16):
        return "its template can change what it sees"
    return ""


def _namespace(pid: int, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")


def _owner_of_mounts(pid: int) -> str:
    """Returns the user namespace that owns the mount namespace of a process (ioctl_nsfs(2))."""
    import fcntl  # not on every system

    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    finally:
        os.close(namespace)
    try:
        return os.readlink(f"/proc/self/fd/{owner}")
    finally:
        os.close(owner)

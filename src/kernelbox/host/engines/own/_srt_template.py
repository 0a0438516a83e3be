"""Templates that run in srt (sandbox-runtime), on the host's side: the programs they need, and how they start."""

from __future__ import annotations

import json
import os
import shutil

from kernelbox.base._environment import host_variable, template_environment
from kernelbox.base._errors import StartFailed
from kernelbox.base._text import version_numbers
from kernelbox.host.engines._spawning import (
    ANSWER_PATIENCE,
    open_log,
    srt_parent_command,
    template_command,
    write_secret,
)
from kernelbox.host.engines.own._template_processes import wait_for_lock
from kernelbox.sandbox._native import refuse_system
from kernelbox.sandbox._path_rules import is_below
from kernelbox.sandbox._paths import absolute, find_absent, real
from kernelbox.sandbox._sandbox_config import SandboxConfig
from kernelbox.sandbox._srt_settings import programs_of_srt, settings_for_srt
from kernelbox.wire._layout import SRT_PLACE
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelbox.host.engines._interface import Launch
    from kernelbox.host.files._place import Place

# Older versions have not been tried.
_OLDEST = (0, 0, 78)

_PACKAGE = "@anthropic-ai/sandbox-runtime"
INSTALL = f"npm install -g {_PACKAGE}"

# Programs that srt runs, and the packages of Debian and others that contain them.
_NEEDED = {
    "bash": "bash",
    "bwrap": "bubblewrap",
    "socat": "socat",
    "rg": "ripgrep",
    "node": "nodejs",
    "setpriv": "util-linux",  # ends srt together with its parent
}

# The variables that srt needs: the proxy that it must use itself.
_PROXIES = tuple(name for each in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (each, each.lower()))

# A file in the directory of an srt.
SETTINGS = "settings.json"

# Seconds. While the template lives, srt keeps empty files in the working directory. So the template ends early.
_IDLE_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class InstalledSrt:
    """The installed srt, and its settings for a kernel."""

    program: str
    version: str
    bash: str
    settings: str
    environment: dict[str, str]
    cwd: str
    absent: list[str]

    @property
    def identity(self) -> list[object]:
        """What kernels must have in common to share one srt."""
        return [self.program, self.version, self.settings, sorted(self.environment.items()), self.cwd]


def prepare_srt(launch: Launch) -> InstalledSrt:
    """Finds srt and the programs it needs; raises StartFailed, with advice, if one is missing or too old.

    These programs run outside the sandbox, so programs that cells can write are not used.
    """
    config = SandboxConfig.from_text(launch.record.sandbox_config)
    cwd = os.path.realpath(launch.record.cwd)
    writable = [found for path in config.allow_write if (found := real(absolute(path, cwd))) is not None]
    path = search_path(writable)
    program, version = find_srt(path, writable)
    bash = shutil.which("bash", path=path)
    assert bash is not None, "find_srt has found it"
    for named in programs_of_srt(config):
        if os.sep in named:
            _require_apart(os.path.join(cwd, named), writable)
    environment = {name: value for name in _PROXIES if (value := host_variable(name)) is not None}
    environment |= {"PATH": path, "HOME": os.path.expanduser("~")}
    absent = find_absent(cwd, config.deny_write)
    return InstalledSrt(program, version, bash, json.dumps(settings_for_srt(config)), environment, cwd, absent)


def search_path(writable: Sequence[str] = ()) -> str:
    """Returns PATH without relative directories and those that cells can write."""
    found = (host_variable("PATH") or os.defpath).split(os.pathsep)
    return os.pathsep.join(path for path in found if os.path.isabs(path) and not _is_in(path, writable))


def find_srt(path: str, writable: Sequence[str] = ()) -> tuple[str, str]:
    """Returns the path of srt and its version; raises StartFailed if kernels cannot run in it here."""
    refuse_system()
    if os.geteuid() == 0:
        raise StartFailed(
            "srt does not confine the superuser, who can still write to files such as /proc/sys/kernel/core_pattern; "
            "run kernelbox as an ordinary user, or leave sandbox_level out, because the native level confines the "
            "superuser too"
        )
    program = shutil.which("srt", path=path)
    places = {name: shutil.which(name, path=path) for name in _NEEDED}
    missing = [_NEEDED[name] for name, place in places.items() if place is None]
    if program is None or missing:
        steps = [f"`apt-get install {' '.join(missing)}` (or the packages of your system)"] if missing else []
        steps += [f"`{INSTALL}`"] if program is None else []
        what = ", ".join((*(["srt"] if program is None else []), *missing))
        raise StartFailed(f"the srt level needs {what}, not found on PATH: use {' and '.join(steps)}")
    for place in (program, *(place for place in places.values() if place is not None)):
        _require_apart(place, writable)
    version = _read_version(program)
    if version_numbers(version) < _OLDEST:
        raise StartFailed(
            f"srt {version} ({program}) is too old, the oldest that is known to work is "
            f"{'.'.join(map(str, _OLDEST))}: use `{INSTALL}`"
        )
    return program, version


def start_in_srt(
    runtime: Place, name: str, srt: InstalledSrt, launch: Launch, listener: int, modules: Sequence[str]
) -> None:
    """Starts a template in srt together with the parent of srt, from one shell."""
    import shlex
    import subprocess

    given = template_environment(launch.environment)
    token, (place, held) = os.urandom(16).hex(), _make_place(srt.settings)
    idle_timeout = str(min(launch.config.template_idle_timeout, _IDLE_TIMEOUT))
    names = ",".join(sorted({*given, "PATH", "HOME"}))
    template = template_command(["srt", "0", name, idle_timeout, token, names, *modules], launch.without)
    command = ["setpriv", "--pdeathsig", "TERM", srt.program, "--settings", os.path.join(place, SETTINGS), "--"]
    plan = write_secret("plan", json.dumps({"place": place, "absent": srt.absent, "token": token}).encode())
    parent = srt_parent_command([str(runtime.fd), str(plan)])
    inside, outside = shlex.join([*command, launch.interpreter.executable, *template]), shlex.join(parent)
    fds = [runtime.fd, plan, held]  # for the parent alone: with an open directory, a cell could leave the sandbox
    spare = max(fds) + 1
    closing = " ".join(f"{fd}<&-" for fd in (spare, *fds))
    log = open_log(runtime, name + ".log")
    try:
        wait_for_lock(log)  # until the last srt of this name has ended
        subprocess.run(
            # A shell gives a background job no standard input unless it comes from another descriptor.
            [srt.bash, "-c", f"exec {spare}<&0; ( {inside} <&{spare} {closing} & exec {outside} $! {spare}<&- ) &"],
            pass_fds=fds,
            stdin=listener,
            stdout=log,
            stderr=log,
            env={**given, **srt.environment, "TMPDIR": place},
            cwd=srt.cwd,
            start_new_session=True,
            check=True,
            timeout=ANSWER_PATIENCE,
        )
    except (subprocess.SubprocessError, OSError) as exc:
        raise StartFailed(f"srt cannot be started: {exc}") from exc
    finally:
        for fd in (plan, held, log):
            os.close(fd)


def _make_place(settings: str) -> tuple[str, int]:
    """Makes the directory for srt's sockets and settings; returns it, and a descriptor that locks it.

    A directory that is not locked is abandoned, and the parent of another srt removes it.
    """
    import fcntl
    import tempfile

    place = tempfile.mkdtemp(prefix=SRT_PLACE, dir="/tmp")
    held = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_EX)
    with open(os.path.join(place, SETTINGS), "w") as file:
        file.write(settings)
    return place, held


def _require_apart(program: str, writable: Sequence[str]) -> None:
    if _is_in(program, writable):
        raise StartFailed(
            f"{program} would run outside the sandbox, but is in a directory that the sandbox allows cells to write: "
            "install it elsewhere, or let the sandbox write to another directory"
        )


def _is_in(path: str, directories: Sequence[str]) -> bool:
    found = os.path.realpath(path)
    return any(found == directory or is_below(found, directory) for directory in directories)


def _read_version(program: str) -> str:
    """Returns the version of srt from its package; asking the program takes a quarter of a second."""
    directory = os.path.dirname(os.path.realpath(program))
    for place in (os.path.dirname(directory), directory):
        try:
            with open(os.path.join(place, "package.json")) as file:
                package = json.load(file)
            if package["name"] == _PACKAGE:
                return str(package["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return _ask_version(program)


def _ask_version(program: str) -> str:
    import subprocess

    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30.0, check=False)
        said = done.stdout.strip() or done.stderr.strip()
    except (OSError, subprocess.SubprocessError) as exc:
        raise StartFailed(f"{program} cannot be run: {exc}; use `{INSTALL}`") from exc
    if done.returncode != 0 or not version_numbers(said):
        words = said.splitlines()[-1][:200] if said else f"status {done.returncode}"
        raise StartFailed(f"{program} is broken, it does not print its version ({words}): use `{INSTALL}`")
    return said

"""Templates that run in srt (sandbox-runtime), as the host sees them: which programs that needs, and how it starts."""

from __future__ import annotations

import json
import os
import shutil

from kernelbox.base._config import host_variable, template_environment
from kernelbox.base._errors import StartFailed
from kernelbox.host._spawning import start_keeper, template_command, write_secret
from kernelbox.sandbox._config import SandboxConfig
from kernelbox.sandbox._native import refuse_system
from kernelbox.sandbox._passed import settings_for_srt
from kernelbox.sandbox._paths import find_absent
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelbox.host._engine import Launch
    from kernelbox.host._place import Place

# Older ones have not been tried.
_OLDEST = (0, 0, 78)

_PACKAGE = "@anthropic-ai/sandbox-runtime"
INSTALL = f"npm install -g {_PACKAGE}"

# Programs that srt runs, and the packages of Debian and others that have them.
_NEEDED = {"bwrap": "bubblewrap", "socat": "socat", "rg": "ripgrep", "node": "nodejs"}

# What srt takes from its environment: the proxy that it must use itself.
_PROXIES = tuple(name for each in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (each, each.lower()))

# Seconds. As long as a template is there, empty files of srt's lie in the working directory: it leaves early.
_IDLE_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Srt:
    """The srt that is installed here, and what it is told for a kernel."""

    program: str
    version: str
    settings: str
    environment: dict[str, str]
    cwd: str
    absent: list[str]

    @property
    def identity(self) -> list[object]:
        """What kernels must have in common to be forked in one."""
        return [self.program, self.version, self.settings, sorted(self.environment.items()), self.cwd]


def prepare_srt(launch: Launch) -> Srt:
    """Finds srt and what it needs; raises StartFailed, which says what to do, if something is missing or too old."""
    program, version = find_srt()
    config = SandboxConfig.from_text(launch.record.sandbox_config)
    environment = {name: value for name in _PROXIES if (value := host_variable(name)) is not None}
    environment |= {"PATH": host_variable("PATH") or os.defpath, "HOME": os.path.expanduser("~")}
    cwd = os.path.realpath(launch.record.cwd)
    absent = find_absent(cwd, config.deny_write)
    return Srt(program, version, json.dumps(settings_for_srt(config)), environment, cwd, absent)


def find_srt() -> tuple[str, str]:
    """Returns where srt is and its version; raises StartFailed if kernels cannot run in it here."""
    refuse_system()
    if os.geteuid() == 0:
        raise StartFailed(
            "srt is no sandbox for the superuser: files of the whole system, such as /proc/sys/kernel/core_pattern, "
            "stay open to it; run kernelbox as an ordinary user, or leave sandbox_level out, because the native level "
            "holds for the superuser too"
        )
    path = host_variable("PATH") or os.defpath
    program = shutil.which("srt", path=path)
    missing = [package for name, package in _NEEDED.items() if shutil.which(name, path=path) is None]
    if program is None or missing:
        steps = [f"`apt-get install {' '.join(missing)}` (or the packages of your system)"] if missing else []
        steps += [f"`{INSTALL}`"] if program is None else []
        what = ", ".join((*(["srt"] if program is None else []), *missing))
        raise StartFailed(f"the srt level needs {what}, which PATH does not lead to: use {' and '.join(steps)}")
    version = _read_version(program)
    if _numbers(version) < _OLDEST:
        raise StartFailed(
            f"srt {version} ({program}) is too old, and {'.'.join(map(str, _OLDEST))} the oldest that is known to "
            f"work: use `{INSTALL}`"
        )
    return program, version


def start_in_srt(
    runtime: Place, name: str, srt: Srt, launch: Launch, listener: int, modules: Sequence[str], log: str
) -> None:
    """Starts a template in srt, by way of its deputy."""
    given = template_environment(launch.environment)
    idle_timeout = min(launch.config.template_idle_timeout, _IDLE_TIMEOUT)
    token = os.urandom(16).hex()
    names = ",".join(sorted({*given, "PATH", "HOME"}))
    plan = {
        "srt": [srt.program],
        "settings": json.loads(srt.settings),
        "template": template_command(["srt", "0", name, str(idle_timeout), token, names, *modules]),
        "environment": srt.environment,
        "cwd": srt.cwd,
        "absent": srt.absent,
        "token": token,
    }
    fd = write_secret("plan", json.dumps(plan).encode())
    try:
        fds = [listener, runtime.fd, fd]
        start_keeper(["deputy", *map(str, fds)], fds, runtime, log, launch.environment)
    finally:
        os.close(fd)


def _read_version(program: str) -> str:
    """Returns the version of srt, as its package says; asking the program takes a quarter of a second."""
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
    if done.returncode != 0 or not _numbers(said):
        words = said.splitlines()[-1][:200] if said else f"status {done.returncode}"
        raise StartFailed(f"{program} is broken, it does not tell its version ({words}): use `{INSTALL}`")
    return said


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.partition("-")[0].split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()

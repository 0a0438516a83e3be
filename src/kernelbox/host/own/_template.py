"""The warm template that our own kernels are forked from, as the host sees it.

Its life: start (once, under a lock) → ready when its socket answers → forks → leaves by itself when idle. A dead one is
found by a refused connection, and replaced by the opener who finds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

from kernelbox.base._config import template_environment
from kernelbox.base._errors import StartFailed
from kernelbox.host._lock import locked
from kernelbox.host._sockets import dial, listen
from kernelbox.host._spawning import PACKAGE, ask_for_process, start_keeper, tail
from kernelbox.wire._layout import TEMPLATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.host._engine import Launch
    from kernelbox.host._place import Place
    from kernelbox.host._spawning import Request
    from kernelbox.wire._messages import Spawned


def has_warm_template() -> bool:
    """Tells whether this system can fork from a warm process: macOS cannot, once frameworks are loaded."""
    return sys.platform == "linux"


def fork_warm(request: Request, launch: Launch) -> Spawned:
    """Has a kernel forked by the template of the runtime directory, which is started if there is none."""
    name = f"{TEMPLATE}{_template_key(launch.environment, launch.config.preload)}"
    with launch.directory.runtime() as runtime:
        for _ in range(3):
            with contextlib.suppress(OSError), dial(runtime, name) as client:
                answer = ask_for_process(client, request)
                if answer is not None:
                    return answer
            with locked(runtime, name + ".lock"):
                with contextlib.suppress(OSError), dial(runtime, name):
                    continue  # another opener has started it meanwhile
                _start(runtime, name, launch.environment, launch.config)
        log = name + ".log"
        raise StartFailed(f"the template does not answer; its log is {runtime.path_of(log)}:\n{tail(runtime, log)}")


def _start(runtime: Place, name: str, env: dict[str, str], config: KernelBoxConfig) -> None:
    with listen(runtime, name) as listener:
        fds = [listener.fileno(), runtime.fd]
        argv = ["warm", *map(str, fds), name, str(config.template_idle_timeout), *config.preload]
        start_keeper(argv, fds, runtime, name + ".log", env)


def _template_key(env: dict[str, str], preload: Sequence[str]) -> str:
    """Names the template by all that its forks inherit: interpreter, code, preloaded modules, import-time settings."""
    from _blake2 import blake2b  # hashlib has the same, and takes 5 ms to import, because it loads OpenSSL

    interpreter = [sys.prefix, os.path.realpath(sys.executable), sys.version]  # `python` and `python3` are one
    identity = [interpreter, PACKAGE, _code_stamp(), _import_stamps(), list(preload), _limits()]
    shared = sorted(template_environment(env).items())
    return blake2b(json.dumps([identity, shared]).encode(), digest_size=8).hexdigest()


def _code_stamp() -> int:
    """Returns when the code that a template runs was last changed: an upgraded package needs a new template."""
    rooms = (os.path.join(PACKAGE, room) for room in ("guest", "wire"))
    return max(entry.stat().st_mtime_ns for room in rooms for entry in os.scandir(room) if entry.name.endswith(".py"))


def _import_stamps() -> list[list[object]]:
    """Returns what changes when packages are installed, upgraded or removed.

    A running interpreter sees new files in the folders that it searches; it reads `.pth` files, which add folders, only
    when it starts.
    """
    import site

    stamps: list[list[object]] = []
    for folder in (*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            stamps.append([folder, os.stat(folder).st_mtime_ns])
            stamps += [[entry.path, entry.stat().st_mtime_ns] for entry in entries if entry.name.endswith(".pth")]
    return sorted(stamps, key=str)


def _limits() -> list[object]:
    """Returns what a process inherits and its kernels must have of their own opener: limits, priority, processors."""
    import resource

    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    limits: list[object] = [resource.getrlimit(getattr(resource, name)) for name in names]
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [*limits, os.nice(0), processors]

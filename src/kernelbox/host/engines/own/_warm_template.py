"""The warm template that kernels are forked from, on the host's side.

Its life: start (once, under a lock) → ready when its socket answers → forks → ends by itself when idle. An opener whose
connection is refused replaces the dead template. A stopped template is continued. One that hangs is killed and
replaced, and its kernels live on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import sys
import time

from kernelbox.base._environment import template_environment
from kernelbox.base._errors import EXHAUSTED, StartFailed
from kernelbox.host.engines._spawning import (
    ANSWER_PATIENCE,
    PACKAGE,
    SANDBOXES,
    receive_answer,
    send_request,
    start_keeper,
    tail,
)
from kernelbox.host.engines.own._path_files import import_stamps
from kernelbox.host.engines.own._template_processes import process_behind
from kernelbox.host.files._lock import locked
from kernelbox.host.files._sockets import dial, listen
from kernelbox.host.store._servers_file import has_servers
from kernelbox.wire._json import encode_json
from kernelbox.wire._layout import IMPORTING, TEMPLATE, TOOLS, WARM

# How often a waiting opener checks the template.
_LOOK_EVERY = 0.5

# A template hangs if it has imported everything, does not answer, and uses no processor time for this long.
_HANG_PATIENCE = 3.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelbox.host.engines._interface import Launch
    from kernelbox.host.engines._spawning import SpawnRequest
    from kernelbox.host.engines.own._srt_template import InstalledSrt
    from kernelbox.host.files._place import Place
    from kernelbox.wire._messages import Spawned


def has_warm_template() -> bool:
    """Tells whether this system can fork from a warm process. macOS cannot, once frameworks are loaded."""
    return sys.platform == "linux"


def fork_warm(request: SpawnRequest, launch: Launch, srt: InstalledSrt | None = None) -> Spawned:
    """Asks the template, which may run in an srt, to fork a kernel; starts it first if there is none."""
    modules = [*launch.config.preload, *(TOOLS if has_servers(launch.config) else ())]
    ways = [way for way, wanted in ((SANDBOXES, request.spawn.is_sandboxed), ("apart", launch.apart)) if wanted]
    name = f"{TEMPLATE}{_template_digest(launch, modules, srt, ways)}"
    with launch.directory.runtime() as runtime:
        begun = False
        for _ in range(3):
            client = _dial(runtime, name)
            if client is not None:
                with contextlib.suppress(OSError), client:
                    if srt is not None:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                    send_request(client, request)
                    answer = _wait_for_answer(client, runtime, name)
                    if answer is not None:
                        return answer
            with locked(runtime, name + ".lock", launch.directory.secret()):
                another = _dial(runtime, name)
                if another is None:
                    if srt is not None:
                        _require_sound(runtime, name, begun=begun)
                    mode = f"warm{SANDBOXES}" if request.spawn.is_sandboxed else "warm"
                    _start(runtime, name, mode, launch, modules, srt)
                    begun = True
                else:
                    another.close()  # another opener has just started it
        raise StartFailed(_describe_failure(runtime, name, "does not answer"))


def _dial(runtime: Place, name: str) -> socket.socket | None:
    """Returns a connection to a template, None if there is none; raises OSError if too many files are open."""
    try:
        return dial(runtime, name)
    except OSError as exc:
        if exc.errno in EXHAUSTED:
            raise
        return None


def _wait_for_answer(client: socket.socket, runtime: Place, name: str) -> Spawned | None:
    """Waits for a template's answer; None if it ended instead, or hung and was killed."""
    process, work = None, -1
    idle_since = time.monotonic()
    deadline = idle_since + ANSWER_PATIENCE
    client.settimeout(_LOOK_EVERY)
    while True:
        try:
            return receive_answer(client)
        except TimeoutError:
            now = time.monotonic()
        process = process or process_behind(client, name)  # only now, because /proc blocks while the template forks
        if process is None:  # it did not listen yet when we connected
            with dial(runtime, name) as another:
                process = process_behind(another, name)
        if process is not None:
            process.signal(signal.SIGCONT)  # it may have been stopped
            if process.work != work:
                idle_since, work = now, process.work
        if now > deadline:
            if process is not None:
                process.signal(signal.SIGKILL)
            raise StartFailed(_describe_failure(runtime, name, f"did not answer within {ANSWER_PATIENCE:g} s"))
        if process is not None and now - idle_since > _HANG_PATIENCE and _last_stage(runtime, name) == WARM:
            process.signal(signal.SIGKILL)
            process.wait(_HANG_PATIENCE)
            return None


def _describe_failure(runtime: Place, name: str, what: str) -> str:
    """Returns what is wrong with a template, and which module it was importing if it did that last."""
    stage, log = _last_stage(runtime, name), name + ".log"
    if stage.startswith(IMPORTING):
        what += f": it ended or hung while it imported {stage.removeprefix(IMPORTING).strip()!r}"
        what += "; remove this module from KERNELBOX_PRELOAD"
    return f"the template {what}; its log is {runtime.path_of(log)}:\n{tail(runtime, log)}"


def _last_stage(runtime: Place, name: str) -> str:
    """Returns the last line of a template's log that reports its progress."""
    lines = tail(runtime, name + ".log", lines=1000).splitlines()
    return next((line for line in reversed(lines) if line.startswith((IMPORTING, WARM))), "")


def _start(
    runtime: Place, name: str, mode: str, launch: Launch, modules: Sequence[str], srt: InstalledSrt | None
) -> None:
    with listen(runtime, name) as listener:
        if srt is not None:
            from kernelbox.host.engines.own._srt_template import start_in_srt

            start_in_srt(runtime, name, srt, launch, listener.fileno(), modules)
            return
        fds = [listener.fileno(), runtime.fd]
        argv = [mode, *map(str, fds), name, str(launch.config.template_idle_timeout), *modules]
        start_keeper(launch, argv, fds, runtime, name + ".log")


def _require_sound(runtime: Place, name: str, *, begun: bool) -> None:
    """Raises StartFailed if srt was just started and ended before the template could serve."""
    if not begun:
        return
    from kernelbox.host.engines.own._template_processes import wait_for_srt
    from kernelbox.sandbox._advice import advise_about_srt

    wait_for_srt(runtime, name)  # then the log says how srt ended
    said = tail(runtime, name + ".log")
    raise StartFailed(f"the kernel could not be started in srt, which said:\n{said}\n{advise_about_srt(said)}")


def _template_digest(launch: Launch, preload: Sequence[str], srt: InstalledSrt | None, ways: list[str]) -> str:
    """Returns a hash over all that the template's forks inherit: interpreter, code, modules, settings at import."""
    from _blake2 import blake2b  # hashlib's import takes 5 ms, because it loads OpenSSL

    python = launch.interpreter
    runs = [python.prefix, python.program, python.build]  # `python` and `python3` are the same
    identity = [runs, PACKAGE, _code_stamp(), import_stamps(python), list(preload), _limits()]
    identity += [*(srt.identity if srt is not None else []), *ways, *launch.without]
    shared = sorted(template_environment(launch.environment).items())
    return blake2b(encode_json([identity, shared], ascii_only=True).encode(), digest_size=8).hexdigest()


@functools.cache
def _code_stamp() -> int:
    """Returns when the code that a template runs was last changed. An upgraded package needs a new template.

    This is cached, because a process keeps the code that it has loaded, and the templates that match it.
    """
    folders = (found for room in ("guest", "usage", "wire") for found in os.walk(os.path.join(PACKAGE, room)))
    files = (os.path.join(folder, name) for folder, _, names in folders for name in names if name.endswith(".py"))
    return max(os.stat(file).st_mtime_ns for file in files)


def _limits() -> list[object]:
    """Returns what kernels must inherit from their opener, and not from another: limits, priority, processors."""
    import resource

    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    limits: list[object] = [resource.getrlimit(getattr(resource, name)) for name in names]
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [*limits, os.nice(0), processors]

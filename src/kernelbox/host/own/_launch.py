"""How a kernel's process comes to be: forked from the warm template, or spawned cold where there is none.

A template's life: start (once, under a lock) → ready when its socket answers → forks → leaves by itself when idle.
Nobody ends it; a dead one is found by a refused connection and replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys

from kernelbox.base._config import template_environment
from kernelbox.base._errors import StartFailed
from kernelbox.host._lock import locked
from kernelbox.host.own._connection import SOCKET, dial, listen
from kernelbox.wire import _state
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Refused, Spawn, Spawned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# A template imports IPython and the preload list before it answers; on a loaded machine that takes a while.
_ANSWER_PATIENCE = 60.0

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Runs the template of this very copy of the package, whatever is installed where it starts.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from kernelbox.guest._template import main; del sys.path[0]; main(sys.argv[2:])"  # noqa: E501


def launch(
    spawn: Spawn, *, template: str | None, preload: Sequence[str], idle_timeout: float, lifeline: int
) -> Spawned:
    """Starts a kernel; `template` is the directory that templates live in, None for a cold start."""
    _create_state(spawn.directory)
    listener = listen(os.path.join(spawn.directory, SOCKET), tell_senders=True)
    fds = [listener.fileno()] + ([lifeline] if lifeline >= 0 else [])
    try:
        if template is None or spawn.argv:
            answer = _spawn_cold(spawn, fds)
        else:
            answer = _fork_warm(spawn, fds, template, preload, idle_timeout)
    finally:
        listener.close()
    if isinstance(answer, Refused):
        raise StartFailed(f"the kernel could not be started: {answer.reason}")
    return answer


def has_warm_template() -> bool:
    """Tells whether this system can fork from a warm process: macOS cannot, once frameworks are loaded."""
    return sys.platform == "linux"


def umask() -> int:
    """Returns the umask; on Linux without the moment in which setting it to ask would change it for other threads."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _fork_warm(
    spawn: Spawn, fds: list[int], directory: str, preload: Sequence[str], idle_timeout: float
) -> Spawned | Refused:
    path = os.path.join(directory, f"template-{_template_key(spawn.env, preload)}")
    for _ in range(3):
        with contextlib.suppress(OSError), dial(path) as client:
            answer = _request(client, spawn, fds)
            if answer is not None:
                return answer
        with locked(path + ".lock"):
            with contextlib.suppress(OSError), dial(path):
                continue  # somebody else has started it meanwhile
            with listen(path) as listener:
                argv = ["warm", str(listener.fileno()), path, str(idle_timeout), *preload]
                _start(argv, listener.fileno(), path + ".log", spawn.env)
    raise StartFailed(f"the template does not answer; its log is {path}.log:\n{_tail(path + '.log')}")


def _spawn_cold(spawn: Spawn, fds: list[int]) -> Spawned | Refused:
    ours, theirs = socket.socketpair()
    log = os.path.join(spawn.directory, "log")
    with ours, theirs:
        _start(["cold", str(theirs.fileno()), "", "60"], theirs.fileno(), log, spawn.env)
        theirs.close()
        answer = _request(ours, spawn, fds)
    if answer is None:
        raise StartFailed(f"the kernel's process ended at once:\n{_tail(log)}")
    return answer


def _start(argv: list[str], fd: int, log_path: str, env: dict[str, str]) -> None:
    """Starts a template and returns when it is on its own; it forks away from the process that is waited for."""
    import subprocess

    root = os.path.dirname(_PACKAGE)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-P", "-c", _BOOT, root, *argv],
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=template_environment(env),
            cwd="/",
            start_new_session=True,
            check=True,
            timeout=_ANSWER_PATIENCE,
        )
    except subprocess.SubprocessError as exc:
        raise StartFailed(f"{sys.executable!r} did not start; its last words:\n{_tail(log_path)}") from exc
    except OSError as exc:
        raise StartFailed(f"cannot start {sys.executable!r}: {exc}") from exc
    finally:
        os.close(log)


def _request(client: socket.socket, spawn: Spawn, fds: list[int]) -> Spawned | Refused | None:
    """Asks a template for a kernel; None if it ended instead of answering."""
    client.settimeout(_ANSWER_PATIENCE)
    decoder = Decoder()
    try:
        data = encode(spawn)
        sent = socket.send_fds(client, [data], fds)
        if sent < len(data):  # or a template that has answered and closed already would make this look like a failure
            client.sendall(data[sent:])
        while piece := client.recv(65536):
            for message in decoder.feed(piece):
                if isinstance(message, Spawned | Refused):
                    return message
    except TimeoutError as exc:
        raise StartFailed(f"the template did not answer within {_ANSWER_PATIENCE:g} s") from exc
    except OSError:
        return None
    return None


def _template_key(env: dict[str, str], preload: Sequence[str]) -> str:
    """Names the template by all that its forks inherit: interpreter, code, preloaded modules, import-time settings."""
    import hashlib

    interpreter = [sys.prefix, os.path.realpath(sys.executable), sys.version]  # `python` and `python3` are one
    identity = [interpreter, __file__, _code_stamp(), list(preload)]
    shared = sorted(template_environment(env).items())
    return hashlib.sha256(json.dumps([identity, shared]).encode()).hexdigest()[:16]


def _code_stamp() -> int:
    """Returns when the code that a template runs was last changed: an upgraded package needs a new template."""
    rooms = (os.path.join(_PACKAGE, room) for room in ("guest", "wire"))
    return max(entry.stat().st_mtime_ns for room in rooms for entry in os.scandir(room) if entry.name.endswith(".py"))


def _create_state(directory: str) -> None:
    fd = os.open(os.path.join(directory, "state"), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, bytes(_state.SIZE))  # really there: a full disk must show here, not as SIGBUS in the kernel
    finally:
        os.close(fd)


def _tail(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-15:]).rstrip()
    except OSError:
        return "(no log)"

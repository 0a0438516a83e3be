"""How a process comes to be: a keeper is asked for it, over a socket, with descriptors for all that it needs.

The request names nothing that is secret, and nothing that the keeper would have to open: the environment, the files and
the listening socket go as descriptors, which only the forked child uses.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from kernelbox.base._environment import template_environment
from kernelbox.base._errors import EXHAUSTED, StartFailed
from kernelbox.base._text import escape
from kernelbox.host.files._sockets import listen, receive_from
from kernelbox.host.process._loader import copy_loader, interpreter, loader_command
from kernelbox.host.store._state_file import create_state
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._layout import LOG, RUNNER, SOCKET, UNARMED, UNGUARDED
from kernelbox.wire._messages import Introduced, Refused, Spawn, Spawned, group_name
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelbox.host.engines._interface import Launch
    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.wire._confinement import Confinement

# A template imports IPython and the preload list before it answers; on a loaded machine that takes a while.
ANSWER_PATIENCE = 60.0

# Bytes of a log that are looked at for its last lines.
_LOG_TAIL = 16 * 1024

# What is said of an interpreter that cannot be run apart from its file.
_OWN = (
    "; it belongs to this user, and could not be run apart from its file, as sandboxed kernels need it: use one that "
    "belongs to another user, such as the system's"
)

# What the mode of a template ends with whose kernels are sandboxed (guest/birth/_template_main.py).
SANDBOXES = "-sandboxes"

PACKAGE = os.path.abspath(os.path.join(__file__, "..", "..", ".."))

# Runs the template of this very copy of the package, whatever is installed where it starts.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from kernelbox.guest.birth._template_main import main; del sys.path[0]; main(sys.argv[2:])"  # noqa: E501


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A request for a process, with the descriptors that go with it."""

    spawn: Spawn
    descriptors: dict[str, int]


@contextlib.contextmanager
def preparing(
    launch: Launch,
    entrances: Sequence[str],
    *,
    argv: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    confinement: Confinement | None = None,
    guard: bytes = b"",
) -> Iterator[SpawnRequest]:
    """Opens what a new process is given, by the names that Spawn has; the process has copies of it when this ends.

    `guard` is the filter of one that is to be guarded.
    """
    env = launch.environment if environment is None else environment
    spawn = Spawn(
        kernel_id=launch.record.kernel_id,
        directory=launch.directory.path,
        cwd=launch.record.cwd,
        umask=umask(),
        entrances=list(entrances),
        argv=list(argv),
        idle_timeout=launch.config.kernel_idle_timeout if launch.config.cull_idle else 0.0,
        limits=launch.record.limits,
        groups=launch.record.groups,
        disk_before=launch.disk_before,
        home=_inode_of_home(launch) if "disk" in launch.record.limits else 0,
    )
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(launch.directory.open())
        given = {
            "listener": stack.enter_context(listen(place, SOCKET, tell_senders=True)).fileno(),
            "directory": place.fd,
            "state": _closed_by(stack, create_state(place)),
            "log": _closed_by(stack, open_log(place, LOG)),
            "environment": _closed_by(stack, _write_environment(env)),
            "opening": launch.opening,
        }
        if launch.lifeline >= 0:
            given["lifeline"] = launch.lifeline
        for group in launch.record.groups:
            joined_by = os.open(f"{group}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            given[group_name(group)] = _closed_by(stack, joined_by)
        if confinement is not None:
            given["confinement"] = _closed_by(stack, write_secret("confinement", confinement.encode()))
        if guard:
            given["runner"] = stack.enter_context(listen(place, RUNNER)).fileno()
            given["filter"] = _closed_by(stack, write_secret("filter", guard))
        spawn.descriptors = list(given)
        yield SpawnRequest(spawn, given)


def _inode_of_home(launch: Launch) -> int:
    from kernelbox.host.engines._limiting import inode_of_home  # few kernels have limits

    return inode_of_home(launch.config.home, launch.record.cwd)


def spawn_cold(
    request: SpawnRequest, directory: KernelDirectory, environment: dict[str, str], *, apart: bool = False
) -> Spawned:
    """Starts a process under a keeper of its own; `apart` is that of `start_keeper`."""
    ours, theirs = socket.socketpair()
    with ours, theirs, directory.open() as place:
        mode = "program" if request.spawn.argv else f"cold{SANDBOXES}" if request.spawn.is_sandboxed else "cold"
        start_keeper([mode, str(theirs.fileno())], [theirs.fileno()], place, LOG, environment, apart=apart)
        theirs.close()
        answer = ask_for_process(ours, request)
        if answer is None:
            raise StartFailed(f"the kernel's process ended at once:\n{tail(place, LOG)}")
    return answer


def template_command(argv: Sequence[str]) -> list[str]:
    """Returns the arguments with which an interpreter runs the template."""
    return ["-P", "-c", _BOOT, os.path.dirname(PACKAGE), *argv]


def srt_parent_command(argv: Sequence[str]) -> list[str]:
    """Returns the command that runs the parent of srt, which needs no installed packages."""
    program = os.path.join(PACKAGE, "guest", "birth", "_srt_parent.py")
    return [sys.executable, "-S", "-P", program, os.path.dirname(PACKAGE), *argv]


def start_keeper(
    argv: list[str], fds: list[int], place: Place, log_name: str, env: dict[str, str], *, apart: bool = False
) -> None:
    """Starts a keeper and returns when it is on its own; it forks away from the process that is waited for.

    `apart` starts it apart from the interpreter's file, which its forks cannot reach then by /proc/self/exe.
    """
    import subprocess

    arguments, about = template_command(argv), _OWN if apart else ""
    with contextlib.ExitStack() as stack:
        log = _closed_by(stack, open_log(place, log_name))
        try:
            loader = stack.enter_context(copy_loader(interpreter())) if apart else None
            subprocess.run(
                [sys.executable, *arguments] if loader is None else loader_command(arguments),
                executable=None if loader is None else f"/proc/self/fd/{loader}",
                pass_fds=fds if loader is None else [*fds, loader],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=template_environment(env),
                cwd="/",
                start_new_session=True,
                check=True,
                timeout=ANSWER_PATIENCE,
            )
        except subprocess.SubprocessError as exc:
            words = tail(place, log_name)
            raise StartFailed(f"{sys.executable!r} did not start{about}; its last words:\n{words}") from exc
        except OSError as exc:
            if exc.errno in EXHAUSTED:
                raise
            raise StartFailed(f"cannot start {sys.executable!r}: {exc}{about}") from exc


def ask_for_process(client: socket.socket, request: SpawnRequest) -> Spawned | None:
    """Asks a keeper for a process; None if it ended instead of answering. Raises StartFailed if it refuses."""
    try:
        send_request(client, request)
        client.settimeout(ANSWER_PATIENCE)
        return receive_answer(client)
    except TimeoutError as exc:
        raise StartFailed(f"the kernel's keeper did not answer within {ANSWER_PATIENCE:g} s") from exc
    except OSError:
        return None


def send_request(client: socket.socket, request: SpawnRequest) -> None:
    """Sends a request to a keeper, with its descriptors."""
    client.settimeout(ANSWER_PATIENCE)
    data = encode(request.spawn)
    sent = socket.send_fds(client, [data], list(request.descriptors.values()))
    if sent < len(data):  # or a template that has answered and closed already would make this look like a failure
        client.sendall(data[sent:])


def receive_answer(client: socket.socket) -> Spawned | None:
    """Waits for a keeper's answer; None if it ended instead. Raises StartFailed if it refuses.

    A kernel whose keeper knows it by another number introduces itself before; the system says which process that is.
    """
    decoder, introduced = Decoder(), 0
    while (received := receive_from(client))[0]:
        piece, sender = received
        for message in decoder.feed(piece):
            if isinstance(message, Introduced):
                introduced = sender
            if isinstance(message, Spawned):
                return Spawned(introduced, message.start_time) if introduced else message
            if isinstance(message, Refused):
                raise StartFailed(f"the kernel could not be started: {message.reason}{_advice(message.reason)}")
    return None


def _advice(reason: str) -> str:
    """Returns what to do about a sandbox or a guard that could not be armed; "" about anything else."""
    if UNARMED not in reason and UNGUARDED not in reason:
        return ""
    from kernelbox.sandbox._advice import advise

    return f"; {advise(reason)}"


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


def open_log(place: Place, name: str) -> int:
    """Returns a descriptor that appends to a log."""
    return place.open_for_writing(name, os.O_APPEND)


def tail(place: Place, name: str, *, lines: int = 15) -> str:
    """Returns the last lines of a log."""
    try:
        text = place.tail(name, _LOG_TAIL).decode("utf-8", "replace")
    except OSError:
        return "(no log)"
    return escape("\n".join(text.splitlines()[-lines:]).rstrip(), keep="\n\t") or "(empty)"


def _closed_by(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _write_environment(env: dict[str, str]) -> int:
    """Returns a file with the variables in the form of environ(7)."""
    return write_secret("environment", b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items()))


def write_secret(name: str, data: bytes) -> int:
    """Returns a file that only descriptors lead to."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name)
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
        file.seek(0)
    return fd

"""Asks a keeper for a new process, over a socket, and sends descriptors of everything that the process needs.

The request contains no secrets, and no paths for the keeper to open. The environment, the files and the listening
socket are sent as descriptors, which only the forked child uses.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from kernelbox.base._environment import template_environment
from kernelbox.base._errors import EXHAUSTED, StartFailed
from kernelbox.base._text import escape
from kernelbox.host.files._sockets import listen, receive_from, send_descriptors
from kernelbox.host.process._loader import copy_loader, loader_command
from kernelbox.host.store._cell_files import open_cells
from kernelbox.host.store._state_file import create_state
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._layout import DOOR, LOG, RUNNER, SOCKET, STATE, UNARMED, UNGUARDED
from kernelbox.wire._messages import Introduced, Refused, Spawn, Spawned, group_name
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelbox.host.engines._interface import Launch
    from kernelbox.host.files._place import Place
    from kernelbox.wire._confinement import Confinement

# A template imports IPython and the preload list before it answers. On a loaded machine that takes a while.
ANSWER_PATIENCE = 60.0

# Bytes of a log to search for its last lines.
_LOG_TAIL = 16 * 1024

# Follows an error about an interpreter that cannot be run from a copy of the loader.
_OWN = (
    "; it belongs to this user, and could not be run apart from its file, as sandboxed kernels need it: use one that "
    "belongs to another user, such as the system's"
)

# The suffix of the mode of a template for sandboxed kernels (guest/birth/_template_main.py).
SANDBOXES = "-sandboxes"

PACKAGE = os.path.abspath(os.path.join(__file__, "..", "..", ".."))

# Runs the template of this copy of the package, even if another one is installed. Nothing else is looked for beside the
# package: cells may write there. Garbage is collected when all is imported, if at all: sooner it costs time and finds
# little, and later every child would fill the freed pages, and so copy them.
_LOAD = """\
import gc, importlib.util, sys
gc.disable()
spec = importlib.util.spec_from_file_location("kernelbox", sys.argv[1] + "/__init__.py")
sys.modules["kernelbox"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
del gc, spec, package
"""
_BUILD_PATH = "from kernelbox.guest.birth._own_path import build_path\nbuild_path(sys.argv.pop(2))\n"
_RUN = "from kernelbox.guest.birth._template_main import main\nmain(sys.argv[2:])"


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A request for a process, with its descriptors."""

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
    """Opens the descriptors for a new process, and closes them when the process has its copies.

    `guard` is the filter of a guarded kernel.
    """
    env = launch.environment if environment is None else environment
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(launch.directory.open())
        given = {
            "directory": place.fd,
            "environment": closed_by(stack, _write_environment(env)),
            "opening": launch.opening,
            **open_kernel_files(stack, place, launch.record.groups, logs_cells=not argv, has_door=not argv),
        }
        if launch.lifeline >= 0:
            given["lifeline"] = launch.lifeline
        if confinement is not None:
            given["confinement"] = closed_by(stack, write_secret("confinement", confinement.encode()))
        if guard:
            given["runner"] = stack.enter_context(listen(place, RUNNER)).fileno()
            given["filter"] = closed_by(stack, write_secret("filter", guard))
        yield SpawnRequest(_describe(launch, entrances, argv, list(given)), given)


def _describe(launch: Launch, entrances: Sequence[str], argv: Sequence[str], descriptors: list[str]) -> Spawn:
    record = launch.record
    return Spawn(
        kernel_id=record.kernel_id,
        directory=launch.directory.path,
        cwd=record.cwd,
        umask=umask(),
        entrances=list(entrances),
        argv=list(argv),
        descriptors=descriptors,
        idle_timeout=launch.config.kernel_idle_timeout if launch.config.cull_idle else 0.0,
        limits=record.limits,
        groups=record.groups,
        disk_before=launch.disk_before,
        home=inode_of_home(launch.config.home, record.cwd) if "disk" in record.limits else 0,
        name=record.name,
    )


def open_kernel_files(
    stack: contextlib.ExitStack,
    place: Place,
    groups: Sequence[str],
    *,
    ending: str = "",
    logs_cells: bool = True,
    has_door: bool = True,
) -> dict[str, int]:
    """Makes and opens the files of a kernel in its directory, and what joins its control groups; `stack` closes them.

    The names of the socket and the state file get an `ending` until an heir takes its place.
    """
    given = {
        "listener": stack.enter_context(listen(place, f"{SOCKET}{ending}", tell_senders=True)).fileno(),
        "state": closed_by(stack, create_state(place, f"{STATE}{ending}")),
        "log": closed_by(stack, open_log(place, LOG)),
    }
    if logs_cells:
        given["cells"], given["older cells"] = (closed_by(stack, fd) for fd in open_cells(place))
    if has_door and sys.platform == "linux":
        given["door"] = stack.enter_context(listen(place, DOOR)).fileno()
    for group in groups:
        joined_by = os.open(f"{group}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        given[group_name(group)] = closed_by(stack, joined_by)
    return given


def inode_of_home(home: str, cwd: str) -> int:
    """Returns the inode of a home; 0 if it is not on the file system of the working directory."""
    try:
        info, other = os.stat(home), os.stat(cwd)
    except OSError:
        return 0
    return info.st_ino if info.st_dev == other.st_dev else 0


def spawn_cold(request: SpawnRequest, launch: Launch) -> Spawned:
    """Starts a process under a keeper of its own."""
    ours, theirs = socket.socketpair()
    with ours, theirs, launch.directory.open() as place:
        mode = "program" if request.spawn.argv else f"cold{SANDBOXES}" if request.spawn.is_sandboxed else "cold"
        start_keeper(launch, [mode, str(theirs.fileno())], [theirs.fileno()], place, LOG)
        theirs.close()
        answer = None
        try:
            send_request(ours, request)
            answer = receive_answer(ours)
        except TimeoutError as exc:
            raise StartFailed(f"the kernel's keeper did not answer within {ANSWER_PATIENCE:g} s") from exc
        except OSError:
            pass  # the keeper has ended
        if answer is None:
            raise StartFailed(f"the kernel's process ended at once:\n{tail(place, LOG)}")
    return answer


def template_command(argv: Sequence[str], without: Sequence[str] = ()) -> list[str]:
    """Returns the arguments for an interpreter to run the template."""
    if argv[0] == "srt" or argv[0].endswith(SANDBOXES):  # with `site`, cells' code would have run before ours
        return ["-S", "-P", "-c", _LOAD + _BUILD_PATH + _RUN, PACKAGE, os.pathsep.join(without), *argv]
    return ["-P", "-c", _LOAD + _RUN, PACKAGE, *argv]


def srt_parent_command(argv: Sequence[str]) -> list[str]:
    """Returns the command that runs the parent of srt, which needs no installed packages."""
    program = os.path.join(PACKAGE, "guest", "birth", "_srt_parent.py")
    return [sys.executable, "-S", "-P", program, os.path.dirname(PACKAGE), *argv]


def start_keeper(launch: Launch, argv: list[str], fds: list[int], place: Place, log_name: str) -> None:
    """Starts the keeper of a launch, and returns when it has forked away from the process that this waits for."""
    import subprocess

    interpreter = launch.interpreter
    arguments, about = template_command(argv, launch.without), _OWN if launch.apart else ""
    with contextlib.ExitStack() as stack:
        log = closed_by(stack, open_log(place, log_name))
        try:
            loader = stack.enter_context(copy_loader(interpreter.program)) if launch.apart else None
            subprocess.run(
                [interpreter.executable, *arguments] if loader is None else loader_command(interpreter, arguments),
                executable=None if loader is None else f"/proc/self/fd/{loader}",
                pass_fds=fds if loader is None else [*fds, loader],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=template_environment(launch.environment),
                cwd="/",
                start_new_session=True,
                check=True,
                timeout=ANSWER_PATIENCE,
            )
        except subprocess.SubprocessError as exc:
            log_end = tail(place, log_name)
            raise StartFailed(f"{interpreter.executable!r} did not start{about}; its log ends:\n{log_end}") from exc
        except OSError as exc:
            if exc.errno in EXHAUSTED:
                raise
            raise StartFailed(f"cannot start {interpreter.executable!r}: {exc}{about}") from exc


def send_request(client: socket.socket, request: SpawnRequest) -> None:
    client.settimeout(ANSWER_PATIENCE)
    data = encode(request.spawn)
    sent = send_descriptors(client, data, list(request.descriptors.values()))
    if sent < len(data):  # an empty send would fail if the template has already answered and closed
        client.sendall(data[sent:])


def receive_answer(client: socket.socket) -> Spawned | None:
    """Waits for a keeper's answer; None if the keeper ended without one. Raises StartFailed if it refuses.

    If the keeper sees another pid than the host, the kernel introduces itself first, and the system tells its pid.
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
    """Returns what to do if a sandbox or a guard could not be set up; "" for any other reason."""
    if UNARMED not in reason and UNGUARDED not in reason:
        return ""
    from kernelbox.sandbox._advice import advise

    return f"; {advise(reason)}"


def umask() -> int:
    """Returns the umask; on Linux without changing it for a moment, which other threads would see."""
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
    return place.open_for_writing(name, os.O_APPEND)


def tail(place: Place, name: str, *, lines: int = 15) -> str:
    try:
        text = place.tail(name, _LOG_TAIL).decode("utf-8", "replace")
    except OSError:
        return "(no log)"
    return escape("\n".join(text.splitlines()[-lines:]).rstrip(), keep="\n\t") or "(empty)"


def closed_by(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _write_environment(env: dict[str, str]) -> int:
    """Returns a descriptor of a file with the variables in the format of environ(7)."""
    return write_secret("environment", b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items()))


def write_secret(name: str, data: bytes) -> int:
    """Returns a descriptor of a file that has no path."""
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

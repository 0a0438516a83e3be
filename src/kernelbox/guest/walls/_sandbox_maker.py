"""The maker: a process beside a template that makes sandboxes, for kernels that the template forks into them.

    template ─fork→ maker ─spawn→ first   pid 1 of a sandbox: when it ends the system ends all that is in there
       └─fork→ kernel                     pid 2: enters (`guest/walls/_confine.py`)

Namespaces belong to threads: the maker has one for each sandbox that it makes, which enters namespaces of its own,
starts the first process in them, builds what is seen, and ends. That copies no memory; a process for each would.

The maker and the template are in a user namespace of their own, whose capabilities reach no further than what is made
in it. The first process waits at a pipe whose other end the kernel holds, so that it does not outlive the kernel when
the template is gone; or the template, if that looks after limits which the kernel must not be without.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import signal
import socket
import struct
import threading
import traceback
from dataclasses import dataclass
from typing import NoReturn

from kernelbox.guest._descriptors import Descriptors, close, read_all, read_file
from kernelbox.guest._process_title import show_role
from kernelbox.guest.walls import _system_calls as _calls
from kernelbox.guest.walls._file_view import build_view
from kernelbox.guest.walls._system_calls import Unarmed
from kernelbox.wire._confinement import Confinement
from kernelbox.wire._layout import MAKER, PACKAGES

_NAMESPACES = _calls.CLONE_NEWNS | _calls.CLONE_NEWPID | _calls.CLONE_NEWIPC | _calls.CLONE_NEWUTS

# What the template asks for: a number of its own choice, and whether to make a network. With it come what the kernel is
# confined to, and what the first process waits at.
_ASKED = struct.Struct("q?")

# The answer: that number, and the first process. With it come the pipe that `read_told` reads, and a descriptor of the
# first process. If that could not be started the number is 0, and why follows.
_MADE = struct.Struct("qi")
_LONGEST_REASON = 4000

_FD = struct.Struct("i")

# What is told to a kernel begins with this, and has that between paths and the filter.
_DONE, _FILTER = "done", b"\0\0"

# What the first process finds in its pipe.
GREETING = b"!"

# Reads its input until it ends, and takes a tenth of a megabyte; where systems have it, NixOS at the last. No other
# place is looked at: a cell must not choose what runs here.
FIRST = ("/bin/cat", "/usr/bin/cat", "/run/current-system/sw/bin/cat")

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


@dataclass(frozen=True, slots=True)
class Made:
    """A sandbox: its first process, by its pid and by the descriptor `first process`, and `told`, where the kernel that
    is to enter reads what was made; or, if there is no first process, why not."""

    number: int
    first: int
    opened: Descriptors
    reason: str = ""


class Maker:
    """The maker as its template has it."""

    def __init__(self) -> None:
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            _serve(theirs)
        theirs.close()
        self._process = os.pidfd_open(self.pid)

    def close(self) -> None:
        self.link.close()
        os.close(self._process)

    def ask(self, number: int, confinement: int, waits: int, *, own_network: bool) -> None:
        """Asks for a sandbox; raises OSError if the maker has ended."""
        signal.pidfd_send_signal(self._process, signal.SIGCONT)  # it may have been stopped
        socket.send_fds(self.link, [_ASKED.pack(number, own_network)], [confinement, waits])

    def take(self) -> Made | None:
        """Takes a sandbox that has been made; None if the maker has ended."""
        try:
            data, fds = _receive(self.link, _MADE.size + _LONGEST_REASON)
        except ConnectionResetError:
            return None
        if len(data) < _MADE.size:
            return None
        number, first = _MADE.unpack_from(data)
        if first and len(fds) == 2:
            told, process = fds
            return Made(number, first, Descriptors({"first process": process, "told": told}))
        close(*fds)
        reason = data[_MADE.size :].decode("utf-8", "replace")
        return Made(number, 0, Descriptors(), reason or "its template has too many files open")


def _receive(link: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Takes a message and its two descriptors. A program that another thread starts meanwhile does not inherit them."""
    data, ancillary, _, _ = link.recvmsg(size, socket.CMSG_SPACE(2 * _FD.size), socket.MSG_CMSG_CLOEXEC)
    return data, [fd for _, _, given in ancillary for (fd,) in _FD.iter_unpack(given)]


def _serve(link: socket.socket) -> NoReturn:
    """Makes sandboxes until the template has ended."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps
        _calls.close_but((0, 1, 2, link.fileno()))
        with open("/proc/self/comm", "w") as file:
            file.write(MAKER)
        show_role("maker of sandboxes")
        gc.enable()
        while True:
            data, fds = _receive(link, _ASKED.size)
            if len(data) < _ASKED.size:
                break
            number, own_network = _ASKED.unpack(data)
            try:
                if len(fds) < 2:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                confinement, waits = fds
                args = (link, number, own_network, confinement, waits)
                threading.Thread(target=_make, args=args, daemon=True).start()
            except (OSError, RuntimeError) as exc:  # there may be too many threads
                close(*fds)
                _refuse(link, number, exc)
    except BaseException:  # noqa: BLE001  # nothing above this frame belongs to the maker
        traceback.print_exc()
    finally:
        os._exit(0)


def _make(link: socket.socket, number: int, own_network: bool, confinement: int, waits: int) -> None:
    """Makes a sandbox in the calling thread, which ends then.

    It answers when there is a first process: while it builds what is seen, the template forks the kernel.
    """
    opened = [confinement, waits]
    try:
        _calls.unshare(_NAMESPACES | (_calls.CLONE_NEWNET if own_network else 0))
        _calls.drop_bounding_set()
        _calls.forbid_new_privileges()
        for _ in range(2):
            opened += os.pipe()
        _, _, told, tell, heard, says = opened
        first = _start_first(waits, says)
        process = os.pidfd_open(first)
    except Exception as exc:  # noqa: BLE001  # the opener is told in any case
        close(*opened)
        _refuse(link, number, exc)
        return
    _answer(link, number, first, told, process)
    close(waits, says)
    try:
        _wait_for_first(heard)
        _tell(tell, _furnish(Confinement.decode(read_file(confinement)), own_network))
    except Exception as exc:  # noqa: BLE001  # as above
        _tell(tell, _describe(exc))
    os.close(heard)


def _answer(link: socket.socket, number: int, first: int, *fds: int) -> None:
    with contextlib.suppress(OSError):  # the template has ended
        socket.send_fds(link, [_MADE.pack(number, first)], fds)
    close(*fds)


def _refuse(link: socket.socket, number: int, exc: Exception) -> None:
    with contextlib.suppress(OSError):  # as above
        link.send(_MADE.pack(number, 0) + _describe(exc)[:_LONGEST_REASON])


def _tell(tell: int, what: bytes) -> None:
    """Tells the kernel, and closes the pipe."""
    with contextlib.suppress(BrokenPipeError), open(tell, "wb", buffering=0) as pipe:  # it may have been killed
        while what:
            what = what[pipe.write(what) :]


def _describe(exc: Exception) -> bytes:
    reason = str(exc) if isinstance(exc, Unarmed) else f"{type(exc).__name__}: {exc}"
    return reason.encode("utf-8", "replace")


def _furnish(confinement: Confinement, own_network: bool) -> bytes:
    """Builds the files and the loopback network of a sandbox; returns what `read_told` reads."""
    if own_network:
        _raise_loopback()
    build_view(confinement)
    os.makedirs(f"{confinement.scratch}/{PACKAGES}")
    for path, target in confinement.links.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    writable = {"/dev", *(mount.path for mount in confinement.mounts if mount.kind in ("write", "private"))}
    return b"\0".join(map(os.fsencode, (_DONE, confinement.scratch, *writable))) + _FILTER + confinement.filter


def read_told(told: int) -> tuple[str, list[str], bytes]:
    """Returns what a kernel is told when its sandbox is done: its scratch directory, where it may write, its filter.

    Raises RuntimeError if the sandbox could not be made.
    """
    paths, _, program = read_all(told).partition(_FILTER)
    done, *texts = map(os.fsdecode, paths.split(b"\0"))
    if done != _DONE:
        raise RuntimeError(done or "the process that makes its sandbox has ended")
    scratch, *writable = texts
    return scratch, writable, program


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        except OSError as exc:
            raise Unarmed("loopback", exc) from exc


def _start_first(waits: int, says: int) -> int:
    """Starts the first process, which copies to `says` what it reads. It has nothing else open, for cells to reach."""
    dup2 = os.POSIX_SPAWN_DUP2
    actions = ((dup2, waits, 0), (dup2, says, 1), (dup2, waits, 2))  # of errors it has nothing to say, and no place
    for program in FIRST:
        try:
            return os.posix_spawn(program, ["cat"], {}, file_actions=actions, setsid=True)
        except OSError as exc:
            failed = exc
    raise Unarmed("start cat", failed) from failed


def _wait_for_first(heard: int) -> None:
    """Waits until the first process has copied what is in its pipe: then it has loaded its libraries, which what is
    mounted next may hide."""
    if os.read(heard, len(GREETING)) != GREETING:
        raise Unarmed("start cat", ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)))

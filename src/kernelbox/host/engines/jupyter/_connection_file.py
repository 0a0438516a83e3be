"""The files that lead to a Jupyter kernel.

    jupyter.json    Jupyter's connection file, which the kernel reads at its start; other Jupyter clients may too
    link.json       the same for kernelbox, with the kernelspec's interrupt mode and language
    zmq-1 … zmq-5   the sockets

The sockets are in the kernel's own directory, which no other user may enter. If its path is too long for a socket
address, the kernel is given a short link to it, until it has bound its sockets.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import tempfile
from dataclasses import asdict, dataclass

from kernelbox.base._errors import StoreFailed
from kernelbox.wire._layout import JUPYTER, LINK, ZMQ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kernelbox.host.engines._kernelspecs import JupyterSpec
    from kernelbox.host.store._kernel_directory import KernelDirectory

# More than enough for a key, five numbers and three words.
_LONGEST_LINK = 64 * 1024

_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")

# The channels that every cell needs.
_NEEDED = ("iopub", "shell")

# sun_path has 108 bytes on Linux and 104 on macOS; this leaves room for the number of a socket.
_LONGEST_PATH = 98


@dataclass(frozen=True, slots=True)
class JupyterLink:
    """What a client must know to talk to a kernel. `ports` are the numbers of the sockets, or TCP ports."""

    transport: str
    ports: dict[str, int]
    key: str
    interrupt_mode: str
    language: str

    @classmethod
    def read(cls, directory: KernelDirectory) -> JupyterLink:
        """Reads the file that `create_link` wrote; raises OSError."""
        try:
            with directory.open() as place:
                return cls(**json.loads(place.read(LINK, _LONGEST_LINK)))
        except (ValueError, TypeError, RecursionError) as exc:
            raise ConnectionRefusedError(f"{directory.path_of(LINK)!r} is damaged") from exc

    @property
    def sockets(self) -> list[str]:
        """The socket files that every cell needs; none with TCP."""
        return [] if self.transport == "tcp" else [f"{ZMQ}-{self.ports[channel]}" for channel in _NEEDED]

    def address(self, directory: str, channel: str) -> str:
        """Returns the address of a channel; `directory` is a path to the kernel's directory."""
        if self.transport == "tcp":
            return f"tcp://127.0.0.1:{self.ports[channel]}"
        return f"ipc://{os.path.join(directory, ZMQ)}-{self.ports[channel]}"


def entrances(directory: KernelDirectory) -> list[str]:
    """Returns the files that a client needs; raises OSError."""
    return [LINK, *JupyterLink.read(directory).sockets]


@contextlib.contextmanager
def create_link(directory: KernelDirectory, spec: JupyterSpec) -> Iterator[str]:
    """Writes the files for a new process, and yields the path of the connection file until the kernel answers.

    Raises StoreFailed if other users could make that path lead to their own files.
    """
    _require_unmovable(directory.path)
    with directory.open() as place, _shortened(directory.path) as short:
        for number in range(1, len(_CHANNELS) + 1):
            place.remove_tree(f"{ZMQ}-{number}")
        transport = "tcp" if short is None else spec.transport
        ports = _free_ports() if transport == "tcp" else range(1, len(_CHANNELS) + 1)
        link = JupyterLink(
            transport=transport,
            ports=dict(zip(_CHANNELS, ports, strict=True)),
            key=os.urandom(32).hex(),
            interrupt_mode=spec.interrupt_mode,
            language=spec.language,
        )
        place.replace(LINK, json.dumps(asdict(link)).encode())
        place.replace(JUPYTER, json.dumps(_connection_info(link, spec, short or "")).encode())
        yield directory.path_of(JUPYTER)


@contextlib.contextmanager
def reachable_directory(directory: KernelDirectory) -> Iterator[str]:
    """Yields a path to the kernel's directory for sockets; with /proc it goes through a descriptor."""
    with directory.open() as place:
        yield f"/proc/self/fd/{place.fd}" if os.path.isdir("/proc/self/fd") else directory.path


def _connection_info(link: JupyterLink, spec: JupyterSpec, directory: str) -> dict[str, Any]:
    return {
        "transport": link.transport,
        "ip": "127.0.0.1" if link.transport == "tcp" else os.path.join(directory, ZMQ),
        **{f"{channel}_port": port for channel, port in link.ports.items()},
        "key": link.key,
        "signature_scheme": "hmac-sha256",
        "kernel_name": spec.name,
    }


def _require_unmovable(path: str) -> None:
    """Checks that no other user can rename the directories above a path, because the kernel opens the path itself.

    The group of this process may: systems with a group for each user have the umask 002.
    """
    at = os.path.realpath(path)
    while at != "/":
        at = os.path.dirname(at)
        info = os.stat(at)
        writable = info.st_mode & stat.S_IWOTH or (info.st_mode & stat.S_IWGRP and info.st_gid != os.getegid())
        if info.st_uid not in (0, os.geteuid()) or (writable and not info.st_mode & stat.S_ISVTX):
            raise StoreFailed(
                f"other users can rename entries of {at!r} (uid {info.st_uid}, mode {stat.S_IMODE(info.st_mode):o}), "
                "so no Jupyter kernel is started with a path below it; set KERNELBOX_HOME to a directory elsewhere"
            )


@contextlib.contextmanager
def _shortened(directory: str) -> Iterator[str | None]:
    """Yields a path to a directory that is short enough for sockets; None if there is none."""
    if _fits(directory):
        yield directory
        return
    for parent in (tempfile.gettempdir(), "/tmp"):
        link = os.path.join(parent, f"kernelbox-{os.urandom(8).hex()}")
        if _fits(link) and os.path.isdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                os.symlink(directory, link)
                break
    else:
        yield None
        return
    try:
        yield link
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(link)


def _fits(directory: str) -> bool:
    return len(os.fsencode(os.path.join(directory, ZMQ))) <= _LONGEST_PATH


def _free_ports() -> list[int]:
    """Returns loopback ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in _CHANNELS]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in socks]

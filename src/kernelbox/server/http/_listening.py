"""How an HTTP server listens, and how many files its process may open."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator

import uvicorn

from kernelbox.base._endpoint import join_address
from kernelbox.base._errors import StartFailed

# Clients that wait to be accepted: bursts of them come at once.
BACKLOG = 2048

# Descriptors: thousands of streams, and a thousand kernels.
_DESCRIPTORS = 65_536


class UvicornServer(uvicorn.Server):
    """Leaves signals to us: cells and kernels end before connections are closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens; port 0 lets the system choose one. Raises StartFailed."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(BACKLOG)  # now: clients that read the address may connect at once
        except BaseException:
            listener.close()
            raise
    except OSError as exc:
        where_to = join_address(host, port)
        raise StartFailed(f"cannot listen at {where_to}: {exc.strerror or exc}; choose another address") from exc
    return listener


def allow_descriptors() -> None:
    """Lets this process open more files, where the system does: each connection and each kernel takes some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS has a limit below what it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def require_overridden(*protocols: type) -> None:
    """Raises StartFailed if uvicorn has lost a method that one of our protocols limits clients in.

    They are not public API: another version could have other names for them, and the limits would be gone.
    """
    for protocol in protocols:
        ours = [name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_")]
        gone = [name for name in ours if not any(hasattr(base, name) for base in protocol.__bases__)]
        if gone:
            advice = "choose a version that kernelbox's tests have run with, such as 0.54"
            raise StartFailed(f"uvicorn {uvicorn.__version__} does not have {', '.join(gone)}; {advice}")

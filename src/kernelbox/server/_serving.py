"""The life of a server: where it listens, what it says first, and how it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn

from kernelbox.base._errors import StartFailed
from kernelbox.server._options import ServiceOptions
from kernelbox.server._tokens import Token
from kernelbox.server.app import create_app

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Binding:
    """Where to listen: at an address, whose port 0 lets the system choose one, or at a Unix socket."""

    host: str
    port: int
    uds: str | None = None

    @property
    def is_private(self) -> bool:
        """Whether only this machine's users, or this user, can reach it."""
        return self.uds is not None or self.host in _LOOPBACK

    def __str__(self) -> str:
        if self.uds is not None:
            return f"unix:{self.uds}"
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def serve(options: ServiceOptions, binding: Binding, *, grace: float, log_level: str) -> int:
    """Serves until a signal ends us; prints the URL and, if it made one, the token."""
    secret = None
    if not options.tokens and not binding.is_private:
        secret = os.urandom(24).hex()
        options = dataclasses.replace(options, tokens=(Token.of(secret),))
    app = create_app(options)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level=log_level.lower(),
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=round(grace) + 1,
    )
    with _listening(binding) as (listener, bound):
        print(json.dumps({"url": str(bound), **({"token": secret} if secret else {})}), flush=True)
        if not binding.is_private:
            print("kernelbox: warning: the token crosses the network unencrypted; put TLS in front", file=sys.stderr)
        uvicorn.Server(config).run(sockets=[listener])
    return 0


@contextlib.contextmanager
def _listening(binding: Binding) -> Iterator[tuple[socket.socket, Binding]]:
    listener = _listen(binding)
    try:
        port = binding.port if binding.uds is not None else listener.getsockname()[1]
        yield listener, dataclasses.replace(binding, port=port)
    finally:
        listener.close()
        if binding.uds is not None:
            with contextlib.suppress(OSError):
                os.unlink(binding.uds)


def _listen(binding: Binding) -> socket.socket:
    try:
        if binding.uds is not None:
            return _listen_at_path(binding.uds)
        family, _, _, _, where = socket.getaddrinfo(binding.host, binding.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(2048)  # now: who reads the address may connect at once
        except BaseException:
            listener.close()
            raise
    except OSError as exc:
        raise StartFailed(f"cannot listen at {binding}: {exc.strerror or exc}; choose another address") from exc
    return listener


def _listen_at_path(path: str) -> socket.socket:
    """Listens at a path that only this user can connect to; a socket that nobody serves any more is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_unserved(path)
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(2048)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_unserved(path: str) -> None:
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    except FileNotFoundError:
        pass

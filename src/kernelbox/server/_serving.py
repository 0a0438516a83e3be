"""The life of a server: how it starts to listen, what it prints, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI

from kernelbox.base._environment import host_variable
from kernelbox.base._errors import StartFailed
from kernelbox.mcp._client_config import PATH
from kernelbox.mcp._client_config import TOKEN_VARIABLE as MCP_TOKEN_VARIABLE
from kernelbox.server._service_options import ServiceOptions
from kernelbox.server.app import create_app, create_mcp_app
from kernelbox.server.http._binding import Binding
from kernelbox.server.http._callers import Token
from kernelbox.server.http._listening import BACKLOG, UvicornServer, allow_descriptors, listen, require_overridden
from kernelbox.server.http._logs import is_for_people, log_to_stderr
from kernelbox.server.http._protocol import BoundedProtocol
from kernelbox.server.http._websocket_protocol import PING_INTERVAL, PING_TIMEOUT, BoundedWebSocket
from kernelbox.server.routes._app_state import AppState, require_home, require_sandbox

if TYPE_CHECKING:
    from kernelbox.mcp._mcp_options import McpOptions
    from kernelbox.mcp._mount import McpMount

# Seconds that a connection without a request is kept: an agent thinks between two of them.
_KEEP_ALIVE = 75

# Seconds that answers have to be sent, once all cells have ended.
_LAST_ANSWERS = 2

# New objects that make Python look for cycles among them: some ten megabytes, if all were garbage.
_OBJECTS = 20_000

_log = logging.getLogger("kernelbox.server")


def serve(
    options: ServiceOptions, binding: Binding, *, grace: float, log_level: str, lifeline: int | None = None
) -> int:
    """Serves until a signal ends us; prints the URL and, if it made one, the token.

    `lifeline` is a descriptor that becomes readable when the process that we must not outlive has ended.
    """
    told = {}
    if not options.tokens and not binding.is_private:
        told["token"] = os.urandom(24).hex()
        options = dataclasses.replace(options, tokens=(Token.of(told["token"]),))
    log_to_stderr(log_level)
    return _serve(create_app(options), binding, told, grace=grace, lifeline=lifeline)


def serve_mcp(options: McpOptions, binding: Binding, *, allowed_hosts: tuple[str, ...] = ()) -> int:
    """Serves MCP alone until a signal ends us; prints the URL and, if it made one, the token that all need."""
    given = host_variable(MCP_TOKEN_VARIABLE)
    told = {} if given else {"token": os.urandom(24).hex()}
    service = ServiceOptions(
        workspace=options.workspace,
        tokens=(Token.of(given or told["token"], name=MCP_TOKEN_VARIABLE),),
        allowed_hosts=allowed_hosts,
        lifetime="kernel" if options.keep_kernels else "process",
        sandbox=options.sandbox,
        mcp=options,
        max_kernels=0,
        max_queue=0,  # the tools have limits of their own
        max_running=0,
    )
    log_to_stderr(options.log_level)
    return _serve(create_mcp_app(service), binding, told, path=PATH, grace=0.0)


def _serve(
    app: FastAPI, binding: Binding, told: dict[str, str], *, path: str = "", grace: float, lifeline: int | None = None
) -> int:
    """Serves an application; prints its URL with the path in it, and the other fields of `told`."""
    state: AppState = app.state.kernelbox
    require_overridden(BoundedProtocol, BoundedWebSocket)
    allow_descriptors()
    require_home()
    require_sandbox(state)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=BoundedProtocol,
        ws="none" if path else BoundedWebSocket,
        ws_max_size=state.options.max_body,
        ws_per_message_deflate=False,  # it takes ten times as long as sending, and all connections wait meanwhile
        ws_ping_interval=PING_INTERVAL,
        ws_ping_timeout=PING_TIMEOUT,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_LAST_ANSWERS,
    )
    with _listening(binding) as (listener, bound):
        if app.state.own_token is not None:
            app.state.own_token.make()  # first: a client that reads the address finds the token too
        if binding.uds is not None and path:
            told = {"path": path, **told}
        url = f"{bound}{path}" if binding.uds is None else str(bound)
        _tell({"url": url, **told}, explained=not path and binding.uds is None)
        if not binding.is_private:
            _log.warning("tokens cross the network unencrypted; put TLS in front")
        _collect_seldom()
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_run(UvicornServer(config), listener, app, grace, lifeline))
    return 0


def _tell(told: dict[str, str], *, explained: bool) -> None:
    """Prints where the server listens, and what a client needs: as a document, or for people on a terminal."""
    if not is_for_people(sys.stdout):
        print(json.dumps(told), flush=True)
        return
    url, *more = told.items()
    print(f"serving {url[1]}{', explained at /docs' if explained else ''}; Ctrl-C ends it")
    for name, value in more:
        print(f"{name}: {value}")
    sys.stdout.flush()


def _collect_seldom() -> None:
    """Makes the garbage collector run less often: it took a seventh of the server's time.

    What is imported stays anyway, and what many requests at once need for a moment is more than Python's 700 objects.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS)


async def _run(
    server: uvicorn.Server, listener: socket.socket, app: FastAPI, grace: float, lifeline: int | None
) -> None:
    """Serves until a signal comes; then lets cells end, and logs how many did.

    A second signal interrupts them at once. Until they have ended, requests that start nothing are still answered.
    """
    state: AppState = app.state.kernelbox
    mount: McpMount | None = app.state.mcp
    loop, signals = asyncio.get_running_loop(), _Signals()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, signals.take)
    if lifeline is not None:
        loop.add_reader(lifeline, signals.hurry)
    serving, first = (
        asyncio.ensure_future(server.serve(sockets=[listener])),
        asyncio.ensure_future(signals.first.wait()),
    )
    await asyncio.wait({serving, first}, return_when=asyncio.FIRST_COMPLETED)
    first.cancel()
    if not serving.done():
        drains = [state.executions.drain, state.front_ends.drain, *([] if mount is None else [mount.drain])]
        ended = await asyncio.gather(*(drain(grace, hurry=signals.second) for drain in drains))
        finished, interrupted = map(sum, zip(*ended, strict=True))
        kernels = "end with it" if state.options.lifetime == "process" else "stay, and are found again"
        await state.jobs.settle()
        _log.info(
            f"stopping: kernels {kernels}",
            extra={"cells_finished": finished, "cells_interrupted": interrupted},
        )
        server.should_exit = True
        if mount is not None:
            await asyncio.wait({serving}, timeout=_LAST_ANSWERS / 2)
            mount.end_requests()
    await serving
    if mount is not None:
        await mount.close()
    await state.front_ends.close()
    await state.kernels.close_tools()
    await state.kernels.end_own()


class _Signals:
    """The first signal asks us to stop, the second to stop at once."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def take(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    def hurry(self) -> None:
        self.first.set()
        self.second.set()


@contextlib.contextmanager
def _listening(binding: Binding) -> Iterator[tuple[socket.socket, Binding]]:
    listener = _listen_at_path(binding.uds) if binding.uds is not None else listen(binding.host, binding.port)
    try:
        port = binding.port if binding.uds is not None else listener.getsockname()[1]
        yield listener, dataclasses.replace(binding, port=port)
    finally:
        listener.close()
        if binding.uds is not None:
            with contextlib.suppress(OSError):
                os.unlink(binding.uds)


def _listen_at_path(path: str) -> socket.socket:
    """Listens at a path that only this user can connect to; a socket that no process serves any more is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_unserved(path)
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
    except OSError as exc:
        listener.close()
        raise StartFailed(f"cannot listen at unix:{path}: {exc.strerror or exc}; choose another address") from exc
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

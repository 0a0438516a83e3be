"""MCP over HTTP, as one path of the HTTP service: a server of tools for each caller, made at its first request.

Host, origin, token and size of a request have been checked before it comes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Message, Receive, Scope, Send

from kernelbox.mcp._client_config import PATH
from kernelbox.mcp._mcp_options import LARGEST_MESSAGE, McpOptions
from kernelbox.mcp._mcp_server import make_server, make_state
from kernelbox.mcp.toolsets._tool_definition import GONE
from kernelbox.server.http._access import CALLER, folder_of
from kernelbox.server.http._callers import SCOPES, Caller
from kernelbox.server.http._failures import RequestRefused
from kernelbox.server.http._logs import FIELDS
from kernelbox.server.http._request_limits import check_values, read_body, replay
from kernelbox.server.jobs._draining import Drained, drain, wait_for_end

if TYPE_CHECKING:
    from kernelbox.shells._asyncio_workplace import Noted

# Sessions of the older protocol that the clients of one caller may have; one that is not used for half an hour ends.
_MOST_SESSIONS = 1_000

# Seconds that interrupted cells have to end, before their kernels are ended.
_LAST_CELLS = 1.0

_DISCONNECT: Message = {"type": "http.disconnect"}


class McpMount:
    """An ASGI application that answers MCP requests; callers with a name have their own kernels and folder."""

    def __init__(self, options: McpOptions, noted: Noted | None = None, *, most: int = 0) -> None:
        """`noted` holds a place for each cell in the limits and metrics of the service, and `most` bounds kernels."""
        self._options = options
        self._noted = noted
        self._most = most
        self._servers: dict[str, _CallerServer] = {}
        self._stopping = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves sessions until it is left; what every client without a name uses is made at once."""
        await self._server_of(Caller()).started.wait()
        try:
            yield
        finally:
            self.end_requests()
            await asyncio.gather(*(server.ended() for server in self._servers.values()))

    async def drain(self, grace: float, *, hurry: asyncio.Event) -> Drained:
        """Returns when the cells that run have ended, after `grace` seconds or `hurry` because of an interrupt.

        Kernels that are the server's own end with it, so their cells are interrupted at once.
        """
        jobs = [job for server in self._servers.values() for job in server.state.workplace.running()]
        if self._options.keep_kernels:
            return await drain([job.cell for job in jobs], grace, hurry=hurry)
        for job in jobs:
            job.cancel()
        ending = [asyncio.ensure_future(job.cell.until_ended()) for job in jobs]
        await wait_for_end(ending, _LAST_CELLS, hurry)
        for waiting in ending:
            waiting.cancel()
        return 0, len(jobs)

    def end_requests(self) -> None:
        """Ends the requests that are left, as if their clients had disconnected.

        Streams of events have no other end, and cancelling them looks like a failure in the log.
        """
        self._stopping.set()

    async def close(self) -> None:
        """Ends what runs, and the kernels that are the server's own."""
        await asyncio.gather(*(server.state.workplace.stop() for server in self._servers.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope[CALLER]
        if caller.scopes != SCOPES:
            raise RequestRefused(403, "scope_missing", "MCP needs a token with the scopes read, run and manage")
        if caller.name:
            scope[FIELDS]["caller"] = caller.name
        if scope["method"] == "POST":
            body = await read_body(receive)
            check_values(body)
            receive = replay(body, receive)
        server = self._server_of(caller)
        await server.started.wait()
        await self._pass_on(server, scope, receive, send)

    async def _pass_on(self, server: _CallerServer, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; an event in its scope tells the tools when the client has gone.

        Without that, tools would run on in the older protocol. No events are stored, so their answers would be lost.
        """
        gone, sent = asyncio.Event(), set[str]()

        async def watched() -> Message:
            message = await self._receive(receive)
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        async def noting(message: Message) -> None:
            sent.add("end" if message["type"] == "http.response.body" and not message.get("more_body") else "start")
            await send(message)

        await server.answer({**scope, "headers": _cleaned(scope["headers"]), GONE: gone}, watched, noting)
        if self._stopping.is_set() and "end" not in sent:
            if not sent:
                await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _receive(self, receive: Receive) -> Message:
        """Returns what the client sends next; the end of the server is the end of the client."""
        receiving = asyncio.ensure_future(receive())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else _DISCONNECT
        finally:
            receiving.cancel()
            stopping.cancel()

    def _server_of(self, caller: Caller) -> _CallerServer:
        if caller.name not in self._servers:
            options = dataclasses.replace(self._options, workspace=folder_of(self._options.workspace, caller))
            self._servers[caller.name] = _CallerServer(options, caller, self._noted, self._most)
        return self._servers[caller.name]


class _CallerServer:
    """The tools of one caller, and the sessions of its clients, which no other caller can use."""

    def __init__(self, options: McpOptions, caller: Caller, noted: Noted | None, most: int) -> None:
        self.state = make_state(options, prefix=caller.prefix, noted=noted, most=most)
        server = make_server(self.state)
        server.streamable_http_app(
            streamable_http_path=PATH,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # it has been checked
            max_request_body_size=LARGEST_MESSAGE,
            max_sessions=_MOST_SESSIONS,
        )
        self._sessions = server.session_manager
        self.answer = self._sessions.handle_request
        self.started = asyncio.Event()  # when requests can be answered
        self._ending = asyncio.Event()
        self._serving = asyncio.ensure_future(self._serve())  # in a task: a task group ends where it began

    async def _serve(self) -> None:
        async with self._sessions.run():
            self.started.set()
            await self._ending.wait()

    async def ended(self) -> None:
        """Ends all sessions."""
        self._ending.set()
        await self._serving


def _cleaned(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns headers without blanks around their values, which are not part of them (RFC 9110, 5.5).

    A stream that a client wants to resume is a new one, because no events are stored; the SDK would not answer.
    """
    return [(name, value.strip(b" \t")) for name, value in headers if name != b"last-event-id"]

"""The server over streamable HTTP: a token for every request, and no request that a web page could have made."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kernelbox.base._endpoint import check_token
from kernelbox.base._environment import host_variable
from kernelbox.mcp._client_config import PATH, TOKEN_VARIABLE, Address
from kernelbox.mcp._http_requests import Requests, WholeMessages
from kernelbox.mcp._mcp_options import LARGEST_MESSAGE, McpOptions
from kernelbox.mcp._mcp_server import make_server, make_state, run_until_ended
from kernelbox.server.http._listening import LOOPBACK, UvicornServer, allow_descriptors, listen
from kernelbox.server.http._protocol import BoundedProtocol

# Seconds that requests have to end when the server stops; their cells have been interrupted by then.
_GRACE = 1

# Clients of the older protocol that have a session; one that is not used for half an hour is forgotten.
_MOST_SESSIONS = 1_000

# Connections; each can hold a message, and more of them are refused.
_MOST_CONNECTIONS = 1_000


def serve_http(options: McpOptions, address: Address, allowed_hosts: tuple[str, ...] = ()) -> int:
    """Serves any number of clients until a signal ends us; prints the URL and, if it made one, the token."""
    given = host_variable(TOKEN_VARIABLE)
    token = check_token(given, TOKEN_VARIABLE) if given else os.urandom(24).hex()
    allow_descriptors()
    listener = listen(address.host, address.port)
    bound = Address(address.host, listener.getsockname()[1])
    state = make_state(options)
    app = _make_app(make_server(state), bound, allowed_hosts)
    requests = Requests(TokenRequired(WholeMessages(app), token))
    config = uvicorn.Config(
        requests,
        log_level="error",  # what it warns of is what clients send, also those without the token
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=BoundedProtocol,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=2 * _GRACE,
        ws="none",
    )
    print(json.dumps({"url": f"http://{bound}{PATH}", **({} if given else {"token": token})}), flush=True)
    if bound.host not in LOOPBACK:
        print("kernelbox: warning: the token crosses the network unencrypted; put TLS in front", file=sys.stderr)
    return run_until_ended(state, _serve(UvicornServer(config), listener, requests), grace=3 * _GRACE)


async def _serve(server: uvicorn.Server, listener: socket.socket, requests: Requests) -> None:
    """Serves until it is cancelled; then takes no more requests, and ends those that do not end."""
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await asyncio.wait({serving}, timeout=_GRACE)
        requests.stop()
        await serving
        raise


class TokenRequired:
    """Passes on requests that bring the token, and answers 401 to all others."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        sentence = "send the header `Authorization: Bearer TOKEN` with the token that the server was started with"
        refusal = JSONResponse({"error": sentence}, 401, {"WWW-Authenticate": "Bearer"})
        await refusal(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = Headers(scope=scope).getlist("authorization")
        scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        is_bearer = scheme.lower() == "bearer"  # in letters of either kind (RFC 9110, 11.1)
        return scope["type"] == "http" and is_bearer and hmac.compare_digest(secret.encode("latin-1"), self._expected)


def _make_app(server: MCPServer, bound: Address, allowed_hosts: tuple[str, ...]) -> ASGIApp:
    names = {str(bound), *(str(Address(host, bound.port)) for host in LOOPBACK), *allowed_hosts}
    security = TransportSecuritySettings(
        allowed_hosts=sorted(names), allowed_origins=sorted(f"http://{name}" for name in names)
    )
    return server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=security,
        max_request_body_size=LARGEST_MESSAGE,
        max_sessions=_MOST_SESSIONS,
    )

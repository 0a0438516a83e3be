"""The application: `uvicorn kernelbox.server.app:app`, `fastapi dev`, or `kernelbox serve`, which sets more limits."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from kernelbox import __version__
from kernelbox.base._errors import KernelBoxError
from kernelbox.base._extras import require
from kernelbox.mcp._client_config import PATH
from kernelbox.mcp._mcp_options import LARGEST_MESSAGE
from kernelbox.server._service_options import ServiceOptions
from kernelbox.server.http._access import NoWebPages, TokenRequired
from kernelbox.server.http._callers import tokens_from_env
from kernelbox.server.http._failures import add_error_handlers
from kernelbox.server.http._headers import HeadAsGet, contain_pages
from kernelbox.server.http._logs import Logged
from kernelbox.server.http._request_limits import BodyLimited
from kernelbox.server.http._token_file import OwnToken
from kernelbox.server.http._tracing import telemetry, warn_without_traces
from kernelbox.server.routes import (
    _routes_execution,
    _routes_files,
    _routes_jobs,
    _routes_jupyter,
    _routes_kernels,
    _routes_looking,
    _routes_service,
    _routes_sessions,
    _routes_sockets,
)
from kernelbox.server.routes._app_state import home_of, make_state
from kernelbox.server.routes._bodies import COMMON
from kernelbox.server.routes._direct_route import DirectRoutes
from kernelbox.shells._asyncio_connection import allow_threads, in_thread

if TYPE_CHECKING:
    from kernelbox.mcp._mount import McpMount

# The routes, each module's in one router; a request is compared with one after the other, so the busiest come first.
ROUTERS = (
    _routes_execution.in_kernel,
    _routes_execution.in_session,
    _routes_service.router,
    _routes_kernels.router,
    _routes_kernels.sessions,
    _routes_jobs.in_kernel,
    _routes_jobs.in_session,
    _routes_jobs.router,
    _routes_sockets.router,
    _routes_looking.router,
    _routes_files.router,
    _routes_jupyter.router,
    _routes_sessions.router,
)

_TAGS = [
    {"name": "Service", "description": "Documentation, health, metrics"},
    {"name": "Kernels", "description": "Kernels, by id, name or session name"},
    {"name": "Sessions", "description": "Kernels by name, opened when they are first used"},
    {"name": "Execution", "description": "Running code"},
    {"name": "Looking", "description": "What is in a kernel"},
    {"name": "Files", "description": "The files of the workspace, and the pictures of cells"},
    {"name": "Jobs", "description": "Running code that is not waited for, and following it"},
    {
        "name": "Jupyter",
        "description": "Jupyter's kernel API, for front ends: `jupyter lab --gateway-url` and the like",
    },
]


_log = logging.getLogger("kernelbox.server")

# What needs no token: it reveals only that the server is there, and browsers that load the pages send no header.
_OPEN_PATHS = re.compile(r"/|/health|/ready|/docs|/redoc|/openapi\.json|/static/.*", re.DOTALL)


def create_app(options: ServiceOptions | None = None) -> FastAPI:
    """Returns an application with these options; without them, with what the environment says."""
    options = options or ServiceOptions(tokens=tokens_from_env())
    app = FastAPIOffline(  # whose documentation needs no other server
        static_url="/static",
        title="KernelBox API",
        summary="Persistent, named Python kernels for AI agents",
        version=__version__,
        openapi_tags=_TAGS,
        responses=COMMON,
        lifespan=_lifespan,
        **telemetry(),
    )
    contain_pages(app)
    for router in ROUTERS:
        app.include_router(router)
    _complete(app, options, _OPEN_PATHS)
    _describe_tokens(app, required=bool(options.tokens))
    return app


def create_mcp_app(options: ServiceOptions) -> FastAPI:
    """Returns an application that serves MCP and nothing else; every path needs a token."""
    assert options.mcp is not None
    assert options.tokens
    app = FastAPI(openapi_url=None, lifespan=_lifespan, **telemetry())
    _complete(app, options, None)
    return app


def _describe_tokens(app: FastAPI, *, required: bool) -> None:
    """Adds to the schema how a token is sent, so that the documentation pages can send it."""
    describe, schemes = app.openapi, {"token": {"type": "http", "scheme": "bearer"}}
    needed: list[dict[str, list[str]]] = [{"token": []}] if required else [{}, {"token": []}]

    def openapi() -> dict[str, Any]:
        schema = describe()
        schema["components"].setdefault("securitySchemes", schemes)
        for path, operations in schema["paths"].items():
            if _OPEN_PATHS.fullmatch(path) is None:
                for operation in operations.values():
                    operation.setdefault("security", needed)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it


def _complete(app: FastAPI, options: ServiceOptions, open_paths: re.Pattern[str] | None) -> None:
    """Adds what the routes share, MCP if it is asked for, and what sees requests before the routes."""
    state = make_state(options)
    app.state.kernelbox = state
    app.state.mcp = None
    app.state.own_token = None if options.tokens else OwnToken(home_of(state.kernels.config))
    if options.mcp is not None:
        require("mcp")
        from kernelbox.mcp._mount import McpMount  # with the SDK, which takes half a second to import

        app.state.mcp = McpMount(options.mcp, state.executions.noted, most=options.max_kernels)
        app.router.routes.append(Route(PATH, app.state.mcp))
    add_error_handlers(app)
    # The last that is added sees a request first.
    app.add_middleware(HeadAsGet)
    app.add_middleware(DirectRoutes, routes={**_routes_execution.DIRECT, **_routes_jobs.DIRECT})
    below = {"/files/": options.max_upload, PATH: LARGEST_MESSAGE}
    app.add_middleware(BodyLimited, most=options.max_body, most_below=below, patience=options.body_timeout)
    app.add_middleware(TokenRequired, tokens=options.tokens, own=app.state.own_token, open_paths=open_paths)
    if options.cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=options.cors_origins, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(NoWebPages, hosts=options.allowed_hosts, origins=options.cors_origins)
    app.add_middleware(Logged)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    allow_threads()
    warn_without_traces()
    own: OwnToken | None = app.state.own_token
    if own is not None:
        try:
            await in_thread(own.make)
        except KernelBoxError as exc:  # each request that needs the home says so too
            _log.error("approvals cannot be answered: %s", exc)
    mount: McpMount | None = app.state.mcp
    async with contextlib.nullcontext() if mount is None else mount.running():
        yield


app = create_app()

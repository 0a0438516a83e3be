"""The application: `uvicorn kernelbox.server.app:app`, `fastapi dev`, or `kernelbox serve`, which sets more limits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

from kernelbox import __version__
from kernelbox.server._service_options import ServiceOptions
from kernelbox.server.http._access import NoWebPages, TokenRequired
from kernelbox.server.http._failures import add_error_handlers
from kernelbox.server.http._headers import HeadAsGet, contain_pages
from kernelbox.server.http._logs import Logged
from kernelbox.server.http._request_limits import BodyLimited
from kernelbox.server.http._tracing import telemetry
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
from kernelbox.server.routes._app_state import make_state
from kernelbox.server.routes._direct_route import DirectRoutes
from kernelbox.server.routes._models import COMMON
from kernelbox.shells._asyncio_connection import allow_threads

# The routes, each module's in one router; a request is compared with one after the other, so the busiest come first.
ROUTERS = (
    _routes_execution.router,
    _routes_service.router,
    _routes_kernels.router,
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


def create_app(options: ServiceOptions | None = None) -> FastAPI:
    """Returns an application with these options; without them, with what the environment says."""
    options = options or ServiceOptions.from_env()
    app = FastAPIOffline(  # whose documentation needs no other server
        static_url="/static",
        title="KernelBox API",
        summary="Persistent, named Python kernels for AI agents",
        version=__version__,
        openapi_tags=_TAGS,
        responses=COMMON,
        telemetry=telemetry(),
        lifespan=_with_threads,
    )
    contain_pages(app)
    app.state.kernelbox = make_state(options)
    for router in ROUTERS:
        app.include_router(router)
    add_error_handlers(app)
    # The last that is added sees a request first.
    app.add_middleware(HeadAsGet)
    app.add_middleware(DirectRoutes, routes=_routes_execution.DIRECT)
    app.add_middleware(
        BodyLimited, max_body=options.max_body, max_upload=options.max_upload, body_timeout=options.body_timeout
    )
    app.add_middleware(TokenRequired, tokens=options.tokens)
    if options.cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=options.cors_origins, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(NoWebPages, hosts=options.allowed_hosts, origins=options.cors_origins)
    app.add_middleware(Logged)
    return app


@contextlib.asynccontextmanager
async def _with_threads(app: FastAPI) -> AsyncIterator[None]:
    allow_threads()
    yield


app = create_app()

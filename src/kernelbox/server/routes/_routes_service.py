"""Routes about the service itself."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from kernelbox import __version__
from kernelbox.server.http._failures import RequestRefused, about_to_end
from kernelbox.server.http._metrics import CONTENT_TYPE_LATEST
from kernelbox.server.routes._app_state import caller_of, state_of
from kernelbox.server.routes._models import FULL, ApiLink, Health, Ready, ServiceLinks
from kernelbox.shells._asyncio_connection import in_thread

router = APIRouter(tags=["Service"])


@router.get("/", summary="Find the documentation")
async def root() -> ServiceLinks:
    return ServiceLinks(
        service="kernelbox",
        links={
            "swagger": ApiLink(href="/docs", description="Swagger UI, to try requests"),
            "redoc": ApiLink(href="/redoc", description="ReDoc, to read"),
            "openapi": ApiLink(href="/openapi.json", description="the schema"),
        },
    )


@router.get("/health", summary="Check that the process answers")
async def health() -> Health:
    return Health(status="ok", service="kernelbox", version=__version__)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    responses={200: {"description": "the metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    if caller_of(request, "read").name:
        raise RequestRefused(
            403, "scope_missing", "metrics are about the kernels of all callers; use a token without a name"
        )
    state = state_of(request)
    records = await state.kernels.measured(await state.kernels.all())
    text = await in_thread(state.metrics.render, records, state.executions.count)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/ready", summary="Check that code can be run", responses=FULL)
async def ready(request: Request) -> Ready:
    if state_of(request).executions.draining:
        raise about_to_end()
    return Ready(status="ready")

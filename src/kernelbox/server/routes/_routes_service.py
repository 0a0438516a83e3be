"""Routes about the service itself."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse, JSONResponse, Response

from kernelbox import __version__
from kernelbox.server.http._failures import RequestRefused, about_to_end
from kernelbox.server.http._headers import PAGE_POLICY
from kernelbox.server.routes._app_state import CheckedRoute, caller_of, needs, state_of
from kernelbox.server.routes._bodies import FULL
from kernelbox.server.routes._models import ApiLink, Health, Ready, ServiceLinks
from kernelbox.shells._asyncio_connection import in_thread

router = APIRouter(route_class=CheckedRoute, tags=["Service"])


_LINKS = {
    "swagger": ApiLink(href="/docs", description="Swagger UI, to try requests"),
    "redoc": ApiLink(href="/redoc", description="ReDoc, to read"),
    "openapi": ApiLink(href="/openapi.json", description="the schema"),
}

_PAGE = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>kernelbox</title>
<style>body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }}
pre {{ background: #8882; padding: 1rem; overflow: auto }}</style>
<h1>kernelbox {__version__}</h1>
<p>This server runs Python in persistent, named kernels. Requests and answers are JSON.</p>
<ul>
{"".join(f'<li><a href="{link.href[1:]}">{link.href}</a>: {link.description}</li>' for link in _LINKS.values())}
</ul>
<pre>curl -X POST http://HOST:PORT/sessions/demo/execute \\
  -H "Content-Type: application/json" -d '{{"code": "1 + 1"}}'</pre>
<p>If the server was given a token, add <code>-H "Authorization: Bearer TOKEN"</code>.</p>
</html>
"""


@router.get(
    "/",
    summary="Find the documentation",
    responses={200: {"model": ServiceLinks, "content": {"text/html": {"schema": {"type": "string"}}}}},
)
@needs(None)
async def root(request: Request) -> Response:
    """Browsers get a page, other clients JSON."""
    varying = {"Vary": "Accept"}
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_PAGE, headers={**varying, "Content-Security-Policy": PAGE_POLICY})
    return JSONResponse(ServiceLinks(service="kernelbox", links=_LINKS).model_dump(), headers=varying)


@router.get("/health", summary="Check that the process answers")
@needs(None)
async def health() -> Health:
    return Health(status="ok", service="kernelbox", version=__version__)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    responses={200: {"description": "the metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
@needs("read")
async def metrics(request: Request) -> Response:
    if caller_of(request).name:
        raise RequestRefused(
            403, "scope_missing", "metrics are about the kernels of all callers; use a token without a name"
        )
    state = state_of(request)
    records = await state.kernels.measured(await state.kernels.all())
    text = await in_thread(state.metrics.render, records, state.executions.waiting.total())
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/ready", summary="Check that code can be run", responses=FULL)
@needs(None)
async def ready(request: Request) -> Ready:
    if state_of(request).executions.draining:
        raise about_to_end()
    return Ready(status="ready")

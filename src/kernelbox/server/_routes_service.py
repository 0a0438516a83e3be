"""Routes about the service itself."""

from __future__ import annotations

from fastapi import APIRouter

from kernelbox import __version__
from kernelbox.server._models import ApiLink, Health, Root

router = APIRouter(tags=["Service"])


@router.get("/", summary="Find the documentation")
async def root() -> Root:
    return Root(
        service="kernelbox",
        links={
            "swagger": ApiLink(href="/docs", description="Swagger UI, to try requests"),
            "redoc": ApiLink(href="/redoc", description="ReDoc, to read"),
            "openapi": ApiLink(href="/openapi.json", description="the schema"),
        },
    )


@router.get("/health", summary="Tell whether the process answers")
async def health() -> Health:
    return Health(status="ok", service="kernelbox", version=__version__)

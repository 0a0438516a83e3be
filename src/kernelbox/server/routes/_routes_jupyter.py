"""Routes of Jupyter's kernel API (petstore.swagger.io, "Jupyter Server API"), for front ends and their servers.

Ids are written as UUIDs with dashes, which is what Jupyter's own servers take for one.
"""

from __future__ import annotations

import mimetypes
import os
import uuid
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response, WebSocket

from kernelbox import __version__
from kernelbox.base._errors import KernelBoxError
from kernelbox.core._options import KernelOptions
from kernelbox.host.engines._kernelspecs import installed_kernelspecs, read_logo
from kernelbox.host.store._record import KernelRecord
from kernelbox.server.http._failures import RequestRefused, answer_to
from kernelbox.server.jupyter._front_end_message import TIME_FORMAT
from kernelbox.server.jupyter._kernel_info import DISPLAY_NAME, LOGO, SPEC_NAME
from kernelbox.server.routes._app_state import kernels_of, needs, require, state_of
from kernelbox.server.routes._bodies import CONFLICT, FULL, HARMLESS, NOT_FOUND
from kernelbox.server.routes._jupyter_models import (
    ApiVersion,
    JupyterKernel,
    JupyterRoute,
    KernelRequest,
    KernelSpec,
    KernelSpecs,
)
from kernelbox.shells._asyncio_connection import in_thread

router = APIRouter(route_class=JupyterRoute, tags=["Jupyter"])

_OUR_LOGO = "logo-svg.svg"

# What the variables are called that a front end may give a kernel, as in Jupyter's kernel gateway.
_VARIABLES = "KERNEL_"

# The fields of a kernelspec that every client may see.
_SHOWN = ("display_name", "language", "interrupt_mode", "kernel_protocol_version")

# The states of a record, in Jupyter's words.
_STATES = {"running": "busy", "idle": "idle", "dead": "dead"}


@router.get("/api", summary="The version of this server")
@needs(None)
async def get_version() -> ApiVersion:
    return ApiVersion(version=__version__)


@router.get("/api/kernelspecs", summary="List the kinds of kernels")
@needs("read")
async def list_kernelspecs(request: Request) -> KernelSpecs:
    installed = await in_thread(installed_kernelspecs)
    specs = {name: _show_spec(name, found.spec, sorted(found.logos)) for name, found in installed.items()}
    return KernelSpecs(default=SPEC_NAME, kernelspecs={**specs, SPEC_NAME: _our_spec()})


@router.get("/api/kernelspecs/{name}", summary="Look at a kind of kernel", responses=NOT_FOUND)
@needs("read")
async def get_kernelspec(name: str, request: Request) -> KernelSpec:
    specs = (await list_kernelspecs(request)).kernelspecs
    if name not in specs:
        raise RequestRefused(404, "kernelspec_not_found", f"there is no kernelspec {name!r:.100}")
    return specs[name]


@router.get(
    "/kernelspecs/{name}/{file}",
    summary="A picture of a kind of kernel",
    responses={200: {"description": "the picture", "content": {"image/*": {}}}, **NOT_FOUND},
)
@needs("read")
async def get_logo(name: str, file: str, request: Request) -> Response:
    if (name, file) == (SPEC_NAME, _OUR_LOGO):
        picture: bytes | None = LOGO.encode()
    else:
        picture = await in_thread(read_logo, name, file)
    if picture is None:
        raise RequestRefused(404, "kernelspec_file_not_found", f"there is no picture {file!r:.100} of {name!r:.100}")
    return Response(picture, media_type=mimetypes.guess_type(file)[0], headers=HARMLESS)


@router.get("/api/kernels", summary="List the kernels")
@needs("read")
async def list_kernels(request: Request) -> list[JupyterKernel]:
    return [show_kernel(request, record) for record in await kernels_of(request).all()]


@router.post("/api/kernels", status_code=201, summary="Open a kernel", responses={**CONFLICT, **FULL})
@needs("manage")
async def create_kernel(request: Request, response: Response, body: KernelRequest | None = None) -> JupyterKernel:
    wanted = body or KernelRequest(name=None, path=None, env=None)
    variables = {name: value for name, value in (wanted.env or {}).items() if name.startswith(_VARIABLES)}
    record = await kernels_of(request).create(None, KernelOptions(kernel_type=wanted.name, env=variables))
    shown = show_kernel(request, record)
    response.headers["Location"] = f"/api/kernels/{shown.id}"
    return shown


@router.get("/api/kernels/{kernel_id}", summary="Look at a kernel", responses=NOT_FOUND)
@needs("read")
async def get_kernel(kernel_id: str, request: Request) -> JupyterKernel:
    return show_kernel(request, await kernels_of(request).get(kernel_id))


@router.delete("/api/kernels/{kernel_id}", status_code=204, summary="End a kernel", responses=NOT_FOUND)
@needs("manage")
async def delete_kernel(kernel_id: str, request: Request) -> None:
    record = await kernels_of(request).get(kernel_id)
    await state_of(request).front_ends.destroy(record.kernel_id)


@router.post("/api/kernels/{kernel_id}/interrupt", status_code=204, summary="Interrupt a kernel", responses=NOT_FOUND)
@needs("run")
async def interrupt_kernel(kernel_id: str, request: Request) -> None:
    await kernels_of(request).interrupt(kernel_id)


@router.post("/api/kernels/{kernel_id}/restart", summary="Restart a kernel", responses={**NOT_FOUND, **CONFLICT})
@needs("manage")
async def restart_kernel(kernel_id: str, request: Request) -> JupyterKernel:
    kernels = kernels_of(request)
    record = await kernels.get(kernel_id)
    await state_of(request).front_ends.restart(record.kernel_id)
    return show_kernel(request, await kernels.get(record.kernel_id))


@router.websocket("/api/kernels/{kernel_id}/channels")
async def connect_front_end(kernel_id: str, websocket: WebSocket) -> None:
    try:
        may_end = "manage" in require(websocket, "run").scopes
        record = await kernels_of(websocket).get(kernel_id)
    except (KernelBoxError, RequestRefused) as exc:  # not every FastAPI passes the answer of a handler on
        await websocket.send_denial_response(answer_to(exc))
        return
    await state_of(websocket).front_ends.serve(record.kernel_id, websocket, may_end=may_end)


def show_kernel(request: Request, record: KernelRecord) -> JupyterKernel:
    """Returns a kernel as Jupyter describes it."""
    return JupyterKernel(
        id=str(uuid.UUID(record.kernel_id)),
        name=record.kernel_type,
        last_activity=datetime.fromisoformat(record.last_used_at).astimezone(UTC).strftime(TIME_FORMAT),
        execution_state=_STATES.get(record.status, "unknown"),
        connections=state_of(request).front_ends.count(record.kernel_id),
    )


def _our_spec() -> KernelSpec:
    spec = {"display_name": DISPLAY_NAME, "language": "python", "interrupt_mode": "message"}
    return _show_spec(SPEC_NAME, spec, [_OUR_LOGO])


def _show_spec(name: str, spec: dict[str, Any], logos: list[str]) -> KernelSpec:
    """Returns a kernelspec as front ends need it: its command, its variables and where it is are the operator's."""
    shown = {name: spec[name] for name in _SHOWN if name in spec}
    metadata = {
        name: value for name, value in spec.get("metadata", {}).items() if isinstance(value, bool | int | float)
    }
    shown |= {"argv": [], "env": {}, "metadata": {**metadata, "debugger": False}}
    resources = {os.path.splitext(logo)[0]: f"/kernelspecs/{quote(name)}/{quote(logo)}" for logo in logos}
    return KernelSpec(name=name, spec=shown, resources=resources)

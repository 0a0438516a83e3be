"""Routes of Jupyter's kernel API (petstore.swagger.io, "Jupyter Server API"), for front ends and their servers.

Ids are written as UUIDs with dashes, which is what Jupyter's own servers take for one.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response, WebSocket

from kernelbox import __version__
from kernelbox.frontends._kernel_info import DISPLAY_NAME, SPEC_NAME
from kernelbox.frontends._message import TIME_FORMAT
from kernelbox.host._engine import installed_kernelspecs
from kernelbox.host._record import KernelRecord
from kernelbox.server._errors import Refused
from kernelbox.server._jupyter_models import (
    ApiVersion,
    JupyterKernel,
    JupyterSession,
    KernelRequest,
    KernelSpec,
    KernelSpecs,
    SessionRequest,
)
from kernelbox.server._kernels import CallerKernels
from kernelbox.server._responses import CONFLICT, FULL, NOT_FOUND
from kernelbox.server._state import caller_of, kernels_of, state_of
from kernelbox.shells._loop_connection import in_thread

router = APIRouter(tags=["Jupyter"])

# The states of a record, in Jupyter's words.
_STATES = {"running": "busy", "idle": "idle", "dead": "dead"}

# The tags of a kernel that a session was opened for.
_PATH, _TYPE = "jupyter.path", "jupyter.type"


@router.get("/api", summary="The version of this server")
async def get_version() -> ApiVersion:
    return ApiVersion(version=__version__)


@router.get("/api/kernelspecs", summary="List the kinds of kernels")
async def list_kernelspecs(request: Request) -> KernelSpecs:
    caller_of(request, "read")
    installed = await in_thread(installed_kernelspecs)
    specs = {name: KernelSpec(name=name, spec=spec, resources={}) for name, spec in installed.items()}
    return KernelSpecs(default=SPEC_NAME, kernelspecs={**specs, SPEC_NAME: _our_spec()})


@router.get("/api/kernelspecs/{name}", summary="Look at a kind of kernel", responses=NOT_FOUND)
async def get_kernelspec(name: str, request: Request) -> KernelSpec:
    specs = (await list_kernelspecs(request)).kernelspecs
    if name not in specs:
        raise Refused(404, "kernelspec_not_found", f"there is no kernelspec {name!r:.100}")
    return specs[name]


@router.get("/kernelspecs/{name}/{file}", summary="A picture of a kind of kernel", responses=NOT_FOUND)
async def get_kernelspec_file(name: str, file: str, request: Request) -> None:
    caller_of(request, "read")
    raise Refused(404, "kernelspec_file_not_found", "kernelspecs have no files here")


@router.get("/api/kernels", summary="List the kernels")
async def list_kernels(request: Request) -> list[JupyterKernel]:
    return [_show(request, record) for record in await kernels_of(request, "read").all()]


@router.post("/api/kernels", status_code=201, summary="Open a kernel", responses={**CONFLICT, **FULL})
async def create_kernel(request: Request, response: Response, body: KernelRequest | None = None) -> JupyterKernel:
    record = await kernels_of(request, "manage").create(kernel_type=None if body is None else body.name)
    shown = _show(request, record)
    response.headers["Location"] = f"/api/kernels/{shown.id}"
    return shown


@router.get("/api/kernels/{kernel_id}", summary="Look at a kernel", responses=NOT_FOUND)
async def get_kernel(kernel_id: str, request: Request) -> JupyterKernel:
    return _show(request, await kernels_of(request, "read").get(_ours(kernel_id)))


@router.delete("/api/kernels/{kernel_id}", status_code=204, summary="End a kernel", responses=NOT_FOUND)
async def delete_kernel(kernel_id: str, request: Request) -> None:
    record = await kernels_of(request, "manage").get(_ours(kernel_id))
    await state_of(request).front_ends.destroy(record.kernel_id)


@router.post("/api/kernels/{kernel_id}/interrupt", status_code=204, summary="Interrupt a kernel", responses=NOT_FOUND)
async def interrupt_kernel(kernel_id: str, request: Request) -> None:
    await kernels_of(request, "run").interrupt(_ours(kernel_id))


@router.post("/api/kernels/{kernel_id}/restart", summary="Restart a kernel", responses={**NOT_FOUND, **CONFLICT})
async def restart_kernel(kernel_id: str, request: Request) -> JupyterKernel:
    kernels = kernels_of(request, "manage")
    record = await kernels.get(_ours(kernel_id))
    await state_of(request).front_ends.restart(record.kernel_id)
    return _show(request, await kernels.get(record.kernel_id))


@router.websocket("/api/kernels/{kernel_id}/channels")
async def connect_front_end(kernel_id: str, websocket: WebSocket) -> None:
    record = await kernels_of(websocket, "run").get(_ours(kernel_id))
    await state_of(websocket).front_ends.serve(record.kernel_id, websocket)


@router.get("/api/sessions", summary="List the sessions")
async def list_sessions(request: Request) -> list[JupyterSession]:
    records = await kernels_of(request, "read").all()
    return [_show_session(request, record) for record in records if _PATH in record.tags]


@router.post("/api/sessions", status_code=201, summary="Open a session", responses={**NOT_FOUND, **CONFLICT, **FULL})
async def create_session(body: SessionRequest, request: Request) -> JupyterSession:
    """A session is a kernel with the path of its notebook; the same path leads to the same kernel."""
    kernels = kernels_of(request, "manage")
    for record in await kernels.all():
        if record.alive and record.tags.get(_PATH) == body.path:
            return _show_session(request, record)
    if body.kernel.id is not None:
        raise Refused(
            409, "session_needs_new_kernel", "a session of this server begins with a new kernel: name a kernelspec"
        )
    record = await kernels.create(tags={_PATH: body.path, _TYPE: body.type}, kernel_type=body.kernel.name)
    return _show_session(request, record)


@router.get("/api/sessions/{session_id}", summary="Look at a session", responses=NOT_FOUND)
async def get_session(session_id: str, request: Request) -> JupyterSession:
    return _show_session(request, await _find_session(kernels_of(request, "read"), session_id))


@router.delete("/api/sessions/{session_id}", status_code=204, summary="End a session's kernel", responses=NOT_FOUND)
async def delete_session(session_id: str, request: Request) -> None:
    record = await _find_session(kernels_of(request, "manage"), session_id)
    await state_of(request).front_ends.destroy(record.kernel_id)


async def _find_session(kernels: CallerKernels, session_id: str) -> KernelRecord:
    record = await kernels.get(_ours(session_id))
    if _PATH not in record.tags:
        raise Refused(404, "session_not_found", f"there is no session {session_id!r:.100}")
    return record


def _show(request: Request, record: KernelRecord) -> JupyterKernel:
    return JupyterKernel(
        id=str(uuid.UUID(record.kernel_id)),
        name=record.kernel_type,
        last_activity=datetime.fromisoformat(record.last_used_at).astimezone(UTC).strftime(TIME_FORMAT),
        execution_state=_STATES.get(record.status, "unknown"),
        connections=state_of(request).front_ends.count(record.kernel_id),
    )


def _show_session(request: Request, record: KernelRecord) -> JupyterSession:
    path = record.tags[_PATH]
    shown = _show(request, record)
    return JupyterSession(id=shown.id, path=path, name=path, type=record.tags.get(_TYPE, "notebook"), kernel=shown)


def _our_spec() -> KernelSpec:
    spec = {
        "argv": [],
        "display_name": DISPLAY_NAME,
        "language": "python",
        "interrupt_mode": "message",
        "env": {},
        "metadata": {"debugger": False},
    }
    return KernelSpec(name=SPEC_NAME, spec=spec, resources={})


def _ours(kernel_id: str) -> str:
    """Returns an id as we write it; anything else is a name, as in the other routes."""
    try:
        return uuid.UUID(kernel_id).hex
    except ValueError:
        return kernel_id

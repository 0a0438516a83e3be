"""Routes for the life of kernels. `{key}` is an id, a name or a session name."""

from __future__ import annotations

import asyncio
import os

from fastapi import APIRouter, Query, Request

from kernelbox.core._options import KernelOptions
from kernelbox.host.store._record import KernelRecord
from kernelbox.server.jobs._caller_kernels import CallerKernels
from kernelbox.server.routes._app_state import CheckedRoute, kernels_of, needs, state_of
from kernelbox.server.routes._bodies import CONFLICT, FULL, NOT_FOUND
from kernelbox.server.routes._models import (
    Destroyed,
    Interrupted,
    KernelCreate,
    KernelList,
    KernelModel,
    KernelStatus,
    SessionCreate,
    Wiped,
)

router = APIRouter(route_class=CheckedRoute, tags=["Kernels"])
sessions = APIRouter(route_class=CheckedRoute, tags=["Sessions"])


@router.post("/kernels", status_code=201, summary="Open a kernel", responses={**CONFLICT, **FULL})
@needs("manage")
async def create_kernel(body: KernelCreate, request: Request) -> KernelModel:
    kernels = kernels_of(request)
    record = await kernels.create(body.name, _wanted(request, body).changed(session_name=body.session_name))
    return show(request, kernels, record)


@router.get("/kernels", summary="List the kernels, oldest first")
@needs("read")
async def list_kernels(
    request: Request,
    refresh: bool = Query(False, description="ask each for a sign of life"),
    usage: bool = Query(False, description="measure what each uses, which takes longer"),
) -> KernelList:
    kernels = kernels_of(request)
    records = await kernels.all()
    if usage:
        await state_of(request).kernels.measured(records)
    if refresh:
        live = [record for record in records if record.alive]
        answers = await asyncio.gather(*map(state_of(request).kernels.answers, live))  # one that is stuck takes seconds
        for record in (record for record, answered in zip(live, answers, strict=True) if not answered):
            record.status = "unknown"
    return KernelList(kernels=[show(request, kernels, record) for record in records])


@router.delete("/kernels", summary="Destroy all kernels")
@needs("manage")
async def wipe_kernels(request: Request) -> Wiped:
    return Wiped(destroyed=await kernels_of(request).wipe())


@router.get("/kernels/{key}", summary="Look at a kernel", responses=NOT_FOUND)
@needs("read")
async def get_kernel(key: str, request: Request) -> KernelStatus:
    kernels = kernels_of(request)
    (record,) = await state_of(request).kernels.measured([await kernels.get(key)])
    alive = await state_of(request).kernels.answers(record)
    return KernelStatus(alive=alive, kernel=show(request, kernels, record))


@router.delete("/kernels/{key}", summary="Destroy a kernel, its processes and its files", responses=NOT_FOUND)
@needs("manage")
async def destroy_kernel(key: str, request: Request) -> Destroyed:
    return Destroyed(destroyed=await kernels_of(request).destroy(key))


@router.post(
    "/kernels/{key}/restart", summary="Restart a kernel's process; its variables are lost", responses=NOT_FOUND
)
@needs("manage")
async def restart_kernel(key: str, request: Request) -> KernelModel:
    kernels = kernels_of(request)
    return show(request, kernels, await kernels.restart(key))


@router.post("/kernels/{key}/interrupt", summary="Interrupt the running cell; variables are kept", responses=NOT_FOUND)
@needs("run")
async def interrupt_kernel(key: str, request: Request) -> Interrupted:
    return Interrupted(interrupted=await kernels_of(request).interrupt(key))


@sessions.post("/sessions/{name}", summary="Find the kernel of a name, or open it", responses={**CONFLICT, **FULL})
@needs("manage")
async def open_session(name: str, request: Request, body: SessionCreate | None = None) -> KernelModel:
    kernels = kernels_of(request)
    record = await kernels.open(name, _wanted(request, body) if body else KernelOptions())
    return show(request, kernels, record)


def _wanted(request: Request, body: KernelCreate | SessionCreate) -> KernelOptions:
    """Returns what a kernel is opened with; raises InvalidInput for a Python that the operator does not allow."""
    allowed = state_of(request).options.pythons
    return KernelOptions(
        tags=body.tags if "tags" in body.model_fields_set else None,  # those of a dead kernel stay
        limits=body.limits,
        python=allowed.interpreter(body.python),
        requirements=allowed.requirements(body.requirements),
    )


def show(request: Request, kernels: CallerKernels, record: KernelRecord) -> KernelModel:
    """Returns a kernel as answers have it: by the caller's names, and with no path outside the workspace."""
    shown = kernels.shown(record)
    values = {name: value for name, value in shown.to_dict().items() if name in KernelModel.model_fields}
    values["connection_file"] = _inside(record.connection_file, state_of(request).options.workspace)
    return KernelModel.model_construct(**values, age_seconds=round(record.age_seconds, 3))


def _inside(path: str, workspace: str) -> str:
    relative = os.path.relpath(path, os.path.realpath(workspace))
    return os.path.basename(path) if relative.startswith("..") else relative

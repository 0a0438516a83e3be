"""Routes of Jupyter's sessions: a session is a notebook and the kernel that it uses.

Sessions are tags of the kernel, so that every server on the home sees them.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from kernelbox.core._options import KernelOptions
from kernelbox.host.store._record import KernelRecord
from kernelbox.server.http._failures import RequestRefused
from kernelbox.server.jobs._caller_kernels import CallerKernels
from kernelbox.server.routes._app_state import kernels_of, needs, state_of
from kernelbox.server.routes._bodies import CONFLICT, FULL, NOT_FOUND
from kernelbox.server.routes._jupyter_models import (
    JupyterRoute,
    JupyterSession,
    KernelOfSession,
    SessionChanges,
    SessionRequest,
)
from kernelbox.server.routes._routes_jupyter import show_kernel

router = APIRouter(route_class=JupyterRoute, tags=["Jupyter"])


@router.get("/api/sessions", summary="List the sessions")
@needs("read")
async def list_sessions(request: Request) -> list[JupyterSession]:
    found = _sessions(await kernels_of(request).all())
    return [_show(request, session) for session in found if session.record.alive]


@router.post("/api/sessions", status_code=201, summary="Open a session", responses={**NOT_FOUND, **CONFLICT, **FULL})
@needs("manage")
async def create_session(body: SessionRequest, request: Request, response: Response) -> JupyterSession:
    """The same path leads to the same session. With `kernel.id` it uses an existing kernel, else a new one."""
    kernels = kernels_of(request)
    async with kernels.alone(f"the notebook {body.path}"):  # two requests for one must not open two kernels
        for session in _sessions(await kernels.all()):
            if session.record.alive and session.path == body.path:
                break
        else:
            new_id = str(uuid.uuid4())
            tags = _tags(new_id, body.path, body.name or "", body.type)
            session = _find([await _kernel_for(kernels, body.kernel, tags)], new_id)
    shown = _show(request, session)
    response.headers["Location"] = f"/api/sessions/{shown.id}"
    return shown


@router.get("/api/sessions/{session_id}", summary="Look at a session", responses=NOT_FOUND)
@needs("read")
async def get_session(session_id: str, request: Request) -> JupyterSession:
    return _show(request, _find(await kernels_of(request).all(), session_id))


@router.patch("/api/sessions/{session_id}", summary="Change a session", responses={**NOT_FOUND, **CONFLICT, **FULL})
@needs("manage")
async def change_session(session_id: str, body: SessionChanges, request: Request) -> JupyterSession:
    """Path, name and type; with `kernel` another kernel, that of an id or a new one. The one before is ended then."""
    kernels = kernels_of(request)
    before = _find(await kernels.all(), session_id)
    tags = _tags(
        session_id,
        before.path if body.path is None else body.path,
        before.name if body.name is None else body.name,
        before.type if body.type is None else body.type,
    )
    kernel_id = before.record.kernel_id
    if body.kernel is None or (body.kernel.id is None and body.kernel.name is None):
        return _show(request, _find([await kernels.retag(kernel_id, tags)], session_id))
    after = await _kernel_for(kernels, body.kernel, tags)
    if after.kernel_id != kernel_id and len(_sessions([before.record])) > 1:
        await kernels.retag(kernel_id, dict.fromkeys(tags))  # removes this session from it
    elif after.kernel_id != kernel_id:  # as Jupyter ends a kernel that no session uses any more
        await state_of(request).front_ends.destroy(kernel_id)
    return _show(request, _find([after], session_id))


@router.delete("/api/sessions/{session_id}", status_code=204, summary="End a session's kernel", responses=NOT_FOUND)
@needs("manage")
async def delete_session(session_id: str, request: Request) -> None:
    session = _find(await kernels_of(request).all(), session_id)
    await state_of(request).front_ends.destroy(session.record.kernel_id)


async def _kernel_for(kernels: CallerKernels, wanted: KernelOfSession, tags: dict[str, str]) -> KernelRecord:
    """Returns the kernel that a session asks for, with the session among its tags."""
    if wanted.id is not None:
        return await kernels.retag(wanted.id, tags)
    return await kernels.create(None, KernelOptions(tags=tags, kernel_type=wanted.name))


_PREFIX = "jupyter.session."


@dataclass(frozen=True, slots=True)
class NotebookSession:
    """One session, and the record of its kernel."""

    id: str
    path: str
    name: str
    type: str
    record: KernelRecord


def _tags(session_id: str, path: str, name: str, kind: str) -> dict[str, str]:
    """Returns the tag of a kernel that says that a session uses it."""
    return {f"{_PREFIX}{session_id}": json.dumps([path, name, kind], ensure_ascii=False)}


def _sessions(records: Iterable[KernelRecord]) -> list[NotebookSession]:
    """Returns the sessions of kernels; malformed tags, which other programs may write, are skipped."""
    found = []
    for record in records:
        for tag, value in record.tags.items():
            if tag.startswith(_PREFIX):
                with contextlib.suppress(ValueError, TypeError):
                    path, name, kind = map(str, json.loads(value))
                    found.append(NotebookSession(tag.removeprefix(_PREFIX), path, name, kind, record))
    return found


def _find(records: Iterable[KernelRecord], session_id: str) -> NotebookSession:
    for session in _sessions(records):
        if session.id == session_id:
            return session
    raise RequestRefused(404, "session_not_found", f"there is no session {session_id!r:.100}")


def _show(request: Request, session: NotebookSession) -> JupyterSession:
    kernel = show_kernel(request, session.record)
    return JupyterSession(id=session.id, path=session.path, name=session.name, type=session.type, kernel=kernel)

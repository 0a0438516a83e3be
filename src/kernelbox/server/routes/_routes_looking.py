"""Routes that look into a kernel: variables, completion, history, the whole text of a cell, the notebook."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from kernelbox.base._errors import KernelBoxError
from kernelbox.server.jobs._answers import answer_with_json
from kernelbox.server.routes._app_state import CheckedRoute, kernels_of, needs
from kernelbox.server.routes._bodies import CONFLICT, NOT_FOUND
from kernelbox.server.routes._models import (
    Complete,
    Completions,
    InputHistory,
    OutputPart,
    VariableList,
)
from kernelbox.wire._json import dump

# What Jupyter calls its notebooks.
_NOTEBOOK = "application/x-ipynb+json"

# Characters that are read unless a client asks for more.
_PART = 10_000

# Characters of an execution's id: more than one has.
_LONGEST_ID = 64

Position = Annotated[int, Query(ge=0, le=2**53, description="counted in characters")]

router = APIRouter(
    route_class=CheckedRoute, prefix="/kernels/{key}", tags=["Looking"], responses={**NOT_FOUND, **CONFLICT}
)


@router.get("/variables", summary="List the variables: type, size and the beginning of each value")
@needs("read")
async def list_variables(key: str, request: Request) -> VariableList:
    found = await kernels_of(request).variables(key)
    return VariableList.model_validate({"variables": found}, from_attributes=True)


@router.post("/complete", summary="Complete code at a cursor position")
@needs("run")  # completing imports modules, and asks objects for their attributes
async def complete(key: str, body: Complete, request: Request) -> Completions:
    cursor = len(body.code) if body.cursor_pos is None else min(body.cursor_pos, len(body.code))
    reply = await kernels_of(request).ask(key, "complete", {"code": body.code, "cursor_pos": cursor})
    try:
        return Completions.model_validate(reply, strict=True)
    except ValidationError:  # it could not answer, or its own cells have made it answer nonsense
        why = reply.get("evalue", "a cell has tampered with it")
        raise KernelBoxError(f"kernel {key!r} has no answer: {why!s:.1000}") from None


@router.get("/history", summary="List the code that has run under a kernel's name, also before a restart or a death")
@needs("read")
async def get_history(key: str, request: Request, last: Annotated[int, Query(ge=1, le=10_000)] = 1000) -> InputHistory:
    past = await kernels_of(request).look_back(key, lambda kernel: kernel.history(last))
    return InputHistory.model_validate({"inputs": past}, from_attributes=True)


@router.get("/outputs/{execution_id}", summary="Read the whole text of a cell, also what was cut from its result")
@needs("read")
async def read_output(
    key: str, execution_id: str, request: Request, start: Position = 0, end: Position = _PART
) -> OutputPart:
    text = await kernels_of(request).look_back(key, lambda kernel: kernel.read_output(execution_id[:_LONGEST_ID]))
    return OutputPart(text=text[start:end], size=len(text))


@router.get(
    "/notebook",
    summary="Export what has run under a kernel's name, with its outputs, as a notebook",
    response_class=Response,
    responses={200: {"content": {_NOTEBOOK: {}}, "description": "a notebook in Jupyter's format 4.5"}},
)
@needs("read")
async def get_notebook(key: str, request: Request) -> Response:
    notebook = await kernels_of(request).look_back(key, lambda kernel: dump(kernel.notebook()))
    named = f"attachment; filename*=UTF-8''{quote(key, safe='')}.ipynb"
    return answer_with_json(notebook, {"Content-Disposition": named}, media_type=_NOTEBOOK)

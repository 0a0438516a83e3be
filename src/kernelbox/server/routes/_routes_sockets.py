"""WebSockets: run code and follow its events, or follow those of a job; answers and cancels go the other way.

A client that runs code sends it first, as `POST …/stream` takes it. Then it may send `{"type": "answer", "id": …,
"accept": true}` and `{"type": "cancel"}`. The server closes after the last event.
"""

from __future__ import annotations

import asyncio
from typing import Literal, TypeVar

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ValidationError
from starlette.websockets import WebSocketDisconnect

from kernelbox.base._errors import KernelBoxError
from kernelbox.server.http._failures import RequestRefused, describe_problems
from kernelbox.server.jobs._event_streams import receive_message, refuse, send_events
from kernelbox.server.routes._app_state import require, state_of
from kernelbox.server.routes._idempotent_jobs import begin_cell
from kernelbox.server.routes._models import ApprovalAnswer, StreamExecute

router = APIRouter()

Model = TypeVar("Model", bound=BaseModel)

# Seconds that a client has to send its request.
_FIRST_MESSAGE = 30.0


class _Answer(ApprovalAnswer):
    type: Literal["answer"]
    id: str


@router.websocket("/kernels/{key}/stream")
@router.websocket("/sessions/{name}/stream")
async def stream(socket: WebSocket) -> None:
    await socket.accept()
    try:
        require(socket, "run")
        body = _validated(StreamExecute, await _first_message(socket))
        job_id = await begin_cell(socket, body, socket.headers.get("idempotency-key"))
        try:
            await _converse(socket, job_id, 0)
        except WebSocketDisconnect:
            if body.on_disconnect == "interrupt":
                state_of(socket).jobs.cancel_here(job_id)
    except WebSocketDisconnect:
        pass
    except (KernelBoxError, RequestRefused) as exc:
        await refuse(socket, exc)


@router.websocket("/jobs/{job_id}/events")
async def follow(socket: WebSocket, job_id: str) -> None:
    await socket.accept()
    try:
        after = socket.query_params.get("after", "0")
        if not after.isascii() or not after.isdecimal() or len(after) > 15:
            raise RequestRefused(422, "invalid_request", "`after` is the number of the last event that was seen")
        await state_of(socket).jobs.get(require(socket, "read"), job_id)
        await _converse(socket, job_id, int(after))
    except WebSocketDisconnect:
        pass
    except (KernelBoxError, RequestRefused) as exc:
        await refuse(socket, exc)


async def _first_message(socket: WebSocket) -> dict[str, object]:
    try:
        async with asyncio.timeout(_FIRST_MESSAGE):
            return await receive_message(socket)
    except TimeoutError:
        raise RequestRefused(408, "too_slow", "send what is to be run") from None


async def _converse(socket: WebSocket, job_id: str, after: int) -> None:
    """Sends the events of a job until the last, and receives the answers of the client meanwhile."""
    sending = asyncio.ensure_future(send_events(socket, state_of(socket).jobs.events(job_id, after)))
    taking = asyncio.ensure_future(_take_messages(socket, job_id))
    try:
        await asyncio.wait({sending, taking}, return_when=asyncio.FIRST_COMPLETED)
        if taking.done():
            taking.result()  # it ends with what it raises
        await _conclude(socket, sending)
    finally:
        sending.cancel()
        taking.cancel()
        await asyncio.wait({sending, taking})


async def _conclude(socket: WebSocket, sending: asyncio.Future[None]) -> None:
    """Closes a socket on which all has been sent."""
    try:
        sending.result()
        await socket.close()
    except RuntimeError as exc:  # Starlette's, for a socket that was closed while we were sending
        raise WebSocketDisconnect from exc


async def _take_messages(socket: WebSocket, job_id: str) -> None:
    state = state_of(socket)
    while True:
        message = await receive_message(socket)
        caller = require(socket, "answer" if message.get("type") == "answer" else "run")
        record = await state.jobs.get(caller, job_id)
        if message.get("type") == "cancel":
            await state.jobs.cancel(record)
        elif message.get("type") == "answer":
            answer = _validated(_Answer, message)
            await state.jobs.answer(record, answer.id, answer.model_dump(exclude={"type", "id"}))
        else:
            raise RequestRefused(422, "invalid_request", 'the type of a message is "answer" or "cancel"')


def _validated(model: type[Model], message: dict[str, object]) -> Model:
    try:
        return model.model_validate(message)
    except ValidationError as exc:
        raise RequestRefused(422, "invalid_request", describe_problems(exc.errors())) from None

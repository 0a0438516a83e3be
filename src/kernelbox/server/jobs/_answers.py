"""Results as HTTP answers: the fields of `ExecutionResult`, with URLs of images instead of paths."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response, StreamingResponse

from kernelbox.server.http._callers import Caller
from kernelbox.server.http._long_json import PIECE, cut, dump_in_pieces
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.wire._json import dump
from kernelbox.wire._results import ExecutionResult
from kernelbox.wire.results._transcript import weigh

_JSON = "application/json"


class JsonAnswer(Response):
    """A JSON answer that is encoded without being checked against the schema."""

    media_type = _JSON

    def render(self, content: object) -> bytes:
        try:
            return to_json(content)
        except PydanticSerializationError:  # for halves of characters, as names of files can have
            return dump(content)


def answer_with(result: ExecutionResult, caller: Caller) -> Response:
    """Returns an answer with a result; a long one is encoded while it is sent."""
    described = describe_result(result, caller)
    if _is_long(result):
        return StreamingResponse(dump_in_pieces(described), media_type=_JSON)
    return JsonAnswer(described)


def answer_with_json(data: bytes, headers: Mapping[str, str] | None = None, *, media_type: str = _JSON) -> Response:
    """Returns an answer with JSON; long JSON is sent in pieces."""
    if len(data) > PIECE:
        return StreamingResponse(cut(data), headers=headers, media_type=media_type)
    return Response(data, headers=headers, media_type=media_type)


async def encode_result(result: ExecutionResult, caller: Caller) -> bytes:
    """Returns a result as JSON; other requests are served while a long one is encoded."""
    described = describe_result(result, caller)
    return await in_thread(lambda: b"".join(dump_in_pieces(described))) if _is_long(result) else dump(described)


def describe_result(result: ExecutionResult, caller: Caller) -> dict[str, Any]:
    """Returns a result as answers and events have it, with the name that the caller has for the kernel."""
    described = result.to_dict()
    described["name"] = result.name.removeprefix(caller.prefix)
    described["images"] = [image_address(path) for path in result.images]
    return described


def image_address(path: str) -> str:
    """Returns where a picture that a cell has shown can be fetched, relative to the server."""
    return f"/images/{os.path.basename(path)}"


def _is_long(result: ExecutionResult) -> bool:
    """Returns whether a result takes long to encode. Its text includes everything that was written."""
    size = len(result.text)
    for attempt in result.attempts:
        size += len(attempt.output) + len(attempt.stderr)
    for item in result.outputs:
        size += weigh(item.data)
    return size > PIECE

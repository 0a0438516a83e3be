"""Results as answers: the fields of `ExecutionResult`, with images as addresses instead of paths."""

from __future__ import annotations

import os
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response

from kernelbox.wire._json import dump
from kernelbox.wire._results import ExecutionResult


def describe_result(result: ExecutionResult) -> dict[str, Any]:
    """Returns a result as answers and events have it."""
    described = result.to_dict()
    described["images"] = [image_address(path) for path in result.images]
    return described


def image_address(path: str) -> str:
    """Returns where a picture that a cell has shown can be fetched, relative to the server."""
    return f"/images/{os.path.basename(path)}"


class JsonAnswer(Response):
    """A JSON answer that is made as it is, without being checked against the schema: results can be large."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        try:
            return to_json(content)
        except PydanticSerializationError:  # for halves of characters, as names of files can have
            return dump(content)

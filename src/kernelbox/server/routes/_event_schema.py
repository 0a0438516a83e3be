"""What the schema says about streams: each server-sent event, and the data that it carries."""

from __future__ import annotations

from typing import Any


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _model(name: str) -> dict[str, Any]:
    """Refers to a model that the answers of other routes have."""
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: dict[str, Any] = {"type": "string"}
_TEXT_OR_NULL: dict[str, Any] = {"type": ["string", "null"]}
_NUMBER: dict[str, Any] = {"type": "integer"}
_NUMBER_OR_NULL: dict[str, Any] = {"type": ["number", "null"]}

# The data of each event.
EVENTS: dict[str, dict[str, Any]] = {
    "started": _object(job_id=_TEXT, execution_id=_TEXT),
    "output": {"allOf": [_model("OutputModel"), _object(display_id=_TEXT_OR_NULL, image=_TEXT_OR_NULL)]},
    "tool": _object(
        kind=_TEXT,
        server_name=_TEXT,
        tool_name=_TEXT_OR_NULL,
        text=_TEXT_OR_NULL,
        progress=_NUMBER_OR_NULL,
        total=_NUMBER_OR_NULL,
        level=_TEXT_OR_NULL,
    ),
    "approval": _model("ApprovalModel"),
    "decision": _object(id=_TEXT, accepted={"type": "boolean"}, reason=_TEXT_OR_NULL),
    "dropped": _object(first=_NUMBER, last=_NUMBER),
    "result": _object(result=_model("ResultModel")),
    "failed": _model("JobFailure"),
    "lost": _object(detail=_TEXT),
}


def _describe(event: str, data: dict[str, Any]) -> dict[str, Any]:
    carried = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
    return {"title": event, **_object(id=_TEXT, event={"const": event}, data=carried)}


# `itemSchema` is OpenAPI 3.2's word for one event of a stream, which FastAPI uses in 3.1 too.
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the events",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "itemSchema": {"oneOf": [_describe(event, data) for event, data in EVENTS.items()]},
            }
        },
    }
}

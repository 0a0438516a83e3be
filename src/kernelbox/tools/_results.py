"""What a tool returned, as it travels to the kernel: one JSON document, which only the guest reads."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mcp_types import CallToolResult


def encode_result(result: CallToolResult) -> bytes:
    """Returns a result as the protocol writes it."""
    return result.model_dump_json(
        by_alias=True, include={"content", "structured_content", "is_error"}, exclude_unset=True
    ).encode()


def encode_failure(sentence: str) -> bytes:
    """Returns a call that did not come to a result, in the same form."""
    return json.dumps({"content": [{"type": "text", "text": sentence}], "isError": True}).encode()

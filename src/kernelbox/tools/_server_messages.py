"""Messages from a tool server: parsed, or turned into errors of the requests that they answer."""

from __future__ import annotations

import json
import re

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, RequestId, jsonrpc_message_adapter

from kernelbox.tools._bounds import UNREADABLE_MESSAGE, Words, check_message, mend_message

Incoming = SessionMessage | Exception

# Bytes to keep of output that is not a message.
_NOISE = 2_000

# How an answer names its request, at the beginning or the end of its text.
_ANSWER = re.compile(rb'"id"\s*:\s*(\d+|"[^"\\]{1,100}")')
_HEAD = 1_000


def read_message(text: bytes | bytearray, words: Words) -> SessionMessage | None:
    """Returns a parsed message, or None for anything else; its beginning is then added to the server's `words`."""
    message: JSONRPCMessage
    try:
        check_message(text)
        message = jsonrpc_message_adapter.validate_json(bytes(mend_message(text)), by_name=False)
    except ValueError:
        words.add(text[:_NOISE] + b"\n")
        found = _answered(text)
        return None if found is None else failed(found, UNREADABLE_MESSAGE)
    return SessionMessage(message)


def failed(request: RequestId, sentence: str) -> SessionMessage:
    """Returns an error in place of an answer that will not come; without it the request would wait forever."""
    error = ErrorData(code=PARSE_ERROR, message=sentence)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=error))


def _answered(text: bytes | bytearray) -> RequestId | None:
    """Returns the request that an unreadable message answers, such as one with too many values."""
    head, found = bytes(text[:_HEAD]), _ANSWER.search(text, 0, _HEAD) or _ANSWER.search(text, max(0, len(text) - _HEAD))
    if found is None or b'"method"' in head or b"{" not in head:
        return None
    number: RequestId = json.loads(found[1])
    return number

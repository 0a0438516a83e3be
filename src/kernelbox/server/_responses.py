"""The answers to requests that fail, for the schema; routes add those that they can give."""

from __future__ import annotations

from typing import Any

from kernelbox.server._models import Failure, InvalidRequest

Responses = dict[int | str, dict[str, Any]]

NOT_FOUND: Responses = {404: {"model": Failure, "description": "there is no such thing"}}
CONFLICT: Responses = {409: {"model": Failure, "description": "it cannot be done as things are"}}
QUEUE_FULL: Responses = {429: {"model": Failure, "description": "too many cells wait in the kernel; see Retry-After"}}
FULL: Responses = {503: {"model": Failure, "description": "the server has all it may have; see Retry-After"}}

# The headers of what others have made: a browser runs no script in it.
HARMLESS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}

# What every route may answer.
COMMON: Responses = {
    400: {"model": Failure, "description": "the request makes no sense"},
    401: {"model": Failure, "description": "a token is missing, or is none of this server's"},
    403: {"model": Failure, "description": "the token, or the web page that sends it, may not do this"},
    413: {"model": Failure, "description": "the request is too large"},
    421: {"model": Failure, "description": "the request is meant for another host"},
    422: {"model": InvalidRequest, "description": "the request does not fit the schema"},
    500: {"model": Failure, "description": "the server failed"},
}

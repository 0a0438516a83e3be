"""Logs: one line of JSON for each event, on stderr, with the ids of the request and of its kernel.

On a terminal the lines are for people, and shorter.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from typing import Any, TextIO

from pythonjsonlogger.json import JsonFormatter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelbox.base._config import wanted_format
from kernelbox.base._text import escape
from kernelbox.server.http._headers import first_of

# Where a request carries the fields of its line in the log.
FIELDS = "kernelbox.log"

# What clients may choose as the id of a request: what is safe in a log, and can be found again.
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)

_log = logging.getLogger("kernelbox.server.request")


def log_to_stderr(level: str) -> None:
    """Makes the whole process log as lines of JSON, or as lines for people if stderr is a terminal."""
    handler = logging.StreamHandler()
    # In ASCII: paths are the client's to choose, and some characters are commands for a terminal.
    names = {"levelname": "level", "name": "logger"}
    in_json = JsonFormatter("{message}{levelname}{name}", style="{", rename_fields=names, timestamp="time")
    handler.setFormatter(_LineFormatter(datefmt="%H:%M:%S") if is_for_people(sys.stderr) else in_json)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    number = logging.getLevelName(level)
    logging.getLogger("uvicorn").setLevel(max(number, logging.ERROR))  # it warns of what clients send
    logging.getLogger("mcp").setLevel(max(number, logging.WARNING))


def is_for_people(stream: TextIO) -> bool:
    """Returns whether somebody reads a stream of this process, and has not asked for JSON."""
    return stream.isatty() and wanted_format() != "json"


class _LineFormatter(logging.Formatter):
    """Formats a record as a short line: `14:05:09 POST /sessions/demo/execute 200 4 ms`."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.name == _log.name:
            text = "{method} {path} {status} {duration_ms:.0f} ms".format_map(vars(record))
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        line = f"{self.formatTime(record, self.datefmt)} {escape(text)}"
        if record.exc_info:
            line += "\n" + escape(self.formatException(record.exc_info), keep="\n")
        return line


class Logged:
    """Gives each request an id, which its answer has in `X-Request-ID`, and writes a line when it has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given = first_of(scope, b"x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else os.urandom(8).hex()
        fields: dict[str, Any] = {"request_id": request_id}
        scope[FIELDS] = fields
        began, status = time.perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode("ascii"))]
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            if _log.isEnabledFor(logging.INFO):
                fields |= {"method": scope.get("method", "WEBSOCKET"), "path": scope["path"], "status": status}
                fields["duration_ms"] = round((time.perf_counter() - began) * 1000, 3)
                _log.info("request", extra=fields)

"""Routes for the files of the workspace, and for the pictures that cells have shown.

Cells make these files, so nothing in them may act for the server: a browser saves them, and runs no script in them.
"""

from __future__ import annotations

import errno
import mimetypes
import os
import re
from collections.abc import AsyncIterator
from io import FileIO
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from kernelbox.base._errors import InvalidInput
from kernelbox.host.files._workspace_files import Workspace
from kernelbox.server.http._failures import RequestRefused
from kernelbox.server.jobs._answers import JsonAnswer
from kernelbox.server.routes._app_state import CheckedRoute, needs, state_of, workspace_of
from kernelbox.server.routes._bodies import HARMLESS, NOT_FOUND, Failure
from kernelbox.server.routes._models import FileList, Written
from kernelbox.shells._asyncio_connection import in_thread

router = APIRouter(route_class=CheckedRoute, tags=["Files"])


class _AnyPath(PathConvertor):
    """A path in the URL, with line breaks too, which names of files may have."""

    regex = "(?s:.*)"


register_url_convertor("any_path", _AnyPath())

# Bytes that are read or written at a time.
_PIECE = 256 * 1024

# Entries of one directory that are listed.
_MOST_ENTRIES = 10_000

# Characters of a path that are shown.
_LONGEST_PATH = 200

_IMAGE = re.compile(r"\d{8}-\d{6}-[0-9a-f]{16}-\d{1,6}\.(png|jpg|svg|gif|webp)", re.ASCII)
_LARGEST_IMAGE = 256 * 1024 * 1024

_BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the file, or the entries of the directory",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": {"$ref": "#/components/schemas/FileList"}},
        },
    }
}


@router.get("/files", summary="List the workspace", responses={200: {"model": FileList}})
@needs("read")
async def list_workspace(request: Request) -> Response:
    return await get_file("", request)


@router.get("/files/{path:any_path}", summary="Fetch a file, or list a directory", responses={**_BYTES, **NOT_FOUND})
@needs("read")
async def get_file(path: str, request: Request) -> Response:
    workspace = workspace_of(request)
    opened = await _found(workspace.open, path)
    if opened is None:
        entries, total = await _found(workspace.entries, path, _MOST_ENTRIES)
        listed = [{"name": entry.name, "kind": entry.kind, "size": entry.size} for entry in entries]
        return JsonAnswer({"path": path, "entries": listed, "total": total})
    fd, size = opened
    name = quote(os.path.basename(path), safe="")
    headers = {"Content-Length": str(size), "Content-Disposition": f"attachment; filename*=UTF-8''{name}", **HARMLESS}
    file = FileIO(fd)  # closed where it is read
    return StreamingResponse(_read(file, size), headers=headers, media_type="application/octet-stream")


@router.put(
    "/files/{path:any_path}",
    status_code=201,
    summary="Write a file atomically; missing directories are created",
    openapi_extra={
        "requestBody": {
            "required": False,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
    responses={507: {"model": Failure, "description": "the disk is full"}},
)
@needs("run")
async def put_file(path: str, request: Request) -> Written:
    workspace, size = workspace_of(request), 0
    try:
        with workspace.writing(path) as arriving:
            async for piece in request.stream():
                size += len(piece)
                await in_thread(arriving.add, piece)
    except InvalidInput as exc:
        if isinstance(exc.__cause__, OSError) and exc.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RequestRefused(507, "disk_full", "the disk of the workspace is full") from exc
        raise
    return Written(path=path, size=size)


@router.get(
    "/images/{name}",
    summary="Fetch a picture that a cell has shown",
    responses={200: {"description": "the picture", "content": {"image/*": {}}}, **NOT_FOUND},
)
@needs("read")
async def get_image(name: str, request: Request) -> Response:
    if not _IMAGE.fullmatch(name):
        raise _no_picture(name)
    images = Workspace(os.path.join(state_of(request).kernels.config.home, "images"))
    try:
        raw, _ = await _found(images.read, name, 0, _LARGEST_IMAGE)
    except RequestRefused as exc:
        raise _no_picture(name) from exc
    headers = {"Cache-Control": "private, max-age=31536000, immutable", **HARMLESS}
    return Response(raw, media_type=mimetypes.guess_type(name)[0], headers=headers)


def _no_picture(name: str) -> RequestRefused:
    sentence = f"there is no picture {name[:_LONGEST_PATH]!r}; the `images` of a result have the addresses of its own"
    return RequestRefused(404, "file_not_found", sentence)


async def _found(function: Any, path: str, *args: Any) -> Any:
    """Calls a function that looks at a path; a missing file is a 404, and an unusable path a 422."""
    try:
        return await in_thread(function, path, *args)
    except InvalidInput as exc:
        if isinstance(exc.__cause__, FileNotFoundError | NotADirectoryError):
            sentence = f"there is no file {path[:_LONGEST_PATH]!r} in the workspace; GET /files lists what is there"
            raise RequestRefused(404, "file_not_found", sentence) from exc
        raise


async def _read(file: FileIO, size: int) -> AsyncIterator[bytes]:
    """Yields as many bytes as were announced; a file that shrinks meanwhile ends the connection."""
    with file:
        while size > 0:
            piece = await in_thread(file.read, min(size, _PIECE))
            if not piece:
                raise OSError("the file was cut while it was being sent")
            size -= len(piece)
            yield piece

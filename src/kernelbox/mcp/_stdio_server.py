"""The server over stdio: one client, whose requests are counted.

Lines are read and written without a thread: one that waits in read(2) or write(2) cannot be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import sys
from collections.abc import AsyncIterator, Awaitable
from typing import TextIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.mcpserver import MCPServer
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)

from kernelbox.base._errors import StartFailed
from kernelbox.base._safe_text import show
from kernelbox.mcp._mcp_options import LARGEST_MESSAGE, McpOptions
from kernelbox.mcp._mcp_server import make_server, make_state, run_until_ended
from kernelbox.tools._bounds import check_message

# Requests that are under way, and the bytes of them all. Each takes a task, and what it was sent with.
_MOST_REQUESTS = 1_000
_MOST_BYTES = 64 * 1024 * 1024

# Seconds that calls have to end after a signal, and the last answers to be taken by a client that has said its last.
_GRACE = 0.5

# Characters of an id that is shown.
_LONGEST_ID = 60

_TOO_MUCH = f"{_MOST_REQUESTS:,} requests, or {_MOST_BYTES:,} bytes of them, are under way; wait for answers"


def serve_stdio(options: McpOptions) -> int:
    """Serves one client on stdin and stdout, until it closes one of them or a signal ends us."""
    if _access(sys.stdin) == os.O_WRONLY or _access(sys.stdout) == os.O_RDONLY:  # they were closed, and filled in
        raise StartFailed("stdin or stdout is closed; an MCP client starts this command with pipes for both")
    if sys.stdin.isatty():
        print("kernelbox: this waits for an MCP client; --print-config says how to set one up", file=sys.stderr)
    state = make_state(options)
    client = _Client(*_take_streams())
    return run_until_ended(state, client.serve(make_server(state)), grace=_GRACE)


def _access(stream: TextIO) -> int:
    return fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE


def _take_streams() -> tuple[int, int]:
    """Returns descriptors of the client's streams that only we have: what is printed by mistake goes to stderr."""
    incoming, outgoing = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.dup2(nothing if sys.stderr is None else 2, 1)
    os.close(nothing)
    return incoming, outgoing


class _Client:
    """What comes from the client, and what goes to it."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._writing = asyncio.Lock()
        self._under_way: dict[RequestId, int] = {}  # the ids of requests, and the bytes of each

    async def serve(self, server: MCPServer) -> None:
        """Serves the client until it closes one of its streams."""
        read, received = anyio.create_memory_object_stream[SessionMessage | Exception]()
        said, write = anyio.create_memory_object_stream[SessionMessage]()
        under = server._lowlevel_server  # it has a function for streams of its own only
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, read)
                tasks.start_soon(self._write, write)
                await under.run(received, said, under.create_initialization_options())
                tasks.cancel_scope.deadline = anyio.current_time() + _GRACE
        except* (_Gone, anyio.BrokenResourceError):
            pass  # also when we are ended: the SDK closes its streams under each other

    async def _read(self, read: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Passes on what the client sends, and says what is wrong with what cannot be passed on."""
        async with read:
            async for line in read_lines(self._incoming, LARGEST_MESSAGE):
                try:
                    message = _parse(line)
                    if message is not None:
                        await read.send(self._admit(message, line))
                except _Refused as exc:
                    await self._send(exc.answer)

    def _admit(self, message: JSONRPCMessage, line: bytes | None) -> SessionMessage:
        """Counts a request in until it is answered, or is not going to be because it was cancelled."""
        if not isinstance(message, JSONRPCRequest):
            return SessionMessage(message)
        key, size = coerce_request_id(message.id), len(line or b"")
        if key in self._under_way:  # with its id the answer would pass for the other's
            raise _Refused(None, INVALID_REQUEST, f"a request with the id {show(key, _LONGEST_ID)} is under way")
        if len(self._under_way) >= _MOST_REQUESTS or sum(self._under_way.values()) + size > _MOST_BYTES:
            raise _Refused(message.id, INTERNAL_ERROR, _TOO_MUCH)
        self._under_way[key] = size

        async def forget() -> None:
            self._under_way.pop(key, None)

        return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=forget))

    async def _write(self, write: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Passes on what the server says."""
        async with write:
            async for said in write:
                if isinstance(said.message, JSONRPCResponse | JSONRPCError) and said.message.id is not None:
                    self._under_way.pop(coerce_request_id(said.message.id), None)
                await self._send(said.message)

    async def _send(self, message: JSONRPCMessage) -> None:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
        async with self._writing:
            try:
                await write_all(self._outgoing, f"{text}\n".encode("utf-8", "backslashreplace"))
            except OSError as exc:
                raise _Gone from exc


class _Gone(Exception):
    """Raised when the client has closed its end of stdout: nothing can be answered any more."""


class _Refused(Exception):
    """Raised for what a client has sent and no server sees; `answer` says why."""

    def __init__(self, id: RequestId | None, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.answer = JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=sentence))


def _parse(line: bytes | None) -> JSONRPCMessage | None:
    """Returns the message in a line, None if it is blank; raises _Refused."""
    if line is None:
        raise _Refused(None, INVALID_REQUEST, f"the message has more than {LARGEST_MESSAGE:,} bytes")
    if not line.strip():
        return None
    try:
        check_message(line)
    except ValueError as exc:
        raise _Refused(None, INVALID_REQUEST, f"the message has {exc}") from None
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        raise _explain(line) from None
    if isinstance(message, JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
        raise _explain(line)  # a request with a wrong id
    return message


def _explain(line: bytes) -> _Refused:
    """Returns what is wrong with a line, to the id that it names if it is meant to be a request."""
    try:
        meant = json.loads(line)
    except (ValueError, RecursionError):
        return _Refused(None, PARSE_ERROR, "the line is not JSON that can be read; send one message per line")
    known = meant.get("id") if isinstance(meant, dict) and "method" in meant else None
    number = known if isinstance(known, str) or type(known) is int else None
    return _Refused(number, INVALID_REQUEST, "the line is not a JSON-RPC 2.0 message; send one message per line")


# Bytes asked for at once.
_ROOM = 64 * 1024


async def read_lines(fd: int, longest: int) -> AsyncIterator[bytes | None]:
    """Yields lines without their ends until there are no more; None stands for one that is too long to be kept."""
    held, dropping = bytearray(), False
    while piece := await _read(fd):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            held += end
            yield None if dropping or len(held) > longest else bytes(held)
            held, dropping = bytearray(), False
        held += rest
        if len(held) > longest:
            held, dropping = bytearray(), True
    if held:
        yield bytes(held)


async def write_all(fd: int, data: bytes) -> None:
    """Writes data as the client takes it; raises OSError when it has closed its end."""
    rest = memoryview(data)
    while rest:
        await _until_ready(anyio.wait_writable(fd))
        with contextlib.suppress(BlockingIOError):  # the client may have made it so
            rest = rest[os.write(fd, rest[: select.PIPE_BUF]) :]  # as much as a pipe that is ready takes (pipe(7))


async def _read(fd: int) -> bytes:
    while True:
        await _until_ready(anyio.wait_readable(fd))
        try:
            return os.read(fd, _ROOM)
        except BlockingIOError:
            continue
        except OSError:
            return b""  # a terminal that was closed, or a socket: there is no more


async def _until_ready(ready: Awaitable[None]) -> None:
    try:
        await ready
    except PermissionError:  # a regular file, which has no such state (epoll_ctl(2))
        await asyncio.sleep(0)

"""A tool server as a process: it speaks in lines of JSON on its standard streams, and may write noise there too.

The SDK has such a transport too. This one also survives noise on stdout, answers of many megabytes and a server that
floods stderr, and leaves no process behind when the application is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from kernelbox.base._environment import tool_server_environment
from kernelbox.base._errors import ToolServerFailed
from kernelbox.host.process._forks import forget_in_forks
from kernelbox.tools._bounds import LARGEST_MESSAGE, Listener, Words
from kernelbox.tools._server_messages import Incoming, read_message
from kernelbox.tools._servers import ServerParameters

_SUPERVISOR = str(Path(__file__).with_name("_supervisor.py"))

_READ = 1024 * 1024

# Seconds for the supervisor to end: it waits for the server twice, and the machine may be busy.
_PATIENCE = 20.0


@asynccontextmanager
async def connect_stdio(
    server: str, parameters: ServerParameters, listener: Listener
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]], None]:
    """Starts a server and yields the two streams that a session uses."""
    process, lifeline = await _start(server, parameters)
    incoming_in, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, outgoing_out = anyio.create_memory_object_stream[SessionMessage](0)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    tasks = [
        asyncio.create_task(_read(process.stdout, incoming_in, listener)),
        asyncio.create_task(_write(process.stdin, outgoing_out)),
        asyncio.create_task(_listen(process.stderr, listener.words)),
    ]
    try:
        yield incoming, outgoing
    finally:
        lifeline.forget()
        for task in tasks:
            task.cancel()
        process.stdin.close()
        for stream in (incoming, incoming_in, outgoing, outgoing_out):
            stream.close()
        await asyncio.shield(_reap(process, tasks))


async def start_supervised(
    command: Sequence[str],
    *,
    stdin: int,
    stderr: int,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    limit: int = 2**16,
) -> tuple[asyncio.subprocess.Process, Lifeline]:
    """Starts a command below a supervisor, which ends with its exit status. SIGTERM makes it kill at once.

    The caller must forget the lifeline. Raises OSError if no process can be started.
    """
    lifeline = Lifeline()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            _SUPERVISOR,
            str(lifeline.end),
            *command,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=env,
            cwd=cwd,
            pass_fds=(lifeline.end,),
            start_new_session=True,
            limit=limit,
        )
    except BaseException:
        lifeline.forget()
        raise
    finally:
        os.close(lifeline.end)
    return process, lifeline


class Lifeline:
    """A pipe: the supervisor watches one end, and no fork of this process holds the other."""

    def __init__(self) -> None:
        self.end, self._ours = os.pipe()
        forget_in_forks(self)

    def forget(self) -> None:
        """Closes our end: the supervisor then ends what it has started, gently at first."""
        ours, self._ours = self._ours, -1
        if ours >= 0:
            os.close(ours)


async def _start(server: str, parameters: ServerParameters) -> tuple[asyncio.subprocess.Process, Lifeline]:
    try:
        return await start_supervised(
            [parameters.command, *parameters.args],
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=tool_server_environment(dict(parameters.env)),
            cwd=parameters.cwd or None,
            limit=_READ,
        )
    except OSError as exc:
        where = f" in {parameters.cwd!r}" if parameters.cwd else ""
        raise ToolServerFailed(server, f"it cannot be started{where}: {exc.strerror}") from exc


async def _reap(process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]]) -> None:
    """Waits until the supervisor has ended, with everything that the server started."""
    await asyncio.gather(*tasks, return_exceptions=True)
    try:
        async with asyncio.timeout(_PATIENCE):
            while process.returncode is None:  # noqa: ASYNC110  # wait() would wait for the pipes as well
                await asyncio.sleep(0.005)
    except TimeoutError:
        process.kill()
    process._transport.close()  # type: ignore[attr-defined]  # there is no other way to close its pipes


async def _read(stdout: asyncio.StreamReader, incoming: MemoryObjectSendStream[Incoming], listener: Listener) -> None:
    """Passes messages on until stdout ends; other lines are noise."""
    line = bytearray()
    try:
        while data := await stdout.read(_READ):
            *whole, rest = data.split(b"\n")
            for part in whole:
                line += part
                await _take(line, incoming, listener.words)
                line = bytearray()
            line += rest
            if len(line) > LARGEST_MESSAGE:
                listener.words.add(b"a line of more than %d bytes\n" % LARGEST_MESSAGE)
                return
    finally:
        listener.on_end()
        incoming.close()


async def _take(line: bytearray, incoming: MemoryObjectSendStream[Incoming], words: Words) -> None:
    message = read_message(line, words) if line.strip() else None
    if message is not None:
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await incoming.send(message)


async def _write(stdin: asyncio.StreamWriter, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with contextlib.suppress(anyio.ClosedResourceError, ConnectionError):
        async for sent in outgoing:
            stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()


async def _listen(stderr: asyncio.StreamReader, words: Words) -> None:
    while data := await stderr.read(_READ):
        words.add(data)

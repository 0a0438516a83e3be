"""The Jupyter front ends of this server: WebSockets, and the channels of the kernels that they are connected to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.websockets import WebSocket, WebSocketDisconnect

from kernelbox import __version__
from kernelbox.core._memory import Sessions
from kernelbox.frontends._channels import Channels, Reached, Rules
from kernelbox.frontends._message import BadMessage, JupyterMessage
from kernelbox.frontends._websocket import codec_for
from kernelbox.server._options import ServiceOptions
from kernelbox.shells._loop_kernels import LoopKernels
from kernelbox.tools._toolbox import Toolbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.frontends._websocket import Codec

# Bytes that wait for a front end that reads slowly. With more, the cell that writes them waits too.
_MOST_UNREAD = 16 * 1024 * 1024

# Seconds that a front end may read nothing while so much waits for it: it is gone, and others wait for it.
_PATIENCE = 60.0

# What a WebSocket is closed with when what came is no message (RFC 6455, 7.4.1).
_BAD_DATA = 1007


class FrontEnds:
    """The channels of each kernel that a front end of this server is connected to."""

    def __init__(self, kernels: LoopKernels, options: ServiceOptions) -> None:
        self._kernels = kernels
        self._rules = Rules(options.policy, Sessions(), Toolbox(kernels.config), __version__)
        self._channels: dict[str, Channels] = {}

    def __repr__(self) -> str:
        return f"<FrontEnds of {len(self._channels)} kernels>"

    def count(self, kernel_id: str) -> int:
        """Returns how many front ends are connected to a kernel."""
        channels = self._channels.get(kernel_id)
        return 0 if channels is None else channels.front_ends

    async def serve(self, kernel_id: str, websocket: WebSocket) -> None:
        """Serves one front end until it goes away."""
        subprotocol, codec = codec_for(websocket.scope.get("subprotocols", []))
        await websocket.accept(subprotocol)
        channels = self._channels_of(kernel_id)
        async with contextlib.AsyncExitStack() as ending:
            front_end = SocketFrontEnd(websocket, codec)
            ending.push_async_callback(front_end.close)
            channels.attach(front_end)
            ending.callback(self._forget, kernel_id)
            ending.callback(channels.detach, front_end)
            with contextlib.suppress(WebSocketDisconnect, ConnectionError):
                async for message in front_end.received():
                    channels.take(front_end, message)

    async def restart(self, kernel_id: str) -> None:
        """Starts a kernel's process anew, and tells its front ends."""
        channels = self._channels.get(kernel_id)
        if channels is not None:
            await channels.restart()
        await self._kernels.restart(kernel_id)
        if channels is not None:
            channels.look()

    async def destroy(self, kernel_id: str) -> bool:
        """Ends a kernel; its front ends are told when it has ended."""
        channels = self._channels.get(kernel_id)
        if channels is not None:
            channels.abort_waiting()
        return await self._kernels.destroy(kernel_id)

    async def close(self) -> None:
        """Interrupts what runs for front ends."""
        await asyncio.gather(*(channels.close() for channels in self._channels.values()))
        if (closing := self._rules.toolbox.close()) is not None:
            await asyncio.wrap_future(closing)

    def _channels_of(self, kernel_id: str) -> Channels:
        for known in list(self._channels):
            self._forget(known)
        if kernel_id not in self._channels:
            self._channels[kernel_id] = Channels(
                Reached(
                    lambda: self._kernels.kernel(kernel_id),
                    lambda: self._kernels.interrupt(kernel_id),
                    lambda restart: self._end(kernel_id, restart),
                ),
                self._rules,
            )
        return self._channels[kernel_id]

    async def _end(self, kernel_id: str, restart: bool) -> None:
        if restart:
            await self._kernels.restart(kernel_id)
        else:
            await self._kernels.destroy(kernel_id)

    def _forget(self, kernel_id: str) -> None:
        """Lets go of channels that are not used; those in which a cell goes on are, and are looked at again later."""
        if self._channels[kernel_id].unused:
            self._channels.pop(kernel_id).rest()


class SocketFrontEnd:
    """A front end behind a WebSocket; what it has not read yet waits here, within bounds."""

    def __init__(self, websocket: WebSocket, codec: Codec) -> None:
        self._websocket = websocket
        self._codec = codec
        self._frames: list[str | bytes] = []
        self._unread = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False
        self._writer = asyncio.get_running_loop().create_task(self._write())

    async def send(self, message: JupyterMessage) -> None:
        if self._closed:
            return
        frame = self._codec.encode(message)
        self._frames.append(frame)
        self._unread += len(frame)
        self._news.set()
        while self._unread > _MOST_UNREAD and not self._closed:
            self._room.clear()
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._room.wait()
            except TimeoutError:
                self._writer.cancel()

    async def received(self) -> AsyncIterator[JupyterMessage]:
        """Yields what the front end sends."""
        while True:
            event = await self._websocket.receive()
            if event["type"] == "websocket.disconnect":
                return
            frame = event.get("text")
            try:
                yield self._codec.decode(event["bytes"] if frame is None else frame)
            except BadMessage as exc:
                await self._websocket.close(_BAD_DATA, str(exc)[:100])
                return

    async def close(self) -> None:
        self._writer.cancel()
        await asyncio.wait({self._writer})

    async def _write(self) -> None:
        """Sends what waits, as fast as the front end reads."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                frames, self._frames = self._frames, []
                for frame in frames:
                    if isinstance(frame, str):
                        await self._websocket.send_text(frame)
                    else:
                        await self._websocket.send_bytes(frame)
                    self._unread -= len(frame)
                    self._room.set()
        except (WebSocketDisconnect, ConnectionError, RuntimeError):
            pass  # it has gone; the task that reads finds out too
        finally:
            self._closed = True
            self._room.set()

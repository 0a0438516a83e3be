"""The Jupyter front ends of this server: WebSockets, and the channels of the kernels that they are connected to.

A front end that names its session (`?session_id=`) may lose its connection and come back. It then gets what it has
missed, as from Jupyter's own server.
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect

from kernelbox.server._service_options import ServiceOptions
from kernelbox.server.http._failures import sentence_about
from kernelbox.server.jobs._draining import Drained, wait_for_end
from kernelbox.server.jobs._executions import Executions
from kernelbox.server.jupyter._channel_options import ChannelRules, KernelAccess
from kernelbox.server.jupyter._front_end_channels import FrontEndChannels
from kernelbox.server.jupyter._front_end_sessions import FrontEndSessions
from kernelbox.server.jupyter._socket_front_end import SocketFrontEnd
from kernelbox.server.jupyter._websocket_codec import codec_for
from kernelbox.shells._asyncio_kernels import AsyncKernels


class FrontEnds:
    """The channels of each kernel that a front end of this server is connected to."""

    def __init__(self, kernels: AsyncKernels, options: ServiceOptions, executions: Executions) -> None:
        self._kernels = kernels
        self._executions = executions
        self._rules = ChannelRules(options.policy, kernels.apart(), executions.noted, sentence_about)
        self._known: dict[str, FrontEndSessions] = {}
        self._expected: dict[tuple[FrontEndSessions, str], None] = {}

    def count(self, kernel_id: str) -> int:
        """Returns how many front ends are connected to a kernel."""
        known = self._known.get(kernel_id)
        return 0 if known is None else known.connected

    async def serve(self, kernel_id: str, websocket: WebSocket, *, may_end: bool) -> None:
        """Serves one front end until it goes away; `may_end` lets it end the kernel and start it anew."""
        subprotocol, codec = codec_for(websocket.scope.get("subprotocols", []))
        await websocket.accept(subprotocol)
        session = websocket.query_params.get("session_id", "")
        try:
            with contextlib.suppress(WebSocketDisconnect, ConnectionError):
                await self._find(kernel_id).serve(session, SocketFrontEnd(websocket, codec), may_end=may_end)
        finally:
            self._forget(kernel_id)

    async def restart(self, kernel_id: str) -> None:
        """Restarts a kernel's process, and informs its front ends."""
        known = self._known.get(kernel_id)
        if known is not None:
            await known.channels.restart()
        await self._kernels.restart(kernel_id)
        if known is not None:
            known.channels.look()

    async def destroy(self, kernel_id: str) -> bool:
        """Ends a kernel; its front ends are informed when it has ended."""
        known = self._known.get(kernel_id)
        if known is not None:
            known.channels.abort_waiting()
        return await self._kernels.destroy(kernel_id)

    async def drain(self, grace: float, *, hurry: asyncio.Event) -> Drained:
        """Returns when what runs for front ends has ended, after `grace` seconds or `hurry` because of an interrupt.

        What waits is refused meanwhile, since `Executions` takes no more cells.
        """
        busy = {known.channels: working for known in self._known.values() if (working := known.channels.working)}
        await wait_for_end(busy.values(), grace, hurry)
        interrupted = [channels for channels, working in busy.items() if not working.done()]
        await asyncio.gather(*(channels.stop() for channels in interrupted))
        return len(busy) - len(interrupted), len(interrupted)

    async def close(self) -> None:
        """Interrupts what runs for front ends."""
        for known in self._known.values():
            known.close()
        await asyncio.gather(*(known.channels.close() for known in self._known.values()))

    def _find(self, kernel_id: str) -> FrontEndSessions:
        for known in list(self._known):
            self._forget(known)
        if kernel_id not in self._known:
            reached = KernelAccess(
                lambda: self._kernels.kernel(kernel_id),
                lambda: self._kernels.interrupt(kernel_id),
                lambda restart: self._end(kernel_id, restart),
            )
            self._known[kernel_id] = FrontEndSessions(FrontEndChannels(reached, self._rules), self._expected)
        return self._known[kernel_id]

    async def _end(self, kernel_id: str, restart: bool) -> None:
        if restart:
            await self._kernels.restart(kernel_id)
        else:
            await self._kernels.destroy(kernel_id)

    def _forget(self, kernel_id: str) -> None:
        """Drops channels that are not used. Those in which a cell still runs are checked again later."""
        known = self._known.get(kernel_id)
        if known is not None and known.channels.unused:
            del self._known[kernel_id]
            known.channels.rest()

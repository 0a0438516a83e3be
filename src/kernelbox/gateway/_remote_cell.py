"""A cell that a client runs through a gateway: Jupyter's messages in, an execution's result out."""

from __future__ import annotations

import asyncio
import os
import time

from kernelbox.core._executor_values import Lines
from kernelbox.gateway._gateway_link import GatewayLink, Unreachable
from kernelbox.host.engines.jupyter._jupyter_cell import JupyterCell
from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
from kernelbox.server.jupyter._exchange import DIED, RESTORE_CWD, SET_BACK
from kernelbox.server.jupyter._front_end_message import JupyterMessage
from kernelbox.wire._execution import LOST, Execution
from kernelbox.wire._messages import Execute
from kernelbox.wire._results import OutputItem, SetBack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from kernelbox.core._images import ImageFiles
    from kernelbox.wire._results import ExecutionResult
    from kernelbox.wire._timeout_ladder import Order


class RemoteCell:
    """Follows one cell to its result; when its time is up, the kernel, which is this client's own, is interrupted."""

    def __init__(self, link: GatewayLink, request: Execute, images: ImageFiles, seconds: float | None) -> None:
        self.images = images
        self._link = link
        self._execution = Execution(request, timeout=seconds, now=time.monotonic())
        self._cell = JupyterCell(request)
        self._lines = Lines()
        self._set_back: object = None  # what the gateway says about it; the cell ends with a later message

    @classmethod
    async def begin(
        cls, link: GatewayLink, code: str, images: ImageFiles, seconds: float | None, working_dir: Path | None
    ) -> RemoteCell:
        """Sends code to a kernel."""
        cell = cls(link, Execute(os.urandom(8).hex(), code), images, seconds)
        header = {"msg_id": cell._cell.id, "msg_type": "execute_request", "session": cell._cell.id, "version": "5.4"}
        metadata = {} if working_dir is None else {RESTORE_CWD: str(working_dir)}
        await link.send(JupyterMessage("shell", header, metadata=metadata, content=cell._cell.content("python")))
        return cell

    @property
    def result(self) -> ExecutionResult | None:
        """The result of the cell, once it has ended."""
        return self._execution.result

    async def chunks(self) -> AsyncGenerator[str]:
        """Yields what the cell writes and shows, until it has ended; images are written to files."""
        while self._execution.result is None:
            for item in await self._step():
                if self.images.has_image(item):
                    await asyncio.to_thread(self.images.save, item)
                if text := self._lines.add(item):
                    yield text

    async def stop(self) -> None:
        """Interrupts the cell, and returns when it has ended."""
        await self._obey(self._execution.cancel(now=time.monotonic()))
        while self._execution.result is None:
            await self._step()

    async def _step(self) -> list[OutputItem]:
        """Waits for a message, or until time is up."""
        message, due = None, self._execution.ladder.due
        try:
            async with asyncio.timeout(max(0.0, due - time.monotonic()) if due < float("inf") else None):
                message = await self._link.receive()
        except TimeoutError:
            await self._obey(self._execution.tick(now=time.monotonic(), holder="this"))
        except Unreachable as exc:
            await self._lose(str(exc))
        return [] if message is None else self._take(message)

    def _take(self, message: JupyterMessage) -> list[OutputItem]:
        if message.parent.get("msg_id") != self._cell.id:
            return []
        if message.kind == "execute_reply" and DIED in message.metadata:
            cause = str(message.metadata[DIED]).removesuffix(LOST)
            self._execution.died(cause, now=time.monotonic())
            return []
        heard = KernelMessage(message.kind, self._cell.id, message.content)
        if message.kind == "execute_reply":
            ours = self._cell.take_reply(heard)
        else:
            ours = self._cell.take_published(heard) if message.channel == "iopub" else []
        events = [event for each in ours for event in self._execution.receive(each, now=time.monotonic())]
        self._set_back = message.metadata.get(SET_BACK, self._set_back)
        if self.result is not None:
            _note_set_back(self.result, self._set_back)
        return [event for event in events if isinstance(event, OutputItem)]

    async def _obey(self, order: Order | None) -> None:
        """Does to the kernel what the execution wants; a gateway that does not answer is found out by `receive`."""
        failure = ""
        try:
            if order in ("interrupt", "interrupt harder"):
                self._cell.interrupted = True
                await self._link.interrupt()
            elif order == "kill":
                await self._link.restart()
        except Unreachable as exc:
            failure = str(exc)
        if order == "kill":
            self._execution.killed(now=time.monotonic(), failure=failure)

    async def _lose(self, reason: str) -> None:
        """Ends the execution: nothing more is heard of it."""
        if await self._link.is_alive():
            self._execution.cut_off(reason, now=time.monotonic())
        else:
            self._execution.died(f"the gateway or the kernel has ended ({reason})", now=time.monotonic())


def _note_set_back(result: ExecutionResult, told: object) -> None:
    """Notes in a result to which checkpoint the gateway says that the kernel was set back, if to any."""
    match told:
        case ["died" | "rolled back" as ending, int(checkpoint), [*lost]]:
            result.ending = ending
            SetBack(checkpoint, [number for number in lost if isinstance(number, int)]).note_in(result)

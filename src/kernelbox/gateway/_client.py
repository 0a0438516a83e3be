"""KernelClient: runs code in a kernel of a gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Self

from kernelbox.base._endpoint import check_port, join_address
from kernelbox.base._environment import host_variable
from kernelbox.base._errors import CodeExecutionError, ExecutionTimeout
from kernelbox.base._unique_objects import Handle
from kernelbox.core._arguments import check_code, check_path, check_seconds
from kernelbox.core._images import ImageFiles, choose_images_dir
from kernelbox.gateway._gateway_link import GatewayLink, Unreachable
from kernelbox.gateway._remote_cell import RemoteCell
from kernelbox.server.http._callers import TOKEN_VARIABLE
from kernelbox.wire._values import dataclass


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The result of code that ran to its end: what it wrote and showed, and the files of its images."""

    text: str | None
    images: list[Path]


class ExecutionError(CodeExecutionError):
    """Raised when code raises an error, or its kernel dies; the fields are those of CodeExecutionError."""


class KernelClient(Handle):
    """Opens a kernel in a gateway, and runs code in it. Calls queue: one cell runs at a time."""

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8888,
        images_dir: str | os.PathLike[str] | None = None,
        ping_interval: float = 10,
        *,
        working_dir: str | os.PathLike[str] | None = None,
        kernel_init_timeout: float | None = None,
        token: str | None = None,
    ) -> None:
        """`images_dir` is `images` in the current directory by default. `token` defaults to KERNELBOX_TOKEN.

        A kernel that has not started after `kernel_init_timeout` seconds is given up; None waits as long as it takes.
        Every cell begins in `working_dir`, and one that goes elsewhere is brought back; without it `os.chdir` lasts.
        """
        self.host = host
        self.port = check_port(port)
        self.working_dir = None if working_dir is None else Path(check_path("working_dir", working_dir))
        self.images_dir = Path(choose_images_dir(images_dir))
        self.ping_interval = check_seconds("ping_interval", ping_interval)
        self.kernel_init_timeout = check_seconds("kernel_init_timeout", kernel_init_timeout)
        self._token = host_variable(TOKEN_VARIABLE) if token is None else token
        self._link: GatewayLink | None = None
        self._connecting = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "disconnected" if self._link is None else f"connected to {self._link.kernel_id}"
        return f"<KernelClient {self.host}:{self.port} {state}>"

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    @property
    def kernel_id(self) -> str:
        """The id of the kernel; raises RuntimeError before one is open."""
        return self._require_link().kernel_id

    async def connect(self, retries: int = 10, retry_interval: float = 1.0) -> None:
        """Opens a kernel and connects to it; raises RuntimeError after too many failed tries."""
        async with self._connecting:
            if self._link is not None:
                raise RuntimeError("the client is connected already; disconnect() first, or reset() for a clean kernel")
            self._link = await self._open_link(max(1, retries), retry_interval)

    async def _open_link(self, tries: int, retry_interval: float) -> GatewayLink:
        while True:
            try:
                async with asyncio.timeout(self.kernel_init_timeout):
                    return await GatewayLink.open(self._url, self._token or None, self.ping_interval or 10)
            except TimeoutError as exc:
                seconds = f"{self.kernel_init_timeout:g} s"
                raise RuntimeError(f"no kernel of the gateway at {self._url} has started within {seconds}") from exc
            except Unreachable as exc:
                tries -= 1
                if exc.final or not tries:
                    raise RuntimeError(f"the gateway at {self._url} cannot be used: {exc}") from exc
                await asyncio.sleep(retry_interval)

    async def disconnect(self) -> None:
        """Ends the kernel, and the connection to it."""
        link, self._link = self._link, None
        if link is not None:
            await asyncio.shield(asyncio.ensure_future(link.close()))

    async def reset(self) -> None:
        """Replaces the kernel by a clean one."""
        self._require_link()
        await self.disconnect()
        await self.connect()

    async def interrupt(self) -> None:
        """Interrupts what the kernel runs; its variables are kept."""
        try:
            await self._require_link().interrupt()
        except Unreachable as exc:
            raise RuntimeError(f"the kernel cannot be interrupted: {exc}") from exc

    async def execute(self, code: str, timeout: float = 120) -> ExecutionResult:  # noqa: ASYNC109  # as ipybox has it
        """Runs code and returns its result; raises ExecutionError, and TimeoutError after `timeout` seconds.

        A cell whose time is up is interrupted; if it does not stop, the kernel is restarted.
        """
        async with aclosing(self.stream(code, timeout)) as items:
            async for item in items:
                if isinstance(item, ExecutionResult):
                    return item
        raise AssertionError("a stream ends with its result")

    async def stream(
        self,
        code: str,
        timeout: float = 120,  # noqa: ASYNC109  # as ipybox has it
    ) -> AsyncGenerator[str | ExecutionResult]:
        """Runs code and yields what it writes and shows, as text, and the result last; raises as `execute` does.

        Leaving the loop interrupts the cell.
        """
        check_code(code)
        seconds = check_seconds("timeout", timeout)
        self._require_link()
        async with self._turn:
            await self._until_free()
            cell = await self._begin(code, seconds)
            try:
                async for chunk in cell.chunks():
                    yield chunk
            finally:
                if cell.result is None:  # the caller has left
                    self._ending = asyncio.get_running_loop().create_task(cell.stop())
                    await self._until_free()
            yield self._conclude(cell)

    async def _begin(self, code: str, seconds: float | None) -> RemoteCell:
        link = self._require_link()
        try:
            if not link.connected:
                await link.reconnect()
        except Unreachable as exc:
            raise RuntimeError(f"the gateway at {self._url} cannot be used: {exc}") from exc
        return await RemoteCell.begin(link, code, ImageFiles(str(self.images_dir)), seconds, self.working_dir)

    def _conclude(self, cell: RemoteCell) -> ExecutionResult:
        result, images = cell.result, [Path(path) for path in cell.images.paths]
        assert result is not None
        cell.images.conclude(result, 0)
        if result.status == "timeout":
            raise ExecutionTimeout.of(result, images)
        if result.error is not None:
            if result.ending == "died" and result.restored_from is None:
                result.error.evalue += "; reset() opens a fresh one"
            raise ExecutionError.of(result, images)
        return ExecutionResult(result.text or None, images)

    async def _until_free(self) -> None:
        """Waits until a cell that was left has been stopped."""
        if self._ending is not None:
            await asyncio.shield(self._ending)
            self._ending = None

    def _require_link(self) -> GatewayLink:
        if self._link is None:
            raise RuntimeError("the client is not connected; use `async with KernelClient() as client`, or connect()")
        return self._link

    @property
    def _url(self) -> str:
        return f"http://{join_address(self.host, self.port)}"

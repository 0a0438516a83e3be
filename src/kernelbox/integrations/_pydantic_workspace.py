"""A workspace of Pydantic AI: a directory, and kernels that run commands in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai.workspaces import CommandResult, WorkspaceRef, WorkspaceTimeoutError, WorkspaceUnavailableError

from kernelbox.api._async_kernel import AsyncKernel
from kernelbox.api._fresh_shell import NO_LIMIT, fresh_shell
from kernelbox.base._errors import KernelNotFound


class KernelboxWorkspaceBackend:
    """A directory, and a kernel that runs commands in it; a second command at the same time has a kernel of its own.

    The holder of the ref ends the kernel with `destroy()`. The files stay. Options are those of `AsyncKernel`.
    """

    def __init__(self, cwd: str, *, ref: WorkspaceRef | None = None, sandbox: Any = True, **options: Any) -> None:
        self._options = {"cwd": os.path.realpath(cwd), "sandbox": sandbox, **options, "output_char_limit": 0}
        self.ref, self._opening, self._busy = ref, asyncio.Lock(), asyncio.Lock()
        self._others: list[AsyncKernel] = []

    async def working_dir(self) -> str:
        await self._kernel()
        return str(self._options["cwd"])

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("use a string with shell=True, or a sequence without")
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError("timeout must be a positive finite number or None")
        line = fresh_shell(command, str(self._options["cwd"]), env)
        kernel = await self._kernel()
        async with contextlib.AsyncExitStack() as held:
            if self._busy.locked():
                kernel = await held.enter_async_context(AsyncKernel(**self._options))
                self._others.append(kernel)
                held.callback(self._others.remove, kernel)
            else:
                await held.enter_async_context(self._busy)
            done = await kernel.execute(line, language="bash", timeout=timeout or NO_LIMIT)
        if done.status == "timeout":
            raise WorkspaceTimeoutError("the command took too long", stdout=done.stdout, stderr=done.stderr)
        if done.exit_code is None:
            raise WorkspaceUnavailableError(str(done))
        return CommandResult(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)

    async def _kernel(self) -> AsyncKernel:
        """Opens the kernel on the first call. Later, or with a ref, it only finds it."""
        async with self._opening:
            if self.ref is None:
                self.ref = WorkspaceRef(provider="kernelbox", id=f"workspace-{os.urandom(8).hex()}")
                await AsyncKernel(self.ref.id, **self._options).start()
        try:
            return await AsyncKernel(self.ref.id, **self._options).refresh()
        except KernelNotFound as exc:
            raise WorkspaceUnavailableError(str(exc)) from exc

    async def destroy(self) -> None:
        """Ends the kernels; commands that run fail with WorkspaceUnavailableError."""
        if self.ref is not None:
            await AsyncKernel(self.ref.id).destroy()
        await asyncio.gather(*(other.destroy() for other in self._others))

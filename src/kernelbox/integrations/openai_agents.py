"""OpenAI Agents: a tool that runs Python, and a client whose sandboxes are confined on Linux."""

from __future__ import annotations

from typing import Any

from kernelbox.api._async_kernel import AsyncKernel
from kernelbox.api._fresh_shell import NO_LIMIT, fresh_shell
from kernelbox.integrations._adapting import DESCRIPTION, needs

with needs("openai-agents"):
    from agents import FunctionTool, function_tool
    from agents.sandbox.errors import ExecTimeoutError
    from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient, UnixLocalSandboxSession
    from agents.sandbox.types import ExecResult
    from agents.tool import ToolOutputImage, ToolOutputText


def python_tool(kernel: AsyncKernel, *, timeout: float | None = None, needs_approval: bool = False) -> FunctionTool:
    """Makes a tool that runs Python in a kernel. Its errors are part of the answer; plots are images."""

    @function_tool(name_override="python", description_override=DESCRIPTION, needs_approval=needs_approval)
    async def python(code: str) -> list[ToolOutputText | ToolOutputImage]:
        text, *pictures = (await kernel.execute(code, timeout=timeout)).to_content("openai-responses")
        shown = (ToolOutputImage(image_url=picture["image_url"]) for picture in pictures)
        return [ToolOutputText(text=text["text"]), *shown]

    return python


class KernelboxSandboxSession(UnixLocalSandboxSession):
    """A workspace on this machine whose commands run in a kernel: it writes only there, and has no network."""

    kernel: AsyncKernel

    def supports_pty(self) -> bool:
        return False

    async def _exec_internal(self, *command: Any, timeout: float | None = None) -> ExecResult:  # noqa: ASYNC109
        env, cwd = await self._resolved_exec_context()
        line = fresh_shell([str(part) for part in command], cwd, env)
        done = await self.kernel.execute(line, language="bash", timeout=timeout or NO_LIMIT, output_char_limit=0)
        if done.status == "timeout":
            raise ExecTimeoutError(command=command, timeout_s=timeout, cause=None)
        code = 1 if done.exit_code is None else done.exit_code
        said = done.stderr if done.exit_code is not None else str(done)
        return ExecResult(stdout=done.stdout.encode(), stderr=said.encode(), exit_code=code)

    async def _after_shutdown(self) -> None:
        await super()._after_shutdown()
        await self.kernel.destroy()


class KernelboxSandboxClient(UnixLocalSandboxClient):
    """Makes such sessions. `sandbox`, `limits` and other options are those of `AsyncKernel`."""

    def __init__(self, *, sandbox: Any = True, inherit_host_environment: bool = False, **options: Any) -> None:
        super().__init__(inherit_host_environment=inherit_host_environment)
        self._options = {"sandbox": sandbox, **options}

    async def create(self, **options: Any) -> Any:
        return await self._confine(await super().create(**options))

    async def resume(self, state: Any) -> Any:
        return await self._confine(await super().resume(state))

    async def _confine(self, session: Any) -> Any:
        inner = KernelboxSandboxSession.from_state(session._inner.state)
        inner._host_environment_allowlist = self._host_environment_allowlist
        inner.kernel = AsyncKernel(cwd=inner.state.manifest.root, **self._options)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def delete(self, session: Any) -> Any:
        await session._inner.kernel.destroy()
        return await super().delete(session)

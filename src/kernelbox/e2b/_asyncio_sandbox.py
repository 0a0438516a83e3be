"""AsyncSandbox: E2B's code interpreter on local kernels, for event loops. Cancelling a task interrupts its cell."""

from __future__ import annotations

import inspect
from contextlib import aclosing

from kernelbox.api._async_kernel import AsyncKernel
from kernelbox.api._fresh_shell import fresh_shell
from kernelbox.e2b import _blocking_sandbox as blocking
from kernelbox.e2b._blocking_sandbox import CloudOnly, CloudParts, CommandParts, Filesystem, Sandbox
from kernelbox.e2b._code_run import CodeRun, set_variables
from kernelbox.e2b._local_sandbox import DEFAULT_TIMEOUT, LocalSandbox, seconds_or_none
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal, Self

    from kernelbox.e2b._blocking_sandbox import Data
    from kernelbox.e2b._code_run import Callback
    from kernelbox.e2b._e2b_values import CommandResult, Context, EntryInfo, Execution, SandboxInfo, WriteInfo


class AsyncSandbox(CloudParts):
    """A sandbox: a directory and a kernel, which is confined unless `create(sandbox=False)` says otherwise."""

    def __init__(self, local: LocalSandbox) -> None:
        self._local = local
        self.sandbox_id = local.id
        self.files = AsyncFilesystem(local)
        self.commands = AsyncCommands(local)

    @classmethod
    async def create(cls, template: str | None = None, timeout: float | None = None, **options: Any) -> Self:  # noqa: ASYNC109  # E2B's name
        """Opens a sandbox for `timeout` seconds; the options are those of `Sandbox.create`."""
        made = await in_thread(lambda: Sandbox.create(template, timeout, **options), undo=Sandbox.kill)
        return cls(made._local)

    @classmethod
    async def connect(cls, sandbox_id: str, timeout: float | None = None, **connection: object) -> Self:  # noqa: ASYNC109
        """Returns a running sandbox, even one that another program opened in the same directory."""
        return cls(await in_thread(LocalSandbox.connect, sandbox_id, timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.sandbox_id!r}>"

    async def is_running(self, request_timeout: float | None = None) -> bool:
        """Tells whether the sandbox still runs."""
        return await in_thread(self._local.is_running)

    async def set_timeout(self: AsyncSandbox | str, timeout: float, **connection: object) -> None:  # noqa: ASYNC109
        """Ends the sandbox this many seconds from now. `AsyncSandbox.set_timeout(sandbox_id, 60)` works too."""
        await in_thread(lambda: _find(self).set_timeout(timeout))

    async def get_info(self: AsyncSandbox | str, **connection: object) -> SandboxInfo:
        """Returns the metadata and times of the sandbox."""
        return await in_thread(lambda: _find(self).info())

    async def kill(self: AsyncSandbox | str, **connection: object) -> bool:
        """Ends the sandbox and removes its files; returns whether it was running."""
        return await in_thread(lambda: _find(self).kill())

    async def run_code(
        self,
        code: str,
        language: str | None = None,
        context: Context | None = None,
        on_stdout: Callback = None,
        on_stderr: Callback = None,
        on_result: Callback = None,
        on_error: Callback = None,
        envs: dict[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        request_timeout: float | None = None,
    ) -> Execution:
        """Runs a cell; what it raises is in the `error` of the execution. A timeout raises TimeoutException."""
        kernel = await _kernel(self._local, context)
        chosen = blocking.choose_language(language, context)
        run = CodeRun(on_stdout, on_stderr, on_result, on_error)
        if chosen == "bash":
            code = fresh_shell(code, ".", envs) if envs else code
        before = (await kernel.execute(set_variables({**envs}))).value if envs and chosen == "python" else None
        try:
            seconds = seconds_or_none(timeout, DEFAULT_TIMEOUT)
            async with aclosing(kernel.stream(code, language=chosen, timeout=seconds, output_char_limit=0)) as items:
                async for item in items:
                    await _settle(run.take(item))
        finally:
            if before is not None:
                await kernel.execute(set_variables(before))
        return run.execution

    async def create_code_context(
        self, cwd: str | None = None, language: str | None = None, request_timeout: float | None = None
    ) -> Context:
        """Opens a context with variables of its own, in the same directory."""
        return await in_thread(self._local.create_context, cwd, language)

    async def list_code_contexts(self) -> Sequence[Context]:
        """Returns all contexts."""
        return await in_thread(self._local.contexts)

    async def restart_code_context(self, context: Context | str) -> None:
        """Gives a context a new process."""
        await in_thread(self._local.restart_context, context)

    async def remove_code_context(self, context: Context | str) -> None:
        """Ends a context."""
        await in_thread(self._local.remove_context, context)


class AsyncFilesystem:
    """The files of a sandbox. Relative paths, and those in `/home/user`, are in the sandbox's own directory."""

    def __init__(self, local: LocalSandbox) -> None:
        self._files = Filesystem(local)

    async def read(self, path: str, format: Literal["text", "bytes"] = "text", **connection: object) -> Any:
        """Returns a file as text or as a bytearray."""
        return await in_thread(self._files.read, path, format)

    async def write(self, path: str, data: Data, **connection: object) -> WriteInfo:
        """Writes a file, and makes the directories that it needs."""
        return await in_thread(self._files.write, path, data)

    async def write_files(self, files: Sequence[Mapping[str, Any]], **connection: object) -> Sequence[WriteInfo]:
        """Writes several files, given as `{"path": …, "data": …}`."""
        return await in_thread(self._files.write_files, files)

    async def list(self, path: str, depth: int = 1, **connection: object) -> Sequence[EntryInfo]:
        """Returns what is in a directory, and in those below it down to `depth`."""
        return await in_thread(self._files.list, path, depth)

    async def exists(self, path: str, **connection: object) -> bool:
        """Tells whether there is a file or directory."""
        return await in_thread(self._files.exists, path)

    async def get_info(self, path: str, **connection: object) -> EntryInfo:
        """Returns what is known about a file or directory."""
        return await in_thread(self._files.get_info, path)

    async def make_dir(self, path: str, **connection: object) -> bool:
        """Makes a directory and those above it; returns False if it exists."""
        return await in_thread(self._files.make_dir, path)

    async def rename(self, old_path: str, new_path: str, **connection: object) -> EntryInfo:
        """Moves a file or directory."""
        return await in_thread(self._files.rename, old_path, new_path)

    async def remove(self, path: str, **connection: object) -> None:
        """Removes a file, or a directory with what is in it."""
        await in_thread(self._files.remove, path)

    watch_dir = CloudOnly("; list() shows what has changed")


class AsyncCommands(CommandParts):
    """Commands in a fresh bash each, run by the kernel of the first context."""

    def __init__(self, local: LocalSandbox) -> None:
        self._local = local

    async def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        stdin: bool | None = None,
        timeout: float | None = blocking.COMMAND_TIMEOUT,  # noqa: ASYNC109
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Runs a command; raises CommandExitException if its exit code is not 0."""
        blocking.check_command(background, user, stdin)
        line = fresh_shell(cmd, self._local.path(cwd or "."), envs)
        kernel = await _kernel(self._local, None)
        seconds = seconds_or_none(timeout, blocking.COMMAND_TIMEOUT)
        async with aclosing(kernel.stream(line, language="bash", timeout=seconds, output_char_limit=0)) as items:
            async for item in items:
                if isinstance(item, ExecutionResult):
                    return blocking.end_command(item)
                await _settle(blocking.tell_command(item, on_stdout, on_stderr))
        raise AssertionError("a stream ends with its result")


def _find(sandbox: AsyncSandbox | str) -> LocalSandbox:
    return LocalSandbox.connect(sandbox) if isinstance(sandbox, str) else sandbox._local


async def _kernel(local: LocalSandbox, context: Context | None) -> AsyncKernel:
    """Returns the kernel of a context for this event loop. It lives, so no options are needed to find it."""
    return AsyncKernel((await in_thread(local.kernel_of, context)).name)


async def _settle(returned: Any) -> None:
    if inspect.isawaitable(returned):
        await returned

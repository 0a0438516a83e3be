"""Deep Agents: a backend whose commands and files are those of a confined kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from kernelbox.api._async_kernel import AsyncKernel
from kernelbox.api._fresh_shell import fresh_shell
from kernelbox.api._kernel import Kernel
from kernelbox.integrations._adapting import needs
from kernelbox.wire._results import ExecutionResult

with needs("deepagents"):
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox


class KernelboxSandbox(BaseSandbox):
    """Works in `cwd`, and nowhere else. `sandbox`, `limits` and other options are those of `Kernel`."""

    def __init__(self, cwd: str | os.PathLike[str] = ".", *, timeout: int = 120, sandbox: Any = True, **options: Any):
        self._cwd, self._timeout = os.path.realpath(cwd), timeout
        self.kernel = Kernel(cwd=self._cwd, sandbox=sandbox, output_char_limit=0, **options)

    @property
    def id(self) -> str:
        return self.kernel.kernel_id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return _response(self.kernel.bash(fresh_shell(command, self._cwd), timeout=timeout or self._timeout))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:  # noqa: ASYNC109
        """Cancelling the task interrupts the command."""
        kernel = AsyncKernel.of(self.kernel)
        return _response(await kernel.bash(fresh_shell(command, self._cwd), timeout=timeout or self._timeout))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=_attempt(path, self._write, data)[1]) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        found = [(path, *_attempt(path, self.kernel.files.read)) for path in paths]
        return [FileDownloadResponse(path=path, content=content, error=error) for path, content, error in found]

    def _write(self, path: str, data: bytes) -> None:
        self.kernel.files.make_dir(os.path.dirname(path))
        self.kernel.files.write(path, data)

    def close(self) -> None:
        """Ends the kernel; the files in the working directory stay."""
        self.kernel.destroy()


def _response(result: ExecutionResult) -> ExecuteResponse:
    if result.status == "timeout":
        return ExecuteResponse(output=str(result), exit_code=124, truncated=result.truncated)
    code = 1 if result.exit_code is None else result.exit_code
    output = result.stdout + result.stderr if result.exit_code is not None else str(result)
    return ExecuteResponse(output=output, exit_code=code, truncated=result.truncated)


def _attempt(path: str, operation: Callable[..., Any], *args: Any) -> tuple[Any, str | None]:
    """Returns what a file operation returned, or the word that stands for its error."""
    if not os.path.isabs(path):
        return None, "invalid_path"
    try:
        return operation(path, *args), None
    except OSError as exc:
        return None, _WORDS.get(type(exc), "permission_denied")


_WORDS = {FileNotFoundError: "file_not_found", IsADirectoryError: "is_directory", NotADirectoryError: "invalid_path"}

"""Pydantic AI: a toolset that runs Python, and a workspace whose commands run in confined kernels."""

from __future__ import annotations

from typing import Any, Self

from kernelbox.api._async_kernel import AsyncKernel
from kernelbox.integrations._adapting import DESCRIPTION, needs, text_and_pictures

with needs("pydantic-ai"):
    from pydantic_ai import BinaryContent, FunctionToolset, ModelRetry

    from kernelbox.integrations._pydantic_workspace import KernelboxWorkspaceBackend


__all__ = ["KernelboxToolset", "KernelboxWorkspaceBackend"]


class KernelboxToolset(FunctionToolset[None]):
    """Runs Python in a kernel, which lives while the agent is entered. The options are those of `AsyncKernel`."""

    def __init__(self, *, retry_errors: bool = False, **options: Any) -> None:
        super().__init__(id="kernelbox")
        self.kernel, self._retry_errors = AsyncKernel(**options), retry_errors
        self.add_function(self.run_python, name="run_python", description=DESCRIPTION)

    async def run_python(self, code: str) -> list[str | BinaryContent]:
        result = await self.kernel.execute(code)
        text, pictures = text_and_pictures(result)
        if self._retry_errors and not result.ok:
            raise ModelRetry(text)
        return [text, *(BinaryContent(data=data, media_type=mime) for mime, data in pictures)]

    async def __aenter__(self) -> Self:
        await self.kernel.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kernel.stop()

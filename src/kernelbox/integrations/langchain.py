"""LangChain and LangGraph: a tool with a kernel for each thread."""

from __future__ import annotations

import inspect
import os

from kernelbox.api._async_kernel import AsyncKernel
from kernelbox.api._job import answer_in_thread
from kernelbox.api._kernel import Kernel
from kernelbox.api._sync import destroy
from kernelbox.integrations._adapting import DESCRIPTION, needs, open_session
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.wire._results import ExecutionResult

with needs("langchain"):
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, ToolException
    from pydantic import PrivateAttr

from typing import Any, Literal  # the fields of a tool are read at run time


class CellFailed(ToolException):
    """What a cell raised; the message to the model has the status "error"."""

    def __init__(self, result: ExecutionResult) -> None:
        super().__init__(str(result))
        self.content = result.to_content("langchain")


class KernelboxTool(BaseTool):
    """Runs Python in the kernel of the conversation's `thread_id`, or in the one called `kernel`.

    `options` are those of `Kernel`. Kernels end with `close()`, or with the program; one that you name lives on.
    """

    name: str = "python"
    description: str = DESCRIPTION
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = lambda failed: failed.content
    kernel: str | None = None
    timeout: float | None = None
    options: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it
    _opened: set[str] = PrivateAttr(default_factory=set)
    _own: str = PrivateAttr(default_factory=lambda: f"langchain-{os.urandom(6).hex()}")

    def _run(self, code: str, config: RunnableConfig) -> tuple[Any, ExecutionResult]:
        kernel, cell = self._open(config)
        return _answer(kernel.execute(code, **cell))

    async def _arun(self, code: str, config: RunnableConfig) -> tuple[Any, ExecutionResult]:
        kernel, cell = await in_thread(self._open, config)
        approve = cell.get("approve")
        if approve is not None and not inspect.iscoroutinefunction(approve):
            cell["approve"] = answer_in_thread(approve)
        return _answer(await AsyncKernel.of(kernel).execute(code, **cell))

    def _open(self, config: RunnableConfig) -> tuple[Kernel, dict[str, Any]]:
        """Opens the kernel of a conversation; returns it with the options of its cells."""
        options = {"timeout": self.timeout, **self.options}
        if self.kernel is not None:
            return open_session(self.kernel, options)
        thread = config.get("configurable", {}).get("thread_id")
        name = self._own if thread is None else f"{self._own}-{thread}"
        self._opened.add(name)
        return open_session(name, {"lifetime": "process", **options})

    def close(self) -> None:
        """Ends the kernels that were opened for conversations."""
        while self._opened:
            destroy(self._opened.pop())


def _answer(result: ExecutionResult) -> tuple[Any, ExecutionResult]:
    if not result.ok:
        raise CellFailed(result)
    return result.to_content("langchain"), result

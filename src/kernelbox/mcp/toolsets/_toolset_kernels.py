"""Tools for several kernels by name: run, wait for jobs, look, interrupt, restart, close."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, Field

from kernelbox.core._options import KernelOptions
from kernelbox.host.pythons._allowed_pythons import ANY
from kernelbox.mcp.toolsets._running import conclude, run_cell, wait_for
from kernelbox.mcp.toolsets._tool_definition import Seconds, Tools, add_tool
from kernelbox.mcp.toolsets._tool_results import DEFAULT_BUDGET, answer
from kernelbox.mcp.toolsets._tool_state import ToolState
from kernelbox.mcp.toolsets._toolset_ipybox import DEFAULT_KERNEL, RUNS_CODE, Budget, Code, add_shared_tools

KernelName = Annotated[str, Field(description="name of the kernel; a new name opens one")]
KnownKernel = Annotated[str, Field(description="name of the kernel")]

# Variables in one answer: more than a model looks through.
_MOST_VARIABLES = 100


class KernelInfo(BaseModel):
    """A kernel as the tools describe it."""

    name: str
    status: Literal["running", "idle", "dead", "unknown"]
    executions: int
    created_at: str
    last_used_at: str
    memory: int | None = Field(description="bytes, with all that it started")
    limits: dict[str, float]


class KernelInfos(BaseModel):
    """The kernels there are."""

    kernels: list[KernelInfo]


class VariableInfo(BaseModel):
    """A variable as the tools describe it."""

    name: str
    type: str
    size: int = Field(description="bytes")
    preview: str


class VariableInfos(BaseModel):
    """The variables in a kernel."""

    variables: list[VariableInfo]
    total: int


class InterruptResult(BaseModel):
    """Whether there was anything to interrupt."""

    was_running: bool


_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
_LOOKS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def add_kernel_tools(tools: Tools, state: ToolState) -> None:
    """Adds the tools."""
    _add_running(tools, state)
    _add_looking(tools, state)
    _add_stopping(tools, state)
    if state.options.pythons:
        _add_opening(tools, state)
    add_shared_tools(tools, state)


def _add_running(tools: Tools, state: ToolState) -> None:
    async def execute(
        ctx: Context,
        code: Code,
        kernel: KernelName = DEFAULT_KERNEL,
        language: Literal["python", "bash"] = "python",
        timeout: Seconds = 120,  # noqa: ASYNC109  # what clients call it
        on_timeout: Annotated[
            Literal["interrupt", "background"],
            Field(description="background: the code goes on, and a job id is returned"),
        ] = "interrupt",
        max_output_chars: Budget = DEFAULT_BUDGET,
    ) -> CallToolResult | InputRequiredResult:
        """Run code in a stateful kernel; variables stay for later calls with the same kernel name.

        Returns output, the last value, errors and plots. Use another kernel name for work that must not share state.
        """
        return await run_cell(
            state,
            ctx,
            code,
            kernel=kernel,
            language=language,
            seconds=timeout,
            budget=max_output_chars,
            on_timeout=on_timeout,
        )

    async def job(
        ctx: Context,
        job_id: str,
        action: Annotated[
            Literal["wait", "output", "cancel"], Field(description="output: what it has written so far")
        ] = "wait",
        timeout: Annotated[float, Field(gt=0, le=3600, description="seconds to wait")] = 60,  # noqa: ASYNC109
        max_output_chars: Budget = DEFAULT_BUDGET,
    ) -> CallToolResult | InputRequiredResult:
        """Wait for code that went on in the background, look at its output so far, or cancel it."""
        found = state.workplace.job(job_id)
        if action == "cancel":
            await found.stop()
        elif action == "wait":
            asked = await wait_for(state, found, ctx, timeout)
            if asked is not None:
                return asked
        return await conclude(state, found, max_output_chars)

    add_tool(tools, execute, RUNS_CODE)
    add_tool(tools, job, _CHANGES)


def _add_opening(tools: Tools, state: ToolState) -> None:
    allowed = state.options.pythons

    async def open_kernel(
        kernel: KnownKernel,
        python: Annotated[str | None, Field(description="interpreter that it runs in")] = None,
        requirements: Annotated[list[str] | None, Field(description="packages that are installed for it alone")] = None,
    ) -> CallToolResult:
        wanted = KernelOptions(python=allowed.interpreter(python), requirements=allowed.requirements(requirements))
        record = await state.workplace.open(kernel, wanted)
        return answer(f"Kernel {kernel!r} runs Python {record.python_version}.")

    open_kernel.__doc__ = "Open a kernel in another Python, for later calls with its name."
    for what, values in (("python", dict(allowed.interpreters)), ("requirements", allowed.packages)):
        may_be = ", ".join(sorted(values)).replace(ANY, "any package") or "not allowed here"
        open_kernel.__doc__ += f" {what}: {may_be}."
    add_tool(tools, open_kernel, RUNS_CODE)


def _add_looking(tools: Tools, state: ToolState) -> None:
    async def list_kernels() -> KernelInfos:
        """List the kernels and whether they are busy."""
        records = await state.workplace.records()
        return KernelInfos(
            kernels=[
                KernelInfo(
                    name=name,
                    status=record.status,
                    executions=record.attempt_count,
                    created_at=record.created_at,
                    last_used_at=record.last_used_at,
                    memory=None if record.usage is None else int(record.usage["memory"]),
                    limits=record.limits,
                )
                for name, record in records
            ]
        )

    async def list_variables(kernel: KnownKernel = DEFAULT_KERNEL) -> VariableInfos:
        """List the variables in a kernel: type, size and the beginning of each value."""
        found = await state.workplace.variables(kernel)
        shown = {"variables": found[:_MOST_VARIABLES], "total": len(found)}
        return VariableInfos.model_validate(shown, from_attributes=True)

    add_tool(tools, list_kernels, _LOOKS, structured=True)
    add_tool(tools, list_variables, _LOOKS, structured=True)


def _add_stopping(tools: Tools, state: ToolState) -> None:
    async def interrupt(kernel: KnownKernel = DEFAULT_KERNEL) -> InterruptResult:
        """Stop the code that a kernel is running; its variables are kept."""
        return InterruptResult(was_running=await state.workplace.interrupt(kernel))

    async def restart_kernel(kernel: KnownKernel = DEFAULT_KERNEL) -> CallToolResult:
        """Restart a kernel: its variables and imports are lost."""
        await state.workplace.restart(kernel)
        return answer(f"Kernel {kernel!r} is fresh: its variables are gone.")

    async def close_kernel(kernel: KnownKernel) -> CallToolResult:
        """End a kernel that is no longer needed, with its variables and child processes."""
        await state.workplace.close(kernel)
        return answer(f"Kernel {kernel!r} is closed.")

    add_tool(tools, interrupt, _CHANGES, structured=True)
    add_tool(tools, restart_kernel, _CHANGES)
    add_tool(tools, close_kernel, _CHANGES)

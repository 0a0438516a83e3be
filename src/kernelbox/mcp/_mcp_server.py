"""The MCP server: its tools and resources, and its life."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Literal, NoReturn

import anyio
from mcp.server.mcpserver import MCPServer, RequestStateSecurity
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from kernelbox import __version__
from kernelbox.api._configured import kernels
from kernelbox.base._config import TOOL_CALL_CHARACTERS
from kernelbox.base._environment import scrubbed_environment, variables_for_kernels
from kernelbox.base._errors import KernelBoxError
from kernelbox.core._cell_options import CellOptions
from kernelbox.core._options import KernelOptions
from kernelbox.host.files._workspace_files import Workspace
from kernelbox.mcp._mcp_options import McpOptions
from kernelbox.mcp.toolsets._tool_definition import Tools
from kernelbox.mcp.toolsets._tool_state import IMAGES, SCHEME, Outputs, ToolState
from kernelbox.mcp.toolsets._toolset_files import add_file_tools
from kernelbox.mcp.toolsets._toolset_ipybox import add_ipybox_tools
from kernelbox.mcp.toolsets._toolset_kernels import add_kernel_tools
from kernelbox.shells._asyncio_connection import allow_threads
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.shells._asyncio_workplace import ADVICE, Workplace
from kernelbox.tools._toolbox import Toolbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.shells._asyncio_workplace import Noted

TOOLSETS: dict[str, Callable[[Tools, ToolState], None]] = {
    "ipybox": add_ipybox_tools,
    "kernels": add_kernel_tools,
    "files": add_file_tools,
}

_INSTRUCTIONS = """\
Runs code in persistent Python kernels. State stays between calls: compute step by step, keep data in variables, and \
print only what you need to read. Long output is cut in the middle; the resource named there has all of it."""

_IMAGE_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "svg": "image/svg+xml",
}


def make_state(options: McpOptions, *, prefix: str = "", noted: Noted | None = None, most: int = 0) -> ToolState:
    """Returns what the tools share; kernels are opened when they are first used.

    `prefix` begins the names of the kernels in the home, and `noted` holds a place for each cell. `most` is how many
    kernels the home may have before no more are opened, 0 for any number.
    """
    files = Workspace(options.workspace, options.sandbox)
    habit: Literal["accept", "ask"] = "accept" if options.approve == "all" else "ask"
    cells = CellOptions(
        text_limit=TOOL_CALL_CHARACTERS,
        images=os.path.join(files.root, IMAGES),
        report_changes=not options.plain,
        keep_outputs=False,
        policy=options.policy,
        shell=habit,
        tools=habit,
        patience=options.approval_timeout,
        stop_clock=True,
        guarded=options.require_shell_escape,
    )
    here = kernels()
    new = KernelOptions(
        cwd=options.workspace,
        env=scrubbed_environment(variables_for_kernels()),
        lifetime="kernel" if options.keep_kernels else "process",
        sandbox=options.sandbox,
        guarded=options.require_shell_escape,
    )
    toolbox = Toolbox(here.config, sandboxed=options.sandbox is not None)
    reached = AsyncKernels(here, new, toolbox, advice=ADVICE, most=most)
    workplace = Workplace(reached, cells, shared=options.keep_kernels, prefix=prefix, noted=noted)
    return ToolState(options, workplace, Outputs(files), files)


def make_server(state: ToolState) -> MCPServer:
    """Returns the server with the tools that were chosen."""
    tools: Tools = {}
    for name in state.options.toolsets:
        TOOLSETS[name](tools, state)
    server = _Server(
        "kernelbox",
        title="kernelbox",
        instructions=_INSTRUCTIONS,
        version=__version__,
        tools=list(tools.values()),
        # A client must be able to come back with an answer for as long as a question is open.
        request_state_security=RequestStateSecurity.ephemeral(ttl=2 * state.options.approval_timeout + 600),
        log_level=state.options.log_level,
    )
    _add_resources(server, state.outputs)
    return server


class _Server(MCPServer):
    """The SDK's server, which answers a request for a prompt that it does not have with a traceback in its log."""

    async def get_prompt(self, name: str, *_: object, **__: object) -> NoReturn:
        raise MCPError(INVALID_PARAMS, f"there is no prompt {name!r:.100}; this server has none")


def _add_resources(server: MCPServer, outputs: Outputs) -> None:
    @server.resource(
        f"{SCHEME}://outputs/{{output_id}}{{?start,end}}",
        name="output",
        description="A range of characters of an output that was cut; a negative number counts from the end.",
        mime_type="text/plain",
    )
    def read_output(output_id: str, start: str = "0", end: str = "") -> str:
        try:
            return outputs.read(output_id, int(start), int(end) if end else None)
        except ValueError:  # said here: the SDK would write a traceback to the log
            raise ResourceNotFoundError("start and end must be whole numbers") from None
        except KernelBoxError as exc:
            raise ResourceNotFoundError(str(exc)) from exc

    for suffix, kind in _IMAGE_TYPES.items():
        server.resource(f"{SCHEME}://images/{{name}}.{suffix}", name=f"image ({suffix})", mime_type=kind)(
            _image_reader(outputs, suffix)
        )


def _image_reader(outputs: Outputs, suffix: str) -> Callable[[str], bytes]:
    def read_image(name: str) -> bytes:
        try:
            return outputs.read_image(f"{name}.{suffix}")
        except KernelBoxError as exc:
            raise ResourceNotFoundError(str(exc)) from exc

    return read_image


def run_until_ended(state: ToolState, serving: Coroutine[Any, Any, None], *, grace: float) -> int:
    """Runs a server until it ends or a signal comes; then ends its jobs and kernels."""

    async def run() -> int:
        allow_threads()
        loop, signalled = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, signalled.set)
        server, waiting = asyncio.ensure_future(serving), asyncio.ensure_future(signalled.wait())
        await asyncio.wait({server, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        server.cancel()
        state.workplace.cancel_all()
        await asyncio.wait({server}, timeout=grace)
        await state.workplace.stop()
        await asyncio.wait({server})
        failure = None if server.cancelled() else server.exception()
        if failure is not None:
            raise _first(failure)
        return 0

    return anyio.run(run)


def _first(failure: BaseException) -> BaseException:
    """Returns what went wrong first; task groups wrap it."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure

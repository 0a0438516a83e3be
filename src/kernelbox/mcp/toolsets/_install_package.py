"""`install_package`: runs an installer for the interpreter that kernels run in."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys

from mcp_types import CallToolResult

from kernelbox.base._errors import InvalidInput, KernelBoxError
from kernelbox.mcp.toolsets._tool_results import answer
from kernelbox.mcp.toolsets._tool_state import ToolState
from kernelbox.tools._server_process import start_supervised

# Characters of what an installer says that are returned: its end, where the reason of a failure is.
_LONGEST_REPORT = 4000
_MOST_BYTES = 4 * _LONGEST_REPORT + 4

# Where an installer runs. In the workspace, which may be a stranger's, it would read settings (uv.toml), and modules.
_NEUTRAL = os.sep

# One at a time: two installers in one environment break each other's work.
_installing = asyncio.Lock()


async def install(state: ToolState, requirement: str) -> CallToolResult:
    """Installs what a requirement names; a failure of the installer is a failure of the tool."""
    requirement = _check(requirement, state.options.workspace)
    if state.options.sandbox is not None:  # what is installed may bring code that the installer runs
        raise KernelBoxError(
            f"{requirement} was not installed: kernels are sandboxed here, and an installer would run outside of the "
            f"sandbox. Ask the user to install it for {sys.executable}, or run `%pip install` in a cell, which works "
            "if the sandbox has a network"
        )
    command = [*installer(), requirement]
    async with _installing:
        process, lifeline = await start_supervised(
            command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT, cwd=_NEUTRAL
        )
        try:
            assert process.stdout is not None
            said = await _read_end(process.stdout)
            await process.wait()
        finally:
            if process.returncode is None:  # the call was cancelled
                process.terminate()
            lifeline.forget()
    report = said.decode("utf-8", "replace").strip()
    cut = report if len(report) <= _LONGEST_REPORT else f"…{report[-_LONGEST_REPORT:]}"
    if process.returncode:
        failure = f"{requirement} was not installed: the installer ended with {process.returncode}."
        return answer(f"{failure}\n{cut}", failed=True)
    return answer(cut or f"{requirement} is installed.")


async def _read_end(stream: asyncio.StreamReader) -> bytes:
    """Returns the end of what an installer says; what a package prints while it is built has no end of its own."""
    said = bytearray()
    while piece := await stream.read(2**16):
        said += piece
        del said[:-_MOST_BYTES]
    return bytes(said)


def installer() -> list[str]:
    """Returns the command that installs for this interpreter: uv's if there is one, else pip's."""
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--no-progress", "--color", "never", "--python", sys.executable, "--"]
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        return [*pip, "--progress-bar", "off", "--no-color", "--"]
    raise KernelBoxError(f"there is no installer: put uv on PATH, or install pip for {sys.executable}")


def _check(requirement: str, workspace: str) -> str:
    """Returns a requirement; one that is a path in the workspace becomes absolute."""
    text = requirement.strip()
    if not text or text.startswith("-") or not text.isprintable():
        raise InvalidInput("the package", requirement, "use a pip requirement, such as pandas>=2, or a git+https URL")
    inside = os.path.join(workspace, text)
    return os.path.abspath(inside) if (os.sep in text or text == ".") and os.path.exists(inside) else text

"""What the tools of one server share."""

from __future__ import annotations

from dataclasses import dataclass

from kernelbox.host._workspace import Workspace
from kernelbox.mcp._options import ServerOptions
from kernelbox.mcp._outputs import Outputs
from kernelbox.shells._asyncio_workplace import Workplace


@dataclass(frozen=True)
class State:
    """The kernels and jobs, the texts that were cut, and the files."""

    options: ServerOptions
    workplace: Workplace
    outputs: Outputs
    files: Workspace

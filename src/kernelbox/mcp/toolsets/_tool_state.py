"""What the tools of one server share: the kernels and jobs, the files, and the texts that were cut from results.

A text is kept for a while, and can be read by range as an MCP resource; the pictures of cells are resources too.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass

from kernelbox.base._errors import KernelBoxError
from kernelbox.host.files._workspace_files import Workspace
from kernelbox.mcp._mcp_options import McpOptions
from kernelbox.shells._asyncio_workplace import Workplace

SCHEME = "kernelbox"

# The directory of pictures, in the workspace, as ipybox has it.
IMAGES = "images"

# Characters that one read returns: more than a context window holds is of no use.
_LONGEST_RANGE = 100_000

# Bytes of a picture that is sent; more than a kernel can show at once.
_LARGEST_IMAGE = 64 * 1024 * 1024

# Characters of all texts that are kept; the oldest goes first.
_ROOM = 16_000_000


class Outputs:
    """The whole texts of results that were cut, the last ones, by ids that cannot be guessed."""

    def __init__(self, files: Workspace) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._size = 0
        self._files = files

    def keep(self, text: str) -> str:
        """Keeps a text and returns the address that it can be read at."""
        output_id = os.urandom(6).hex()
        self._texts[output_id] = text
        self._size += len(text)
        while self._size > _ROOM and len(self._texts) > 1:
            _, oldest = self._texts.popitem(last=False)
            self._size -= len(oldest)
        return f"{SCHEME}://outputs/{output_id}"

    def read(self, output_id: str, start: int, end: int | None) -> str:
        """Returns a range of characters; a negative number counts from the end."""
        text = self._texts.get(output_id)
        if text is None:
            raise KernelBoxError(f"the output {output_id[:40]!r} is no longer kept; run the code again")
        first, last, _ = slice(start, end).indices(len(text))
        return text[first : min(last, first + _LONGEST_RANGE)]

    def read_image(self, name: str) -> bytes:
        """Returns the bytes of a picture, which must be a regular file: cells can put links into the directory."""
        raw, size = self._files.read(os.path.join(IMAGES, name), 0, _LARGEST_IMAGE)
        if size > _LARGEST_IMAGE:
            raise KernelBoxError(f"the picture {name[:100]!r} has {size:,} bytes; read it in a kernel")
        return raw


@dataclass(frozen=True)
class ToolState:
    """The kernels and jobs, the texts that were cut, and the files."""

    options: McpOptions
    workplace: Workplace
    outputs: Outputs
    files: Workspace

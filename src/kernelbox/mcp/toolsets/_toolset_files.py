"""Tools for the files of the workspace: list, read by range, write."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from mcp_types import CallToolResult, ToolAnnotations
from pydantic import BaseModel, Field

from kernelbox.mcp.toolsets._tool_definition import Tools, add_tool
from kernelbox.mcp.toolsets._tool_results import answer
from kernelbox.mcp.toolsets._tool_state import ToolState

_MOST_ENTRIES = 500
_LONGEST_READ = 100_000

FilePath = Annotated[str, Field(description="path in the workspace")]


class ListedFile(BaseModel):
    """An entry of a directory as the tools describe it."""

    name: str
    kind: Literal["file", "directory", "link", "other"]
    size: int = Field(description="bytes")


class Listing(BaseModel):
    """The entries of a directory."""

    entries: list[ListedFile]
    total: int


class TextRange(BaseModel):
    """A part of a text file."""

    text: str
    start: int
    end: int
    size: int = Field(description="bytes of the whole file")


def add_file_tools(tools: Tools, state: ToolState) -> None:
    """Adds the tools."""
    looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    async def list_files(path: FilePath = ".") -> Listing:
        """List a directory of the workspace."""
        found, total = await asyncio.to_thread(state.files.entries, path, _MOST_ENTRIES)
        return Listing.model_validate({"entries": found, "total": total}, from_attributes=True)

    async def read_file(
        path: FilePath,
        start: Annotated[int, Field(ge=0, description="byte to begin at")] = 0,
        length: Annotated[int, Field(gt=0, le=_LONGEST_READ, description="bytes")] = 10_000,
    ) -> TextRange:
        """Read a part of a text file of the workspace. For data, read the file in a kernel instead."""
        raw, size = await asyncio.to_thread(state.files.read, path, start, length)
        return TextRange(text=raw.decode("utf-8", "replace"), start=start, end=start + len(raw), size=size)

    async def write_file(path: FilePath, text: str) -> CallToolResult:
        """Write a text file of the workspace, in place of what it held; missing directories are made."""
        raw = text.encode("utf-8", "backslashreplace")
        new = await asyncio.to_thread(state.files.write, path, raw)
        return answer(f"{'Wrote' if new else 'Replaced'} {path} ({len(raw):,} bytes).")

    add_tool(tools, list_files, looks, structured=True)
    add_tool(tools, read_file, looks, structured=True)
    add_tool(
        tools,
        write_file,
        ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False),
    )

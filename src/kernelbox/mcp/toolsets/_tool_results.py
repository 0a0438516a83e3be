"""Results for a context window: text within a budget, pictures scaled, and one line about what a cell changed."""

from __future__ import annotations

import asyncio
import mimetypes
import os

from mcp_types import CallToolResult, ContentBlock, ImageContent, ResourceLink, TextContent

from kernelbox.base._errors import KernelBoxError
from kernelbox.mcp.toolsets._tool_state import SCHEME, Outputs
from kernelbox.wire._results import ExecutionResult
from kernelbox.wire.results._picture_scaling import scale
from kernelbox.wire.results._shortening import shorten

# Characters of a result, by default; as ipybox has it.
DEFAULT_BUDGET = 5000

# Below this there is no room for a head, a tail, the address of the rest, and a handle.
LEAST_BUDGET = 300

# Pictures that are sent with a result, and links to files; of more it is said where they are.
_MOST_PICTURES = 4
_MOST_LINKS = 20

# Pixels on the longer side of a picture, and its bytes. Models scale what is larger themselves, after it has been paid
# for.
_LONGEST_SIDE = 1024
_MOST_BYTES = 256 * 1024

# Characters around a list of files: its first line, and the one about those that are not in it.
_SIZE_OF_REST = 90

_LOST = "[the kernel's variables are lost; the next call runs in a fresh kernel]"

# Characters of the line about changed variables.
_LONGEST_LINE = 300


async def shape(
    result: ExecutionResult, outputs: Outputs, budget: int, *, paths: bool = False, plain: bool = False
) -> CallToolResult:
    """Returns what a model reads of a result; with `paths`, also the files of pictures, as ipybox has them.

    A `plain` one is a text and nothing else.
    """
    room = budget // 4  # for each; the rest is for what the cell wrote
    changed = _LOST if result.state == "lost" else describe_changes(result.changed, room)
    listed = list_pictures(result.images, room, paths=paths)
    notes = "\n".join(filter(None, (changed, listed)))
    text = fit(result.text, outputs, budget - len(notes) - 1 if notes else budget)
    shown = "\n".join(filter(None, (text, notes)))
    if plain:
        return answer(shown, failed=not result.ok)
    if not shown and not result.images:
        shown = "(no output)"
    content: list[ContentBlock] = [TextContent(text=shown)] if shown else []
    for number, path in enumerate(result.images[:_MOST_LINKS]):
        content += await _show_picture(path, outputs, inline=number < _MOST_PICTURES)
    return CallToolResult(content=content, is_error=not result.ok)


def answer(text: str, *, failed: bool = False) -> CallToolResult:
    """Returns a sentence as the result of a tool."""
    return CallToolResult(content=[TextContent(text=text)], is_error=failed)


def fit(text: str, outputs: Outputs, budget: int) -> str:
    """Returns text within a budget: what matters most, and where the rest can be read."""
    if len(text) <= budget:
        return text
    return shorten(text, budget, f"the rest: resource {outputs.keep(text)}?start=0&end=10000")


def describe_changes(changed: dict[str, list[str]] | None, most: int = _LONGEST_LINE) -> str:
    """Returns what a cell changed, on one line with a limit; nothing if it changed nothing."""
    if not changed:
        return ""
    words = [f"{kind} {', '.join(names)}" for kind, names in changed.items() if names]
    line = f"[variables: {'; '.join(words)}]" if words else ""
    most = min(most, _LONGEST_LINE)
    return line if len(line) <= most else f"{line[: most - 2]}…]"


def list_pictures(images: list[str], most: int, *, paths: bool) -> str:
    """Returns the files of pictures, with `paths`, and how many were left out, within a limit of characters."""
    named = [f"- [{os.path.basename(path)}]({path})" for path in images[:_MOST_LINKS]] if paths else []
    while named and len("\n".join(named)) > most - _SIZE_OF_REST:
        named.pop()
    lines = ["Generated images:", *named] if named else []
    others = len(images) - (len(named) if paths else _MOST_LINKS)
    if others > 0:
        lines.append(f"[{others} more pictures: files in …{os.path.dirname(images[0])[-30:]}]")
    return "\n".join(lines)


async def _show_picture(path: str, outputs: Outputs, *, inline: bool) -> list[ContentBlock]:
    name = os.path.basename(path)
    try:
        raw = await asyncio.to_thread(outputs.read_image, name)
    except KernelBoxError:
        return []  # another cell has removed or replaced it
    limits = {"longest_side": _LONGEST_SIDE, "most_bytes": _MOST_BYTES}
    shown = await asyncio.to_thread(scale, raw, **limits) if inline else None
    kind = mimetypes.guess_type(name)[0]
    link = ResourceLink(name=name, uri=f"{SCHEME}://images/{name}", mime_type=kind, size=len(raw))
    return [link] if shown is None else [ImageContent(data=shown[0], mime_type=shown[1]), link]

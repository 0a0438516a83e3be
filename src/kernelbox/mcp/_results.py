"""Results for a context window: text within a budget, pictures scaled, and one line about what a cell changed."""

from __future__ import annotations

import asyncio
import mimetypes
import os

from mcp_types import CallToolResult, ContentBlock, ImageContent, ResourceLink, TextContent

from kernelbox.base._errors import KernelBoxError
from kernelbox.mcp._outputs import Outputs
from kernelbox.mcp._pictures import scale

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.wire._results import ExecutionResult

# Characters of a result, by default; as ipybox has it.
DEFAULT_BUDGET = 5000

# Below this there is no room for a head, a tail and the address of the rest.
LEAST_BUDGET = 200

# Pictures that are sent with a result; of more there are links.
_MOST_PICTURES = 4

_LOST = "[the kernel's variables are lost; the next call runs in a fresh kernel]"

# Characters of the line about changed variables.
_LONGEST_LINE = 300


async def shape(result: ExecutionResult, outputs: Outputs, budget: int, *, paths: bool = False) -> CallToolResult:
    """Returns what a model reads of a result; with `paths`, also the files of pictures, as ipybox has them."""
    changed = _LOST if result.state == "lost" else describe_changes(result.changed)
    text = fit(result.text, outputs, budget - len(changed) - 1 if changed else budget)
    parts = [text] if text else []
    if changed:
        parts.append(changed)
    if not parts and not result.images:
        parts.append("(no output)")
    if paths and result.images:
        parts.append("Generated images:\n" + "\n".join(f"- [{os.path.basename(p)}]({p})" for p in result.images))
    content: list[ContentBlock] = [TextContent(text="\n".join(parts))] if parts else []
    for number, path in enumerate(result.images):
        content += await _show_picture(path, outputs, inline=number < _MOST_PICTURES)
    return CallToolResult(content=content, is_error=not result.ok)


def answer(text: str, *, failed: bool = False) -> CallToolResult:
    """Returns a sentence as the result of a tool."""
    return CallToolResult(content=[TextContent(text=text)], is_error=failed)


def fit(text: str, outputs: Outputs, budget: int) -> str:
    """Returns text within a budget: its head and its tail, and between them where the rest can be read."""
    if len(text) <= budget:
        return text
    address = outputs.keep(text)
    notice = f"\n[… {len(text):,} characters in all; the rest: resource {address}?start=0&end=10000 …]\n"
    room = max(0, budget - len(notice))
    head = room * 2 // 5  # errors and results come last
    return f"{text[:head]}{notice}{text[len(text) - (room - head) :]}"


def describe_changes(changed: dict[str, list[str]] | None) -> str:
    """Returns what a cell changed, on one line; nothing if it changed nothing."""
    if not changed:
        return ""
    words = [f"{kind} {', '.join(names)}" for kind, names in changed.items() if names]
    line = f"[variables: {'; '.join(words)}]" if words else ""
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 2]}…]"


async def _show_picture(path: str, outputs: Outputs, *, inline: bool) -> list[ContentBlock]:
    name = os.path.basename(path)
    try:
        raw = await asyncio.to_thread(outputs.read_image, name)
    except KernelBoxError:
        return []  # another cell has removed or replaced it
    shown = await asyncio.to_thread(scale, raw) if inline else None
    kind = mimetypes.guess_type(name)[0]
    link = ResourceLink(name=name, uri=outputs.image_address(path), mime_type=kind, size=len(raw))
    return [link] if shown is None else [ImageContent(data=shown[0], mime_type=shown[1]), link]

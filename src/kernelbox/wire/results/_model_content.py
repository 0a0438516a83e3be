"""A result as the APIs of models take it: blocks of content, and whole messages.

The forms are those of November 2026: OpenAI's Chat Completions takes no pictures in a tool message, so they follow in a
message of the user; its Responses API, Anthropic's Messages, MCP and LangChain 1 take them with the text.
"""

from __future__ import annotations

import base64
import binascii

from kernelbox.wire.results._shortening import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    Api = Literal["openai", "openai-responses", "anthropic", "mcp", "langchain"]
    Block = dict[str, Any]

    # The MIME type of a picture, and its bytes as base64 or, of an SVG, its source.
    Shown = tuple[str, str]

APIS = ("openai", "openai-responses", "anthropic", "mcp", "langchain")

# What all of these APIs take; no model reads an SVG as a picture.
_RASTER = ("image/png", "image/jpeg", "image/gif", "image/webp")

# Bytes of one scaled picture: what each of these APIs takes.
_MOST_BYTES = 3 * 1024 * 1024

# Where a PNG has its width and height, in bytes (PNG specification, 11.2.2).
_PNG_SIZE = slice(16, 24)


def content_blocks(
    api: Api, text: str, pictures: Sequence[Shown], max_chars: int | None, max_image_px: int | None
) -> list[Block]:
    """Returns text and pictures as blocks; raises ValueError for an unknown API.

    The text has at most `max_chars` characters, and says which pictures are left out.
    """
    if api not in APIS:
        raise ValueError(f"api cannot be {api!r:.80}: use one of {', '.join(APIS)}")
    for what, limit in (("max_chars", max_chars), ("max_image_px", max_image_px)):
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"{what} cannot be {limit!r:.80}: use a whole number above 0, or None for no limit")
    shown, notes = _choose(pictures, max_image_px)
    whole = "\n".join([text, *notes])
    short = whole if max_chars is None else shorten(whole, max_chars)
    return [_text_block(api, short), *(_image_block(api, mime, data) for mime, data in shown)]


def messages(api: Api, blocks: list[Block], *, call_id: str | None, failed: bool) -> list[Block]:
    """Returns the messages that take a result to a model: the answer to a tool call, or what the user says."""
    if api == "mcp":
        return [{"content": blocks, "isError": failed}]
    if call_id is None:
        return [{"role": "user", "content": blocks}]
    if api == "openai-responses":
        return [{"type": "function_call_output", "call_id": call_id, "output": blocks}]
    if api == "anthropic":
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": blocks, "is_error": failed}
        return [{"role": "user", "content": [answer]}]
    if api == "langchain":
        status = "error" if failed else "success"
        return [{"role": "tool", "tool_call_id": call_id, "content": blocks, "status": status}]
    (text, *pictures) = blocks
    found = [{"role": "tool", "tool_call_id": call_id, "content": text["text"]}]
    if pictures:
        said = {"type": "text", "text": f"The images of tool call {call_id}:"}
        found.append({"role": "user", "content": [said, *pictures]})
    return found


def _text_block(api: Api, text: str) -> Block:
    return {"type": "input_text" if api == "openai-responses" else "text", "text": text}


def _image_block(api: Api, mime: str, data: str) -> Block:
    url = f"data:{mime};base64,{data}"
    match api:
        case "openai":
            return {"type": "image_url", "image_url": {"url": url}}
        case "openai-responses":
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case "anthropic":
            return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
        case "mcp":
            return {"type": "image", "data": data, "mimeType": mime}
        case "langchain":
            return {"type": "image", "base64": data, "mime_type": mime}


def _choose(pictures: Sequence[Shown], max_image_px: int | None) -> tuple[list[Shown], list[str]]:
    """Returns the pictures that a model can be shown, and notes about the others."""
    shown, notes = list[tuple[str, str]](), list[str]()
    for number, (mime, data) in enumerate(pictures, 1):
        found = (mime, data) if mime in _RASTER else f"{mime} is not a picture for a model"
        if isinstance(found, tuple) and max_image_px is not None:
            found = _scaled(mime, data, max_image_px)
        if isinstance(found, tuple):
            shown.append(found)
        else:
            notes.append(f"[image {number} is not shown: {found}]")
    return shown, notes


def _scaled(mime: str, data: str, most: int) -> Shown | str:
    """Returns a picture whose sides fit the limit, or why there is none."""
    from kernelbox.wire.results._picture_scaling import scale

    try:
        raw = base64.b64decode(data, validate=True)
        found = scale(raw, longest_side=most, most_bytes=_MOST_BYTES)
    except ImportError:
        if mime == "image/png" and max(_png_size(raw)) <= most:
            return mime, data
        return f"it may have more than {most} pixels on a side, and scaling needs Pillow: pip install pillow"
    except binascii.Error:
        found = None
    return "it cannot be decoded" if found is None else (found[1], found[0])


def _png_size(raw: bytes) -> tuple[int, int]:
    size = raw[_PNG_SIZE]
    return int.from_bytes(size[:4], "big"), int.from_bytes(size[4:], "big")

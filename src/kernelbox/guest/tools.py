"""What generated modules call: names a server and a tool, and turns the answer into values."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pydantic import BaseModel, Field, ValidationError

from kernelbox.wire._messages import ToolError

if TYPE_CHECKING:
    from kernelbox.guest.serve._asks import PendingAsks

    R = TypeVar("R", bound=BaseModel)

# Characters of an answer that does not fit, in the error about it.
_SHOWN = 300

# Characters of a MIME type; longer ones, and those that cannot be printed, are none.
_LONGEST_TYPE = 200


class Media(bytes):
    """A picture or a sound that a tool returned: its bytes, and their `mime_type`."""

    mime_type: str

    def __new__(cls, data: bytes, mime_type: str) -> Media:
        made = super().__new__(cls, data)
        made.mime_type = mime_type
        return made

    def __repr__(self) -> str:
        return f"<Media {self.mime_type} {len(self):,} bytes>"

    def __getnewargs__(self) -> tuple[bytes, str]:  # type: ignore[override]  # what __new__ takes
        return bytes(self), self.mime_type

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": repr(self), self.mime_type: bytes(self)}


class Resource(BaseModel):
    """A resource that a tool returned, or one that it points to: then it has neither `text` nor `data`."""

    # A model of pydantic's, so that a template that preloads this module has loaded all that such classes need.
    uri: str
    mime_type: str = Field(default="")
    name: str = ""
    text: str | None = None
    data: bytes | None = None

    def __repr__(self) -> str:
        return f"<Resource {self.uri!r} {self.mime_type}>".replace(" >", ">")


@overload
def call(server: str, tool: str, params: BaseModel) -> Any: ...
@overload
def call(server: str, tool: str, params: BaseModel, result_type: type[R]) -> R: ...
def call(server: str, tool: str, params: BaseModel, result_type: type[BaseModel] | None = None) -> Any:
    """Calls a tool, once the application has approved it; raises ApprovalRejectedError and ToolError.

    Returns a `result_type`, or without one the tool's text, or what else it returned: Media, Resource, a list of them.
    """
    return _read(tool, _asks().ask(server, tool, _arguments(params)), result_type)


@overload
async def call_async(server: str, tool: str, params: BaseModel) -> Any: ...
@overload
async def call_async(server: str, tool: str, params: BaseModel, result_type: type[R]) -> R: ...
async def call_async(server: str, tool: str, params: BaseModel, result_type: type[BaseModel] | None = None) -> Any:
    """Does the same in a task, and lets other tasks run while it waits."""
    return _read(tool, await _asks().ask_async(server, tool, _arguments(params)), result_type)


def _asks() -> PendingAsks:
    from IPython.core.getipython import get_ipython

    asks: PendingAsks | None = getattr(getattr(get_ipython(), "kernel", None), "asks", None)
    if asks is None:
        raise RuntimeError("tools can be called only in a kernel of kernelbox, whose application approves the calls")
    return asks


def _arguments(params: BaseModel) -> dict[str, Any]:
    """Returns what was set, under the names that the server knows; what was not set is the server's to fill in."""
    if not isinstance(params, BaseModel):
        raise TypeError(f"pass Params(…), not {type(params).__name__}")
    dumped = params.model_dump(by_alias=True, exclude_unset=True, warnings="error")
    if not isinstance(dumped, dict):
        raise TypeError("the arguments of a tool are named")
    type(params).model_validate(dumped)  # a field may have been set since to what it does not take
    return dumped


def _read(tool: str, payload: bytes, result_type: type[BaseModel] | None) -> Any:
    answer = json.loads(payload)
    try:
        parts = [_read_part(part) for part in answer.get("content", ())]
    except ValueError:
        raise ToolError(f"{tool} answered with a picture, a sound or a file that is not base64") from None
    if answer.get("isError"):
        words = "\n".join(part for part in parts if isinstance(part, str))
        raise ToolError(words or f"{tool} failed and gave no reason")
    _show([part for part in parts if isinstance(part, Media)])
    if result_type is not None:
        return _fit(tool, answer.get("structuredContent"), result_type)
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    return parts[0] if len(parts) == 1 else parts


def _fit(tool: str, value: object, result_type: type[BaseModel]) -> BaseModel:
    try:
        return result_type.model_validate(value)
    except ValidationError as exc:
        reason = "; ".join(f"{'.'.join(map(str, error['loc'])) or 'it'}: {error['msg']}" for error in exc.errors()[:3])
        raise ToolError(
            f"{tool} answered with something that is not a Result ({reason}): {str(value)[:_SHOWN]}. "
            "If the server has changed, generate its package again: `kernelbox tools refresh`"
        ) from None


def _read_part(part: dict[str, Any]) -> str | Media | Resource:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio", "data": str(data)}:
            return Media(_decode(data), _mime_type(part))
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)}}:
            return Resource(uri=uri, mime_type=_mime_type(part["resource"]), data=_decode(data))
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return Resource(uri=uri, mime_type=_mime_type(part["resource"]), text=text)
        case {"type": "resource_link", "uri": str(uri)}:
            return Resource(uri=uri, mime_type=_mime_type(part), name=str(part.get("name") or ""))
    return json.dumps(part)


def _decode(data: str) -> bytes:
    """Returns the bytes of a base64 text; invalid letters are an error, line ends are not."""
    return base64.b64decode("".join(data.split()), validate=True)


def _mime_type(part: dict[str, Any]) -> str:
    told = str(part.get("mimeType") or "")
    return told if told.isprintable() and len(told) <= _LONGEST_TYPE else ""


def _show(media: list[Media]) -> None:
    """Shows pictures, as a cell shows its plots."""
    for item in media:
        if item.mime_type.startswith("image/"):
            from IPython.display import display

            display(item)

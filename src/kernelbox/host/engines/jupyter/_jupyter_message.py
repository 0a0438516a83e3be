"""Jupyter's messages as signed frames (https://jupyter-client.readthedocs.io, "Messaging in Jupyter").

jupyter_client's Session does the same and more, but importing it takes several times as long as running a cell.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from dataclasses import dataclass, field

from kernelbox.wire._json import load
from kernelbox.wire._schema import COMM_KINDS, MAX_BUFFERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DELIMITER = b"<IDS|MSG>"
_VERSION = "5.3"

# The most bytes of a content: twice our own frame, because pictures come in base64 and text is escaped.
_LONGEST_CONTENT = 128 * 1024 * 1024

# The most bytes of a frame. ZeroMQ disconnects a kernel that announces more.
LONGEST_FRAME = 2 * _LONGEST_CONTENT

# The most characters of a kind and of an id; Jupyter's have at most 50.
_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """A message from a kernel; `parent` is the id of the request that it belongs to.

    The content of an `unread` message was too large, too deep or not JSON, and is empty here.
    """

    kind: str
    parent: str
    content: dict[str, Any]
    unread: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()

    def text(self, name: str) -> str:
        """Returns a text field of the content; "" if it is not text, since untrusted code can send anything."""
        value = self.content.get(name)
        return value if isinstance(value, str) else ""

    def dict(self, name: str) -> dict[str, Any]:
        value = self.content.get(name)
        return value if isinstance(value, dict) else {}


class SignedCodec:
    """Writes requests and reads answers, signed with the key that only the kernel and its clients know."""

    def __init__(self, key: str) -> None:
        self._hmac = hmac.new(key.encode(), digestmod=hashlib.sha256)
        self._session = os.urandom(16).hex()

    def encode(
        self,
        kind: str,
        content: dict[str, Any],
        message_id: str,
        metadata: dict[str, Any] | None = None,
        buffers: tuple[bytes, ...] = (),
    ) -> list[bytes]:
        header = {
            "msg_id": message_id,
            "session": self._session,
            "username": "kernelbox",
            "date": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime()),
            "msg_type": kind,
            "version": _VERSION,
        }
        parts = [json.dumps(part).encode() for part in (header, {}, metadata or {}, content)]
        return [_DELIMITER, self._sign(parts), *parts, *buffers]

    def decode(self, frames: list[bytes]) -> KernelMessage | None:
        """Reads a message; None if these frames are not one, or not signed with the key."""
        try:
            start = frames.index(_DELIMITER) + 1
            parts = frames[start + 1 : start + 5]
            if not hmac.compare_digest(frames[start], self._sign(parts)):
                return None
            header, parent, (described, raw) = _load(parts[0]), _load(parts[1]), parts[2:]
            kind, parent_id = header["msg_type"], parent.get("msg_id", "")
        except (ValueError, IndexError, KeyError, TypeError, AttributeError):
            return None
        kind, parent_id = str(kind)[:_LONGEST_NAME], str(parent_id)[:_LONGEST_NAME]
        buffers = tuple(frames[start + 5 :])
        try:
            content = _load(raw)
            metadata = _load(described) if kind in COMM_KINDS else {}  # used for nothing else
        except ValueError:
            content = None
        if not isinstance(content, dict) or len(buffers) > MAX_BUFFERS:
            return KernelMessage(kind, parent_id, {}, unread=True)
        return KernelMessage(
            kind, parent_id, content, metadata=metadata if isinstance(metadata, dict) else {}, buffers=buffers
        )

    def _sign(self, parts: list[bytes]) -> bytes:
        signature = self._hmac.copy()
        for part in parts:
            signature.update(part)
        return signature.hexdigest().encode()


def _load(part: bytes) -> Any:
    if len(part) > _LONGEST_CONTENT:
        raise ValueError("too large")
    try:
        part.decode()
    except UnicodeDecodeError:
        part = part.decode("utf-8", "replace").encode()
    value = load(part)
    return _without_surrogates(value) if b"\\ud" in part or b"\\uD" in part else value


def _without_surrogates(value: Any) -> Any:
    """Replaces lone surrogates, which JSON can contain and UTF-8 cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value

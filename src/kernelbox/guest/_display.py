"""How values become displays: IPython's publisher and display hook, bound to the outbox."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

from kernelbox.guest._outbox import Outbox
from kernelbox.wire._bounded import bound
from kernelbox.wire._messages import Clear, Display

# Types that travel as bytes. Formatters give them raw or, when the type is already meant for JSON, in base64.
_BINARY = {"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "application/pdf"}

# Types whose text can be cut in the middle and still be read; others are shown whole or not at all.
_READABLE = {"text/plain", "text/markdown", "text/latex"}

# A readable type is cut at the caller's limit; HTML or JSON is a hundred times as verbose as what it says.
_MARKUP_FACTOR = 100
_BLOB_LIMIT = 32 * 1024 * 1024


def build_display(
    execution_id: str,
    kind: str,
    data: dict[str, Any],
    metadata: dict[str, Any] | None,
    *,
    text_limit: int,
    display_id: str = "",
    execution_count: int | None = None,
) -> Display:
    """Returns the message for a MIME bundle, bounded."""
    texts: dict[str, Any] = {}
    blobs: dict[str, bytes] = {}
    cut = False
    for mime, value in data.items():
        blob = _as_blob(mime, value)
        if blob is not None and len(blob) <= _BLOB_LIMIT:
            blobs[mime] = blob
        elif blob is not None:
            cut = True
        elif isinstance(value, str) and mime in _READABLE:
            texts[mime] = bound(value, text_limit)
            cut |= texts[mime] is not value
        elif text_limit > 0 and len(value if isinstance(value, str) else repr(value)) > text_limit * _MARKUP_FACTOR:
            cut = True
        else:
            texts[mime] = value
    if cut and "text/plain" not in texts:
        texts["text/plain"] = f"[a display of {', '.join(data)} was too large to show]"
    return Display(execution_id, kind, texts, dict(metadata or {}), display_id, execution_count, cut, blobs)


def _as_blob(mime: str, value: object) -> bytes | None:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if mime in _BINARY and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=False)
        except (binascii.Error, ValueError):
            return None
    return None


class Publisher(DisplayPublisher):
    """What `display()` and `clear_output()` call."""

    outbox: Outbox
    text_limit = 0

    def publish(  # type: ignore[override]  # `source`, deprecated there, is not taken
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        self._validate_data(data, metadata)
        kind = "update_display_data" if update else "display_data"
        display_id = str((transient or {}).get("display_id") or "")
        self.outbox.send(
            build_display(
                self.outbox.execution_id,
                kind,
                data,
                metadata,
                text_limit=self.text_limit,
                display_id=display_id,
            )
        )

    def clear_output(self, wait: bool = False) -> None:
        self.outbox.send(Clear(self.outbox.execution_id, wait))


class ResultHook(DisplayHook):
    """What the value of a cell's last expression is passed to."""

    outbox: Outbox
    text_limit = 0

    def write_output_prompt(self) -> None:
        """Writes nothing: the number travels with the result."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self.outbox.send(
            build_display(
                self.outbox.execution_id,
                "execute_result",
                format_dict,
                md_dict,
                text_limit=self.text_limit,
                execution_count=self.prompt_count,
            ),
            hold=True,  # the end of the cell follows at once
        )

    def log_output(self, format_dict: dict[str, Any]) -> None:
        """Remembers the text for `%history -o`, not the whole bundle: that would pin every picture shown."""
        if "text/plain" in format_dict:
            text = bound(str(format_dict["text/plain"]), 1000)
            assert self.shell is not None
            self.shell.history_manager.output_hist_reprs[self.prompt_count] = text

    def finish_displayhook(self) -> None:
        self._is_active = False

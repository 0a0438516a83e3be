"""A kernel's history as a notebook, in Jupyter's format 4.5 (https://nbformat.readthedocs.io)."""

from __future__ import annotations

import base64
import json
import re

from kernelbox.base._errors import KernelBoxError
from kernelbox.wire._framing import Decoder, ProtocolError
from kernelbox.wire._messages import Clear, Display, Done, Output
from kernelbox.wire._results import ErrorInfo, OutputItem
from kernelbox.wire._transcript import Transcript, writable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Characters that are kept of one text: more than our own guest keeps of a cell.
_LONGEST_TEXT = 4_000_000

# MIME types whose values are JSON; those of all others are text.
_JSON = re.compile(r"application/(.*\+)?json")

_KERNELSPEC = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}


def build_notebook(kernel: str, content: dict[str, Any]) -> dict[str, Any]:
    """Reads a kernel's answer to the query `notebook`, which its own cells can forge."""
    if content.get("status") != "ok":
        raise KernelBoxError(f"kernel {kernel!r} has no notebook: {content.get('evalue', 'unknown')!s:.1000}")
    try:
        dropped = int(content["dropped"])
        cells = [_NotebookCell(*described) for described in content["cells"]]
    except (LookupError, TypeError, ValueError, ProtocolError) as exc:
        raise KernelBoxError(
            f"kernel {kernel!r} sent what is no history; a cell has tampered with it: restart the kernel"
        ) from exc
    _update_displays(cells)
    notices = [_notice(dropped)] if dropped else []
    return {
        "cells": notices + [cell.describe(f"cell-{number}") for number, cell in enumerate(cells, 1)],
        "metadata": {"kernelspec": _KERNELSPEC, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


class _NotebookCell:
    """One cell of the history, and its outputs."""

    def __init__(self, language: object, execution_count: object, code: object, frames: object) -> None:
        if not (isinstance(code, str) and isinstance(frames, str)):
            raise TypeError("a cell has code and frames")
        self.source = writable(f"%%bash\n{code}" if language == "bash" else code)
        self.execution_count = execution_count if type(execution_count) is int and execution_count >= 0 else None
        self.outputs = _read_outputs(base64.b64decode(frames, validate=True))

    def describe(self, cell_id: str) -> dict[str, Any]:
        return {
            "cell_type": "code",
            "execution_count": self.execution_count,
            "id": cell_id,
            "metadata": {},
            "outputs": [self._output(item) for item in self.outputs],
            "source": self.source,
        }

    def _output(self, item: OutputItem) -> dict[str, Any]:
        match item.kind:
            case "stream":
                return {"output_type": "stream", "name": item.name, "text": item.text or ""}
            case "error":
                return {"output_type": "error", "ename": "", "evalue": "", "traceback": [], **item.data}
            case "execute_result":
                return {"output_type": item.kind, **_bundle(item), "execution_count": self.execution_count}
        return {"output_type": "display_data", **_bundle(item)}


def _read_outputs(frames: bytes) -> list[OutputItem]:
    decoder, transcript = Decoder(), Transcript(_LONGEST_TEXT)
    for message in decoder.feed(frames):
        match message:
            case Output():
                transcript.add_output(message)
            case Display():
                transcript.add_display(message)
            case Clear():
                transcript.clear(message)
            case Done(status="error") if message.traceback:  # or it has been written to stderr
                error = ErrorInfo(
                    writable(message.ename), writable(message.evalue), [*map(writable, message.traceback)]
                )
                transcript.add_error(error, by_cell=True)
    if decoder.pending:
        raise ProtocolError("a frame has no end")
    return transcript.items


def _update_displays(cells: list[_NotebookCell]) -> None:
    """Has updates that came in later cells change what earlier ones have shown, as a notebook does in place."""
    shown: dict[str, list[OutputItem]] = {}
    for cell in cells:
        for item in cell.outputs:
            if item.kind == "update_display_data":
                for earlier in shown.get(item.display_id or "", ()):
                    earlier.data, earlier.metadata = item.data, item.metadata
            elif item.display_id:
                shown.setdefault(item.display_id, []).append(item)
        cell.outputs = [item for item in cell.outputs if item.kind != "update_display_data"]


def _bundle(item: OutputItem) -> dict[str, Any]:
    data = {
        mime: value if isinstance(value, str) or _JSON.fullmatch(mime) else json.dumps(value, ensure_ascii=False)
        for mime, value in item.data.items()
    }
    return {"data": data, "metadata": item.metadata}


def _notice(dropped: int) -> dict[str, Any]:
    source = f"*{dropped:,} earlier cells are not kept any more.*"
    return {"cell_type": "markdown", "id": "dropped", "metadata": {}, "source": source}

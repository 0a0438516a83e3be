"""A kernel's history as a notebook, in Jupyter's format 4.5 (https://nbformat.readthedocs.io)."""

from __future__ import annotations

import json
import re

from kernelbox.base._errors import KernelBoxError
from kernelbox.core.cells._history import read_cells
from kernelbox.host._engines import engine_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.core.cells._history import CellLog, LoggedCell
    from kernelbox.wire._results import OutputItem

# MIME types whose values are JSON; those of all others are text.
_JSON = re.compile(r"application/(.*\+)?json")

# What begins markup in Markdown.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>$&~|]")

_KERNELSPEC = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}


def export_notebook(kernel: KernelHandle) -> dict[str, Any]:
    """Returns the notebook of a kernel, alive or dead; raises KernelBoxError if it keeps no outputs."""
    if not engine_named(kernel.record.engine).logs_cells:
        raise KernelBoxError(
            f"kernel {kernel.name!r} has no notebook: the outputs of Jupyter's own kernels are not kept; use history"
        )
    return build_notebook(read_cells(kernel))


def build_notebook(log: CellLog) -> dict[str, Any]:
    """Returns a notebook with the cells of a log, and a remark where variables were lost."""
    outputs = [cell.read().items for cell in log.cells]
    _update_displays(item for shown in outputs for item in shown)
    described = [_remark("dropped", "Earlier cells are not kept any more.")] if log.is_cut else []
    for number, (cell, shown) in enumerate(zip(log.cells, outputs, strict=True), 1):
        described.append(_describe(cell, shown, f"cell-{number}"))
        if cell.lost:
            described.append(_remark(f"lost-{number}", f"The variables of the cells above were lost: {cell.lost}"))
    return {
        "cells": described,
        "metadata": {"kernelspec": _KERNELSPEC, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _describe(cell: LoggedCell, outputs: list[OutputItem], cell_id: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": cell.count,
        "id": cell_id,
        "metadata": {},
        "outputs": [_output(item, cell.count) for item in outputs if item.kind != "update_display_data"],
        "source": f"%%bash\n{cell.code}" if cell.language == "bash" else cell.code,
    }


def _output(item: OutputItem, execution_count: int | None) -> dict[str, Any]:
    match item.kind:
        case "stream":
            return {"output_type": "stream", "name": item.name, "text": item.text or ""}
        case "error":
            return {"output_type": "error", "ename": "", "evalue": "", "traceback": [], **item.data}
        case "execute_result":
            return {"output_type": item.kind, **_bundle(item), "execution_count": execution_count}
    return {"output_type": "display_data", **_bundle(item)}


def _update_displays(items: Iterable[OutputItem]) -> None:
    """Applies updates from later cells to the displays of earlier ones, as a notebook does in place."""
    shown: dict[str, list[OutputItem]] = {}
    for item in items:
        if item.kind == "update_display_data":
            for earlier in shown.get(item.display_id or "", ()):
                earlier.data, earlier.metadata = item.data, item.metadata
        elif item.display_id:
            shown.setdefault(item.display_id, []).append(item)


def _bundle(item: OutputItem) -> dict[str, Any]:
    data = {
        mime: value if isinstance(value, str) or _JSON.fullmatch(mime) else json.dumps(value, ensure_ascii=False)
        for mime, value in item.data.items()
    }
    return {"data": data, "metadata": item.metadata}


def _remark(cell_id: str, sentence: str) -> dict[str, Any]:
    """Returns a Markdown cell with a sentence, escaped because a cell may have written a part of it."""
    source = _MARKUP.sub(r"\\\g<0>", sentence)
    return {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": f"*{source}*"}

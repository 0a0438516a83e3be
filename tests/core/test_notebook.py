"""A kernel's history as a notebook: each cell with its outputs as Jupyter has them, and what no history is."""

from __future__ import annotations

import base64
from typing import Any

import nbformat
import pytest

from kernelbox import KernelBoxError
from kernelbox.core._notebook_export import build_notebook
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Clear, Display, Done, Message, Output, Started

CELL = "1"


def framed(*messages: Message) -> str:
    return base64.b64encode(b"".join(map(encode, messages))).decode()


def notebook(*cells: list[object], dropped: object = 0) -> dict[str, Any]:
    built = build_notebook("k", {"status": "ok", "dropped": dropped, "cells": list(cells)})
    nbformat.validate(nbformat.from_dict(built))  # type: ignore[no-untyped-call]
    return built


def outputs(*messages: Message, count: int | None = 1) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = notebook(["python", count, "code", framed(*messages)])["cells"][0]["outputs"]
    return shown


def display(kind: str, data: dict[str, Any], display_id: str = "", metadata: dict[str, Any] | None = None) -> Display:
    return Display(CELL, kind, data, metadata or {}, display_id=display_id)


def test_a_history_is_a_notebook_of_python_in_the_format_4_5() -> None:
    built = notebook(["python", 3, "1 + 1", framed()], ["bash", None, "ls", framed()])
    assert (built["nbformat"], built["nbformat_minor"]) == (4, 5)
    assert built["metadata"]["kernelspec"]["name"] == "python3"
    assert built["metadata"]["language_info"] == {"name": "python"}
    assert [(cell["id"], cell["execution_count"], cell["source"]) for cell in built["cells"]] == [
        ("cell-1", 3, "1 + 1"),
        ("cell-2", None, "%%bash\nls"),
    ]
    assert all((cell["cell_type"], cell["metadata"], cell["outputs"]) == ("code", {}, []) for cell in built["cells"])


@pytest.mark.parametrize(("count", "kept"), [(0, 0), (7, 7), (-1, None), (True, None), ("7", None), (1.0, None)])
def test_a_count_is_a_whole_number_or_none(count: object, kept: int | None) -> None:
    assert notebook(["python", count, "x", framed()])["cells"][0]["execution_count"] == kept


def test_earlier_cells_that_are_not_kept_are_told_first() -> None:
    first, second = notebook(["python", 1, "x", framed()], dropped=1234)["cells"]
    assert first == {
        "cell_type": "markdown",
        "id": "dropped",
        "metadata": {},
        "source": "*1,234 earlier cells are not kept any more.*",
    }
    assert second["id"] == "cell-1"


def test_text_displays_values_and_errors_are_outputs_in_their_order() -> None:
    shown = outputs(
        Started(CELL, 1),
        Output(CELL, "stdout", "out\n"),
        Output(CELL, "stderr", "err\n"),
        display("display_data", {"text/plain": "shown"}, metadata={"x": 1}),
        display("execute_result", {"text/plain": "42"}),
        Done(CELL, "error", 1, "ValueError", "no\ud800", ["Trace", "ValueError: no\ud800"]),
        count=5,
    )
    assert shown == [
        {"output_type": "stream", "name": "stdout", "text": "out\n"},
        {"output_type": "stream", "name": "stderr", "text": "err\n"},
        {"output_type": "display_data", "data": {"text/plain": "shown"}, "metadata": {"x": 1}},
        {"output_type": "execute_result", "data": {"text/plain": "42"}, "metadata": {}, "execution_count": 5},
        {
            "output_type": "error",
            "ename": "ValueError",
            "evalue": "no\\ud800",
            "traceback": ["Trace", "ValueError: no\\ud800"],
        },
    ]


def test_an_error_that_was_written_to_stderr_is_no_output_of_its_own_and_neither_is_a_good_end() -> None:
    assert outputs(Done(CELL, "error", 1, "UsageError", "no such magic", [])) == []
    assert outputs(Done(CELL, "ok", 1, "", "", ["not shown"])) == []


def test_text_of_millions_of_characters_is_kept() -> None:
    pieces = [Output(CELL, "stdout", "x" * 1_000_000)] * 4
    (shown,) = outputs(*pieces)
    assert len(shown["text"]) == 4_000_000
    (cut,) = outputs(*pieces, Output(CELL, "stdout", "y"))
    assert len(cut["text"]) == 4_000_000
    assert "characters cut" in cut["text"]


def test_json_stays_json_and_what_is_none_becomes_its_text() -> None:
    data = {
        "application/json": {"é": [1]},
        "application/vnd.vega.v5+json": {"x": 1},
        "application/xjson": {"é": 1},
        "text/html": ["é"],
        "text/plain": "x",
    }
    (shown,) = outputs(display("display_data", data))
    assert shown["data"] == {
        "application/json": {"é": [1]},
        "application/vnd.vega.v5+json": {"x": 1},
        "application/xjson": '{"é": 1}',
        "text/html": '["é"]',
        "text/plain": "x",
    }


def test_what_was_cleared_is_not_in_the_notebook() -> None:
    shown = outputs(Output(CELL, "stdout", "old"), Clear(CELL, False), Output(CELL, "stdout", "new"))
    assert [item["text"] for item in shown] == ["new"]


def test_an_update_changes_what_earlier_cells_have_shown_and_is_nothing_itself() -> None:
    first = framed(
        display("display_data", {"text/plain": "a"}, "one"),
        display("display_data", {"text/plain": "b"}, "two"),
        display("display_data", {"text/plain": "c"}),
    )
    again = framed(display("display_data", {"text/plain": "d"}, "one"))
    update = framed(
        display("update_display_data", {"text/plain": "new"}, "one", {"m": 1}),
        display("update_display_data", {"text/plain": "lost"}, "unknown"),
        display("update_display_data", {"text/plain": "lost"}),
    )
    built = notebook(["python", 1, "x", first], ["python", 2, "y", again], ["python", 3, "z", update])
    texts = [[item["data"]["text/plain"] for item in cell["outputs"]] for cell in built["cells"]]
    assert texts == [["new", "b", "c"], ["new"], []]
    assert built["cells"][0]["outputs"][0]["metadata"] == {"m": 1}


def test_halves_of_characters_in_code_can_be_written() -> None:
    assert notebook(["python", 1, "'\ud800'", framed()])["cells"][0]["source"] == "'\\ud800'"


@pytest.mark.parametrize(
    "content",
    [
        {"dropped": 0},
        {"cells": []},
        {"dropped": "x", "cells": []},
        {"dropped": None, "cells": []},
        {"dropped": 0, "cells": 5},
        {"dropped": 0, "cells": [["python", 1, "x"]]},
        {"dropped": 0, "cells": [["python", 1, 5, ""]]},
        {"dropped": 0, "cells": [["python", 1, "x", 5]]},
        {"dropped": 0, "cells": [["python", 1, "x", "not base64!"]]},
        {"dropped": 0, "cells": [["python", 1, "x", base64.b64encode(b"x" * 20).decode()]]},
        {"dropped": 0, "cells": [["python", 1, "x", base64.b64encode(encode(Started(CELL, 1))[:-1]).decode()]]},
    ],
    ids=str,
)
def test_what_is_no_history_is_said_to_be_tampered_with(content: dict[str, Any]) -> None:
    with pytest.raises(KernelBoxError, match="kernel 'k' sent what is no history; a cell has tampered with it"):
        build_notebook("k", {"status": "ok", **content})


def test_a_kernel_that_has_none_says_why_in_few_words() -> None:
    with pytest.raises(KernelBoxError, match=r"kernel 'k' has no notebook: x{1000}$"):
        build_notebook("k", {"status": "error", "evalue": "x" * 2000, "dropped": 0, "cells": []})
    with pytest.raises(KernelBoxError, match=r"kernel 'k' has no notebook: unknown$"):
        build_notebook("k", {})

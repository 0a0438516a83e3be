"""A kernel's history as a notebook: each cell with its outputs as Jupyter has them."""

from __future__ import annotations

from typing import Any

import nbformat

from kernelbox.core.cells._history import CellLog, LoggedCell
from kernelbox.core.cells._notebook_export import build_notebook
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Clear, Display, Done, Message, Output, Started

CELL = "1"


def framed(*messages: Message) -> bytes:
    return b"".join(map(encode, messages))


def notebook(*cells: tuple[str, int | None, str, bytes], dropped: bool = False) -> dict[str, Any]:
    logged = [LoggedCell("", language, code, 1.0, [frames], count) for language, count, code, frames in cells]
    built = build_notebook(CellLog(logged, dropped))
    nbformat.validate(nbformat.from_dict(built))  # type: ignore[no-untyped-call]
    return built


def outputs(*messages: Message, count: int | None = 1) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = notebook(("python", count, "code", framed(*messages)))["cells"][0]["outputs"]
    return shown


def display(kind: str, data: dict[str, Any], display_id: str = "", metadata: dict[str, Any] | None = None) -> Display:
    return Display(CELL, kind, data, metadata or {}, display_id=display_id)


def test_a_history_is_a_notebook_of_python_in_the_format_4_5() -> None:
    built = notebook(("python", 3, "1 + 1", framed()), ("bash", None, "ls", framed()))
    assert (built["nbformat"], built["nbformat_minor"]) == (4, 5)
    assert built["metadata"]["kernelspec"]["name"] == "python3"
    assert built["metadata"]["language_info"] == {"name": "python"}
    assert [(cell["id"], cell["execution_count"], cell["source"]) for cell in built["cells"]] == [
        ("cell-1", 3, "1 + 1"),
        ("cell-2", None, "%%bash\nls"),
    ]
    assert all((cell["cell_type"], cell["metadata"], cell["outputs"]) == ("code", {}, []) for cell in built["cells"])


def test_earlier_cells_that_are_not_kept_are_told_first() -> None:
    first, second = notebook(("python", 1, "x", framed()), dropped=True)["cells"]
    assert first == {
        "cell_type": "markdown",
        "id": "dropped",
        "metadata": {},
        "source": "*Earlier cells are not kept any more.*",
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
    built = notebook(("python", 1, "x", first), ("python", 2, "y", again), ("python", 3, "z", update))
    texts = [[item["data"]["text/plain"] for item in cell["outputs"]] for cell in built["cells"]]
    assert texts == [["new", "b", "c"], ["new"], []]
    assert built["cells"][0]["outputs"][0]["metadata"] == {"m": 1}


def test_a_remark_says_where_variables_were_lost_and_nothing_in_it_is_markup() -> None:
    cells = [LoggedCell("", "python", "x", 1.0, lost="*<b>no</b>* [x](y)"), LoggedCell("", "python", "y", 1.0)]
    first, remark, second = build_notebook(CellLog(cells, is_cut=False))["cells"]
    assert (first["source"], second["source"]) == ("x", "y")
    assert (remark["cell_type"], remark["id"]) == ("markdown", "lost-1")
    assert remark["source"] == r"*The variables of the cells above were lost: \*\<b\>no\</b\>\* \[x\](y)*"


def test_frames_that_a_cell_has_forged_end_the_outputs_of_the_cell() -> None:
    shown = framed(Output(CELL, "stdout", "out"))
    for forged in (b"x" * 20, bytes(8), encode(Started(CELL, 1))[:-1], b"\xff" * 8):
        (cell,) = notebook(("python", 1, "x", shown + forged))["cells"]
        assert [output["text"] for output in cell["outputs"]] == ["out"]

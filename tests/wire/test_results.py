"""Results as data: every field is in the dictionary, and the dictionary is plain JSON."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from kernelbox.wire._results import AttemptSnapshot, ErrorInfo, ExecutionResult, OutputItem

if TYPE_CHECKING:
    from kernelbox.wire._results import Status


def test_a_result_as_a_dictionary_is_json_with_every_field() -> None:
    result = ExecutionResult(
        "error",
        output="out",
        stderr="err",
        error=ErrorInfo("ValueError", "no", ["Traceback", "ValueError: no"]),
        return_value="1",
        execution_count=4,
        duration_ms=12,
        outputs=[OutputItem("stream", text="out", name="stdout"), OutputItem("display_data", data={"a/b": 1})],
        attempts=[
            AttemptSnapshot(1, "x", "error", "o", "e", ErrorInfo("E", "v")),
            AttemptSnapshot(2, "y", "success", "", ""),
        ],
        truncated=True,
        text="all",
        images=["/a.png"],
        state="lost",
        ending="died",
        changed={"added": ["x"]},
        value={"a": [1]},
        exit_code=7,
        kernel_id="k1",
        name="n",
        opened=True,
        restored_from=3,
        lost_executions=[4, 5],
    )
    whole = result.to_dict()
    assert json.loads(json.dumps(whole)) == whole
    assert list(whole) == [*(spec.name for spec in fields(ExecutionResult) if spec.name not in ("kept", "home")), "ok"]
    assert whole == {
        "status": "error",
        "output": "out",
        "stderr": "err",
        "error": {"ename": "ValueError", "evalue": "no", "traceback": ["Traceback", "ValueError: no"]},
        "return_value": "1",
        "execution_count": 4,
        "duration_ms": 12,
        "outputs": [
            {"kind": "stream", "text": "out", "name": "stdout", "data": {}, "metadata": {}},
            {"kind": "display_data", "text": None, "name": None, "data": {"a/b": 1}, "metadata": {}},
        ],
        "attempts": [
            {
                "attempt": 1,
                "code": "x",
                "status": "error",
                "output": "o",
                "stderr": "e",
                "error": {"ename": "E", "evalue": "v", "traceback": []},
            },
            {"attempt": 2, "code": "y", "status": "success", "output": "", "stderr": "", "error": None},
        ],
        "truncated": True,
        "text": "all",
        "images": ["/a.png"],
        "state": "lost",
        "ending": "died",
        "changed": {"added": ["x"]},
        "value": {"a": [1]},
        "exit_code": 7,
        "kernel_id": "k1",
        "name": "n",
        "opened": True,
        "execution_id": "",
        "restored_from": 3,
        "lost_executions": [4, 5],
        "ok": False,
    }


def test_changes_that_nobody_asked_for_are_left_out() -> None:
    assert "changed" not in ExecutionResult("success").to_dict()
    assert ExecutionResult("success", changed={}).to_dict()["changed"] == {}


def test_a_dictionary_does_not_share_its_lists_with_the_result() -> None:
    result = ExecutionResult("error", error=ErrorInfo("E", "v", ["line"]), images=["a.png"])
    whole = result.to_dict()
    whole["images"].append("b.png")
    whole["error"]["traceback"].append("more")
    assert result.images == ["a.png"]
    assert result.error is not None
    assert result.error.traceback == ["line"]


@pytest.mark.parametrize(
    ("status", "ok"), [("success", True), ("error", False), ("timeout", False), ("max_attempts_exceeded", False)]
)
def test_only_success_is_ok(status: Status, ok: bool) -> None:
    assert ExecutionResult(status).ok is ok


def test_a_snapshot_keeps_what_an_attempt_was_and_how_it_went() -> None:
    error = ErrorInfo("E", "v")
    result = ExecutionResult("error", output="out", stderr="err", error=error)
    assert result.snapshot(2, "code") == AttemptSnapshot(2, "code", "error", "out", "err", error)


def test_results_do_not_share_their_defaults() -> None:
    ExecutionResult("success").outputs.append(OutputItem("stream"))
    assert ExecutionResult("success").outputs == []


@pytest.mark.parametrize(
    ("text", "data", "read"),
    [
        ("<IPython.core.display.Markdown object>", {"text/markdown": "# A"}, "# A"),
        ("<IPython.core.display.Latex object>", {"text/latex": "$x$"}, "$x$"),
        (None, {"text/markdown": "", "text/latex": "$x$"}, "$x$"),
        ("<A object at 0x7f>", {"text/markdown": 5, "application/json": {"a": "é"}}, '{"a": "é"}'),
        ("", {"application/json": ["\u202e"]}, '["\\u202e"]'),
        ("", {"application/json": None}, "null"),
        ("a table", {"text/markdown": "# A"}, "a table"),
        ("<p>text</p>", {"text/markdown": "# A"}, "<p>text</p>"),
        ("one object at 0x7f", {"text/markdown": "# A"}, "one object at 0x7f"),
        ("<one\nobject>", {"text/markdown": "# A"}, "<one\nobject>"),
        ("<one object at 0x7f\nof two>", {"text/markdown": "# A"}, "<one object at 0x7f\nof two>"),
        ("<A object at 0x7f>", {}, "<A object at 0x7f>"),
        ("<A object>", {"text/html": "<b>"}, "<A object>"),
    ],
)
def test_what_is_read_of_a_display_is_its_text_or_its_source_where_that_says_nothing(
    text: str | None, data: dict[str, object], read: str
) -> None:
    assert OutputItem("display_data", text, data=data).readable == read


def test_what_is_read_of_an_error_is_its_traceback_or_its_text() -> None:
    assert OutputItem("error", "E: v", data={"traceback": ["one", "two"]}).readable == "one\ntwo"
    assert OutputItem("error", "E: v").readable == "E: v"
    assert OutputItem("error").readable == ""


def test_an_error_is_read_from_a_message_in_which_anything_may_be_missing() -> None:
    assert ErrorInfo.from_content({"ename": "E", "evalue": 5, "traceback": ("a",)}) == ErrorInfo("E", "5", ["a"])
    assert ErrorInfo.from_content({}) == ErrorInfo("", "", [])


def test_what_a_result_does_not_say_is_the_usual() -> None:
    result = ExecutionResult("success")
    assert (result.output, result.stderr, result.duration_ms, result.truncated) == ("", "", 0, False)
    assert (result.state, result.ending, result.changed) == ("kept", "finished", None)

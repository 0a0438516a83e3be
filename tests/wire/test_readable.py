"""What a result can do by itself: be read, shown, sent to a model, shortened and raised."""

from __future__ import annotations

import base64
import copy
import io
import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from kernelbox import CodeExecutionError, CodeExecutionResult, ErrorInfo, ExecutionResult, ExecutionTimeout, OutputItem
from kernelbox.wire._results import Picture
from kernelbox.wire.results._markup import harmless
from kernelbox.wire.results._model_content import APIS
from kernelbox.wire.results._shortening import shorten


def png(width: int, height: int) -> str:
    target = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(target, "PNG")
    return base64.b64encode(target.getvalue()).decode()


def plotted(*pictures: str, mime: str = "image/png") -> ExecutionResult:
    outputs = [
        OutputItem("display_data", text="<Figure>", data={mime: data}, picture=Picture(number, f"/i/{number}.png"))
        for number, data in enumerate(pictures, 1)
    ]
    text = "\n".join(item.readable for item in outputs)
    return ExecutionResult(
        "success", text=text, outputs=outputs, images=[f"/i/{n + 1}.png" for n in range(len(pictures))]
    )


def failed(status: Any = "error") -> ExecutionResult:
    error = ErrorInfo("ValueError", "no", ["Cell In[1], line 1", "", "ValueError: no"])
    return ExecutionResult(status, output="out", error=error, text="out\nValueError: no", images=["/a.png"])


# -- reading ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "x" * 10_000, "\x00" * 500, "'\"" * 300, "\U0001f600" * 500])
def test_a_repr_has_fewer_than_200_characters(text: str) -> None:
    for result in (
        ExecutionResult("max_attempts_exceeded", text=text, images=["/x"] * 500, state="lost", duration_ms=10**9),
        CodeExecutionResult(text or None, [Path("/x")] * 500, status="max_attempts_exceeded", duration_ms=10**9),
    ):
        assert len(repr(result)) < 200
        assert result.status in repr(result)


def test_a_repr_counts_the_images() -> None:
    shown = [repr(ExecutionResult("success", text="a", images=["a.png", "b.png"][:count])) for count in range(3)]
    ends = ["'a' 0 ms>", "'a' 1 image 0 ms>", "'a' 2 images 0 ms>"]
    assert [text.removeprefix("<ExecutionResult success ") for text in shown] == ends


def test_str_is_the_text_and_says_if_there_is_none() -> None:
    assert str(ExecutionResult("success", text="4")) == "4"
    assert str(ExecutionResult("success")) == str(CodeExecutionResult(None, [])) == "(no output)"


def test_stdout_is_another_name_for_output() -> None:
    assert ExecutionResult("success", output="x\n").stdout == "x\n"


@pytest.mark.parametrize(("text", "tokens"), [("x" * 400, 100), ("é" * 400, 200), ("\ud800", 1), ("", 3)])
def test_tokens_are_about_a_quarter_of_the_bytes(text: str, tokens: int) -> None:
    assert ExecutionResult("success", text=text).tokens == tokens


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("<Figure size 640x480 with 1 Axes>", "[image 1: /p.png]"),
        (None, "[image 1: /p.png]"),
        ("a caption", "a caption\n[image 1: /p.png]"),
    ],
)
def test_a_picture_is_named_by_its_file(text: str | None, readable: str) -> None:
    item = OutputItem("display_data", text=text, data={"image/png": "UA=="}, picture=Picture(1, "/p.png"))
    assert item.readable == readable


def test_a_picture_without_a_file_is_still_named() -> None:
    assert OutputItem("display_data", text="<Figure>", picture=Picture()).readable == "[image]"


# -- raising ---------------------------------------------------------------------------------------------------


def test_raise_for_status_returns_a_success() -> None:
    result = ExecutionResult("success")
    assert result.raise_for_status() is result


@pytest.mark.parametrize(
    ("status", "kind"),
    [("error", CodeExecutionError), ("timeout", ExecutionTimeout), ("max_attempts_exceeded", CodeExecutionError)],
)
def test_raise_for_status_raises_what_an_executor_would(status: Any, kind: type[CodeExecutionError]) -> None:
    result = failed(status)
    with pytest.raises(kind) as caught:
        result.raise_for_status()
    exc = caught.value
    assert (exc.ename, exc.evalue, exc.text) == ("ValueError", "no", "out\nValueError: no")
    assert (exc.images, exc.result) == ([Path("/a.png")], result)
    assert pickle.loads(pickle.dumps(exc)).result == copy.deepcopy(result) == result


# -- messages --------------------------------------------------------------------------------------------------


def _images(blocks: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Returns the MIME types and the base64 of the pictures in the blocks of any API."""
    found = []
    for block in blocks:
        match block:
            case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
                mime, _, data = url.removeprefix("data:").partition(";base64,")
                found.append((mime, data))
            case {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}:
                found.append((mime, data))
            case {"type": "image", "data": data, "mimeType": mime}:
                found.append((mime, data))
            case {"type": "image", "base64": data, "mime_type": mime}:
                found.append((mime, data))
    return found


@pytest.mark.parametrize("api", APIS)
def test_blocks_have_the_text_and_the_pictures(api: Any) -> None:
    first, second = png(4, 3), png(5, 5)
    text, *pictures = plotted(first, second).to_content(api)
    assert text["text"] == "[image 1: /i/1.png]\n[image 2: /i/2.png]"
    assert text["type"] == ("input_text" if api == "openai-responses" else "text")
    assert _images(pictures) == [("image/png", first), ("image/png", second)]


def test_an_answer_to_a_tool_call_has_the_form_of_each_api() -> None:
    result = plotted(picture := png(4, 3))
    result.status = "error"
    text = str(result)
    tool, user = result.to_messages("openai", call_id="c")
    assert tool == {"role": "tool", "tool_call_id": "c", "content": text}
    assert (user["role"], _images(user["content"])) == ("user", [("image/png", picture)])
    (output,) = result.to_messages("openai-responses", call_id="c")
    assert (output["type"], output["call_id"], len(output["output"])) == ("function_call_output", "c", 2)
    (message,) = result.to_messages("anthropic", call_id="c")
    (block,) = message["content"]
    assert (message["role"], block["type"], block["tool_use_id"]) == ("user", "tool_result", "c")
    assert (block["is_error"], block["content"]) == (True, result.to_content("anthropic"))
    (answer,) = result.to_messages("mcp", call_id="c")
    assert answer == {"content": result.to_content("mcp"), "isError": True}
    (called,) = result.to_messages("langchain", call_id="c")
    assert (called["role"], called["tool_call_id"], called["status"]) == ("tool", "c", "error")


@pytest.mark.parametrize("api", ["openai", "openai-responses", "anthropic", "langchain"])
def test_without_a_call_it_is_a_message_of_the_user(api: Any) -> None:
    result = plotted(png(4, 3))
    assert result.to_messages(api) == [{"role": "user", "content": result.to_content(api)}]


@pytest.mark.parametrize("api", APIS)
def test_messages_are_json_within_the_limits(api: Any) -> None:
    result = plotted(png(900, 30), png(30, 900))
    result.text += "\n" + "\n".join(map(str, range(5000)))
    text, *pictures = result.to_content(api, max_chars=500, max_image_px=90)
    assert len(text["text"]) <= 500
    sizes = [Image.open(io.BytesIO(base64.b64decode(data))).size for _, data in _images(pictures)]
    assert sizes == [(90, 3), (3, 90)]
    assert json.loads(json.dumps(result.to_messages(api, call_id="c")))


def test_a_picture_that_no_model_reads_is_named_in_the_text() -> None:
    (text,) = plotted("<svg/>", mime="image/svg+xml").to_content("anthropic")
    assert text["text"].endswith("[image 1 is not shown: image/svg+xml is not a picture for a model]")
    (text,) = plotted("UA==").to_content("openai", max_image_px=100)
    assert text["text"].endswith("[image 1 is not shown: it cannot be decoded]")


def test_without_pillow_a_small_picture_is_sent_and_a_large_one_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    result = plotted(small := png(40, 30), png(400, 30))
    monkeypatch.setitem(sys.modules, "PIL", None)
    text, *pictures = result.to_content("openai", max_image_px=100)
    assert _images(pictures) == [("image/png", small)]
    assert "[image 2 is not shown: it may have more than 100 pixels on a side, and scaling needs Pillow" in text["text"]
    assert len(result.to_content("openai")) == 3  # nothing has to be scaled


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"api": "opnai"}, "api cannot be 'opnai': use one of openai, openai-responses, anthropic, mcp, langchain"),
        ({"api": "mcp", "max_chars": 0}, "max_chars cannot be 0: use a whole number above 0"),
        ({"api": "mcp", "max_image_px": True}, "max_image_px cannot be True"),
    ],
)
def test_wrong_options_of_messages_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ExecutionResult("success").to_messages(**options)


# -- notebooks -------------------------------------------------------------------------------------------------


def test_a_notebook_shows_text_tables_and_pictures_in_order() -> None:
    result = plotted(picture := png(4, 3))
    table = OutputItem("execute_result", text="a", data={"text/html": "<table border='1'><tr><td>1</td></tr></table>"})
    result.outputs = [OutputItem("stream", text="1 < 2\n", name="stdout"), table, *result.outputs]
    bundle = result._repr_mimebundle_()
    assert bundle["text/plain"] == str(result)
    parts = [
        "1 &lt; 2</pre>",
        '<table border="1"><tr><td>1</td></tr></table>',
        f'<img src="data:image/png;base64,{picture}">',
    ]
    assert [bundle["text/html"].find(part) >= 0 for part in parts] == [True] * 3
    assert sorted(parts, key=bundle["text/html"].index) == parts


@pytest.mark.parametrize(
    "markup",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<table onclick='alert(1)'><td style='background:url(x)'></table>",
        "<a href='javascript:alert(1)'></a>",
        "<svg><script>alert(1)</script></svg>",
        "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
        "<scr<script>ipt>alert(1)</script>",
        "<style>@import url(x)</style>",
    ],
)
def test_markup_of_a_cell_is_harmless_in_a_notebook(markup: str) -> None:
    shown = harmless(markup)
    assert not any(
        word in shown for word in ("<script", "alert(1)<", "onerror=", "onclick=", "javascript", "url(", "<img")
    )


# -- a budget --------------------------------------------------------------------------------------------------


def test_text_that_fits_is_left_as_it_is() -> None:
    assert shorten("a\na\na\na\na\r\n", 100) == "a\na\na\na\na\r\n"


@pytest.mark.parametrize("budget", [1, 2, 50, 99, 100, 150, 300, 1000, 4999])
@pytest.mark.parametrize(
    "text", ["x" * 5000, "\n" * 5000, "\n".join(map(str, range(2000))), "ab\n\n" * 2000, "\r" * 5000, "é\r\n" * 3000]
)
def test_shortened_text_never_exceeds_the_budget(text: str, budget: int) -> None:
    assert len(shorten(text, budget)) <= budget


def test_the_head_and_the_tail_are_kept_at_line_ends() -> None:
    lines = [f"line {number}" for number in range(1000)]
    short = shorten("\n".join(lines), 400).split("\n")
    (notice,) = [line for line in short if line not in lines]
    assert notice.startswith("[… ")
    assert (short[0], short[-1]) == ("line 0", "line 999")


def test_repeated_lines_are_counted() -> None:
    text = "begin\n" + "the same\n" * 1000 + "end"
    assert shorten(text, 200) == "begin\nthe same\n[… 999 more times …]\nend"


def test_a_progress_bar_is_shown_as_it_ends() -> None:
    text = "".join(f"\r{percent} %" for percent in range(101)) + "\ndone"
    assert shorten(text, 100) == "100 %\ndone"


def test_a_long_line_keeps_its_beginning_and_end() -> None:
    short = shorten("[" + "1, " * 3000 + "2]\nnext", 1000)
    assert short.startswith("[1, 1, ")
    assert short.endswith("1, 2]\nnext")
    assert "characters …]" in short


def test_a_table_keeps_its_head_and_its_last_rows_and_what_comes_after() -> None:
    table = "\n".join(["name  value", *(f"row{number}  {number}" for number in range(500)), "", "after"])
    short = shorten(table, 600)
    assert short.startswith("name  value\nrow0  0\n")
    assert short.endswith("row499  499\n\nafter")
    assert "lines …]" in short


def test_frames_of_libraries_give_way_to_the_users_own() -> None:
    frames = [f"File pandas/core/frame{number}.py:{number}, in f" for number in range(30)]
    text = "\n".join(
        ["Cell In[1], line 1", "----> 1 f()", "", *frames, "File /home/me/own.py:3, in g()", "", "KeyError: 'b'"]
    )
    short = shorten(text, 300)
    assert "[… 30 frames in pandas …]" in short
    assert "----> 1 f()" in short
    assert "File /home/me/own.py:3, in g()" in short
    assert short.endswith("KeyError: 'b'")


@pytest.mark.parametrize("budget", [100, 150, 400, 2000])
@pytest.mark.parametrize("tail", ["z" * 5000, "\n".join(map(str, range(1000))), "end"])
def test_a_text_that_was_cut_before_has_one_cut_and_its_whole_size(tail: str, budget: int) -> None:
    text = f"{'first line'.ljust(5000, 'a')}\n[… 90,000 characters cut …]\n{tail}"
    short = shorten(text, budget)
    assert len(short) <= budget
    assert short.startswith("first line")
    assert short.endswith(tail[-3:])
    assert re.findall(r"\[… .*? …\]", short) == [f"[… {95_000 + len(tail):,} characters in all, the middle was cut …]"]


def test_the_notice_says_where_the_rest_is() -> None:
    assert "characters in all; see there …]" in shorten("\n".join(map(str, range(5000))), 500, "see there")

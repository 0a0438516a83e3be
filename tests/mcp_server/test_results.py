"""Results shaped for a context window: budgets, ranges of what was cut, pictures, and what a cell changed."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from pathlib import Path

import pytest
from mcp import MCPError
from mcp_types import BlobResourceContents, TextResourceContents
from PIL import Image
from tests.support.mcp_server import (
    GENERATIONS,
    Served,
    call,
    failure,
    http_client,
    links,
    pictures,
    run,
    stdio_client,
    text,
    text_of,
)

from kernelbox import ExecutionResult
from kernelbox.host.files._workspace_files import Workspace
from kernelbox.mcp.toolsets._tool_results import DEFAULT_BUDGET, LEAST_BUDGET, describe_changes, fit, shape
from kernelbox.mcp.toolsets._tool_state import Outputs
from kernelbox.wire.results._picture_scaling import scale

SHOW = """
from IPython.display import Image, SVG, display
import io
from PIL import Image as Picture

def picture(width, height):
    buffer = io.BytesIO()
    Picture.new("RGB", (width, height), "red").save(buffer, "PNG")
    return Image(buffer.getvalue())
"""


def test_long_output_is_cut_to_the_budget_and_readable_by_range(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            code = "for n in range(10_000): print(n)"
            shown = await text(client, "execute", code=code, kernel="long", max_output_chars=1000)
            assert len(shown) <= 1000
            assert shown.startswith("0\n1\n")
            assert "\n9999\n" in shown
            address = re.search(r"kernelbox://outputs/\w+", shown)
            assert address is not None
            whole = "\n".join(map(str, range(10_000)))
            for query, part in (("?start=10&end=30", whole[10:30]), ("?start=-9", whole[-9:]), ("", whole[:100_000])):
                [read] = (await client.read_resource(address[0] + query)).contents
                assert isinstance(read, TextResourceContents)
                assert read.text == part

    run(scenario)


def test_the_budget_covers_errors_and_keeps_their_end(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            shown = await failure(
                client, "execute_ipython_cell", code="raise ValueError('x' * 50_000 + ' the end')", max_output_chars=500
            )
            assert len(shown) <= 500
            assert shown.endswith("the end")

    run(scenario)


@pytest.mark.parametrize(
    ("asked", "sentence"), [("", "run the code again"), ("?start=a", "whole numbers"), ("?start=0&end=1.5", "whole")]
)
def test_an_output_that_is_no_longer_kept_or_wrongly_asked_for_is_told(
    served: Served, asked: str, sentence: str
) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            with pytest.raises(MCPError, match=sentence):
                await client.read_resource(f"kernelbox://outputs/0123456789ab{asked}")

    run(scenario)


def test_a_large_picture_is_scaled_and_its_file_is_a_resource(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            code = f"{SHOW}\npicture(3000, 1500)"
            result = await call(client, "execute", code=code, kernel="pictures")
            [picture], [link] = pictures(result), links(result)
            assert Image.open(io.BytesIO(base64.b64decode(picture.data))).size == (1024, 512)
            [read] = (await client.read_resource(link.uri)).contents
            assert isinstance(read, BlobResourceContents)
            assert read.mime_type == "image/png"
            assert Image.open(io.BytesIO(base64.b64decode(read.blob))).size == (3000, 1500)

    run(scenario)


def test_the_tool_of_ipybox_names_the_files_of_pictures(served: Served) -> None:
    async def scenario() -> str:
        async with http_client(served) as client:
            code = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"
            result = await call(client, "execute_ipython_cell", code=code)
            assert len(pictures(result)) == 1
            return text_of(result)

    found = re.search(r"Generated images:\n- \[(.*)\]\((.*)\)", run(scenario))
    assert found is not None
    assert Path(found[2]).is_file()
    assert Path(found[2]).parent == served.workspace / "images"


def test_of_many_pictures_the_first_are_shown_and_the_others_are_links(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            code = f"{SHOW}\nfor _ in range(9): display(picture(9, 9))"
            result = await call(client, "execute", code=code, kernel="many")
            assert (len(pictures(result)), len(links(result))) == (4, 9)

    run(scenario)


def test_a_picture_that_a_cell_has_replaced_by_a_link_is_not_read(served: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_text("secret")
    (served.workspace / "images").mkdir(exist_ok=True)
    (served.workspace / "images" / "planted.png").symlink_to(secret)

    async def scenario() -> None:
        async with http_client(served) as client:
            for uri in ("kernelbox://images/planted.png", "kernelbox://images/..%2F..%2Fx.png"):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)

    run(scenario)


def test_a_picture_that_a_cell_has_made_too_large_is_not_read(served: Served) -> None:
    (served.workspace / "images").mkdir(exist_ok=True)
    with open(served.workspace / "images" / "huge.png", "wb") as file:
        file.truncate(10**10)

    async def scenario() -> None:
        async with http_client(served) as client:
            with pytest.raises(MCPError, match="10,000,000,000 bytes"):
                await client.read_resource("kernelbox://images/huge.png")

    run(scenario)


def test_what_cannot_be_decoded_is_only_a_link(served: Served) -> None:
    async def scenario() -> None:
        async with http_client(served) as client:
            code = (
                SHOW
                + "display({'image/png': 'aGVsbG8='}, raw=True); SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"
            )
            result = await call(client, "execute", code=code, kernel="broken")
            assert (len(pictures(result)), len(links(result))) == (0, 2)

    run(scenario)


def test_changed_variables_are_one_bounded_line() -> None:
    changed = {"added": [f"name_{n}" for n in range(1000)], "changed": ["x"], "removed": []}
    line = describe_changes(changed)
    assert len(line) <= 300
    assert "\n" not in line
    assert (
        describe_changes({"added": ["a", "b"], "changed": [], "removed": ["c"]}) == "[variables: added a, b; removed c]"
    )
    assert describe_changes(None) == describe_changes({"added": []}) == ""


@pytest.mark.parametrize("size", [LEAST_BUDGET, LEAST_BUDGET + 1, 5000, 100_000])
def test_cut_text_never_exceeds_its_budget(size: int) -> None:
    outputs = Outputs(Workspace("."))
    for length in (0, size - 1, size, size + 1, size * 3):
        whole = "".join(chr(97 + n % 26) for n in range(length))
        shown = fit(whole, outputs, size)
        assert len(shown) <= size
        assert (shown == whole) is (length <= size)


@pytest.mark.parametrize("paths", [False, True])
@pytest.mark.parametrize("budget", [LEAST_BUDGET, 1_000, DEFAULT_BUDGET])
def test_a_result_with_much_of_everything_stays_within_its_budget(tmp_path: Path, budget: int, paths: bool) -> None:
    images = [f"/a/folder/of/some/length/images/20260101-120000-{number:04}.png" for number in range(500)]
    changed = {"added": [f"name_{number}" for number in range(1000)]}
    for written in ("", "x" * 50, "x" * 50_000):
        for state in ("kept", "lost"):
            result = ExecutionResult("success", text=written, state=state, images=images, changed=changed)
            shown = text_of(asyncio.run(shape(result, Outputs(Workspace(str(tmp_path))), budget, paths=paths)))
            assert len(shown) <= budget
            assert "more pictures: files in …" in shown
            assert ("Generated images:\n- [20260101" in shown) is (paths and budget > LEAST_BUDGET)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, None, (0, 100_000)),
        (0, -1, (0, 100_000)),
        (-5, -2, (299_995, 299_998)),
        (-(10**30), 7, (0, 7)),
        (10**30, 10**31, (0, 0)),
        (9, 3, (0, 0)),
    ],
)
def test_a_range_of_an_output_is_bounded(start: int, end: int | None, expected: tuple[int, int]) -> None:
    outputs, whole = Outputs(Workspace(".")), "".join(chr(97 + n % 26) for n in range(300_000))
    address = outputs.keep(whole)
    assert outputs.read(address.rpartition("/")[2], start, end) == whole[slice(*expected)]


def test_the_oldest_outputs_make_room_for_new_ones() -> None:
    outputs = Outputs(Workspace("."))
    first = outputs.keep("x" * 9_000_000)
    second = outputs.keep("y" * 9_000_000)
    assert outputs.read(second.rpartition("/")[2], 0, 1) == "y"
    with pytest.raises(Exception, match="no longer kept"):
        outputs.read(first.rpartition("/")[2], 0, 1)


def test_pictures_that_would_fill_the_memory_are_not_decoded() -> None:
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    assert len(bomb.getvalue()) < 1_000_000
    assert scale(bomb.getvalue(), longest_side=1024, most_bytes=256 * 1024) is None
    assert scale(b"", longest_side=1024, most_bytes=256 * 1024) is None
    assert scale(b"GIF89a", longest_side=1024, most_bytes=256 * 1024) is None


def test_a_picture_that_stays_large_is_sent_as_jpeg() -> None:
    noise = Image.effect_noise((1100, 1100), 200)
    raw = io.BytesIO()
    noise.save(raw, "PNG")
    shown = scale(raw.getvalue(), longest_side=1024, most_bytes=256 * 1024)
    assert shown is not None
    assert shown[1] == "image/jpeg"
    assert max(Image.open(io.BytesIO(base64.b64decode(shown[0]))).size) == 1024


def test_with_ipyboxs_ways_a_result_is_plain_text(home: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stdio_client(tmp_path, "--ipybox", env={"KERNELBOX_HOME": str(home)}) as client:
            result = await call(client, "execute_ipython_cell", code="x = 1\nprint('on')")
            assert [block.model_dump()["text"] for block in result.content] == ["on"]
            nothing = await call(client, "execute_ipython_cell", code="x = 2")
            assert [block.model_dump()["text"] for block in nothing.content] == [""]
            shown = await call(client, "execute_ipython_cell", code=f"{SHOW}\ndisplay(picture(3, 3))")
            assert [block.type for block in shown.content] == ["text"]
            assert re.search(r"Generated images:\n- \[.*\.png\]\(.*\.png\)$", text_of(shown))
            failed = await failure(client, "execute_ipython_cell", code="print('before')\n1 / 0")
            assert failed.startswith("before\n")
            assert "variables" not in failed

    run(scenario)


@pytest.mark.parametrize("mode", GENERATIONS)
def test_a_prompt_that_there_is_not_is_an_error_of_the_protocol(served: Served, mode: str) -> None:
    async def scenario() -> None:
        async with http_client(served, mode) as client:
            with pytest.raises(MCPError, match="there is no prompt 'nothing'; this server has none") as caught:
                await client.get_prompt("nothing", {})
            assert caught.value.code == -32602

    run(scenario)

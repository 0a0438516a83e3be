"""A kernel's history as a notebook that opens in Jupyter: what it has, and what it leaves out."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.support.command_line import kernelbox as command
from tests.support.server import PICTURE, Served

import kernelbox
from kernelbox import KernelBoxError
from kernelbox.core._notebook_export import build_notebook
from kernelbox.guest.output._history import CellHistory
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Display, Done, Execute, Output


def export(served: Served, key: str) -> Any:
    """Fetches the notebook of a kernel."""
    answer = served.http.get(f"/kernels/{key}/notebook")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ipynb+json"
    return checked(answer.text)


def checked(text: str) -> Any:
    """Reads a notebook, and compares it with Jupyter's own schema."""
    notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]  # it has no types
    nbformat.validate(notebook)
    return notebook


def test_a_notebook_has_every_cell_with_its_outputs_in_order(served: Served, key: str) -> None:
    picture = (
        f"import base64\nfrom IPython.display import Image, display\ndisplay(Image(base64.b64decode('{PICTURE}')))"
    )
    cells = ["x = 20", "print('out')\nx + 1", picture, "import sys\nprint('err', file=sys.stderr)\n1 / 0"]
    for code in cells:
        served.execute(key, code)
    served.execute(key, "echo from bash", language="bash")
    notebook = export(served, key)
    assert [cell.source for cell in notebook.cells] == [*cells, "%%bash\necho from bash"]
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3, 4, None]
    nothing, value, shown, failed, bash = (cell.outputs for cell in notebook.cells)
    assert nothing == []
    assert value[0] == {"output_type": "stream", "name": "stdout", "text": "out\n"}
    assert (value[1].output_type, value[1].data, value[1].execution_count) == (
        "execute_result",
        {"text/plain": "21"},
        2,
    )
    assert base64.b64decode(shown[0].data["image/png"]) == base64.b64decode(PICTURE)
    assert (failed[0].name, failed[0].text) == ("stderr", "err\n")
    assert (failed[1].output_type, failed[1].ename, failed[1].evalue) == (
        "error",
        "ZeroDivisionError",
        "division by zero",
    )
    assert failed[1].traceback[-1] == "ZeroDivisionError: division by zero"
    assert bash[0].text == "from bash\n"


def test_a_notebook_runs_again_in_jupyter_and_gives_the_same(served: Served, key: str) -> None:
    for code in ("import math", "numbers = [n * n for n in range(5)]\nprint(sum(numbers))", "math.isqrt(numbers[-1])"):
        served.execute(key, code)
    served.execute(key, "echo $((6 * 7))", language="bash")
    notebook = export(served, key)
    again = NotebookClient(copy.deepcopy(notebook), kernel_name="python3").execute()
    for cell, repeated in zip(notebook.cells, again.cells, strict=True):
        assert cell.outputs == repeated.outputs


def test_a_notebook_has_what_other_faces_have_run(
    served: Served, key: str, service_home: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(service_home))
    kernelbox.execute(key, "y = 'by another process'; y")
    (cell,) = export(served, key).cells
    assert cell.outputs[0].data["text/plain"] == "'by another process'"


def test_displays_are_shown_as_they_are_in_the_end(served: Served, key: str) -> None:
    served.execute(key, "from IPython.display import clear_output, display\nhandle = display('first', display_id=True)")
    served.execute(key, "print('gone'); clear_output(); print('stays')")
    served.execute(key, "handle.update('second')")
    first, cleared, update = (cell.outputs for cell in export(served, key).cells)
    assert [output.data["text/plain"] for output in first] == ["'second'"]
    assert [output.text for output in cleared] == ["stays\n"]
    assert update == []


def test_values_that_are_no_text_are_valid_in_a_notebook(served: Served, key: str) -> None:
    data = {"application/json": {"a": [1]}, "application/x+json": [2], "odd/type": {"b": 3}, "text/plain": "t\\ud800"}
    served.execute(key, f"from IPython.display import publish_display_data\npublish_display_data({data!r})")
    (cell,) = export(served, key).cells
    assert cell.outputs[0].data == {**data, "odd/type": '{"b": 3}', "text/plain": "t\\ud800"}


def test_what_is_no_cell_of_the_callers_is_left_out(served: Served, key: str) -> None:
    served.execute(key, "x = 1")
    served.http.get(f"/kernels/{key}/variables")
    served.post(f"/kernels/{key}/complete", {"code": "x"})
    assert [cell.source for cell in export(served, key).cells] == ["x = 1"]


def test_a_restart_begins_a_new_notebook(served: Served, key: str) -> None:
    served.execute(key, "x = 1")
    served.post(f"/kernels/{key}/restart")
    assert export(served, key).cells == []


def test_a_flood_is_cut_in_the_middle_and_old_cells_are_dropped(served: Served, key: str) -> None:
    served.execute(key, "for n in range(400_000): print(f'{n:09}')")
    (flood,) = export(served, key).cells
    text = "".join(output.text for output in flood.outputs)
    assert text.startswith("000000000\n000000001\n")
    assert text.endswith("000399999\n")
    assert "outputs cut" in text
    assert 1_000_000 < len(text) < 2_500_000
    for _ in range(3):
        served.execute(key, "print('x' * 1_900_000)")
    notice, *kept = export(served, key).cells
    assert notice.cell_type == "markdown"
    assert "2 earlier cells" in notice.source
    assert len(kept) == 2


@pytest.mark.parametrize("path", ["nobody", "dead"])
def test_no_kernel_and_a_dead_one_have_no_notebook(served: Served, key: str, path: str) -> None:
    if path == "nobody":
        assert served.http.get("/kernels/nobody/notebook").status_code == 404
        return
    served.execute(key, "import os; os._exit(1)")
    answer = served.http.get(f"/kernels/{key}/notebook")
    assert (answer.status_code, answer.json()["code"]) == (409, "kernel_died")


def test_the_name_of_the_file_is_that_of_the_kernel(served: Served) -> None:
    served.post("/sessions/é;%22x/execute", {"code": "1"})
    answer = served.http.get("/kernels/é;%22x/notebook")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A9%3B%22x.ipynb"


# -- the command line ------------------------------------------------------------------------------------------


def test_export_prints_a_notebook(home: object) -> None:
    kernelbox.execute("exported", "1 + 1")
    done = command("export", "--name", "exported")
    assert done.status == 0
    notebook = checked(done.stdout)
    assert notebook.cells[0].outputs[0].data["text/plain"] == "2"


def test_export_of_a_dead_kernel_says_how_it_ended(home: object) -> None:
    kernelbox.execute("dead", "import os; os._exit(3)")
    done = command("export", "--name", "dead")
    assert done.status == 1
    assert "exited with status 3" in done.json["error"]


# -- what is kept ----------------------------------------------------------------------------------------------


def read(history: CellHistory) -> Any:
    content = {"status": "ok", **history.describe()}
    cells = [[*about, base64.b64encode(frames).decode()] for *about, frames in content["cells"]]
    return build_notebook("k", {**content, "cells": cells})


def test_requests_that_want_no_history_are_not_kept() -> None:
    history = CellHistory()
    for request in (
        Execute("1", "a", silent=True),
        Execute("2", "b", store_history=False),
        Execute("3", "c", language="comm"),
    ):
        history.begin(request)
        history.add(encode(Output(request.id, "stdout", "text")))
        history.end(encode(Done(request.id, "ok")), None)
    assert read(history)["cells"] == []


def test_a_history_stays_below_its_bound_whatever_is_shown() -> None:
    history = CellHistory()
    for number in range(200):
        history.begin(Execute(str(number), "show()" * number))
        for _ in range(number % 7):
            history.add(
                encode(Display(str(number), "display_data", {}, {}, blobs={"image/png": bytes(10_000 * number)}))
            )
        history.end(encode(Done(str(number), "ok")), number)
    described = history.describe()
    assert sum(len(code) + len(frames) for _, _, code, frames in described["cells"]) <= 4 * 1024 * 1024
    assert described["dropped"] == 200 - len(described["cells"])
    assert described["cells"][-1][1] == 199


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"status": "error", "evalue": "no"},
        {"status": "ok"},
        {"status": "ok", "cells": 5, "dropped": 0},
        {"status": "ok", "cells": [], "dropped": "x"},
        {"status": "ok", "cells": [["python", 1, "x"]], "dropped": 0},
        {"status": "ok", "cells": [["python", 1, "x", "no base64"]], "dropped": 0},
        {"status": "ok", "cells": [["python", 1, 5, ""]], "dropped": 0},
        {
            "status": "ok",
            "cells": [["python", 1, "x", base64.b64encode(b"rubbish that is no frame").decode()]],
            "dropped": 0,
        },
        {"status": "ok", "cells": [["python", 1, "x", base64.b64encode(bytes(5)).decode()]], "dropped": 0},
    ],
)
def test_what_a_cell_has_forged_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(KernelBoxError):
        build_notebook("k", content)


def test_numbers_and_text_that_a_cell_has_forged_leave_a_valid_notebook() -> None:
    cells = [["klingon", -5, "x\ud800", ""], ["python", True, "y", ""], ["bash", "1", "z", ""]]
    notebook = build_notebook("k", {"status": "ok", "cells": cells, "dropped": 0})
    text = json.dumps(notebook, ensure_ascii=False)
    assert [cell.source for cell in checked(text.encode().decode()).cells] == ["x\\ud800", "y", "%%bash\nz"]

"""A kernel's history as a notebook that opens in Jupyter: what it has, and what it leaves out."""

from __future__ import annotations

import base64
import copy
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.support.command_line import kernelbox as command
from tests.support.server import PICTURE, Served

import kernelbox


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


def test_a_notebook_has_a_remark_where_a_restart_has_lost_the_variables(served: Served, key: str) -> None:
    served.execute(key, "x = 1")
    served.post(f"/kernels/{key}/restart")
    served.execute(key, "y = 2")
    first, remark, second = export(served, key).cells
    assert (first.source, second.source) == ("x = 1", "y = 2")
    assert (remark.cell_type, remark.source) == ("markdown", "*The variables of the cells above were lost: restarted*")


def test_a_flood_is_cut_in_the_middle_and_old_cells_are_dropped(served: Served, key: str) -> None:
    served.execute(key, "for n in range(400_000): print(f'{n:09}')")
    (flood,) = export(served, key).cells
    text = "".join(output.text for output in flood.outputs)
    assert text.startswith("000000000\n000000001\n")
    assert text.endswith("000399999\n")
    assert "outputs cut" in text
    assert 1_000_000 < len(text) < 2_500_000
    for _ in range(7):
        served.execute(key, "print('x' * 1_900_000)")
    notice, *kept = export(served, key).cells
    assert notice.cell_type == "markdown"
    assert "Earlier cells are not kept" in notice.source
    assert 2 <= len(kept) <= 6


def test_a_kernel_that_runs_a_cell_has_a_notebook(served: Served, key: str) -> None:
    job_id = served.post(f"/kernels/{key}/jobs", {"code": "print('seen', flush=True)\nwhile True: pass"}).json()["id"]
    while not (cells := export(served, key).cells) or not cells[0].outputs:
        pass  # the job has not begun, or its text is on its way
    assert cells[0].outputs[0].text == "seen\n"
    served.post(f"/jobs/{job_id}/cancel")


def test_a_dead_kernel_has_a_notebook_and_a_name_without_a_kernel_has_none(served: Served, key: str) -> None:
    assert served.http.get("/kernels/nobody/notebook").status_code == 404
    served.execute(key, "print('last words'); import os; os._exit(1)")
    died, remark = export(served, key).cells
    assert died.outputs[0].text == "last words\n"
    assert "exited with status 1" in remark.source


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
    assert done.status == 0
    assert "exited with status 3" in checked(done.stdout).cells[-1].source


def test_export_of_a_name_without_a_kernel_says_so(home: object) -> None:
    done = command("export", "--name", "nobody")
    assert done.status == 1
    assert "'nobody'" in done.json["error"]

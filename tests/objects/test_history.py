"""The history of a name: it is kept on disk, so a restart, a death and another process find it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from tests.support.colours import Colour
from tests.support.sandbox import needs_linux

from kernelbox import Kernel, KernelNotFound, OutputItem, PastCell, execute, get_or_create, list_kernels
from kernelbox.api._configured import kernels
from kernelbox.core._options import KernelOptions
from kernelbox.wire._cell_log import FULL

DEATHS = {
    "kill": ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    "exit": ("exit()", "the cell called exit()"),
    "os._exit": ("import os; os._exit(3)", "the process exited with status 3"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
}


@pytest.fixture(params=[False, True], ids=["Kernel", "AsyncKernel"])
def colour(request: pytest.FixtureRequest, home: Path) -> Iterator[Colour]:
    colour = Colour(request.param)
    yield colour
    colour.close()


def codes(cells: list[PastCell]) -> list[str]:
    return [cell.code for cell in cells]


def directory_of(kernel: Any) -> Path:
    return Path(kernel.connection_file).parent


def test_all_that_a_client_has_of_a_running_cell_is_in_the_history(home: Path) -> None:
    code = """import time
for number in range(100):
    print(number, flush=True)
    time.sleep(0.001)
display("the end")"""
    with Kernel("worker", destroy=True) as kernel:
        got = ""
        for chunk in kernel.stream(code):
            if isinstance(chunk, OutputItem):
                got += chunk.text or ""
                assert kernel.history()[-1].text.startswith(got.rstrip())
        assert got.endswith("the end'")


def test_history_has_every_cell_with_its_text_and_how_it_ended(colour: Colour) -> None:
    kernel = colour.open("worker")
    for code in ("x = 20", "print('out')\nx + 1", "1 / 0"):
        colour.call(kernel.execute, code)
    colour.call(kernel.bash, "echo from bash")
    cells = colour.call(kernel.history)
    assert [(cell.execution_count, cell.language, cell.status) for cell in cells] == [
        (1, "python", "success"),
        (2, "python", "success"),
        (3, "python", "error"),
        (None, "bash", "success"),
    ]
    assert [cell.text for cell in cells[:2]] == ["", "out\n21"]
    assert cells[2].text.endswith("ZeroDivisionError: division by zero")
    assert cells[3].text == "from bash"
    assert all(cell.began_at <= cell.ended_at and not cell.lost for cell in cells)
    with pytest.raises(AttributeError):
        cells[0].code = "other"
    assert len(repr(cells[2])) < 200


@pytest.mark.parametrize("death", DEATHS)
def test_history_stays_after_a_death_and_says_where_variables_were_lost(colour: Colour, death: str) -> None:
    code, cause = DEATHS[death]
    kernel = colour.open("worker")
    colour.call(kernel.execute, "x = 1")
    colour.call(kernel.execute, f"print('last words')\n{code}")
    dead = colour.call(kernel.history)
    assert [(cell.status, cell.lost) for cell in dead] == [("success", ""), ("died", cause)]
    assert dead[1].text == "last words"
    colour.call(kernel.execute, "y = 2")  # opens a fresh kernel under the name
    again = colour.call(kernel.history)
    assert again[:2] == [dead[0], again[1]]
    assert (again[1].text, again[1].lost) == (dead[1].text, cause)
    assert (again[2].code, again[2].execution_count, again[2].lost) == ("y = 2", 1, "")


def test_history_stays_after_restarts(colour: Colour) -> None:
    kernel = colour.open("worker")
    for code in ("x = 1", "x = 2"):
        colour.call(kernel.execute, code)
        colour.call(kernel.restart)
    colour.call(kernel.restart)
    colour.call(kernel.execute, "x = 3")
    told = [(cell.code, cell.lost) for cell in colour.call(kernel.history)]
    assert told == [("x = 1", "restarted"), ("x = 2", "restarted"), ("x = 3", "")]


def test_another_process_and_other_faces_share_the_history_of_a_name(colour: Colour) -> None:
    kernel = colour.open("worker")
    execute("worker", "x = 'by a function'")
    code = "import kernelbox; kernelbox.execute('worker', 'y = 1'); print(len(kernelbox.Kernel('worker').history()))"
    assert Kernel("other").execute(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}])").ok
    assert codes(colour.call(kernel.history)) == ["x = 'by a function'", "y = 1"]


def test_a_cell_that_runs_is_in_the_history_with_what_it_has_written(home: Path) -> None:
    kernel = Kernel("worker")
    job = kernel.submit("print('seen', flush=True)\nimport time\nwhile True: time.sleep(0.01)")
    next(iter(job.events()))
    while not (cells := kernel.history()) or not cells[0].text:
        pass
    assert (cells[0].status, cells[0].text, cells[0].ended_at) == ("running", "seen", None)
    job.cancel()
    job.result()
    assert kernel.history()[0].status == "interrupted"


def test_a_destroyed_kernel_has_no_history_and_its_name_begins_a_new_one(colour: Colour) -> None:
    kernel = colour.open("worker")
    colour.call(kernel.execute, "x = 1")
    colour.call(kernel.destroy)
    with pytest.raises(KernelNotFound):
        colour.call(kernel.history)
    assert colour.call(colour.open("worker").history) == []


def test_save_notebook_writes_a_valid_notebook_with_a_remark_where_variables_were_lost(
    colour: Colour, tmp_path: Path
) -> None:
    kernel = colour.open("worker")
    colour.call(kernel.execute, "print('é')")
    colour.call(kernel.execute, "import os; os.kill(os.getpid(), 9)")
    colour.call(kernel.execute, "1 + 1")
    colour.call(kernel.save_notebook, tmp_path / "work.ipynb")
    notebook = nbformat.reads((tmp_path / "work.ipynb").read_text(), as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    assert [cell.cell_type for cell in notebook.cells] == ["code", "code", "markdown", "code"]
    assert notebook.cells[0].outputs[0].text == "é\n"
    assert "were lost: killed by SIGKILL" in notebook.cells[2].source


@needs_linux
def test_a_sandboxed_kernel_keeps_its_history(home: Path) -> None:
    kernel = Kernel("worker", sandbox=True)
    kernel.execute("x = 1")
    kernel.execute("print('last words'); import os; os._exit(3)")
    kernel.execute("y = 2")
    told = [(cell.code[:5], cell.text, cell.lost) for cell in kernel.history()]
    assert told == [("x = 1", "", ""), ("print", "last words", "the process exited with status 3"), ("y = 2", "", "")]


@needs_linux
def test_a_guarded_kernel_keeps_its_history(home: Path) -> None:
    kernels().get_or_create("worker", KernelOptions(guarded=True))
    kernel = Kernel("worker")
    kernel.execute("x = 1")
    kernel.restart()
    assert [(cell.code, cell.lost) for cell in kernel.history()] == [("x = 1", "restarted")]


def test_the_history_is_bounded_on_disk_and_old_cells_go_first(home: Path) -> None:
    kernel = Kernel("worker")
    for number in range(8):
        kernel.execute(f"{number}; print('x' * 1_900_000)")
    kept = [int(code.partition(";")[0]) for code in codes(kernel.history())]
    assert kept == [*range(8 - len(kept), 8)]
    assert 2 <= len(kept) < 8
    sizes = [path.stat().st_size for path in directory_of(kernel).glob("cells-*")]
    assert len(sizes) == 2
    assert sum(sizes) < 2 * (FULL + 3_000_000)


def test_a_cell_that_closes_the_descriptors_of_the_log_harms_no_other_file(home: Path, tmp_path: Path) -> None:
    kernel = Kernel("worker")
    kernel.execute("x = 1")
    precious = tmp_path / "precious"
    result = kernel.execute(
        "import os\n"
        "for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "    try: name = os.readlink(f'/proc/self/fd/{fd}')\n"
        "    except OSError: continue\n"
        "    if '/cells-' in name:\n"
        f"        new = os.open({os.fspath(precious)!r}, os.O_RDWR | os.O_CREAT)\n"
        "        os.dup2(new, fd)"
    )
    assert result.ok
    assert kernel.execute("x").return_value == "1"
    assert precious.read_bytes() == b""
    assert codes(kernel.history())[0] == "x = 1"


@pytest.mark.parametrize("name", ["cells-0", "cells-1"])
@pytest.mark.parametrize(
    "forge",
    [
        "open(log, 'wb').write(b'rubbish' * 1000)",
        "open(log, 'ab').write(b'rubbish' * 1000)",
        "os.truncate(log, 1 << 40)",
        "os.unlink(log)",
        "os.unlink(log); os.mkdir(log)",
        "os.unlink(log); os.mkfifo(log)",
        "os.unlink(log); os.symlink('/etc/passwd', log)",
    ],
)
def test_a_log_that_a_cell_has_forged_harms_nobody(home: Path, forge: str, name: str) -> None:
    kernel = Kernel("worker")
    kernel.execute("x = 1")
    kernel.execute(f"import os; log = {os.fspath(directory_of(kernel) / name)!r}\n{forge}")
    kernel.execute("x = 2")
    kernel.history()
    kernel.restart()
    kernel.execute("x = 3")
    assert codes(kernel.history())[-1] == "x = 3"
    kernel.execute("import os; os._exit(1)")
    kernel.execute("x = 4")
    assert codes(kernel.history())[-1] == "x = 4"


def test_a_kernel_whose_files_were_deleted_leaves_its_history_to_the_next(home: Path) -> None:
    kernel = Kernel("worker")
    kernel.execute("x = 1")
    (directory_of(kernel) / "socket").unlink()
    get_or_create("worker")
    assert codes(Kernel("worker").history()) == ["x = 1"]
    assert len(list_kernels()) == 1

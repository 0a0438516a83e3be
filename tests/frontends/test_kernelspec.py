"""Plain Jupyter with our kernelspec: its public test suite for kernels, nbclient, and what is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import DEADLINE, wait_for_end
from tests.support.command_line import fail, succeed

from kernelbox import destroy, execute, list_kernels
from kernelbox.server.jupyter._kernelspec import install, remove

SUITE = """
import unittest
import jupyter_kernel_test

class Ours(jupyter_kernel_test.KernelTests):
    kernel_name = "kernelbox"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\\n  return x*2\\n\\n\\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise ValueError"
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "[n*n for n in (1, 2)]", "result": "[1, 4]"}]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))", "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

unittest.main()
"""

NBCLIENT = """
import json, sys, nbformat
from nbclient import NotebookClient
cells = ["print('hello')", "6 * 7", "import os; print(os.getpid())", "print(os.environ['OF_THE_CALLER'], os.getcwd())"]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
NotebookClient(notebook, kernel_name=sys.argv[1], timeout=60, resources={"metadata": {"path": "."}}).execute()
print(json.dumps([[dict(output) for output in cell.outputs] for cell in notebook.cells]))
"""


@pytest.fixture
def prefix(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Installs the kernelspec where only this test finds it."""
    install("kernelbox", prefix=str(tmp_path))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setenv("OF_THE_CALLER", "seen")
    yield tmp_path
    assert list_kernels() == []


def python(script: str, *words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=directory,
        env=os.environ.copy(),
        capture_output=True,
        text=True,
        timeout=DEADLINE * 3,
        check=False,
    )


def notebook(kernelspec: str, directory: Path) -> Any:
    ended = python(NBCLIENT, kernelspec, directory=directory)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_jupyters_own_suite_for_kernels_passes(prefix: Path, tmp_path: Path) -> None:
    ended = python(SUITE, directory=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "OK" in ended.stderr.splitlines()[-1]


@pytest.mark.slow
def test_nbclient_starts_our_kernel_by_its_kernelspec(prefix: Path, tmp_path: Path) -> None:
    stream, result, pid, surroundings = notebook("kernelbox", tmp_path)
    assert stream[0]["text"] == "hello\n"
    assert result[0]["data"] == {"text/plain": "42"}
    assert surroundings[0]["text"] == f"seen {tmp_path}\n"
    wait_for_end(int(pid[0]["text"]))


@pytest.mark.slow
def test_notebooks_of_a_named_kernel_share_it_and_it_stays(home: Path, prefix: Path, tmp_path: Path) -> None:
    install("shared", prefix=str(tmp_path), kernel="jupyter-shared")
    (first, *_), (second, *_) = notebook("shared", tmp_path)[2:3], notebook("shared", tmp_path)[2:3]
    assert first[0]["text"] == second[0]["text"]
    (record,) = list_kernels()
    assert (record.name, str(record.pid)) == ("jupyter-shared", first[0]["text"].strip())
    assert execute("jupyter-shared", "import os; os.getpid()").return_value == str(record.pid)
    destroy(record)


HOST = """
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="kernelbox")
pids = []
client.execute_interactive(
    "import os; print(os.getpid())",
    output_hook=lambda message: pids.append(message["content"].get("text", "").strip()),
)
print(manager.provisioner.process.pid, "".join(pids), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_bridge_and_kernel_end_when_jupyter_is_killed(prefix: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOST],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # where it leaves its connection file
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stdout is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        assert len(pids) == 2
        host.kill()
        host.wait(DEADLINE)
    for pid in pids:
        wait_for_end(pid)


def test_a_kernelspec_is_removed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    placed = install("kernelbox-test", prefix=str(tmp_path))
    assert json.loads(Path(placed, "kernel.json").read_text())["interrupt_mode"] == "message"
    assert remove("kernelbox-test") == placed
    assert not Path(placed).exists()
    with pytest.raises(ValueError, match="kernelbox-test"):
        remove("kernelbox-test")
    with pytest.raises(ValueError, match="not / a name"):
        install("not / a name", prefix=str(tmp_path))


def test_the_command_line_installs_and_removes_it(tmp_path: Path) -> None:
    placed = succeed("jupyter", "install", "--name", "cli-test", "--prefix", str(tmp_path), "--kernel", "shared")
    spec = json.loads(Path(placed["installed"], "kernel.json").read_text())
    assert (spec["argv"][-2:], spec["display_name"]) == (["--name", "shared"], "Python 3 (kernelbox): shared")
    path = str(tmp_path / "share" / "jupyter")
    assert succeed("jupyter", "remove", "--name", "cli-test", JUPYTER_PATH=path) == {"removed": placed["installed"]}


@pytest.mark.slow
def test_only_kernelspecs_of_ours_are_removed_and_only_where_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    own, other = install("ours"), install("ours", prefix=str(tmp_path / "other"))
    theirs = Path(own).parent / "theirs"
    theirs.mkdir()
    (theirs / "kernel.json").write_text(json.dumps({"argv": ["python", "-m", "ipykernel_launcher"]}))
    assert "jupyter kernelspec remove theirs" in fail("jupyter", "remove", "--name", "theirs", status=2)
    assert theirs.exists()
    assert succeed("jupyter", "remove", "--name", "ours", "--prefix", str(tmp_path / "other")) == {"removed": other}
    assert Path(own).exists()
    assert "there is no kernelspec of this name in" in fail(
        "jupyter", "remove", "--name", "ours", "--prefix", str(tmp_path / "other"), status=2
    )
    assert succeed("jupyter", "remove", "--name", "ours", "--user") == {"removed": own}


def test_a_connection_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("{}")
    ended = subprocess.run(
        [sys.executable, "-m", "kernelbox.server.jupyter", "-f", str(tmp_path / "c.json")],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ended.returncode == 1
    assert "connection file" in ended.stderr

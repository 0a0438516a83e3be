"""What notebooks ask of their front end, of matplotlib and of installers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, run, value

from kernelbox import KernelRecord, execute

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"


def test_a_backend_that_needs_a_screen_leaves_plots_inline(kernel: KernelRecord) -> None:
    pytest.importorskip("matplotlib")
    for backend in ("notebook", "nbagg", "webagg", "widget", "qt", "QT5", "tk"):
        assert "figures are shown inline" in run(kernel, f"%matplotlib {backend}").stderr
        result = run(kernel, PLOT)
        assert [item.kind for item in result.outputs if "image/png" in item.data] == ["display_data"]
        assert "inline" in value(kernel, "plt.get_backend()")


def test_other_backends_are_as_they_were(kernel: KernelRecord) -> None:
    pytest.importorskip("matplotlib")
    for backend in ("", "inline", "agg", "inline"):
        assert run(kernel, f"%matplotlib {backend}").stderr == ""
    assert execute(kernel, "%matplotlib nosuch", timeout=DEADLINE).status == "error"
    assert any("image/png" in item.data for item in run(kernel, PLOT).outputs)


@pytest.mark.parametrize("magic", ["autosave 60", "autosave 0", "connect_info", "qtconsole", "subshell"])
def test_magics_of_a_front_end_fail_no_cell(kernel: KernelRecord, magic: str) -> None:
    result = run(kernel, f"%{magic}\nprint('goes on')")
    assert result.output == "goes on\n"
    assert result.stderr.startswith(f"%{magic.split()[0]}: ")


def test_the_shell_is_found_where_ipykernel_has_it(kernel: KernelRecord) -> None:
    pytest.importorskip("ipykernel")
    code = "import ipykernel.zmqshell\nisinstance(get_ipython(), ipykernel.zmqshell.ZMQInteractiveShell)"
    assert value(kernel, code) == "True"
    assert value(kernel, "import ipykernel; ipykernel.__version__[0].isdigit()") == "True"


def test_ipykernel_as_an_attribute_comes_after_any_import_of_it(kernel: KernelRecord) -> None:
    pytest.importorskip("ipykernel")
    code = "import ipykernel\ntype(get_ipython()) is ipykernel.zmqshell.ZMQInteractiveShell"
    assert value(kernel, code) == "True"


def test_a_program_that_is_not_there_leaves_nothing_of_the_one_before(kernel: KernelRecord) -> None:
    run(kernel, "v = w = 'old'")
    assert "Couldn't find program: 'nosuch'" in run(kernel, "%%script nosuch --bg --out v --err w\nx").output
    assert value(kernel, "v.read(), w.read()") == "(b'', b'')"
    run(kernel, "v = 'old'")
    run(kernel, "%%script nosuch --out v\nx")
    assert value(kernel, "v") == "''"


def test_help_names_no_file_that_is_not_there(kernel: KernelRecord, tmp_path: Path) -> None:
    run(kernel, "def f():\n    'says f'\nclass C:\n    'says C'")
    for name in ("f", "C", "f?"):
        told = run(kernel, name + "?").text
        assert "File:" not in told
    assert "says f" in run(kernel, "f?").text
    (tmp_path / "there.py").write_text("def g(): 'says g'\n")
    run(kernel, f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom there import g")
    assert "there.py" in run(kernel, "g?").text


def test_load_shows_what_it_loads(kernel: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "saved.py").write_text("x = 1\ny = 2\n")
    shown = run(kernel, f"%load {tmp_path}/saved.py").output
    assert "x = 1\ny = 2" in shown


# -- installers ------------------------------------------------------------------------------------------------


def make_uv(directory: Path, status: int) -> None:
    """Puts a uv in a directory that says what it was called with."""
    file = directory / "uv"
    file.write_text(f'#!/bin/sh\necho "uv $*"\nexit {status}\n')
    file.chmod(0o755)


WITHOUT_PIP = "import os, sys\nsys.modules['pip'] = sys.modules['uv'] = None\n"


def test_pip_is_uv_where_there_is_no_pip(kernel: KernelRecord, tmp_path: Path) -> None:
    make_uv(tmp_path, 0)
    run(kernel, f"{WITHOUT_PIP}os.environ['PATH'] = {str(tmp_path)!r} + ':' + os.environ['PATH']")
    python = run(kernel, "import sys; print(sys.executable)").output.strip()
    cells = {
        "%pip install -q rich": f"uv pip install --python {python} -q rich",
        "%pip list": f"uv pip list --python {python}",
        "%pip --version": "uv pip --version",
        "pip install rich": f"uv pip install --python {python} rich",
        "%uv add rich": "uv add rich",
    }
    for code, called in cells.items():
        assert run(kernel, code).output.splitlines()[0] == called


def test_uv_installs_where_pip_would(kernel: KernelRecord, tmp_path: Path) -> None:
    make_uv(tmp_path, 0)
    run(kernel, f"{WITHOUT_PIP}os.environ.update(PATH={str(tmp_path)!r}, PIP_TARGET='/a b')")
    python = run(kernel, "import sys; print(sys.executable)").output.strip()
    assert (
        run(kernel, "%pip install rich").output.splitlines()[0]
        == f"uv pip install --python {python} --target /a b rich"
    )
    assert run(kernel, "%pip list").output.splitlines()[0] == f"uv pip list --python {python}"


def test_an_installer_that_fails_is_an_error(kernel: KernelRecord, tmp_path: Path) -> None:
    make_uv(tmp_path, 2)
    run(kernel, f"{WITHOUT_PIP}os.environ['PATH'] = {str(tmp_path)!r} + ':' + os.environ['PATH']")
    for code in ("%pip install nonexistent", "%uv pip install nonexistent"):
        result = execute(kernel, f"{code}\nprint('not reached')", timeout=DEADLINE)
        assert (result.status, result.error.ename if result.error else "") == ("error", "CalledProcessError")
        assert "exit status 2" in result.text
        assert "not reached" not in result.output


def test_without_any_installer_pip_says_what_to_do(kernel: KernelRecord) -> None:
    run(kernel, f"{WITHOUT_PIP}os.environ['PATH'] = '/nowhere'; sys.executable = '/nowhere/python'")
    advice = {"%pip install x": "run !/nowhere/python -m ensurepip", "%uv pip install x": "run %pip install uv"}
    for code, told in advice.items():
        result = execute(kernel, code, timeout=DEADLINE)
        assert result.status == "error"
        assert told in result.stderr


def test_conda_elsewhere_is_an_error_of_one_cell(kernel: KernelRecord) -> None:
    run(kernel, "import sys; sys.prefix = '/nowhere'")
    result = execute(kernel, "%conda install x", timeout=DEADLINE)
    assert (result.status, result.error.ename if result.error else "") == ("error", "ValueError")
    assert value(kernel, "1 + 1") == "2"


def test_a_conda_that_fails_is_an_error(kernel: KernelRecord, tmp_path: Path) -> None:
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    (meta / "history").write_text("")
    (tmp_path / "conda").write_text("#!/bin/sh\necho conda $*\nexit 3\n")
    (tmp_path / "conda").chmod(0o755)
    code = f"import os, sys; sys.prefix = {str(tmp_path)!r}\nos.environ['PATH'] = sys.prefix + ':' + os.environ['PATH']"
    run(kernel, code)
    result = execute(kernel, "%conda install x", timeout=DEADLINE)
    assert result.output.startswith("conda install --yes --prefix")
    assert result.error is not None
    assert result.error.ename == "CalledProcessError"

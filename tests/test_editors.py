"""What editors, type checkers and a person with a typing mistake see of the package."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import subprocess
import sys
from pathlib import Path

import jedi
import pytest

import kernelbox
from kernelbox import CodeExecutor, InvalidInput

ROOT = Path(__file__).parent.parent

_PACKAGE = Path(kernelbox.__file__).parent

# A program with five mistakes, each on the line that its comment names.
_MISTAKES = """\
import kernelbox
from kernelbox import CodeExecutor, execute, get_or_create

kernel = get_or_create("t")
value: str | None = execute(kernel, "1").return_value
kernelbox.exekute
CodeExecutor(aprove_shell_cmds=True)
execute(kernel, "1", language="pyhton")
execute(kernel, "1", langauge="bash")
get_or_create("x", sandbx=True)
"""
_WRONG_LINES = [6, 7, 8, 9, 10]


def _imported(tree: ast.AST) -> dict[str, str]:
    return {
        alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if node.col_offset in (0, 4) and str(node.module).startswith("kernelbox.") and "suggest" not in str(node.module)
    }


def test_stub_lazy_table_and_editors_have_the_same_names() -> None:
    stub, module = (ast.parse((_PACKAGE / name).read_text("utf-8")) for name in ("__init__.pyi", "__init__.py"))
    homes: dict[str, str] = vars(kernelbox)["_HOMES"]
    assert _imported(stub) == _imported(module) == homes
    (exported,) = (node.value for node in stub.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(exported) == kernelbox.__all__ == sorted(homes)


def test_every_public_name_can_be_loaded_and_dir_shows_only_names_for_users() -> None:
    assert all(getattr(kernelbox, name) is not None for name in kernelbox.__all__)
    assert set(kernelbox.__all__) <= set(dir(kernelbox))
    assert not {"TYPE_CHECKING", "annotations"} & set(dir(kernelbox))


@pytest.mark.slow
def test_jedi_completes_names_attributes_and_signatures() -> None:
    names = {each.name for each in jedi.Script("import kernelbox\nkernelbox.").complete(2, 10)}
    assert set(kernelbox.__all__) <= names
    result = "import kernelbox\nr = kernelbox.execute(kernelbox.get_or_create('x'), '1')\nr."
    assert {"ok", "text", "return_value"} <= {each.name for each in jedi.Script(result).complete(3, 2)}
    (signature,) = jedi.Script("import kernelbox\nkernelbox.execute(").get_signatures(2, 18)
    assert "language" in signature.to_string()
    (signature,) = jedi.Script("import kernelbox\nkernelbox.CodeExecutor(").get_signatures(2, 23)
    assert "approve_shell_cmds" in signature.to_string()


@pytest.mark.slow
def test_mypy_finds_the_mistakes_of_a_program_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_MISTAKES)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*command, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [int(line.split(":")[1]) for line in errors] == _WRONG_LINES, done


@pytest.mark.slow
def test_pyright_finds_the_mistakes_of_a_program_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_MISTAKES)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    wrong = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    assert sorted(wrong) == _WRONG_LINES, done


@pytest.mark.slow
def test_the_examples_pass_mypy_and_pyright(tmp_path: Path) -> None:
    mypy = ["mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "examples"]
    pyright = ["pyright", "--pythonpath", sys.executable, "examples"]
    for command in (mypy, pyright):
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done


def test_a_misspelled_name_of_the_package_is_answered_with_the_right_one() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'exekute'; did you mean 'execute'\?"):
        _ = kernelbox.exekute  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        _ = kernelbox.zzz  # type: ignore[attr-defined]


def test_a_misspelled_argument_is_answered_with_the_right_one() -> None:
    with pytest.raises(TypeError, match=r"'langauge'[;.] [Dd]id you mean 'language'\?"):
        kernelbox.execute("unused", "1", langauge="bash")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'aprove_shell_cmds'[;.] [Dd]id you mean 'approve_shell_cmds'\?"):
        CodeExecutor(aprove_shell_cmds=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Kernel\(\) got .* 'timout'[;.] [Dd]id you mean 'timeout'\?"):
        kernelbox.Kernel(timout=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'timout'[;.] [Dd]id you mean 'timeout'\?"):
        asyncio.run(CodeExecutor().execute("1", timout=3))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzz'$"):
        kernelbox.get_or_create("unused", zzz=1)  # type: ignore[call-arg]


def test_a_misspelled_language_is_answered_with_the_right_one() -> None:
    with pytest.raises(InvalidInput, match=r"language cannot be 'pyhton': did you mean 'python'\? use one of python"):
        kernelbox.execute("unused", "1", language="pyhton")  # type: ignore[arg-type]


def test_suggestions_leave_coroutine_functions_and_signatures_as_they_are() -> None:
    assert inspect.iscoroutinefunction(CodeExecutor.execute)
    assert "language" in inspect.signature(CodeExecutor.execute).parameters
    assert "policy" in inspect.signature(kernelbox.execute).parameters


@pytest.mark.parametrize("colour", [kernelbox.Kernel, kernelbox.AsyncKernel])
def test_the_signature_of_a_kernel_object_has_what_callers_give_and_not_the_fields_of_its_record(colour: type) -> None:
    parameters = inspect.signature(colour).parameters
    assert {"sandbox", "requirements", "approve", "budget"} <= set(parameters)
    assert "kernel_id" not in parameters


def test_parameters_that_have_no_effect_are_deprecated_where_they_are_given() -> None:
    with pytest.warns(DeprecationWarning, match=r"CodeExecutor\(tool_server_port=\) has no effect") as caught:
        CodeExecutor(tool_server_port=8900)
    assert [warning.filename for warning in caught] == [__file__]

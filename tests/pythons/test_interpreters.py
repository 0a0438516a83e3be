"""`python=`: a kernel runs in the interpreter that its opener chooses, without kernelbox in it."""

from __future__ import annotations

import asyncio
import glob
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.cells import parent_of, run, value
from tests.support.command_line import kernelbox, succeed
from tests.support.pythons import find_pyenv, make_environment

from kernelbox import (
    AsyncKernel,
    CodeExecutor,
    InvalidInput,
    KernelExists,
    KernelRecord,
    StartFailed,
    branch,
    create,
    destroy,
    execute,
    get_or_create,
    list_kernels,
    restart,
)
from kernelbox.base._environment import environment_in
from kernelbox.base._interpreter import Interpreter
from kernelbox.host.pythons._probing import NEEDED

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "__import__('sys').prefix"


def prefix_of(kernel: KernelRecord | str) -> str:
    return value(kernel, PREFIX).strip("'")


def test_a_kernel_runs_in_the_environment_that_its_opener_names(home: Path, environment: Path) -> None:
    kernel = get_or_create("theirs", python=environment)
    assert prefix_of(kernel) == str(environment)
    assert run(kernel, "!python -c 'import sys; print(sys.prefix)'").output.strip() == str(environment)
    assert execute(kernel, "import fastapi").error.ename == "ModuleNotFoundError"  # type: ignore[union-attr]  # it fails
    assert value(kernel, "__import__('os').environ['VIRTUAL_ENV']").strip("'") == str(environment)


def test_the_record_says_which_python_a_kernel_runs_in(home: Path, environment: Path) -> None:
    theirs, own = get_or_create("theirs", python=environment), get_or_create("own")
    assert (theirs.python, theirs.python_version) == (f"{environment}/bin/python", sys.version.split()[0])
    assert (own.python, own.chosen_python) == (sys.executable, "")
    assert {each.name: each.python for each in list_kernels()} == {"theirs": theirs.python, "own": sys.executable}


@pytest.mark.parametrize("name", ["bin/python", "bin/python3"])
def test_an_interpreter_can_be_named_by_its_path(home: Path, environment: Path, name: str) -> None:
    assert prefix_of(get_or_create("theirs", python=environment / name)) == str(environment)


def test_a_project_is_found_upwards_from_the_working_directory(home: Path, environment: Path, tmp_path: Path) -> None:
    inner = tmp_path / "src" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    with pytest.raises(InvalidInput, match=r"has no environment at .*\.venv; run `uv sync` there"):
        create("early", python="project", cwd=inner)
    (tmp_path / ".venv").symlink_to(environment)
    assert prefix_of(create("mine", python="project", cwd=inner)) == f"{tmp_path}/.venv"


def test_the_own_version_is_the_own_interpreter(home: Path) -> None:
    version = ".".join(map(str, sys.version_info[:2]))
    assert get_or_create("same", python=version).python == sys.executable


def test_a_variable_chooses_the_python_of_all_new_kernels(
    home: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = get_or_create("own")
    monkeypatch.setenv("KERNELBOX_PYTHON", str(environment))
    assert prefix_of(get_or_create("theirs")) == str(environment)
    assert get_or_create("own").pid == own.pid  # a live kernel stays as it is


def test_kernels_share_a_template_only_with_those_of_their_interpreter(home: Path, environment: Path) -> None:
    kernels = [get_or_create(name, python=environment) for name in ("one", "two")] + [get_or_create("own")]
    one, two, own = (parent_of(kernel.pid or 0) for kernel in kernels)
    assert one == two != own


def test_a_kernel_without_a_template_runs_in_another_python_too(
    home: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")
    assert prefix_of(get_or_create("cold", python=environment)) == str(environment)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_a_kernel_runs_in_another_version_of_python(home: Path, tmp_path: Path, version: str) -> None:
    python = find_pyenv(version) or shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    directory = make_environment(tmp_path / "env", python)
    kernel = get_or_create("other", python=directory)
    assert kernel.python_version.startswith(f"{version}.")
    assert run(kernel, "import sys\nprint(sys.version.split()[0])").output.strip() == kernel.python_version
    assert "ZeroDivisionError" in execute(kernel, "1 / 0").text
    run(kernel, "%timeit -n1 -r1 pass")
    assert get_or_create("other", python=version).pid == kernel.pid


def test_a_restart_and_a_death_keep_the_python(home: Path, environment: Path) -> None:
    kernel = get_or_create("keeps", python=environment)
    restart(kernel)
    assert prefix_of("keeps") == str(environment)
    execute("keeps", "import os; os._exit(1)")
    assert prefix_of(get_or_create("keeps")) == str(environment)


def test_a_name_is_not_given_another_python(home: Path, environment: Path, tmp_path: Path) -> None:
    kernel = get_or_create("theirs", python=environment)
    assert get_or_create("theirs", python=environment / "bin" / "python3").pid == kernel.pid
    with pytest.raises(KernelExists, match=r"and has python='.*/env/bin/python' \(Python .*\), not '.*bin/python"):
        get_or_create("theirs", python=sys.executable)
    execute("theirs", "import os; os._exit(1)")
    with pytest.raises(KernelExists, match="that died had python="):
        get_or_create("theirs", python=sys.executable)
    destroy("theirs")
    assert get_or_create("theirs", python=sys.executable).python == sys.executable


@pytest.mark.slow
def test_a_kernel_outlives_its_environment_and_is_not_ended_by_a_restart_that_must_fail(
    home: Path, tmp_path: Path
) -> None:
    directory = make_environment(tmp_path / "env")
    kernel = get_or_create("orphan", python=directory)
    run(kernel, "x = 42")
    shutil.rmtree(directory)
    assert get_or_create("orphan", python=directory).pid == kernel.pid
    with pytest.raises(StartFailed, match=r"there is no Python at '.*/env/bin/python'"):
        restart("orphan")
    assert value("orphan", "x") == "42"


def test_a_path_that_does_not_exist_is_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"python cannot be '.*nope': there is no such file"):
        get_or_create("none", python=tmp_path / "nope")
    with pytest.raises(InvalidInput, match="it is not an environment"):
        get_or_create("none", python=tmp_path)
    with pytest.raises(InvalidInput, match=r"no Python 3\.99 was found"):
        get_or_create("none", python="3.99")
    with pytest.raises(InvalidInput, match="use a path"):
        get_or_create("none", python=3.12)  # type: ignore[arg-type]  # on purpose
    assert list_kernels() == []


def test_a_program_that_is_not_python_is_refused_with_what_it_said(home: Path) -> None:
    with pytest.raises(StartFailed, match=r"'/bin/ls' is not a working Python; it said: .*"):
        get_or_create("none", python="/bin/ls")


@pytest.mark.parametrize("version", ["2.7", "3.9"])
def test_a_python_that_is_too_old_is_refused(home: Path, version: str) -> None:
    python = find_pyenv(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    with pytest.raises(StartFailed, match=rf"is Python {version}\.\d+, and kernels need 3\.11 or newer"):
        get_or_create("none", python=python)


def test_an_environment_without_ipython_is_refused_with_the_command_that_installs_it(
    home: Path, tmp_path: Path
) -> None:
    directory = make_environment(tmp_path / "bare", packages=())
    command = f"uv pip install --python {directory}/bin/python ipython comm matplotlib-inline"
    with pytest.raises(StartFailed, match=command):
        get_or_create("none", python=directory)


@pytest.mark.skipif(not glob.glob("/usr/lib/python3.*/EXTERNALLY-MANAGED"), reason="the system lets others install")
def test_the_system_s_python_is_refused_with_what_to_do_instead(home: Path) -> None:
    with pytest.raises(StartFailed, match=r"its system does not let others install there, so add requirements=\[\]"):
        get_or_create("none", python="/usr/bin/python3")


def test_the_variables_of_an_activated_environment_name_the_kernel_s_own(tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    conda = Interpreter(str(tmp_path / "bin" / "python"), str(tmp_path), "3.12.1", "", (), ())
    given = {
        "PATH": "/bin",
        "VIRTUAL_ENV": "/another",
        "CONDA_PREFIX": "/other",
        "CONDA_DEFAULT_ENV": "other",
        "A": "b",
    }
    path = f"{tmp_path}/bin:/bin"
    assert environment_in(conda, given) == {"PATH": path, "CONDA_PREFIX": str(tmp_path), "A": "b"}
    (tmp_path / "conda-meta").rmdir()
    assert environment_in(conda, given) == {"PATH": path, "A": "b"}


@pytest.mark.slow
def test_an_environment_whose_packages_go_is_noticed_at_the_next_start(home: Path, tmp_path: Path) -> None:
    directory = make_environment(tmp_path / "env")
    get_or_create("first", python=directory)
    for path in directory.glob("lib/python*/site-packages/ipython-*"):
        path.unlink()
    with pytest.raises(StartFailed, match="lacks ipython"):
        get_or_create("second", python=directory)


def test_an_environment_whose_base_is_gone_is_refused(home: Path, tmp_path: Path) -> None:
    directory = make_environment(tmp_path / "env")
    for name in ("python", "python3"):
        (directory / "bin" / name).unlink()
        (directory / "bin" / name).symlink_to(tmp_path / "removed" / "python")
    with pytest.raises(InvalidInput, match="its interpreter is gone"):
        get_or_create("none", python=directory)


@pytest.mark.slow
def test_kernels_on_an_event_loop_run_in_the_chosen_python(home: Path, environment: Path) -> None:
    async def main() -> None:
        async with AsyncKernel(python=environment) as kernel:
            assert (await kernel.execute(PREFIX)).text == f"'{environment}'"
        async with CodeExecutor(python=environment, approve_shell_cmds=True, require_shell_escape=True) as executor:
            assert (await executor.execute(PREFIX)).text == f"'{environment}'"
            assert (await executor.execute("!python -c 'import sys; print(sys.prefix)'")).text == str(environment)

    asyncio.run(main())


def test_a_branch_runs_in_the_python_of_its_original(home: Path, environment: Path) -> None:
    kernel = get_or_create("original", python=environment)
    run(kernel, "x = 1")
    copy = branch(kernel, "copy")
    assert (prefix_of(copy), value(copy, "x"), copy.python) == (str(environment), "1", kernel.python)


def test_a_jupyter_kernel_takes_no_python(home: Path, environment: Path) -> None:
    with pytest.raises(InvalidInput, match=r"only python3 kernels of kernelbox's own engine|use one of"):
        get_or_create("none", python=environment, kernel_type="ir")


@pytest.mark.slow
def test_the_command_line_opens_a_kernel_in_another_python_and_shows_it(home: Path, environment: Path) -> None:
    shown = succeed("exec", "theirs", "--python", str(environment), PREFIX)
    assert shown["return_value"] == f"'{environment}'"
    assert succeed("create", "other", "--python", str(environment))["python"] == f"{environment}/bin/python"
    refused = kernelbox("exec", "theirs", "--python", sys.executable, "1")
    assert "is running already, and has python=" in refused.stdout + refused.stderr
    assert sys.version.split()[0] in kernelbox("list", "--text").stdout


def test_an_empty_cache_has_nothing_to_list_or_to_clean(home: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    assert succeed("cache", KERNELBOX_CACHE=cache) == {"environments": []}
    assert succeed("cache", "--clean", KERNELBOX_CACHE=cache) == {"removed": []}


@pytest.mark.slow
def test_doctor_checks_the_python_of_kernels(home: Path, environment: Path, tmp_path: Path) -> None:
    found = kernelbox("doctor", KERNELBOX_PYTHON=str(environment)).stdout
    assert f"at {environment}/bin/python, by KERNELBOX_PYTHON" in found
    assert "there is no such file" in kernelbox("doctor", KERNELBOX_PYTHON=str(tmp_path / "none")).stdout


# -- sandboxes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sandboxed_kernel_runs_in_an_environment_in_its_directory_and_cannot_change_it(
    home: Path, environment: Path
) -> None:
    work = environment.parent / "work"
    inside = make_environment(work / ".venv")
    try:
        kernel = get_or_create("box", sandbox=True, cwd=work, python=inside)
        assert prefix_of(kernel) == str(inside)
        run(kernel, "open('mine', 'w').write('x')")
        planted = execute(kernel, "open('.venv/bin/planted', 'w')")
        assert planted.error is not None
        assert "Read-only" in planted.error.evalue
        restart(kernel)
        assert prefix_of("box") == str(inside)
        assert prefix_of(get_or_create("plain", python=inside)) == str(inside)
    finally:
        for name in ("box", "plain"):
            destroy(name)
        shutil.rmtree(work)


def test_an_environment_that_sandboxed_cells_can_write_is_not_run(home: Path, environment: Path) -> None:
    work = environment.parent / "writable"
    inside = make_environment(work / "env")
    code = "import kernelbox, sys\nkernelbox.get_or_create('plain', python=sys.argv[1])"
    try:
        get_or_create("box", sandbox=True, cwd=work)
        for sandbox in (False, True):
            with pytest.raises(StartFailed, match="is not used, because sandboxed cells can write to"):
                get_or_create("plain", python=inside, sandbox=sandbox, cwd=work)
        done = subprocess.run([sys.executable, "-c", code, inside], capture_output=True, text=True, check=False)
        assert "sandboxed cells can write to" in done.stderr  # another process knows it too
    finally:
        destroy("box")
        shutil.rmtree(work)


def test_a_link_that_a_sandboxed_cell_has_made_does_not_lead_to_an_interpreter(home: Path, environment: Path) -> None:
    work = environment.parent / "linked"
    work.mkdir()
    try:
        kernel = get_or_create("box", sandbox=True, cwd=work)
        run(kernel, f"import os; os.symlink({str(environment)!r}, 'env')")
        with pytest.raises(StartFailed, match=r"can write to '.*linked/env'"):
            get_or_create("plain", python=work / "env")
    finally:
        destroy("box")
        shutil.rmtree(work)


def test_what_a_python_needs_is_what_the_package_says() -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {f"{name}>={oldest}" for name, oldest in NEEDED.items()} <= set(said)

"""Options of a kernel that exists already: the same are fine, others are an error that names the difference."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import value
from tests.support.store import run_python

from kernelbox import InvalidInput, KernelExists, StartFailed, create, execute, get_or_create

pytestmark = pytest.mark.usefixtures("home")

ENV = {"PATH": os.environ["PATH"], "TOKEN": "abc"}


@pytest.mark.parametrize("code", ["%no_such_magic", "%%no_such_magic\n1"])
def test_start_up_code_that_fails_without_a_traceback_says_why(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", code)
    with pytest.raises(StartFailed, match=r"UsageError: .*no_such_magic"):
        create("new")


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"kernel_type": "bash"}, "kernel_type='python3', not 'bash'"),
        ({"cwd": "/"}, "not '/'"),
        ({"session_name": "another"}, "session_name='mine', not 'another'"),
        ({"tags": {"a": "c"}}, "tags={'a': 'b'}, not {'a': 'c'}"),
        ({"tags": {}}, "tags={'a': 'b'}, not {}"),
        ({"lifetime": "process"}, "lifetime='kernel', not 'process'"),
        ({"env": ENV}, "the environment of the process that opened it, not env="),
        ({"cwd": "/", "tags": {}}, "tags="),
    ],
)
def test_other_options_than_those_of_the_live_kernel_are_refused_by_name(
    options: dict[str, Any], difference: str
) -> None:
    kernel = get_or_create("mine", tags={"a": "b"})
    with pytest.raises(KernelExists) as refused:
        get_or_create("mine", **options)
    assert "kernel 'mine' is running already" in str(refused.value)
    assert difference in str(refused.value)
    assert get_or_create("mine").pid == kernel.pid


def test_the_same_options_again_are_fine(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    options: dict[str, Any] = {"cwd": tmp_path, "env": ENV, "tags": {"a": "b"}, "session_name": "s"}
    kernel = get_or_create("mine", **options, lifetime="process", kernel_type="python3")
    for given in (
        options,
        {},
        {"cwd": str(link)},
        {"cwd": f"{tmp_path}/"},
        {"lifetime": "process"},
        {"env": dict(ENV)},
    ):
        assert get_or_create("mine", **given).pid == kernel.pid
    assert get_or_create("s", session_name="s").pid == kernel.pid


def test_another_environment_is_told_by_the_names_of_variables_and_no_values() -> None:
    get_or_create("mine", env=ENV)
    with pytest.raises(KernelExists, match="an env= with another TOKEN;") as refused:
        get_or_create("mine", env={**ENV, "TOKEN": "xyz"})
    assert "abc" not in str(refused.value)
    assert "xyz" not in str(refused.value)


def test_an_environment_that_another_process_gave_is_not_compared() -> None:
    run_python(f"import kernelbox; kernelbox.get_or_create('mine', env={ENV!r})")
    kernel = get_or_create("mine", env={**ENV, "TOKEN": "other"})
    assert value(kernel, "__import__('os').environ['TOKEN']") == "'abc'"


@pytest.mark.parametrize(
    "options", [{"cwd": "/no/such/directory"}, {"tags": 5}, {"env": {"": ""}}, {"lifetime": "long"}]
)
def test_options_that_no_kernel_can_have_are_refused_also_for_a_live_one(options: dict[str, Any]) -> None:
    get_or_create("mine")
    with pytest.raises(InvalidInput):
        get_or_create("mine", **options)


@pytest.mark.skipif(sys.version_info[:3] == (3, 13, 0), reason="Python 3.13.0 itself cannot import socket there")
def test_a_live_kernel_is_found_from_a_directory_that_is_gone(tmp_path: Path) -> None:
    get_or_create("mine")
    code = (
        f"import os, kernelbox; os.mkdir({str(tmp_path / 'gone')!r}); os.chdir({str(tmp_path / 'gone')!r})\n"
        f"os.rmdir(os.getcwd())\nprint(kernelbox.get_or_create('mine').name)"
    )
    assert run_python(code).stdout == "mine\n"


def test_a_dead_kernels_options_do_not_matter(tmp_path: Path) -> None:
    create("mine", tags={"a": "b"})
    execute("mine", "import os; os._exit(1)")
    assert get_or_create("mine", cwd=tmp_path).cwd == str(tmp_path)


@pytest.mark.parametrize("variable", ["HOME", "REGISTRY_PATH", "RUNTIME_DIR", "KEY_FILE"])
def test_a_home_directory_that_there_is_not_is_refused_and_not_made_here(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv(f"KERNELBOX_{variable}", "~nosuchuser/x")
        with pytest.raises(InvalidInput, match=rf"KERNELBOX_{variable} cannot be .* no home directory ~nosuchuser"):
            get_or_create("mine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("kernel_type", 5),
        ("kernel_type", ""),
        ("kernel_type", []),
        ("cwd", ""),
        ("cwd", 5),
        ("cwd", b"/"),
        ("cwd", "\0"),
        ("tags", []),
        ("tags", "a"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_its_name(option: str, value: Any, live: bool) -> None:
    if live:
        get_or_create("kinds")
    with pytest.raises(InvalidInput, match=f"^{option} cannot be "):
        get_or_create("kinds", **{option: value})

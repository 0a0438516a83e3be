"""What programs written for KernelBox 0.1 rely on."""

from __future__ import annotations

import dataclasses
import json
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import kernelbox as command

import kernelbox
from kernelbox import AttemptSnapshot, ErrorInfo, KernelBoxConfig, KernelRecord, OutputItem


def test_the_modules_that_users_import_from_are_there() -> None:
    from kernelbox.api import destroy, execute, execute_with_retry, get_or_create
    from kernelbox.config import KernelBoxConfig as config
    from kernelbox.config import defaults
    from kernelbox.core import exceptions, types

    for module in (exceptions, types, defaults):
        for name in module.__all__:
            assert getattr(kernelbox, name, getattr(module, name)) is getattr(module, name)
    assert exceptions.KernelAlreadyExists is kernelbox.KernelExists
    assert (config, defaults.DEFAULT_MAX_RETRIES, defaults.DEFAULT_EXECUTION_TIMEOUT) == (KernelBoxConfig, 5, 60.0)
    assert (destroy, execute) == (kernelbox.destroy, kernelbox.execute)
    assert (execute_with_retry, get_or_create) == (kernelbox.execute_with_retry, kernelbox.get_or_create)
    assert types.parse_timestamp(types.utc_now()).tzinfo is not None
    with pytest.raises(ImportError):
        exec("from kernelbox.api import nothing")


def test_a_configuration_takes_paths_none_and_its_fields_by_place(tmp_path: Path) -> None:
    paths: dict[str, Any] = {"registry_path": tmp_path / "r.json", "runtime_dir": tmp_path / "run", "home": tmp_path}
    config = KernelBoxConfig(**paths)
    assert (config.registry_path, config.runtime_dir, config.home) == tuple(map(str, paths.values()))
    nothing: dict[str, Any] = dict.fromkeys(("registry_path", "runtime_dir", "home", "key_file"))
    nothing |= dict.fromkeys(("startup_code", "kernel_type"))
    assert KernelBoxConfig(**nothing) == KernelBoxConfig()
    by_place = KernelBoxConfig(1, 2, 3.0, 4, "memory", str(tmp_path / "r"), str(tmp_path), "x = 1", "python3")
    assert dataclasses.asdict(by_place) == dataclasses.asdict(KernelBoxConfig()) | {
        "max_retries": 1,
        "kernel_idle_timeout": 2,
        "execution_timeout": 3.0,
        "output_char_limit": 4,
        "store_backend": "memory",
        "registry_path": str(tmp_path / "r"),
        "runtime_dir": str(tmp_path),
        "startup_code": "x = 1",
        "kernel_type": "python3",
    }


def test_test_doubles_can_build_records_with_few_fields() -> None:
    record = KernelRecord("k1", "/tmp/kernel-k1.json")
    assert (record.tags, record.attempt_count, record.session_name) == ({}, 0, None)
    assert KernelRecord.from_dict({**record.to_dict(), "created_at": "2020-01-01T00:00:00+00:00"}).age_seconds > 1e8
    before = record.last_used_at
    record.last_used_at = "2020-01-01T00:00:00+00:00"
    record.touch()
    assert record.last_used_at >= before
    assert KernelRecord.from_dict(record.to_dict()) == record
    assert KernelRecord.from_dict({"kernel_id": "k2", "connection_file": "c", "name": None}).name == ""


def test_test_doubles_can_build_attempts_and_errors_with_few_fields() -> None:
    assert AttemptSnapshot(1, "x", "success") == AttemptSnapshot(1, "x", "success", "", "", None)
    assert ErrorInfo.from_content({"ename": "E", "evalue": "v", "traceback": ["t"]}) == ErrorInfo("E", "v", ["t"])
    assert ErrorInfo.from_content({}) == ErrorInfo("", "", [])


def test_destroy_takes_its_argument_by_name(home: Path) -> None:
    kernelbox.get_or_create("demo")
    assert kernelbox.destroy(name="demo") is True
    assert kernelbox.destroy(name="demo") is False


@pytest.mark.parametrize("language", ["Python", "PY", "Bash", "SH", "Shell"])
def test_languages_ignore_case(kernel: KernelRecord, language: Any) -> None:
    assert kernelbox.execute(kernel, "True", language=language, timeout=60).status in ("success", "error")
    code = "print('x')" if language.lower().startswith("py") else "echo x"
    assert kernelbox.execute(kernel, code, language=language, timeout=60).output == "x\n"


@pytest.mark.parametrize("language", ["ruby", "", None, 3, ["python"]])
def test_a_language_that_is_none_is_refused(kernel: KernelRecord, language: Any) -> None:
    with pytest.raises(ValueError, match="language cannot be"):
        kernelbox.execute(kernel, "1", language=language)


@pytest.mark.parametrize("call", [kernelbox.execute, kernelbox.stream])
def test_a_timeout_below_zero_is_refused_and_nothing_runs(kernel: KernelRecord, call: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout cannot be -1: "):
        list(call(kernel, "ran = True", timeout=-1))
    assert kernelbox.execute(kernel, "'ran' in globals()").return_value == "False"


@pytest.mark.parametrize("timeout", [0, 0.0])
def test_a_timeout_that_is_no_time_is_the_configured_one(
    kernel: KernelRecord, timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kernelbox.execute(kernel, "6 * 7", timeout=timeout).return_value == "42"
    monkeypatch.setenv("KERNELBOX_EXECUTION_TIMEOUT", "0.3")
    result = kernelbox.execute(kernel, "import time\ntime.sleep(60)", timeout=timeout)
    assert result.status == "timeout"
    assert result.error is not None
    assert "after 0.3 s" in result.error.evalue


def test_no_attempts_are_the_configured_number(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_MAX_RETRIES", "2")
    result = kernelbox.execute_with_retry(kernel, "1 / 0", lambda result, attempt: None, max_attempts=0)
    assert (result.status, len(result.attempts)) == ("max_attempts_exceeded", 2)
    with pytest.raises(ValueError, match="max_attempts cannot be -1"):
        kernelbox.execute_with_retry(kernel, "1", lambda result, attempt: None, max_attempts=-1)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise ValueError('a\\nb')", "ValueError: a\nb"),
        ("assert False", "AssertionError: "),
    ],
)
def test_an_error_is_the_last_output_with_its_parts(kernel: KernelRecord, code: str, text: str) -> None:
    result = kernelbox.execute(kernel, f"print('before')\n{code}")
    assert result.error is not None
    assert [item.kind for item in result.outputs] == ["stream", "error"]
    assert result.outputs[-1] == OutputItem("error", text=text, data=result.error.to_dict())
    assert result.text == "before\n" + "\n".join(result.error.traceback).rstrip()


def test_a_timeout_is_an_error_item_too(kernel: KernelRecord) -> None:
    result = kernelbox.execute(kernel, "while True: pass", timeout=0.3)
    assert result.outputs[-1].text is not None
    assert result.outputs[-1].text.startswith("TimeoutError: timed out after 0.3 s")


def test_a_traceback_that_a_cell_shows_and_goes_on_has_the_same_shape(kernel: KernelRecord) -> None:
    code = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    get_ipython().showtraceback()\nprint('on')"
    shown, on = kernelbox.execute(kernel, code).outputs
    assert (shown.kind, shown.text, on.text) == ("error", "ZeroDivisionError: division by zero", "on\n")
    assert shown.data["ename"] == "ZeroDivisionError"
    assert shown.data["traceback"][-1] == shown.text
    assert "1 / 0" in shown.readable


def test_a_shown_error_is_named_whatever_its_traceback_ends_with(kernel: KernelRecord) -> None:
    code = "try:\n    pritn\nexcept NameError:\n    get_ipython().showtraceback()"
    (shown,) = kernelbox.execute(kernel, code).outputs
    assert (shown.text, shown.data["ename"]) == ("NameError: name 'pritn' is not defined", "NameError")
    assert shown.readable.endswith("Hint: did you mean 'print'?")


def make_old_home(path: Path, **names: str) -> None:
    """Makes a home as 0.1.2 leaves it: a registry, connection files, and IPython's directory, readable by all."""
    runtime = path / "runtime"
    (runtime / "ipython").mkdir(parents=True)
    path.chmod(0o755)
    kernels = {}
    for kernel_id, name in names.items():
        file = runtime / f"kernel-{kernel_id}.json"
        file.write_text("{}")
        record = {"kernel_id": kernel_id, "connection_file": str(file), "name": name, "status": "running", "tags": {}}
        kernels[kernel_id] = record
    (path / "registry.json").write_text(json.dumps({"version": 1, "kernels": kernels}, indent=2))


def test_a_home_of_the_old_version_is_moved_aside_with_a_sentence(own_home: Path) -> None:
    make_old_home(own_home, a1="agent", b2="other")
    done = command("list")
    assert (done.status, done.json) == (0, {"kernels": []})
    [aside] = own_home.parent.glob(f"{own_home.name}-0.1-*")
    try:
        assert f"made by KernelBox 0.1 and has been moved to '{aside}'" in done.stderr
        assert "its kernels ('agent', 'other') are gone" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert json.loads((aside / "registry.json").read_text())["kernels"].keys() == {"a1", "b2"}
        assert command("exec", "--name", "agent", "1 + 1").json["return_value"] == "2"
        assert command("exec", "--name", "agent", "1 + 1").stderr == ""
        command("wipe")
    finally:
        remove(aside)


def test_a_runtime_directory_of_the_old_version_is_moved_aside(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old_home(tmp_path / "old", a1="agent")
    monkeypatch.setenv("KERNELBOX_REGISTRY_PATH", str(tmp_path / "old" / "registry.json"))
    monkeypatch.setenv("KERNELBOX_RUNTIME_DIR", str(tmp_path / "old" / "runtime"))
    (tmp_path / "old" / "runtime").chmod(0o700)
    with pytest.warns(UserWarning, match="made by KernelBox 0.1"):
        assert kernelbox.execute("agent", "1 + 1").return_value == "2"
    assert [record.name for record in kernelbox.list_kernels()] == ["agent"]
    kernelbox.wipe()


def test_a_runtime_directory_of_jupyters_is_left_as_it_is(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "jupyter"
    runtime.mkdir(mode=0o700)
    (runtime / "kernel-1.json").write_text("{}")
    monkeypatch.setenv("KERNELBOX_RUNTIME_DIR", str(runtime))
    with pytest.raises(kernelbox.StoreFailed, match="neither used nor changed"):
        kernelbox.list_kernels()
    assert [path.name for path in runtime.iterdir()] == ["kernel-1.json"]
    monkeypatch.delenv("KERNELBOX_RUNTIME_DIR")


def test_threads_that_come_to_an_old_home_at_once_move_only_that(own_home: Path) -> None:
    make_old_home(own_home, a1="agent")
    together, found = threading.Barrier(8), []

    def come() -> None:
        together.wait()
        found.append(kernelbox.get_or_create("agent").kernel_id)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=come) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    [aside] = own_home.parent.glob(f"{own_home.name}-0.1-*")
    remove(aside)
    assert (len(found), len(set(found))) == (8, 1)


@pytest.mark.parametrize("stranger", ["notes.txt", "runtime/../thesis.tex", ".git"])
def test_a_directory_with_anything_else_in_it_is_left_as_it_is(own_home: Path, stranger: str) -> None:
    make_old_home(own_home, a1="agent")
    (own_home / stranger).write_text("mine")
    with pytest.raises(kernelbox.StoreFailed, match="neither used nor changed"):
        kernelbox.list_kernels()
    assert (own_home / stranger).read_text() == "mine"
    remove(own_home)


def test_an_old_registry_with_anything_in_it_is_moved_without_names(own_home: Path) -> None:
    (own_home / "registry.json").write_text('{"kernels": [1, 2')
    with pytest.warns(UserWarning, match="its kernels are gone"):
        assert kernelbox.list_kernels() == []
    [aside] = own_home.parent.glob(f"{own_home.name}-0.1-*")
    remove(aside)


def remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory)

"""A template that is stopped, hangs, or does not survive its imports delays nothing for long and is left nowhere."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, is_running, parent_of, run, value, wait_for_end

from kernelbox import StartFailed, destroy, execute, get_or_create, status, wipe
from kernelbox.host.engines.own import _warm_template as _template


@pytest.fixture
def modules(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder for modules that a template can import."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    return tmp_path


def template_of(name: str) -> int:
    pid = status(name).pid
    assert pid is not None
    return parent_of(pid)


def test_a_stopped_template_is_continued_by_who_opens_a_kernel(own_home: Path) -> None:
    get_or_create("first")
    template = template_of("first")
    os.kill(template, signal.SIGSTOP)
    get_or_create("second")
    assert template_of("second") == template, "it keeps the kernels that it has"


def test_a_stopped_template_is_continued_to_tell_how_a_kernel_ended(own_home: Path) -> None:
    kernel = get_or_create("first")
    run(kernel, "pass")
    os.kill(template_of("first"), signal.SIGSTOP)
    result = execute(kernel, "import os; os._exit(3)", timeout=DEADLINE)
    assert result.error is not None
    assert "exited with status 3" in result.error.evalue


def test_wipe_ends_a_stopped_template_and_its_kernels(own_home: Path) -> None:
    kernels = [get_or_create("first"), get_or_create("second")]
    template = template_of("first")
    os.kill(template, signal.SIGSTOP)
    assert len(wipe()) == 2
    for pid in (template, *(kernel.pid or 0 for kernel in kernels)):
        wait_for_end(pid)
    assert not list((own_home / "runtime").glob("template-*"))


HANGS = "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: [time.sleep(1000) for _ in range(1000)])"


def test_a_template_that_hangs_is_replaced_and_its_kernels_live_on(
    own_home: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (modules / "hangs_later.py").write_text(HANGS)
    monkeypatch.setenv("KERNELBOX_PRELOAD", "hangs_later")
    run(get_or_create("first"), "x = 1")
    template = template_of("first")
    os.kill(template, signal.SIGUSR1)
    get_or_create("second")
    assert template_of("second") != template
    wait_for_end(template)
    assert value("first", "x") == "1"


def test_wipe_ends_a_template_that_hangs(own_home: Path, modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (modules / "hangs_later.py").write_text(HANGS)
    monkeypatch.setenv("KERNELBOX_PRELOAD", "hangs_later")
    get_or_create("first")
    template = template_of("first")
    destroy("first")
    os.kill(template, signal.SIGUSR1)
    wipe()
    assert not is_running(template)
    assert not list((own_home / "runtime").glob("template-*"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("exit()", "NameError|SystemExit"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import sys; sys.exit('no')", "SystemExit: no"),
        ("import os; os._exit(3)", "it ended or hung"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it ended or hung"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "it ended or hung"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_module_that_a_template_does_not_survive_is_named(
    code: str, said: str, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (modules / "unbearable.py").write_text(code)
    monkeypatch.setenv("KERNELBOX_PRELOAD", "json,unbearable")
    with pytest.raises(StartFailed, match=rf"(?s)(?=.*'unbearable')(?=.*({said}))"):
        get_or_create("first")


def test_a_module_that_hangs_while_it_is_imported_is_named_and_its_template_ended(
    own_home: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (modules / "endless.py").write_text(
        f"import os, time\nopen({str(modules / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)"
    )
    monkeypatch.setenv("KERNELBOX_PRELOAD", "json,endless")
    monkeypatch.setattr(_template, "ANSWER_PATIENCE", 2.0)  # a minute, for modules that take long
    with pytest.raises(StartFailed, match="'endless'; remove this module from KERNELBOX_PRELOAD"):
        get_or_create("first")
    wait_for_end(int((modules / "pid").read_text()))
    monkeypatch.setenv("KERNELBOX_PRELOAD", "json")
    assert value(get_or_create("first"), "1 + 1") == "2"

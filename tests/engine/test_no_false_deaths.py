"""A kernel is told dead only when it is: not while it restarts, not because we have too much open, not by its name."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, run, value
from tests.support.store import run_python

from kernelbox import ExecutionResult, KernelRecord, StartFailed, execute, get_or_create, restart, status, stream


def test_a_user_exception_called_kernel_died_is_only_an_exception(kernel: KernelRecord) -> None:
    result = execute(kernel, "class KernelDied(Exception): pass\nraise KernelDied('not really')", timeout=DEADLINE)
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("KernelDied", "not really")
    assert (result.status, result.ending, result.state) == ("error", "finished", "kept")
    late = execute(
        kernel,
        "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: raise KernelDied('late') from None",
        timeout=BEGUN,
    )
    assert (late.status, late.ending, late.state) == ("timeout", "interrupted", "kept")
    execute(kernel, "import os; os._exit(3)", timeout=DEADLINE)
    told = execute(kernel.name, "1", timeout=DEADLINE)
    assert told.error is None, "the death was told by the call that saw it"


def test_a_death_by_name_is_told_although_an_exception_of_that_name_was_seen(kernel: KernelRecord) -> None:
    execute(kernel, "class KernelDied(Exception): pass\nraise KernelDied('not really')", timeout=DEADLINE)
    run_python(f"import kernelbox, os; os.kill(kernelbox.status({kernel.name!r}).pid, 9)")
    told = execute(kernel.name, "1", timeout=DEADLINE)
    assert told.error is not None
    assert (told.ending, told.state) in (("never ran", "lost"), ("died", "lost"))


@pytest.mark.parametrize("by", ["record", "id", "name"])
def test_a_call_during_a_restart_waits_for_it(by: str, kernel: KernelRecord) -> None:
    keys: dict[str, KernelRecord | str] = {"record": kernel, "id": kernel.kernel_id, "name": kernel.name}
    key = keys[by]
    over = threading.Event()

    def restart_often() -> None:
        for _ in range(15):
            restart(kernel)
        over.set()

    thread = threading.Thread(target=restart_often)
    thread.start()
    causes = set()
    while not over.is_set():
        assert status(key).status != "dead"
        result = execute(key, "1 + 1", timeout=DEADLINE)
        if result.error is None:
            assert result.return_value == "2"
        else:
            causes.add(result.error.evalue.partition(";")[0])
    thread.join()
    assert causes <= {"restarted"}, "a cell that ran when the process was ended is told so, and nothing else is"
    assert value(key, "1 + 1") == "2"


@pytest.mark.parametrize("code", ["pid = os.getpid()", "pid = os.getpid(); time.sleep(60)"], ids=["short", "long"])
def test_a_cell_that_is_sent_after_its_kernel_was_restarted_runs_in_the_new_process(
    code: str, kernel: KernelRecord
) -> None:
    events = stream(kernel, f"import os, time; {code}", timeout=BEGUN)
    again = restart(kernel)
    result = list(events)[-1]
    assert isinstance(result, ExecutionResult)
    assert (result.ending, result.state) == ("interrupted" if "sleep" in code else "finished", "kept")
    assert value(kernel, "pid") == str(again.pid)


EXHAUST = """
import os, resource, sys
import kernelbox
kernel = kernelbox.get_or_create(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
for act in (lambda: kernelbox.execute(kernel, "x"), lambda: kernelbox.execute(sys.argv[1], "x"),
            lambda: kernelbox.get_or_create(sys.argv[1])):
    try:
        print("no error:", act())
    except kernelbox.StoreFailed as exc:
        print("too many open files" in str(exc))
for fd in held: os.close(fd)
print(kernelbox.execute(kernel, "x").return_value, kernelbox.get_or_create(sys.argv[1]).pid == kernel.pid)
"""


def test_a_live_kernel_is_not_taken_for_dead_when_we_have_too_much_open(kernel: KernelRecord) -> None:
    run(kernel, "x = 42")
    assert run_python(EXHAUST, kernel.name).stdout == "True\nTrue\nTrue\n42 True\n"
    assert status(kernel).pid == kernel.pid


def test_a_kernel_whose_start_is_in_progress_is_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "import time; time.sleep(0.5); ready = True")
    opening = threading.Thread(target=get_or_create, args=("slow",))
    opening.start()
    try:
        assert value("slow", "ready") == "True"
    finally:
        opening.join()


SCARCE = """
import os, resource, sys, warnings
import kernelbox
warnings.simplefilter("error")
name, code = sys.argv[1:]
kernel = kernelbox.get_or_create(name)
kernelbox.interrupt(kernel), kernelbox.list_kernels()  # what these import is not what is measured
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
for free in range(12):
    pid = os.fork()
    if pid == 0:
        held = []
        try:
            while True: held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            for fd in held[:free]: os.close(fd)
        try:
            print(free, eval(code), flush=True)
        except kernelbox.StoreFailed as exc:
            print(free, "too many open files" in str(exc), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, free
"""


@pytest.mark.parametrize(
    "code",
    [
        "kernelbox.execute(kernel, 'x').return_value == '42'",
        "kernelbox.execute(name, 'x').return_value == '42'",
        "kernelbox.get_or_create(name).pid == kernel.pid",
        "kernelbox.status(name).alive",
        "kernelbox.status(kernel).alive",
        "all(record.alive for record in kernelbox.list_kernels())",
        "kernelbox.interrupt(kernel) is False",
        "kernelbox.wipe(stale=True) == []",
        "bool(kernelbox.get_or_create(name + 'another'))",
    ],
)
def test_however_few_descriptors_are_left_an_answer_is_true_or_says_so(
    code: str, kernel: KernelRecord, home: Path
) -> None:
    run(kernel, "x = 42")
    answers = run_python(SCARCE, kernel.name, code).stdout.split()
    assert answers == [word for free in range(12) for word in (str(free), "True")]
    assert status(kernel).pid == kernel.pid
    assert not list(home.glob("registry.json.damaged*")), "a registry that we could not open is not damaged"


def test_a_restart_that_fails_leaves_a_dead_kernel_that_says_so(
    kernel: KernelRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unbearable.py").write_text("1 / 0")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("KERNELBOX_PRELOAD", "unbearable")
    with pytest.raises(StartFailed, match="ZeroDivisionError"):
        restart(kernel)
    monkeypatch.delenv("KERNELBOX_PRELOAD")
    assert "its restart failed: " in (status(kernel).death or "")
    told = execute(kernel.name, "1", timeout=DEADLINE)
    assert told.error is not None
    assert "ZeroDivisionError" in told.error.evalue
    assert value(kernel.name, "1 + 1") == "2"

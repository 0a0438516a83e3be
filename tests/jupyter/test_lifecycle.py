"""Jupyter kernels are started, restarted and destroyed like our own, and their deaths told."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, Running, parent_of, run, wait_for_end

from kernelbox import (
    InvalidInput,
    KernelRecord,
    StartFailed,
    destroy,
    execute,
    get_or_create,
    list_kernels,
    restart,
)
from kernelbox.api._configured import kernels
from kernelbox.host.engines.jupyter._jupyter_connection import JupyterConnection
from kernelbox.host.process._process import Process
from kernelbox.wire._messages import Execute


@pytest.fixture
def stubborn() -> KernelRecord:
    """Opens an ipykernel that only the tests that end it share."""
    return get_or_create("stubborn")


def test_an_unknown_type_lists_the_known_ones_and_creates_nothing(jupyter: Path) -> None:
    before = {record.kernel_id for record in list_kernels()}
    with pytest.raises(InvalidInput, match=r"cobol.*use one of bash, .*odd, .*python3"):
        get_or_create("nothing", kernel_type="cobol")
    assert {record.kernel_id for record in list_kernels()} == before


def test_the_environment_names_the_type_of_new_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_KERNEL_TYPE", "odd")
    record = get_or_create("by environment")
    assert (record.kernel_type, record.engine) == ("odd", "jupyter")
    assert run(record, "say hello").output == "hello\n"
    destroy(record)


@pytest.mark.parametrize(("kernel_type", "said"), [("odd-missing", "/nowhere/kernel"), ("odd-failing", "no such luck")])
def test_a_kernel_that_cannot_start_fails_with_its_log_and_leaves_nothing(
    kernel_type: str, said: str, jupyter: Path
) -> None:
    before = sorted(os.listdir(jupyter / "home" / "runtime")) if (jupyter / "home").exists() else None
    with pytest.raises(StartFailed, match=said):
        get_or_create("stillborn", kernel_type=kernel_type)
    assert not any(record.name == "stillborn" for record in list_kernels())
    assert before is None or sorted(os.listdir(jupyter / "home" / "runtime")) == before


def test_startup_code_runs_before_the_first_cell_and_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "say ready")
    record = get_or_create("with start-up code", kernel_type="odd")
    assert run(record, "say one").execution_count == 2
    assert run(restart(record), "say one").execution_count == 2
    destroy(record)


def test_startup_code_that_fails_fails_the_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "fail on purpose")
    with pytest.raises(StartFailed, match="on purpose"):
        get_or_create("stillborn", kernel_type="odd")


def test_a_restart_keeps_id_and_name_and_forgets_the_rest(odd: KernelRecord) -> None:
    run(odd, "say once")
    again = restart(odd)
    assert (again.kernel_id, again.name, again.kernel_type) == (odd.kernel_id, odd.name, odd.kernel_type)
    assert again.pid != odd.pid
    assert again.lost is not None
    assert run(again, "say first").execution_count == 1


def test_a_kernel_whose_kernelspec_is_gone_is_not_ended_by_a_restart(
    odd: KernelRecord, jupyter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(jupyter / "nowhere"))
    with pytest.raises(InvalidInput, match="odd"):
        restart(odd)
    assert run(odd, "say still here").output == "still here\n"


def test_a_fork_has_connections_of_its_own(odd: KernelRecord) -> None:
    code = (
        "import kernelbox, os\n"
        # One system call a line, so that neither process writes in the middle of the other's.
        "run = lambda text: os.write(1, (kernelbox.execute('odd', 'say ' + text).text + '\\n').encode())\n"
        "run('parent')\n"
        "child = os.fork()\n"
        "run('child' if child == 0 else 'parent again')\n"
        "if child: os.waitpid(child, 0)"
    )
    argv = [sys.executable, "-c", code]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=DEADLINE)
    assert sorted(answer.stdout.splitlines()) == ["child", "parent", "parent again"]


def test_death_is_reported_by_its_cause(odd: KernelRecord) -> None:
    waiting = Running(odd, "say in\nwait").wait_for_output()
    assert odd.pid is not None
    os.kill(odd.pid, signal.SIGKILL)
    result = waiting.result()
    assert (result.status, result.ending, result.state) == ("error", "died", "lost")
    assert result.output == "in\n"
    assert result.error is not None
    assert "killed by SIGKILL" in result.error.evalue
    (dead,) = [record for record in list_kernels() if record.kernel_id == odd.kernel_id]
    assert (dead.status, dead.death) == ("dead", "killed by SIGKILL")


@pytest.mark.slow
def test_a_cell_that_cannot_be_stopped_costs_the_process_but_not_the_name(stubborn: KernelRecord) -> None:
    run(stubborn, "lost = 1")
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    result = execute(stubborn, code, timeout=BEGUN)
    assert (result.status, result.ending, result.state) == ("timeout", "restarted", "lost")
    again = get_or_create(stubborn.name)
    assert again.kernel_id == stubborn.kernel_id
    assert again.pid != stubborn.pid
    assert run(again, "'lost' in globals()").return_value == "False"


def test_destroying_a_kernel_ends_its_cell_its_children_and_its_files(stubborn: KernelRecord) -> None:
    orphan = int(run(stubborn, "sleep 1000 >/dev/null 2>&1 & echo $!", language="bash").output)
    assert stubborn.pid is not None
    assert parent_of(orphan) == parent_of(stubborn.pid), "an orphan's parent is not one that reaps it"
    code = "import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\nprint(child.pid, flush=True)\nchild.wait()"
    running = Running(stubborn, code).wait_for_output()
    directory = Path(kernels().store.directory(stubborn.kernel_id).path)
    assert destroy(stubborn)
    result = running.result()
    assert result.error is not None
    assert result.error.ename == "KernelDied"
    assert "destroyed" in result.error.evalue
    wait_for_end(int(result.output))
    wait_for_end(orphan)
    assert not directory.exists()
    assert not any(record.kernel_id == stubborn.kernel_id for record in list_kernels())


def test_a_cell_for_a_kernel_whose_directory_is_gone_ends_at_once(odd: KernelRecord) -> None:
    directory = kernels().store.directory(odd.kernel_id)
    assert odd.pid is not None
    connection = JupyterConnection(directory, Process(odd.pid, odd.start_time))
    waiting_at = connection.fileno()
    os.rename(directory.path, f"{directory.path}-elsewhere")
    try:
        connection.send(Execute("x", "say hello"))
        assert connection.ended
        assert select.select([waiting_at], [], [], DEADLINE)[0] == [waiting_at]
        assert connection.receive(DEADLINE) == []
    finally:
        os.rename(f"{directory.path}-elsewhere", directory.path)
        connection.close()


def test_a_path_too_long_for_sockets_is_no_obstacle(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(own_home))
    monkeypatch.setattr(tempfile, "tempdir", None)
    home = tmp_path.joinpath(*["a-long-name" * 5] * 3)
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    record = get_or_create("far away", kernel_type="odd")
    assert run(record, "say hello").output == "hello\n"
    code = "import kernelbox; print(kernelbox.execute('far away', 'say hello').output, end='')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"hello\n"
    assert destroy(record)
    assert os.listdir(own_home) == []


def test_a_kernel_of_a_process_dies_with_it() -> None:
    code = (
        "import kernelbox, os, signal\n"
        "print(kernelbox.get_or_create('owned', kernel_type='odd', lifetime='process').pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    wait_for_end(int(answer.stdout))
    destroy("owned")


def test_a_kernel_that_nobody_used_can_be_culled(monkeypatch: pytest.MonkeyPatch) -> None:
    record = get_or_create("unused", kernel_type="odd")
    run(record, "say once")
    assert kernels().kernel(record).ask("leave", {"unused_for": DEADLINE}) == {"left": False}
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0.001")
    assert kernels().kernel(record).ask("leave", {"unused_for": 0.0}, patience=DEADLINE) is None
    (dead,) = [found for found in list_kernels() if found.kernel_id == record.kernel_id]
    assert dead.death is not None
    assert "without work" in dead.death
    destroy(dead)


def test_files_with_the_key_are_private(odd: KernelRecord) -> None:
    directory = Path(odd.connection_file).parent
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.glob("*.json")} == {0o600}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["exec", "--name", "odd", "say hello"], 0, '"output": "hello'),
        (["exec", "--name", "odd", "fail"], 1, '"ename": "Odd"'),
        (["exec", "--name", "odd", "--timeout", "2", "wait"], 1, '"ending": "interrupted"'),
        (["status", "--name", "odd"], 0, '"kernel_type": "odd"'),
        (["list"], 0, '"engine": "jupyter"'),
    ],
)
def test_the_command_line_works_the_same(odd: KernelRecord, arguments: list[str], status: int, said: str) -> None:
    code = "import sys; from kernelbox.cli import main; sys.exit(main())"
    argv = [sys.executable, "-c", code, *arguments]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert answer.returncode == status, answer.stderr
    assert said in answer.stdout


def test_a_kernel_is_told_nothing_about_a_jupyter_server_around_us(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelbox.host.engines._kernelspecs import find_spec

    env = find_spec("bash").environment({"JPY_PARENT_PID": "1", "PATH": "/bin"})
    assert env == {"PATH": "/bin", "PS1": "$"}

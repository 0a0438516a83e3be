"""Death: the caller hears of it at once, by its cause, with what the cell had printed; nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cells import (
    DEADLINE,
    Running,
    connected,
    eventually,
    is_running,
    parent_of,
    run,
    until_queued,
    value,
    wait_for_end,
)
from tests.support.store import remove_tree

from kernelbox import KernelRecord, destroy, execute, get_or_create, list_kernels, wipe
from kernelbox.wire._messages import Done, Execute

DEATHS = {
    "SIGKILL": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    "a segfault": ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
    "os.abort": ("import os; os.abort()", "killed by SIGABRT"),
    "os._exit(0)": ("import os; os._exit(0)", "exited with status 0"),
    "os._exit(137)": ("import os; os._exit(137)", "exited with status 137"),
    "exit()": ("exit()", "exit()"),
    "quit()": ("quit()", "exit()"),
    "a SIGTERM from somebody": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)\nwhile True: pass", "SIGTERM"),
    "a thread that kills": (
        "import os, threading, time\nthreading.Thread(target=lambda: os._exit(3)).start(); time.sleep(100)",
        "exited with status 3",
    ),
}


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="the number of exit(2) is not known")
def test_a_kernel_whose_main_thread_a_cell_has_ended_is_dead(kernel: KernelRecord) -> None:
    run(
        kernel, "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
    )
    number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    result = execute(kernel, f"ctypes.CDLL(None).syscall({number}, 0)", timeout=DEADLINE)
    assert result.error is not None
    assert "its main thread was ended" in result.error.evalue


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="the number of exit(2) is not known")
def test_a_kernel_that_takes_a_moment_to_exit_is_told_by_its_status(kernel: KernelRecord) -> None:
    """Its main thread has ended before the others; a keeper looks every second."""
    number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    late = "import ctypes, os, threading, time\nlate = threading.Thread(target=lambda: (time.sleep(0.9), os._exit(3)))"
    run(kernel, "import time; time.sleep(0.5)")
    result = execute(kernel, f"{late}\nlate.start()\nctypes.CDLL(None).syscall({number}, 0)", timeout=DEADLINE)
    assert result.error is not None
    assert "exited with status 3" in result.error.evalue


@pytest.mark.parametrize("what", DEATHS)
def test_a_death_is_reported_by_its_cause_with_what_was_printed_before(what: str, kernel: KernelRecord) -> None:
    code, cause = DEATHS[what]
    result = execute(kernel, f"print('last', end=' ')\nprint('words')\n{code}", timeout=DEADLINE)
    assert (result.status, result.state, result.ending) == ("error", "lost", "died"), result.text
    assert result.error is not None
    assert result.error.ename == "KernelDied"
    assert cause in result.error.evalue
    assert result.output == "last words\n"
    print(f"{what}: {result.duration_ms} ms")


def test_exit_needs_no_brackets_in_a_line_of_its_own(kernel: KernelRecord) -> None:
    result = execute(kernel, "exit", timeout=DEADLINE)
    assert (result.state, result.ending) == ("lost", "died"), result.text


def test_much_text_printed_just_before_a_death_is_all_there(kernel: KernelRecord) -> None:
    code = "import os, sys\nfor n in range(2000): print(n, 'x' * 50)\nprint('end', file=sys.stderr)\nos._exit(1)"
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.output.startswith("0 xxx")
    assert result.output.endswith(f"1999 {'x' * 50}\n")
    assert result.stderr == "end\n"


def test_text_after_a_long_text_is_there_too(kernel: KernelRecord) -> None:
    result = execute(kernel, "print('x' * 300_000); print('the end'); import os; os._exit(1)", timeout=DEADLINE)
    assert result.output.endswith("x\nthe end\n")


def test_what_c_code_and_children_wrote_before_a_death_is_there(kernel: KernelRecord) -> None:
    code = "import os; os.write(1, b'direct '); os.system('echo child'); os.write(2, b'err'); os._exit(1)"
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.output, result.stderr) == ("direct child\n", "err")


def test_a_dead_kernel_is_declared_dead_and_its_name_opens_a_fresh_one(kernel: KernelRecord) -> None:
    execute(kernel, "x = 1; import os; os._exit(9)", timeout=DEADLINE)
    again = execute(kernel, "x", timeout=DEADLINE)
    assert (again.status, again.ending) == ("error", "never ran")
    assert again.error is not None
    assert "exited with status 9" in again.error.evalue
    fresh = get_or_create(kernel.name)
    assert fresh.kernel_id != kernel.kernel_id
    assert value(fresh, "'x' in globals()") == "False"


def test_a_death_while_idle_is_found_by_the_next_call(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    run(kernel, "x = 1")
    os.kill(kernel.pid, signal.SIGKILL)
    wait_for_end(kernel.pid)
    result = execute(kernel, "x", timeout=DEADLINE)
    assert result.error is not None
    assert result.error.ename == "KernelDied"
    assert "SIGKILL" in result.error.evalue
    assert [record.status for record in list_kernels() if record.name == kernel.name] == ["dead"]


@pytest.mark.parametrize("code", ["import sys; sys.exit(3)", "raise SystemExit(3)"])
def test_system_exit_is_an_ordinary_error(code: str, kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.status, result.state, result.ending) == ("error", "kept", "finished")
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("SystemExit", "3")
    assert value(kernel, "kept") == "1"


@pytest.mark.parametrize("raised", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "ValueError"])
def test_what_a_task_in_the_background_raises_does_not_end_the_kernel(raised: str, kernel: KernelRecord) -> None:
    run(
        kernel,
        f"import asyncio\nkept = 1\nasync def fail():\n    await asyncio.sleep(0)\n    raise {raised}\n"
        "t = asyncio.get_running_loop().create_task(fail())",
    )
    run(kernel, "await asyncio.sleep(0.01)")
    assert value(kernel, "kept, t.done()") == "(1, True)"


def test_the_caller_of_every_queued_cell_hears_of_the_death(kernel: KernelRecord) -> None:
    first = Running(kernel, f"print('in')\n{until_queued(4)}import os; os._exit(5)").wait_for_output()
    behind = [Running(kernel, "1") for _ in range(4)]
    for cell in [first, *behind]:
        error = cell.result().error
        assert error is not None
        assert error.ename == "KernelDied"
        assert "exited with status 5" in error.evalue


def test_a_cell_that_closes_the_kernels_descriptors_is_told_so_at_once(kernel: KernelRecord) -> None:
    result = execute(kernel, "import os; os.closerange(3, 300)", timeout=DEADLINE)
    assert (result.status, result.ending) == ("error", "died")
    assert result.error is not None
    assert result.error.ename == "KernelDied"


def test_destroying_a_busy_kernel_ends_its_cell(kernel: KernelRecord) -> None:
    cell = Running(kernel, "print('in')\nwhile True: pass").wait_for_output()
    assert destroy(kernel)
    error = cell.result().error
    assert error is not None
    assert (error.ename, error.evalue.split(";")[0]) == ("KernelDied", "destroyed")
    assert not destroy(kernel)


# -- children --------------------------------------------------------------------------------------------------

# Starts children of every kind and prints their pids: plain, in a new session, and a daemon that forked twice.
FAMILY = """
import os, subprocess, sys
plain = subprocess.Popen(["sleep", "1000"])
session = subprocess.Popen(["sleep", "1000"], start_new_session=True)
daemon = subprocess.Popen(
    [sys.executable, "-c", '''if True:
        import os, sys
        if os.fork(): os._exit(0)
        os.setsid()
        if os.fork(): os._exit(0)
        print(os.getpid(), flush=True)
        os.execvp("sleep", ["sleep", "1000"])
    '''],
    stdout=subprocess.PIPE, text=True,
).stdout.readline()
print(plain.pid, session.pid, daemon)
"""


def start_family(kernel: KernelRecord) -> list[int]:
    pids = [int(word) for word in run(kernel, FAMILY).output.split()]
    assert len(pids) == 3
    assert all(map(is_running, pids))
    return pids


@pytest.mark.parametrize("how", ["destroyed", "destroyed while stopped", "killed", "exited", "template killed first"])
def test_the_children_of_a_kernel_do_not_survive_it(how: str, own_home: Path) -> None:
    kernel = get_or_create("parent")
    assert kernel.pid is not None
    family = start_family(kernel)
    if how == "template killed first":
        kill_template(kernel)
    if how == "destroyed while stopped":
        os.kill(kernel.pid, signal.SIGSTOP)
    if how == "killed":
        os.kill(kernel.pid, signal.SIGKILL)
    elif how == "exited":
        execute(kernel, "import os; os._exit(0)", timeout=DEADLINE)
    else:
        assert destroy(kernel)
    for pid in (kernel.pid, *family):
        wait_for_end(pid)


def test_the_children_of_other_kernels_survive(home: Path) -> None:
    one, other = get_or_create("one"), get_or_create("other")
    family = start_family(other)
    start_family(one)
    destroy(one)
    assert all(map(is_running, family))


# -- the template ----------------------------------------------------------------------------------------------


def kill_template(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    template = parent_of(kernel.pid)
    assert "kernelbox" in Path(f"/proc/{template}/cmdline").read_text()
    os.kill(template, signal.SIGKILL)
    wait_for_end(template)


def test_kernels_survive_their_template_and_the_next_open_works(own_home: Path) -> None:
    first = get_or_create("first")
    run(first, "x = 1")
    kill_template(first)
    assert value(first, "x") == "1"
    second = get_or_create("second")
    assert second.pid is not None
    assert value(second, "2") == "2"
    result = execute(first, "import time; time.sleep(100)", timeout=0.3)
    assert (result.status, result.state) == ("timeout", "kept")
    assert destroy(first)
    assert first.pid is not None
    wait_for_end(first.pid)
    assert is_running(second.pid)


def test_a_death_without_a_template_is_still_reported_at_once(own_home: Path) -> None:
    kernel = get_or_create("orphan")
    kill_template(kernel)
    result = execute(kernel, "import os; os._exit(1)", timeout=DEADLINE)
    assert result.error is not None
    assert result.error.ename == "KernelDied"


def test_a_template_killed_while_others_open_kernels_delays_them_and_nothing_else(own_home: Path) -> None:
    first = get_or_create("k0")
    cells = [Running(f"k{n}", f"print({n})") for n in range(1, 7)]
    kill_template(first)
    assert [cell.result().output for cell in cells] == [f"{n}\n" for n in range(1, 7)]
    assert len(list_kernels()) == 7


def test_the_template_leaves_when_it_is_idle_and_has_no_kernels(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_TEMPLATE_IDLE_TIMEOUT", "0.2")
    kernel = get_or_create("only")
    assert kernel.pid is not None
    template = parent_of(kernel.pid)
    assert is_running(template)
    destroy(kernel)
    wait_for_end(template)
    assert value(get_or_create("another"), "1") == "1"


# -- out of memory ---------------------------------------------------------------------------------------------


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """Makes a memory cgroup of 300 MB."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"kernelbox-test-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(300 * 1024 * 1024))
        except OSError:
            group.rmdir()
            continue
        yield group
        eventually(lambda group=group: not (group / "cgroup.procs").read_text())  # type: ignore[misc]
        group.rmdir()
        return
    pytest.skip("no memory cgroup can be made here")


def test_a_kernel_killed_for_want_of_memory_says_so(own_home: Path, small_memory: Path) -> None:
    kernel = get_or_create("hungry")
    (small_memory / "cgroup.procs").write_text(str(kernel.pid))
    result = execute(kernel, "print('eating')\nx = []\nwhile True: x.append(bytearray(10_000_000))", timeout=DEADLINE)
    assert result.ending == "died"
    assert result.error is not None
    assert "SIGKILL" in result.error.evalue
    assert "out of memory" in result.error.evalue
    assert result.output == "eating\n"
    destroy(kernel)


def test_files_of_a_kernel_are_private(kernel: KernelRecord) -> None:
    previous = os.umask(0)
    try:
        execute(kernel, "exit()", timeout=DEADLINE)
    finally:
        os.umask(previous)
    directory = Path(kernel.connection_file).parent
    assert (directory / "death.json").exists()
    assert not [path for path in directory.iterdir() if path.is_file() and path.stat().st_mode & 0o077]


def test_a_client_that_comes_while_there_are_no_descriptors_is_served_when_there_are(kernel: KernelRecord) -> None:
    run(kernel, "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 1024))\nheld = []")
    run(kernel, "try:\n    while True: held.append(os.dup(0))\nexcept OSError: pass")
    with connected(kernel) as waiting:
        waiting.send(Execute("late", ""))
        run(kernel, "for fd in held: os.close(fd)")
        eventually(lambda: any(isinstance(message, Done) for message in waiting.receive(1.0)))


def test_exit_functions_run_though_the_cell_is_in_the_middle_of_printing(kernel: KernelRecord, tmp_path: Path) -> None:
    run(
        kernel,
        f"import atexit, os, pathlib, signal, socket\natexit.register(pathlib.Path({str(tmp_path)!r}, 'left').touch)",
    )
    # As if the signal came between a part of a frame and the next.
    code = "peer = get_ipython().kernel.outbox.peer\nwith get_ipython().kernel.outbox.lock, memoryview(peer.backlog):\n    os.kill(os.getpid(), signal.SIGTERM)\n    while True: pass"  # noqa: E501
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.error is not None
    assert "SIGTERM" in result.error.evalue
    assert (tmp_path / "left").exists()


@pytest.mark.slow
def test_a_kernel_without_keeper_and_directory_ends_by_itself(own_home: Path) -> None:
    kernel = get_or_create("abandoned")
    assert kernel.pid is not None
    run(kernel, "pass")  # it is up, and writes nothing into its directory any more
    os.kill(parent_of(kernel.pid), signal.SIGKILL)
    remove_tree(own_home / "runtime")
    wait_for_end(kernel.pid)


def test_a_forged_note_is_shown_harmlessly_and_short(kernel: KernelRecord) -> None:
    directory = Path(kernel.connection_file).parent
    note = {"pid": kernel.pid, "start_time": kernel.start_time, "signal": "\x1b]0;pwned\x07" * 1000}
    code = f"""
import json, os, threading
path = {str(directory / "death.json")!r}
open(path, "w").write(json.dumps({note!r}))
os.mkdir(path + ".d"); os.kill(os.getpid(), 9)
"""
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.error is not None
    assert result.error.evalue.isprintable()
    assert len(result.error.evalue) < 1200


def test_a_kernel_that_spoils_its_own_directory_is_ended_by_wipe(own_home: Path) -> None:
    kernel = get_or_create("spoiler")
    run(kernel, f"import os; os.chmod({str(Path(kernel.connection_file).parent)!r}, 0o755)")
    assert wipe() == [kernel.kernel_id]
    assert kernel.pid is not None
    wait_for_end(kernel.pid)


def test_a_note_about_an_earlier_process_with_the_same_pid_is_not_believed(kernel: KernelRecord) -> None:
    directory = Path(kernel.connection_file).parent
    for name in ("ending.json", "death.json"):
        note = {"pid": kernel.pid, "start_time": kernel.start_time - 1, "reason": "restarted", "exit_status": 5}
        (directory / name).write_text(json.dumps({**note, "reasons": [note]}))
    (directory / f"reported-{kernel.pid}-{kernel.start_time - 1}").touch()
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGKILL)
    wait_for_end(kernel.pid)
    told = execute(kernel.name, "1", timeout=DEADLINE)
    assert told.error is not None
    assert "killed by SIGKILL" in told.error.evalue

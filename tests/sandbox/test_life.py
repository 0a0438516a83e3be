"""The life of a sandboxed kernel: it starts, is interrupted, dies, restarts and is destroyed as any other."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, Running, eventually, is_running, parent_of, run, value, wait_for_end
from tests.support.sandbox import (
    LEVEL,
    namespace,
    needs_linux,
    of_native,
    private_kilobytes,
    processes_in,
    processes_in_namespace,
)

from kernelbox import (
    KernelExists,
    KernelRecord,
    StartFailed,
    destroy,
    execute,
    get_or_create,
    interrupt,
    list_kernels,
    restart,
)
from kernelbox.base._environment import scrubbed_environment
from kernelbox.guest._process_tree import children
from kernelbox.wire._layout import MAKER

pytestmark = needs_linux


def test_a_sandboxed_kernel_runs_cells_and_says_what_it_is(box: KernelRecord) -> None:
    assert value(box, "1 + 1") == "2"
    assert box.sandbox == LEVEL
    assert '"allowWrite": ["."]' in box.sandbox_config
    assert [record.sandbox for record in list_kernels() if record.name == box.name] == [LEVEL]


def test_the_operating_system_shows_the_sandbox_armed(box: KernelRecord) -> None:
    status = Path(f"/proc/{box.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (fields["Seccomp"], fields["NoNewPrivs"]) == ("2", "1")
    assert {int(fields[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert namespace(box.pid, kind) != namespace(os.getpid(), kind)


@of_native
def test_a_plain_kernel_beside_it_is_not_confined(box: KernelRecord) -> None:
    plain = get_or_create("plain-beside", env=scrubbed_environment({}))
    assert plain.sandbox is None
    assert namespace(plain.pid) == namespace(os.getpid())
    assert value(plain, "__import__('os').getpid()") == str(plain.pid)


@of_native
def test_a_sandboxed_kernel_has_little_memory_to_itself_beyond_what_a_plain_one_has(box: KernelRecord) -> None:
    environment = scrubbed_environment({})  # `box` was the first: the template has imported what it needs for such
    plain = get_or_create("plain-measured", env=environment)
    boxed = get_or_create("box-measured", sandbox=True)
    later = get_or_create("plain-later", env=environment)  # the template has worked since for either
    assert [value(kernel, "1 + 1") for kernel in (box, plain, boxed, later)] == ["2"] * 4
    assert sum(map(private_kilobytes, processes_in(boxed))) - private_kilobytes(plain.pid or 0) < 500


def test_the_kernel_is_the_second_process_and_sees_no_others(box: KernelRecord) -> None:
    assert value(box, "import os; os.getpid()") == "2"
    assert value(box, "[name for name in os.listdir('/proc') if name.isdigit()]") == "['1', '2']"


def test_a_timeout_interrupts_the_cell_and_keeps_the_state(box: KernelRecord) -> None:
    run(box, "x = 42")
    result = execute(box, "import time\ntime.sleep(60)", timeout=0.3)
    assert (result.status, result.state) == ("timeout", "kept")
    assert value(box, "x") == "42"


def test_an_interrupt_stops_a_cell(box: KernelRecord) -> None:
    running = Running(box, "import time\nprint('begun', flush=True)\ntime.sleep(60)").wait_for_output()
    assert interrupt(box)
    assert "KeyboardInterrupt" in running.result().text
    assert value(box, "1 + 1") == "2"


def test_a_cell_that_holds_the_interpreter_is_interrupted(box: KernelRecord) -> None:
    run(box, "x = 42")
    result = execute(box, "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", timeout=0.5)
    assert result.status == "timeout"
    assert result.state == "kept", result.text
    assert value(box, "x") == "42"


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("os.abort()", "killed by SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
        ("os._exit(3)", "the process exited with status 3"),
        ("exit()", "the cell called exit()"),
    ],
)
def test_a_death_is_told_with_its_cause(box: KernelRecord, code: str, cause: str) -> None:
    inside = namespace(box.pid)
    result = execute(box, f"import os\n{code}", timeout=DEADLINE)
    assert result.error is not None
    assert cause in result.error.evalue
    eventually(lambda: not processes_in_namespace(inside))


def test_what_a_dying_kernel_wrote_last_is_kept(box: KernelRecord) -> None:
    result = execute(box, "import os\nos.write(1, b'last words')\nos.kill(os.getpid(), 9)", timeout=DEADLINE)
    assert "last words" in result.text


def test_a_restarted_kernel_is_sandboxed_by_the_same_rules(box: KernelRecord) -> None:
    run(box, "x = 42")
    again = restart(box)
    assert (again.sandbox, again.sandbox_config) == (box.sandbox, box.sandbox_config)
    assert again.pid != box.pid
    assert "NameError" in execute(again, "x").text
    assert value(again, "import os; os.getpid()") == "2"
    assert "Read-only file system" in execute(again, "open('/etc/kernelbox-test', 'w')").text


def test_destroy_leaves_no_process_of_the_sandbox(box: KernelRecord) -> None:
    inside = namespace(box.pid)
    run(box, "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '1000'], start_new_session=True)")
    daemon = "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)"
    run(box, f"import os, time\n{daemon}")
    eventually(lambda: len(processes_in(box)) >= 4)
    assert destroy(box)
    assert processes_in_namespace(inside) == []


def test_a_daemon_does_not_survive_the_death_of_its_kernel(box: KernelRecord) -> None:
    inside = namespace(box.pid)
    run(box, "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '1000'], start_new_session=True)")
    # Past what Python does in its forks: it keeps what the first process waits for, and is no child of the kernel's.
    run(
        box,
        "import ctypes; libc = ctypes.PyDLL(None); libc.prctl(36, 0, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER\n"
        "if libc.fork() == 0:\n    libc.fork() or libc.sleep(1000)\n    libc._exit(0)",
    )
    eventually(lambda: len(processes_in(box)) >= 4)
    os.kill(box.pid or 0, signal.SIGKILL)
    eventually(lambda: not processes_in_namespace(inside))


def test_killing_the_first_process_ends_the_kernel(box: KernelRecord) -> None:
    (first,) = (pid for pid in processes_in(box) if pid != box.pid)
    os.kill(first, signal.SIGKILL)
    wait_for_end(box.pid or 0)
    result = execute(box.name, "1 + 1")
    assert "killed by SIGKILL" in result.text


def test_a_cell_cannot_end_the_first_process(box: KernelRecord) -> None:
    run(box, "import os, signal\nfor number in (9, 15, 19): os.kill(1, number)")
    assert len(processes_in(box)) == 2
    assert value(box, "1 + 1") == "2"


@of_native
def test_a_template_that_is_killed_leaves_sandboxed_kernels_alive(own_home: Path, workspace: Path) -> None:
    box = get_or_create("box", sandbox=True, sandbox_level=LEVEL)
    run(box, "x = 42")
    template = parent_of(box.pid or 0)
    os.kill(template, signal.SIGKILL)
    wait_for_end(template)
    assert value(box, "x") == "42"
    inside = namespace(box.pid)
    assert destroy(box)
    assert processes_in_namespace(inside) == []


@pytest.mark.slow
@of_native
def test_a_sandboxed_kernel_without_template_or_files_ends(own_home: Path, workspace: Path) -> None:
    box = get_or_create("box", sandbox=True, sandbox_level=LEVEL)
    template = parent_of(box.pid or 0)
    os.kill(template, signal.SIGKILL)
    wait_for_end(template)
    directory = Path(box.connection_file).parent
    for file in directory.iterdir():
        if not file.is_dir():
            file.unlink()
    wait_for_end(box.pid or 0)


def test_the_death_of_one_kernel_harms_no_other_that_is_being_made(own_home: Path, workspace: Path) -> None:
    """Orphans of a dead kernel are ended: what makes a sandbox, or is the first process in one, is none."""
    boxes = [get_or_create(f"box-{number}", sandbox=True, sandbox_level=LEVEL) for number in range(3)]
    plain = get_or_create("plain")
    for _ in range(5):
        execute(plain, "import os\nos._exit(1)", timeout=DEADLINE)
        plain = get_or_create("plain")
        boxes.append(get_or_create(f"box-{len(boxes)}", sandbox=True, sandbox_level=LEVEL))
    assert [value(box, "1 + 1") for box in boxes] == ["2"] * len(boxes)


@of_native
def test_a_kernel_without_a_warm_template_is_sandboxed_too(
    own_home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")
    box = get_or_create("cold", sandbox=True, sandbox_level=LEVEL)
    assert value(box, "import os; os.getpid()") == "2"
    inside, keeper = namespace(box.pid), parent_of(box.pid or 0)
    assert destroy(box)
    assert processes_in_namespace(inside) == []
    wait_for_end(keeper)


def test_a_kernel_that_ends_with_its_owner_does_so_in_a_sandbox(home: Path, workspace: Path) -> None:
    from tests.support.command_line import run_program

    told = run_program(
        "from kernelbox import get_or_create\n"
        f"print(get_or_create('owned', sandbox=True, sandbox_level={LEVEL!r}, lifetime='process').pid)"
    )
    wait_for_end(int(told))


def test_the_name_of_a_live_kernel_with_another_sandbox_is_refused(box: KernelRecord, home: Path) -> None:
    with pytest.raises(KernelExists, match=rf"a sandbox \({LEVEL}\), where none is asked for"):
        get_or_create(box.name, sandbox=False)
    with pytest.raises(KernelExists, match="a sandbox with another denyRead, allowWrite"):
        get_or_create(box.name, sandbox={"filesystem": {"allowWrite": []}}, sandbox_level=LEVEL)
    assert get_or_create(box.name, sandbox=True, sandbox_level=LEVEL).pid == box.pid
    assert get_or_create(box.name).pid == box.pid
    plain = get_or_create("plain-one")
    with pytest.raises(KernelExists, match="no sandbox, where one is asked for"):
        get_or_create(plain.name, sandbox=True, sandbox_level=LEVEL)
    assert get_or_create(plain.name, sandbox=False).pid == plain.pid


def test_the_host_s_environment_is_not_passed_on(home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_SECRET", "s3cret")
    box = get_or_create("env-box", sandbox=True, sandbox_level=LEVEL)
    assert value(box, "import os; 'API_SECRET' in os.environ") == "False"
    given = get_or_create(
        "given-box", sandbox=True, sandbox_level=LEVEL, env={"API_SECRET": "meant", "PATH": os.environ["PATH"]}
    )
    assert value(given, "import os; os.environ['API_SECRET']") == "'meant'"


def test_nothing_in_a_sandbox_has_a_descriptor_of_a_directory_or_of_a_process_outside(box: KernelRecord) -> None:
    """What the first process has open a cell can enter by /proc/1/fd."""
    inside = processes_in(box)
    assert len(inside) == 2
    for fd in (fd for pid in inside for fd in Path(f"/proc/{pid}/fd").iterdir()):
        try:
            assert "pidfd" not in os.readlink(fd)
            assert not fd.is_dir(), os.readlink(fd)
        except FileNotFoundError:
            continue
    assert is_running(box.pid or 0)


def test_a_plain_kernel_has_nothing_of_the_sandbox(own_home: Path, workspace: Path) -> None:
    plain = get_or_create("plain")
    walls = "'kernelbox.guest.walls._confine', 'kernelbox.guest.walls._file_view'"
    names = f"('kernelbox.sandbox', {walls}, 'kernelbox.wire._confinement')"
    assert value(plain, f"import sys; [name for name in sys.modules if name.startswith({names})]") == "[]"


def test_a_maker_that_is_killed_is_followed_by_another_and_kernels_live_on(own_home: Path, workspace: Path) -> None:
    first = get_or_create("first", sandbox=True, sandbox_level=LEVEL)
    execute(first, "x = 1")
    maker = maker_beside(first)
    os.kill(maker, signal.SIGKILL)
    wait_for_end(maker)
    second = get_or_create("second", sandbox=True, sandbox_level=LEVEL)
    assert maker_beside(second) != maker
    assert (value(first, "x"), value(second, "1 + 1")) == ("1", "2")
    destroy(first)
    wait_for_end(first.pid or 0)
    assert value(second, "2 + 2") == "4"


def test_a_maker_that_is_stopped_is_continued(own_home: Path, workspace: Path) -> None:
    first = get_or_create("first", sandbox=True, sandbox_level=LEVEL)
    maker = maker_beside(first)
    os.kill(maker, signal.SIGSTOP)
    second = get_or_create("second", sandbox=True, sandbox_level=LEVEL)
    assert (value(second, "1 + 1"), maker_beside(second)) == ("2", maker)


def maker_beside(box: KernelRecord) -> int:
    """Returns the process that makes sandboxes for the template of a kernel."""
    template = parent_of(box.pid or 0)
    return next(pid for pid in children(template) if Path(f"/proc/{pid}/comm").read_text().strip() == MAKER)


def test_two_sandboxed_kernels_have_no_pipe_and_no_socket_in_common(own_home: Path, workspace: Path) -> None:
    """By /proc/self/fd a cell opens the other end of a pipe that it can only read."""
    boxes = [get_or_create(name, sandbox=True, sandbox_level=LEVEL) for name in ("one", "two")]
    one, two = (open_channels(box) for box in boxes)
    assert one
    assert not one & two


def open_channels(box: KernelRecord) -> set[str]:
    open_files = (fd for pid in processes_in(box) for fd in Path(f"/proc/{pid}/fd").iterdir())
    return {name for fd in open_files if (name := os.readlink(fd)).startswith(("pipe:", "socket:"))}


@of_native
def test_a_maker_that_has_too_much_open_refuses_and_harms_no_kernel(own_home: Path, workspace: Path) -> None:
    limited = get_or_create("limited", sandbox=True, limits={"cpu": 1000})
    maker = maker_beside(limited)
    most = resource.prlimit(maker, resource.RLIMIT_NOFILE)
    for spare in range(4):
        resource.prlimit(maker, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{maker}/fd")) + spare, most[1]))
        with pytest.raises(StartFailed, match="Too many open files"):
            get_or_create("refused", sandbox=True)
    resource.prlimit(maker, resource.RLIMIT_NOFILE, most)
    allowed = get_or_create("allowed", sandbox=True)
    assert maker_beside(allowed) == maker
    assert (value(limited, "1 + 1"), value(allowed, "2 + 2")) == ("2", "4")

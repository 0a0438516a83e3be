"""Forking from the template: siblings share what was imported and nothing else; without a template all is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, Running, ask_to_end, is_running, parent_of, run, value, wait_for_end

from kernelbox import KernelRecord, destroy, execute, get_or_create, interrupt, restart
from kernelbox.base._errors import StartFailed
from kernelbox.host.process._process import is_spare

RANDOM = """
import random, secrets, ssl, tempfile, uuid, numpy, numpy.random
print(
    random.random(),
    numpy.random.rand(),
    numpy.random.default_rng().random(),
    uuid.uuid1(),
    uuid.uuid4(),
    secrets.token_hex(),
    ssl.RAND_bytes(8).hex(),
    tempfile.mktemp(),
    random.SystemRandom().random(),
    sep="\\n",
)
"""


@pytest.mark.parametrize("preload", ["", "random uuid secrets ssl tempfile numpy numpy.random"])
def test_random_states_differ_between_siblings(preload: str, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_PRELOAD", preload)
    drawn = [run(get_or_create(f"sibling-{n}"), RANDOM).output.splitlines() for n in range(4)]
    for values in zip(*drawn, strict=True):
        assert len(set(values)) == len(values), f"the same in two kernels: {values}"


DESCRIPTORS = """
import os
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        print(fd, os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        pass
"""


@pytest.mark.usefixtures("home")
def test_a_kernel_holds_no_descriptors_of_others(tmp_path: Path) -> None:
    def descriptors(kernel: KernelRecord) -> list[str]:
        return [line.split(" ", 1)[1] for line in run(kernel, DESCRIPTORS).output.splitlines()]

    with (tmp_path / "open").open("w") as file:
        first = descriptors(get_or_create("first"))
        for n in range(5):
            get_or_create(f"other-{n}")
        last = descriptors(get_or_create("last"))
        assert len(first) == len(last) <= 25, last
        assert file.name not in last
        assert not [name for name in last if "template" in name]
    shared = {name for name in first if ":[" in name} & {name for name in last if ":[" in name}
    assert not {name for name in shared if "anon_inode" not in name}, "pipes and sockets are each kernel's own"


def test_a_kernel_leads_its_own_session_and_group(kernel: KernelRecord) -> None:
    assert value(kernel, "import os; os.getsid(0) == os.getpgid(0) == os.getpid()") == "True"


def test_a_kernel_gets_directory_environment_and_umask_of_the_moment(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_or_create("warm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_MOMENT", "yes")
    previous = os.umask(0o027)
    try:
        kernel = get_or_create("here")
    finally:
        os.umask(previous)
    monkeypatch.setenv("OF_THE_MOMENT", "no longer")
    assert value(kernel, "import os; os.getcwd()") == repr(str(tmp_path))
    assert value(kernel, "os.environ['OF_THE_MOMENT']") == "'yes'"
    assert value(kernel, "os.umask(0o027) == 0o027") == "True"
    assert value(kernel, "import sys; sys.argv, sys.path[0]") == "([''], '')"
    result = run(kernel, "!echo $OF_THE_MOMENT; pwd")
    assert result.output == f"yes\n{tmp_path}\n"


def test_options_override_directory_and_environment(home: Path, tmp_path: Path) -> None:
    kernel = get_or_create("elsewhere", cwd=str(tmp_path), env={"ONLY": "this", "PATH": os.environ["PATH"]})
    assert value(kernel, "import os; os.getcwd()") == repr(str(tmp_path))
    assert value(kernel, "os.environ['ONLY'], 'HOME' in os.environ") == "('this', False)"


def test_signals_are_as_python_starts_with(kernel: KernelRecord) -> None:
    code = "import signal; [s for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN]"
    assert value(kernel, code) in ("[<Signals.SIGPIPE: 13>]", "[<Signals.SIGPIPE: 13>, <Signals.SIGXFSZ: 25>]")
    assert value(kernel, "signal.pthread_sigmask(signal.SIG_BLOCK, ())") == "set()"
    status = run(kernel, "!grep -E 'Sig(Blk|Ign)' /proc/self/status").output.split()
    standard = 0x7FFFFFFF  # the C library keeps signals 32 and 33 for itself
    assert [int(status[n], 16) & standard for n in (1, 3)] == [0, 0], status


def test_the_preloaded_modules_are_there_already(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_PRELOAD", "decimal, sqlite3")
    kernel = get_or_create("ready")
    assert value(kernel, "import sys; 'decimal' in sys.modules, 'sqlite3' in sys.modules") == "(True, True)"
    assert value(kernel, "'decimal' in globals()") == "False"


def test_a_module_that_starts_threads_is_refused_by_name(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "starts_threads.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, name='eternal', daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("KERNELBOX_PRELOAD", "starts_threads")
    with pytest.raises(StartFailed, match=r"starts_threads.*eternal"):
        get_or_create("never")
    monkeypatch.setenv("KERNELBOX_PRELOAD", "")
    assert value(get_or_create("now"), "1") == "1"


@pytest.mark.parametrize("module", ["no_such_module", "raises_at_import", "exits_at_import"])
def test_a_module_that_cannot_be_preloaded_is_refused_by_name(
    module: str, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_at_import.py").write_text("1/0  # raises_at_import")
    (tmp_path / "exits_at_import.py").write_text("raise SystemExit('exits_at_import')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("KERNELBOX_PRELOAD", module)
    with pytest.raises(StartFailed, match=f"{module}.*; install or mend it, or take it out of KERNELBOX_PRELOAD"):
        get_or_create("never")


def test_a_kernel_is_independent_of_its_siblings(home: Path) -> None:
    one, other = get_or_create("one"), get_or_create("other")
    run(one, "import os, sys, builtins; x = 1; os.environ['Y'] = '1'; os.chdir('/'); builtins.z = 1; sys.path.clear()")
    assert value(other, "import os, sys; 'x' in globals(), 'Y' in os.environ, os.getcwd() == '/', bool(sys.path)") == (
        "(False, False, False, True)"
    )
    third = get_or_create("third")
    assert value(third, "import builtins; hasattr(builtins, 'z')") == "False"


def test_exit_functions_of_cells_run_in_the_kernel_and_nowhere_else(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    kernel = get_or_create("leaving")
    run(kernel, f"import atexit; atexit.register(lambda: open({str(log)!r}, 'a').write('left'))")
    other = get_or_create("other")
    ask_to_end(other)
    assert not log.exists()
    ask_to_end(kernel)
    assert log.read_text() == "left"


def test_the_template_stays_single_threaded_and_small(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    template = parent_of(kernel.pid)
    assert len(os.listdir(f"/proc/{template}/task")) == 1


# -- with and without a template -------------------------------------------------------------------------------


@pytest.fixture(params=["warm", "cold"])
def any_kernel(request: pytest.FixtureRequest, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> KernelRecord:
    """Opens a kernel from a warm template, then one without."""
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "1" if request.param == "warm" else "0")
    return get_or_create(f"{request.param}-kernel")


def test_both_ways_of_starting_give_the_same_kernel(any_kernel: KernelRecord) -> None:
    kernel = any_kernel
    assert kernel.pid is not None
    result = run(
        kernel, "import os, sys\nprint('out'); print('err', file=sys.stderr); os.system('echo child')\n'value'"
    )
    assert (result.output, result.stderr, result.return_value) == ("out\nchild\n", "err\n", "'value'")
    assert run(kernel, "%%bash\necho magic").output == "magic\n"
    assert value(kernel, "import asyncio\nawait asyncio.sleep(0, get_ipython().__class__.__name__)") == (
        "'ZMQInteractiveShell'"
    )
    failed = execute(kernel, "1/0", timeout=DEADLINE)
    assert failed.error is not None
    assert failed.error.ename == "ZeroDivisionError"
    timed_out = execute(kernel, "x = 1; import time; time.sleep(100)", timeout=BEGUN)
    assert (timed_out.status, timed_out.state) == ("timeout", "kept")
    cell = Running(kernel, "print('in')\nwhile True: pass").wait_for_output()
    assert interrupt(kernel)
    assert cell.result().ending == "interrupted"
    assert value(kernel, "x") == "1"
    assert execute(kernel, "echo $((x + 1)); false", language="bash", timeout=DEADLINE).output == "1\n"
    assert value(kernel, "import os; os.getsid(0) == os.getpid(), sys.argv") == "(True, [''])"
    again = restart(kernel)
    assert (again.kernel_id, again.pid != kernel.pid) == (kernel.kernel_id, True)
    assert value(kernel.name, "'x' in globals()") == "False"
    died = execute(kernel.name, "print('last words'); import os; os._exit(7)", timeout=DEADLINE)
    assert (died.output, died.ending) == ("last words\n", "died")
    assert died.error is not None
    assert "status 7" in died.error.evalue


def test_both_ways_of_starting_end_with_their_children(any_kernel: KernelRecord) -> None:
    assert any_kernel.pid is not None
    keeper = parent_of(any_kernel.pid)
    child = int(value(any_kernel, "import subprocess; subprocess.Popen(['setsid', 'sleep', '1000']).pid"))
    os.kill(any_kernel.pid, signal.SIGKILL)
    wait_for_end(child)
    if any_kernel.name.startswith("cold"):
        wait_for_end(keeper)
    else:
        assert is_running(keeper)


def test_a_kernel_that_cannot_start_says_why(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")
    monkeypatch.setenv("PYTHONHOME", "/no/such/python")
    with pytest.raises(StartFailed, match="encodings"):
        get_or_create("nowhere")


def test_a_kernel_with_the_life_of_its_process_ends_with_it(home: Path) -> None:

    code = (
        "from kernelbox import get_or_create; print(get_or_create('mine', lifetime='process').pid, flush=True); input()"
    )
    client = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stdin is not None
    pid = int(client.stdout.readline())
    assert is_running(pid)
    client.kill()
    client.wait()
    client.stdin.close()
    client.stdout.close()
    wait_for_end(pid)


def test_opening_and_destroying_leaks_no_descriptors_processes_or_files(own_home: Path) -> None:
    keeper = parent_of(get_or_create("first").pid or 0)

    def count() -> tuple[int, int, int, int]:
        children = [int(pid) for pid in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()]
        spares = sum(map(is_spare, children))  # it may have one, and a descriptor for it
        return (
            len(os.listdir("/proc/self/fd")),
            len(os.listdir(f"/proc/{keeper}/fd")) - spares,
            len(children) - spares,
            sum(1 for _ in (own_home / "runtime").rglob("*")),
        )

    def cycle(number: int) -> None:
        kernel = get_or_create(f"cycle-{number}")
        run(kernel, "print('on')\n!true")
        restart(kernel)
        run(kernel.name, "1")
        destroy(kernel)

    cycle(0)
    before = count()
    for number in range(1, 25):
        cycle(number)
    assert count() == before


def test_a_program_inherits_no_descriptor_of_the_kernel(kernel: KernelRecord) -> None:
    inherited = run(kernel, "import os\nos.system('ls -l /proc/self/fd') and None").output
    assert "socket:" not in inherited

"""What cells leave behind in their process: the kernel lives on, answers, and loses no output."""

from __future__ import annotations

import os
import re
import signal

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, eventually, run, value

from kernelbox import KernelRecord, execute

_FAIL = "def fail(*args, **kwargs): raise ValueError('patched')\n"

_PATCHES = {
    "time": "mock.patch('time.monotonic').start(); mock.patch('time.time').start(); mock.patch('time.sleep').start()",
    "clock that fails": f"import time\n{_FAIL}time.monotonic = time.time = time.clock_gettime = fail",
    "socket": "mock.patch('socket.socket').start()",
    "os": "for name in 'read write getpid getppid close open dup dup2 fstat stat kill getcwd chdir waitid'.split():\n"
    "    mock.patch('os.' + name).start()",
    "select": "for name in ('poll', 'select', 'epoll'): mock.patch('select.' + name).start()",
    "json": "for name in ('dumps', 'loads', 'JSONEncoder', 'JSONDecoder'): mock.patch('json.' + name).start()",
    "threading": "for name in ('get_ident', 'Lock', 'RLock', 'Thread'): mock.patch('threading.' + name).start()",
    "asyncio": "for name in ('all_tasks', '_set_running_loop', 'Handle'): mock.patch('asyncio.' + name).start()",
    "task factory": f"{_FAIL}asyncio.get_running_loop().set_task_factory(fail)",
    "signal": "for name in ('signal', 'getsignal', 'pthread_sigmask'): mock.patch('signal.' + name).start()",
    "contextlib": "for name in ('suppress', 'contextmanager'): mock.patch('contextlib.' + name).start()",
    "codecs": "for name in ('lookup', 'getincrementaldecoder'): mock.patch('codecs.' + name).start()",
    "traceback": "for name in ('format_exception', 'print_exc', 'TracebackException'):\n"
    "    mock.patch('traceback.' + name).start()",
    "len": f"import builtins\n{_FAIL}builtins.len = fail",
    "open": f"import builtins\n{_FAIL}builtins.open = fail",
    "isinstance": "import builtins\nbuiltins.isinstance = lambda *_: False",
    "getattr": f"import builtins\n{_FAIL}builtins.getattr = builtins.next = builtins.StopIteration = fail",
    "names deleted": "import builtins\ndel builtins.str, builtins.super, builtins.repr, builtins.sorted",
    "frames": f"import sys\n{_FAIL}sys._getframe = sys.exc_info = fail",
    "functions of sys": f"import sys\n{_FAIL}for name in ('settrace', 'gettrace', 'setprofile', 'getprofile',\n"
    "    'getrecursionlimit', 'setrecursionlimit', 'getsizeof'): setattr(sys, name, fail)",
    "no functions of sys": "import sys\ndel sys._getframe, sys.exc_info, sys.gettrace, sys.getrecursionlimit",
    "modules": "import sys\nsys.modules.clear()",
    "other modules": "import sys\nsys.modules = {}",
    "no modules": "import sys\nfor name in list(sys.modules): sys.modules[name] = None\ndel sys.modules",
    "recursion limit": "import sys\nfor limit in range(20, 500):\n    try:\n        sys.setrecursionlimit(limit)\n"
    "        break\n    except RecursionError:\n        pass",
    "trace": f"import sys\n{_FAIL}sys.settrace(fail); sys.setprofile(fail)",
    "no stdout": "import sys\ndel sys.stdout, sys.stderr",
    "hooks": "import sys\nsys.excepthook = sys.displayhook = sys.unraisablehook = None",
    "warnings": "import warnings\nwarnings.simplefilter('error')",
}


@pytest.mark.parametrize("patched", _PATCHES)
def test_what_a_cell_leaves_patched_does_not_reach_the_kernel(patched: str, kernel: KernelRecord) -> None:
    execute(kernel, f"import asyncio\nfrom unittest import mock\nkept = 7\n{_PATCHES[patched]}", timeout=30)
    result = execute(kernel, "print('text'); 41 + 1", timeout=30)
    assert (result.output, result.return_value) == ("text\n", "42"), result.text
    assert execute(kernel, "await asyncio.sleep(0); kept", timeout=30).return_value == "7"
    assert execute(kernel, "!echo from a shell", timeout=30).output == "from a shell\n"
    failed = execute(kernel, "1 / 0", timeout=30)
    assert failed.error is not None
    assert (failed.error.ename, failed.state) == ("ZeroDivisionError", "kept")
    assert execute(kernel, "kept", language="python", timeout=30).return_value == "7"


@pytest.mark.parametrize(
    "replaced",
    ["b.type = fail", "b.isinstance = fail", "b.isinstance = None", "del b.type, b.str"],
)
def test_what_cannot_work_without_a_built_in_name_says_which_is_gone(replaced: str, kernel: KernelRecord) -> None:
    run(kernel, f"import builtins as b\nkept = 7\n{_FAIL}{replaced}")
    assert value(kernel, "kept") == "7"
    failed = execute(kernel, "!echo from a shell; :", timeout=30)
    assert failed.ok or "built-in names: " in failed.text
    failed = execute(kernel, "1 / 0", timeout=30)
    assert "Hint: cells have replaced or deleted built-in names: " in failed.text
    assert "ZeroDivisionError" in failed.text


_SPOIL = """
kernel, kept, left = get_ipython().kernel, 7, {times}
run = kernel._cells.run
def fail(request):
    global left
    left -= 1
    if not left:
        kernel._cells.run = run
    raise ZeroDivisionError("spoilt")
kernel._cells.run = fail
"""


def test_a_failure_of_the_kernels_own_code_costs_the_cell_that_it_strikes_and_no_more(kernel: KernelRecord) -> None:
    run(kernel, _SPOIL.format(times=2))
    for _ in range(2):
        struck = execute(kernel, "kept", timeout=30)
        assert struck.error is not None
        assert struck.error.evalue == "the kernel's own code failed (ZeroDivisionError: spoilt)"
        assert (struck.status, struck.state) == ("error", "kept")
    assert value(kernel, "kept") == "7"


def test_a_kernel_whose_own_code_fails_again_and_again_gives_up_and_says_why(kernel: KernelRecord) -> None:
    run(kernel, _SPOIL.format(times=100))
    endings = [execute(kernel, "kept", timeout=30).ending for _ in range(5)]
    last = execute(kernel, "kept", timeout=30)
    assert endings == ["finished"] * 5
    assert (last.ending, last.state) == ("died", "lost")
    assert "the kernel's own code failed (ZeroDivisionError: spoilt)" in last.text


@pytest.mark.parametrize("odd", ["None", "5", "object()", "open('/dev/null', 'rb')"])
def test_a_stdout_that_cannot_be_written_to_harms_only_its_cells(odd: str, kernel: KernelRecord) -> None:
    run(kernel, f"import sys\nsys.stdout = sys.stderr = {odd}")
    result = execute(kernel, "!echo from a shell", timeout=30)
    assert result.state == "kept"
    assert value(kernel, "1 + 1") == "2"


def stderr_until(kernel: KernelRecord, text: str) -> str:
    """Runs empty cells until one of them has shown a text; returns what all of them have."""
    shown: list[str] = []

    def is_there() -> bool:
        shown.append(run(kernel, "pass").stderr)
        return text in "".join(shown)

    eventually(is_there)
    return "".join(shown)


def test_a_signal_handler_that_raises_after_its_cell_is_shown_with_the_next(kernel: KernelRecord) -> None:
    code = """
import os, signal
def late(*_):
    calls.append(1)
    raise TimeoutError("too late")
calls = []
signal.signal(signal.SIGUSR1, late)
os.getpid()
"""
    run(kernel, code)
    assert kernel.pid is not None

    os.kill(kernel.pid, signal.SIGUSR1)
    stderr_until(kernel, "TimeoutError: too late")
    assert value(kernel, "calls") == "[1]"


def test_what_signal_handlers_raise_between_cells_is_shown_whole_though_signals_come_meanwhile(
    kernel: KernelRecord,
) -> None:
    code = """
import os, signal
class Slow(Exception):
    def __str__(self):
        os.kill(os.getpid(), signal.SIGUSR2)
        return "first"
def first(*_): raise Slow
def second(*_): raise ValueError("second")
signal.signal(signal.SIGUSR1, first)
signal.signal(signal.SIGUSR2, second)
"""
    run(kernel, code)
    assert kernel.pid is not None

    os.kill(kernel.pid, signal.SIGUSR1)
    shown = stderr_until(kernel, "ValueError: second")
    assert "Slow: first\n" in shown
    assert "kernelbox" not in shown


def test_a_cell_that_leaves_signals_blocked_does_not_keep_the_next_from_being_interrupted(kernel: KernelRecord) -> None:
    run(kernel, "import signal, time\nx = 1\n_ = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())")
    result = execute(kernel, "time.sleep(60)", timeout=0.5)
    assert (result.status, result.state) == ("timeout", "kept")
    assert value(kernel, "x") == "1"


def test_a_timer_that_raises_again_and_again_harms_no_message(kernel: KernelRecord) -> None:
    code = """
import signal
kept = 7
def late(*_):
    raise TimeoutError("late")
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
"""
    execute(kernel, code, timeout=30)
    for number in range(100):
        result = execute(kernel, f"{number}", timeout=30)
        assert result.state == "kept"
        assert result.return_value in (None, str(number))
    eventually(
        lambda: (
            execute(kernel, "signal.setitimer(signal.ITIMER_REAL, 0); signal.alarm(0)", timeout=30).status == "success"
        )
    )
    assert value(kernel, "kept") == "7"


def test_a_handler_that_raises_while_its_cell_prints_tears_no_message(kernel: KernelRecord) -> None:
    code = """
import signal
count = 0
armed = False
def tick(*_):
    global armed
    if armed:
        armed = False
        raise TimeoutError
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
lines = 0
while lines < 20000:
    try:
        while lines < 20000:
            armed = True
            lines += 1
            print(f"{lines:06d} " + "x" * 60)
            armed = False  # Python 3.13 also looks for signals between two rounds, where nothing catches
    except TimeoutError:
        count += 1
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.ok, result.text[-2000:]
    assert value(kernel, "count > 0") == "True"


def test_a_handler_sees_what_it_was_registered_as(kernel: KernelRecord) -> None:
    code = """
import signal
def mine(*_): pass
before = signal.signal(signal.SIGUSR2, mine)
after = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
before is signal.SIG_DFL, after is mine, signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
"""
    assert run(kernel, code).return_value == "(True, True, True)"


def test_a_handler_is_called_in_its_own_cell_at_once(kernel: KernelRecord) -> None:
    code = """
import signal, time
def late(*_):
    raise TimeoutError("in time")
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.05)
time.sleep(60)
"""
    result = execute(kernel, code, timeout=30)
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("TimeoutError", "in time")


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_a_cell_that_takes_all_memory_is_told_and_the_kernel_lives(size: int, kernel: KernelRecord) -> None:
    code = f"""
import resource
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), -1))
kept = []
while True:
    kept.append(bytearray({size}))
"""
    result = execute(kernel, code, timeout=60)
    assert result.error is not None
    assert (result.error.ename, result.state) == ("MemoryError", "kept")
    run(kernel, "del kept")
    assert value(kernel, "used > 0") == "True"


def test_a_trace_function_goes_on_in_the_next_cell_and_sees_nothing_of_the_kernel(kernel: KernelRecord) -> None:
    run(
        kernel,
        "import sys\nfiles = set()\ndef see(frame, *_):\n    files.add(frame.f_code.co_filename)\nsys.settrace(see)",
    )
    run(kernel, "def f(): pass\nf()")
    run(kernel, "sys.settrace(None)")
    assert value(kernel, "any('_outbox' in file or '_peer' in file for file in files)") == "False"
    assert value(kernel, "any('ipython-input' in file for file in files)") == "True"


def test_a_handler_prints_wherever_its_cell_is_when_the_signal_comes(
    kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "1000000")
    code = """
import signal, sys
ticks = 0
def tick(*_):
    global ticks
    ticks += 1
    print(f"<{ticks}>", end="")
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.0005)
for n in range(5000):
    print(f"[{n}]", end="", flush=n % 3 == 0)
    if n % 50 == 0:
        print("{e}", file=sys.stderr)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
"""
    result = run(kernel, code)
    ticks = int(value(kernel, "ticks"))
    for n in range(5000):
        assert result.output.count(f"[{n}]") == 1
    assert ticks > 0
    assert all(f"<{n}>" in result.output for n in range(1, ticks + 1))


def test_threads_that_print_at_once_lose_nothing(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "1000000")
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
def speak(name):
    for n in range(2000):
        print(f"[{name}{n}]", end="\\n" if n % 2 else "")
        if n % 100 == 0:
            print(f"{{{name}{n}}}", file=sys.stderr)
threads = [threading.Thread(target=speak, args=(name,)) for name in "abcd"]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    result = run(kernel, code)
    said = set(re.findall(r"\[\w+\]", result.output))
    assert said == {f"[{name}{n}]" for name in "abcd" for n in range(2000)}
    assert len(re.findall(r"\[\w+\]", result.output)) == len(said)
    assert len(re.findall(r"\{\w+\}", result.stderr)) == 80


def test_an_audit_hook_sees_what_cells_do_and_keeps_the_kernel_from_nothing(kernel: KernelRecord) -> None:
    code = """
import os, sys
kept, seen = 7, []
def forbid(event, args):
    if event.startswith(("os.", "open", "socket.", "subprocess.", "signal.")):
        seen.append(event)
        raise RuntimeError("forbidden")
sys.addaudithook(forbid)
"""
    run(kernel, code)
    refused = execute(kernel, "os.listdir()", timeout=DEADLINE)
    assert refused.error is not None
    assert refused.error.evalue == "forbidden"
    stopped = execute(kernel, "while True: pass", timeout=BEGUN)
    assert (stopped.status, stopped.ending) == ("timeout", "interrupted")
    assert value(kernel, "kept, seen") == "(7, ['os.listdir'])"


EMPTIED = {
    "all names": "globals().clear()",
    "the built-in ones": "del __builtins__, get_ipython",
}


@pytest.mark.parametrize("code", EMPTIED.values(), ids=EMPTIED)
def test_a_cell_that_empties_the_namespace_costs_the_next_ones_nothing(code: str, kernel: KernelRecord) -> None:
    run(kernel, code)
    assert value(kernel, "6 * 7") == "42"
    assert run(kernel, "!echo on\ndisplay(5)").text == "on\n5"
    run(kernel, "__builtins__['len'] = None")
    assert value(kernel, "import builtins; builtins.len, _oh[2]") == "(None, 42)"

"""Output at the edges: by C code, between cells, in the moment before an end. It arrives, and with its own cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, Running, eventually, run

from kernelbox import KernelRecord, execute, get_or_create

PRINTF = "import ctypes\nlibc = ctypes.CDLL(None)\n"


@pytest.fixture
def buffered(home: Path, monkeypatch: pytest.MonkeyPatch) -> KernelRecord:
    """Opens a kernel in which C code buffers its output; this variable would have Python switch that off."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return get_or_create("buffered")


def test_what_c_code_prints_arrives_with_its_cell(buffered: KernelRecord) -> None:
    kernel = buffered
    assert run(kernel, PRINTF + "libc.printf(b'one\\n'); print('two'); libc.printf(b'three\\n'); None").output == (
        "one\ntwo\nthree\n"
    )
    assert run(kernel, "libc.printf(b'no newline'); None").output == "no newline"
    assert run(kernel, "libc.puts(b'x' * 300_000); None").output.count("x") > 9_000


def test_what_c_code_prints_arrives_before_an_exit(buffered: KernelRecord) -> None:
    result = execute(buffered, PRINTF + "libc.printf(b'last words'); exit()", timeout=DEADLINE)
    assert result.ending == "died"
    assert result.output == "last words"


MUCH = 1_000_000


@pytest.mark.parametrize(
    "write",
    [
        f"written = libc.write(1, b'x' * {MUCH}, {MUCH})",
        f"written = libc.printf(b'%s', b'x' * {MUCH})",
        f"written = sum(libc.write(1, b'x' * 1000, 1000) for _ in range({MUCH} // 1000))",
    ],
    ids=["at one go", "through stdio", "in pieces"],
)
def test_c_code_that_holds_the_interpreter_can_write_more_than_a_pipe_holds(write: str, kernel: KernelRecord) -> None:
    holding = "import ctypes; libc = ctypes.PyDLL(None)"
    code = f"print('before')\n{holding}\n{write}\nprint('after', written)"
    result = execute(kernel, code, timeout=DEADLINE, output_char_limit=0)
    assert result.output == f"before\n{'x' * MUCH}after {MUCH}\n"
    assert run(kernel, "print('next')").output == "next\n"


def test_c_code_that_writes_without_end_and_heeds_no_signal_is_killed_and_what_it_wrote_is_there(
    kernel: KernelRecord,
) -> None:
    deaf = "import ctypes, signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))"
    result = execute(
        kernel,
        f"{deaf}\nctypes.PyDLL(None).write(1, b'x' * 100_000_000, 100_000_000)",
        timeout=BEGUN,
        output_char_limit=0,
    )
    assert (result.status, result.ending, result.state) == ("timeout", "restarted", "lost")
    assert result.output.count("x") == len(result.output) >= 65536


_ENDS = ["os._exit(3)", "os.kill(os.getpid(), 9)", "os.abort()", "ctypes.string_at(0)", "libc._exit(3)", "libc.exit(3)"]
_LATE_ENDS = ["os.kill(os.getpid(), 15); time.sleep(60)", "os.execv('/bin/true', ['true'])", "1 / 0", "exit()"]


@pytest.mark.parametrize("end", [*_ENDS, *_LATE_ENDS])
def test_what_c_code_has_printed_is_there_whatever_ends_the_cell(end: str, buffered: KernelRecord) -> None:
    result = execute(buffered, f"{PRINTF}import os, time\nlibc.printf(b'no newline')\n{end}", timeout=DEADLINE)
    assert result.output == "no newline"


def test_what_c_code_prints_in_a_fork_arrives_once(buffered: KernelRecord) -> None:
    code = "import os\nlibc.printf(b'parent ')\nif os.fork() == 0:\n    libc.printf(b'child')\nelse: ended = os.wait()"
    assert run(buffered, PRINTF + code).output == "parent child"


def test_what_c_code_prints_at_exit_arrives(buffered: KernelRecord) -> None:
    code = "import atexit\natexit.register(libc.printf, b'last words')\nexit()"
    assert execute(buffered, PRINTF + code, timeout=DEADLINE).output == "last words"


@pytest.mark.parametrize("end", ["os._exit(3)", "posix._exit(3)", "sys.exit()", "exit()"])
def test_a_line_begun_before_a_hard_exit_arrives(end: str, kernel: KernelRecord) -> None:
    code = f"import os, posix, sys; print('x', end=''); {end}"
    assert execute(kernel, code, timeout=DEADLINE).output == "x"


BURST = "".join(f"{number}\n" for number in range(100))


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "libc._exit(3)", "os.abort()"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_lines_of_a_burst_are_there_whatever_ends_the_kernel(stream: str, end: str, kernel: KernelRecord) -> None:
    code = f"{PRINTF}import os, sys\nfor n in range(100): print(n, file=sys.{stream})\n{end}"
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.ending, result.output if stream == "stdout" else result.stderr) == ("died", BURST)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("subprocess.run(['echo', 'x'])", "x\n"),
        ("os.system('echo x')", "x\n"),
        ("!echo x", "x\n"),
        ("os.waitpid(os.posix_spawn('/bin/echo', ['echo', 'x'], {}), 0)", "x\n"),
        ("sys.stdout.buffer.write(b'x')", "x"),
        ("os.write(1, b'x\\n');", "x\n"),
        ("libc.puts(b'x');", "x\n"),
        ("if os.fork() == 0:\n    print('x')\n    os._exit(0)\nended = os.wait()", "x\n"),
    ],
)
def test_what_comes_after_a_burst_is_behind_it(code: str, text: str, kernel: KernelRecord) -> None:
    prints = "for n in range(100): print(n)"
    cell = f"{PRINTF}import os, subprocess, sys\n{prints}\n{code}\n{prints};"
    assert run(kernel, cell).output == BURST + text + BURST


# Each cell says `one`, and `two` is said by the cell after it.
_REPLACED = {
    "a wrapper": "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8'); print('one')",
    "a wrapper of what is detached": "sys.stdout = io.TextIOWrapper(sys.stdout.detach()); print('one')",
    "a writer": "sys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer); print('one')",
    "configured anew": "sys.stdout.reconfigure(encoding='utf-8', errors='replace', line_buffering=True); print('one')",
    "closed": "sys.stdout.close(); print('one')",
    "the original": "print('one', file=sys.__stdout__); sys.stdout = sys.__stdout__",
    "a wrapper that is not flushed": "out = io.TextIOWrapper(sys.stdout.buffer); out.write('one\\n'); del out",
    "another descriptor": "kept = os.dup(1); os.dup2(os.open('/dev/null', 1), 1); os.dup2(kept, 1); print('one')",
    "descriptor closed": "os.close(1); print('one')",
    "redirected": "with contextlib.redirect_stdout(io.StringIO()) as f: print('one')\nprint(f.getvalue(), end='')",
    "a handler that keeps an old stream": "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
    "sys.stdout = io.StringIO(); logging.warning('one'); sys.stdout = sys.__stdout__",
}


@pytest.mark.parametrize("how", _REPLACED)
def test_a_stdout_that_a_cell_changes_goes_on_to_work(how: str, kernel: KernelRecord) -> None:
    run(kernel, "import codecs, contextlib, io, logging, os, sys")
    assert run(kernel, _REPLACED[how]).output == "one\n"
    assert run(kernel, "print('two')").output == "two\n"


def test_a_program_that_makes_its_output_non_blocking_harms_only_its_cell(kernel: KernelRecord) -> None:
    run(kernel, "import os\nos.set_blocking(1, False), os.set_blocking(2, False)")
    result = run(kernel, "os.system('seq 30000')")
    assert (result.output[-6:], result.stderr) == ("30000\n", "")


def test_what_a_fork_displays_arrives_as_text(kernel: KernelRecord) -> None:
    code = "import os\nif os.fork() == 0:\n    display('shown')\n    os._exit(0)\nended = os.wait()"
    assert run(kernel, code).output == "'shown'\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_bytes_are_written_whole_while_a_timer_interrupts(
    kernel: KernelRecord, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    result = run(
        kernel,
        "import signal, sys\n"
        "signal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        f"written = sys.{stream}.buffer.write(b'y' * 20_000_000)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "written",
    )
    text = result.output if stream == "stdout" else result.stderr
    assert (len(text), result.return_value) == (20_000_000, "20000000")


def test_bytes_and_text_keep_their_order(kernel: KernelRecord) -> None:
    code = (
        "import sys\nfor n in range(200):\n    print(n, end=' ')\n    sys.stdout.buffer.write(f'{n}b '.encode())\n"
        "sys.stdout.buffer.flush()\nsys.stdout.buffer.writelines([b'end'])"
    )
    assert run(kernel, code).output == "".join(f"{n} {n}b " for n in range(200)) + "end"


def test_the_byte_stream_is_what_libraries_expect(kernel: KernelRecord) -> None:
    code = (
        "import io, sys\nb = sys.stdout.buffer\n"
        "wrapper = io.TextIOWrapper(b, encoding='utf-8', write_through=True)\nprint('wrapped', file=wrapper)\n"
        "wrapper.detach()\n"
        "(isinstance(b, io.BufferedIOBase), b.writable(), b.readable(), b.isatty(), b.fileno(), b.closed, b.mode)"
    )
    result = run(kernel, code)
    assert result.output == "wrapped\n"
    assert result.return_value == "(True, True, False, False, 1, False, 'wb')"


def test_a_forked_child_writes_its_line_into_a_full_pipe(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    code = (
        "import os, sys\n"
        "pids = []\n"
        "for n in range(20):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os.write(1, b'.' * 60_000 + b'\\n')\n"
        "        print(f'child {n};', end='')\n"
        "        sys.stdout.flush()\n"
        "        os._exit(0)\n"
        "    pids.append(pid)\n"
        "for pid in pids:\n"
        "    os.waitpid(pid, 0)\n"
    )
    output = run(kernel, code).output
    assert sorted(n for n in range(20) if output.count(f"child {n};") == 1) == list(range(20))


def test_a_display_between_cells_arrives_with_the_next_execution(kernel: KernelRecord, tmp_path: Path) -> None:
    mark = tmp_path / "shown"
    run(
        kernel,
        "import threading, pathlib, IPython.display as d\n"
        "go = threading.Event()\n"
        "def later():\n"
        "    go.wait()\n"
        "    print('text')\n"
        "    d.display(d.HTML('<b>shown</b>'))\n"
        "    print('more')\n"
        f"    pathlib.Path({str(mark)!r}).touch()\n"
        "threading.Thread(target=later).start()\n"
        "threading.Timer(0.05, go.set).start()",
    )
    eventually(mark.exists)
    result = run(kernel, "1")
    shown = [(item.kind, item.data.get("text/html") or item.text) for item in result.outputs]
    assert shown == [
        ("stream", "text\n"),
        ("display_data", "<b>shown</b>"),
        ("stream", "more\n"),
        ("execute_result", "1"),
    ]


def test_a_caller_behind_a_dying_cell_does_not_get_its_last_output(kernel: KernelRecord) -> None:
    dying = Running(
        kernel,
        "import os, time\nprint('begun')\n"
        "while not get_ipython().kernel._queue: time.sleep(0.005)\n"
        "os.write(1, b'last words')\nos.kill(os.getpid(), 9)",
    )
    dying.wait_for_output()
    behind = execute(kernel, "1", timeout=DEADLINE)
    assert (behind.ending, behind.output) == ("died", "")
    assert dying.result().output == "begun\nlast words"

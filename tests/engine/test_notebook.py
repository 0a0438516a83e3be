"""The kernel as a notebook: what cells may rely on, whatever they write, show or leave running."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import DEADLINE, Running, connected, eventually, run, until_queued, value

from kernelbox import KernelRecord, execute
from kernelbox.wire._messages import Query, Reply

# -- input -----------------------------------------------------------------------------------------------------

INPUTS = {
    "input": "input('name? ')",
    "getpass": "import getpass; getpass.getpass()",
    "pdb.set_trace": "import pdb; pdb.set_trace()",
    "breakpoint": "breakpoint()",
    "pdb.run": "import pdb; pdb.run('x = 1')",
    "the debug magic with code": "%debug x = 1",
    "the debug magic over a cell": "%%debug\nx = 1",
    "the debug magic": "try:\n    1/0\nexcept ZeroDivisionError: pass\n%debug",
    "a debugger in a function": "def f():\n    y = 1\n    breakpoint()\n    return y\nf()",
}


@pytest.mark.parametrize("what", INPUTS)
def test_whatever_waits_for_a_keyboard_fails_at_once_and_says_why(what: str, kernel: KernelRecord) -> None:
    result = execute(kernel, INPUTS[what], timeout=DEADLINE)
    assert (result.status, result.ending, result.state) == ("error", "finished", "kept"), result.text
    assert result.error is not None
    assert "no one is at the keyboard" in result.error.evalue
    assert value(kernel, "1 + 1") == "2"


@pytest.mark.parametrize("what", [what for what in INPUTS if what not in ("input", "getpass", "pdb.run")])
def test_a_debugger_says_that_there_is_none_and_shows_nothing_of_its_own(what: str, kernel: KernelRecord) -> None:
    text = execute(kernel, INPUTS[what], timeout=DEADLINE).text
    assert "there is no debugger here" in text
    assert not re.search(r"i?pdb>|\(Pdb\)|bdb\.py|pdb\.py|debugger\.py|execution\.py|_streams\.py", text)


def test_a_breakpoint_that_the_environment_has_turned_off_does_nothing(kernel: KernelRecord) -> None:
    assert run(kernel, "import os; os.environ['PYTHONBREAKPOINT'] = '0'\nbreakpoint()\nprint('on')").output == "on\n"


def test_a_byte_order_mark_in_front_of_the_code_is_no_part_of_it(kernel: KernelRecord) -> None:
    assert value(kernel, "\ufeff1 + 1") == "2"


def test_stdin_is_at_its_end(kernel: KernelRecord) -> None:
    assert value(kernel, "import os, sys; (sys.stdin.read(), os.read(0, 1))") == "('', b'')"


# -- capture ---------------------------------------------------------------------------------------------------


def test_text_of_every_origin_arrives_in_order(kernel: KernelRecord) -> None:
    code = """
import ctypes, os, subprocess, sys, threading
libc = ctypes.CDLL(None)
print("1 print")
os.write(1, b"2 descriptor\\n")
subprocess.run(["echo", "3 child"])
libc.puts(b"4 C"); libc.fflush(None)
t = threading.Thread(target=print, args=("5 thread",)); t.start(); t.join()
sys.stdout.write("6 write\\n")
sys.stdout.buffer.write(b"7 buffer\\n")
!echo 8 shell
os.system("echo 9 system")
os.writev(1, [b"10 ", b"vector\\n"])
"""
    result = run(kernel, code)
    assert [int(line.split()[0]) for line in result.output.splitlines()] == list(range(1, 11))
    assert result.stderr == ""


def test_stdout_and_stderr_are_apart_and_in_order(kernel: KernelRecord) -> None:
    code = """
import os, subprocess, sys
for n in range(3):
    print("out", n)
    print("err", n, file=sys.stderr)
os.write(2, b"err fd\\n")
subprocess.run("echo err child >&2", shell=True)
print("out end")
"""
    result = run(kernel, code)
    assert result.output == "out 0\nout 1\nout 2\nout end\n"
    assert result.stderr == "err 0\nerr 1\nerr 2\nerr fd\nerr child\n"
    assert result.text.splitlines()[:6] == ["out 0", "err 0", "out 1", "err 1", "out 2", "err 2"]


def test_displays_and_text_are_in_order(kernel: KernelRecord) -> None:
    code = "import os\nprint('a'); display('b'); os.write(1, b'c\\n'); display('d')\n'e'"
    items = [(item.kind, (item.text or "").strip()) for item in run(kernel, code).outputs]
    assert items == [
        ("stream", "a"),
        ("display_data", "'b'"),
        ("stream", "c"),
        ("display_data", "'d'"),
        ("execute_result", "'e'"),
    ]


def test_what_a_thread_prints_after_its_cell_arrives_with_the_next(kernel: KernelRecord) -> None:
    run(
        kernel,
        "import threading\ngo, gone = threading.Event(), threading.Event()\n"
        "def late():\n    go.wait(); print('late'); gone.set()\nt = threading.Thread(target=late); t.start()",
    )
    texts = [run(kernel, "import asyncio; _ = asyncio.get_running_loop().call_later(0.05, go.set)").output]

    def late_has_come() -> bool:
        texts.append(run(kernel, "pass").output)
        return "late\n" in texts

    eventually(late_has_come)
    assert "".join(texts) == "late\n"


def test_a_thread_and_the_cell_may_print_at_once(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import threading
def write(name):
    for n in range(2000): print(f"{name} {n}")
threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
for t in threads: t.start()
write("e")
for t in threads: t.join()
"""
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    text = run(kernel, code).output
    assert text.count("\n") == 10_000
    for name in "abcde":  # `print` writes a text and its newline apart, so lines may meet
        assert re.findall(rf"{name} (\d+)", text) == [str(n) for n in range(2000)]


ODDITIES = {
    "invalid UTF-8": ("import os; os.write(1, b'a\\xff\\xfeb')", "a\ufffd\ufffdb"),
    "a character in two parts": ("import os\nfor b in 'ä€🎉'.encode(): os.write(1, bytes([b]))", "ä€🎉"),
    "half a character at the end": ("import os; os.write(1, b'x\\xc3')", "x\ufffd"),
    "NUL": ("print('a\\0b', end='')", "a\0b"),
    "a lone surrogate": ("print('a\\ud800b', end='')", "a\\ud800b"),
    "ANSI colours": ("print('\\x1b[31mred\\x1b[0m', end='')", "\x1b[31mred\x1b[0m"),
    "carriage returns": ("print('10%\\r20%\\r\\n', end='')", "10%\r20%\r\n"),
    "every control character": ("print(''.join(map(chr, range(32))), end='')", "".join(map(chr, range(32)))),
    "line separators": ("print('a\\u2028b\\x85c', end='')", "a\u2028b\x85c"),
}


@pytest.mark.parametrize("what", ODDITIES)
def test_odd_text_survives_or_is_replaced_visibly(what: str, kernel: KernelRecord) -> None:
    code, expected = ODDITIES[what]
    assert run(kernel, code).output == expected


def test_odd_text_in_results_and_errors_survives(kernel: KernelRecord) -> None:
    assert value(kernel, "'a\\ud800\\0\\x1b'") == "'a\\ud800\\x00\\x1b'"
    result = execute(kernel, "raise ValueError('a\\ud800\\0b')", timeout=DEADLINE)
    assert result.error is not None
    result.error.evalue.encode("utf-8", "backslashreplace")
    assert run(kernel, "class R:\n    def __repr__(self): return 'a\\ud800b'\nR()").return_value is not None


def test_a_process_forked_by_the_cell_is_captured_and_harms_nothing(kernel: KernelRecord) -> None:
    code = """
import os, sys
pid = os.fork()
if pid == 0:
    print("child")
    sys.exit(3)
print("parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run(kernel, code).output == "child\nparent 3\n"
    assert run(kernel, "print('on')").output == "on\n"


def test_multiprocessing_works_and_its_output_is_captured(kernel: KernelRecord) -> None:
    code = """
import multiprocessing
def square(n):
    print("working on", n)
    return n * n
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(sum(pool.map(square, range(5))))
"""
    lines = run(kernel, code).output.splitlines()
    assert lines[-1] == "30"
    assert sorted(lines[:-1]) == [f"working on {n}" for n in range(5)]


# -- values ----------------------------------------------------------------------------------------------------

REPRS = {
    "raises": "raise ValueError('no repr')",
    "recurses": "return repr(self)",
    "returns a number": "return 42",
    "returns None": "return None",
    "exits": "raise SystemExit(1)",
    "raises a KeyboardInterrupt": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize("what", REPRS)
def test_a_repr_that_fails_harms_only_its_own_cell(what: str, kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    result = execute(kernel, f"class Bad:\n    def __repr__(self): {REPRS[what]}\nBad()", timeout=DEADLINE)
    assert (result.ending, result.state) == ("finished", "kept")
    assert "Error" in result.text or "SystemExit" in result.text or "KeyboardInterrupt" in result.text
    assert value(kernel, "kept") == "1"


def test_a_repr_that_prints_is_heard(kernel: KernelRecord) -> None:
    result = run(kernel, "class Loud:\n    def __repr__(self): print('hello'); return 'Loud!'\nLoud()")
    assert (result.output, result.return_value) == ("hello\n", "Loud!")


def test_a_repr_of_100_mb_is_cut(kernel: KernelRecord) -> None:
    result = run(kernel, "class Huge:\n    def __repr__(self): return 'x' * 100_000_000\nHuge()")
    assert result.return_value is not None
    assert len(result.return_value) <= 1_000_000
    assert len(result.text) <= 10_000
    assert result.truncated


FIGHTERS = {
    "whose __str__ raises": "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
    "whose __str__ is no string": "class E(Exception):\n    def __str__(self): return 5\nraise E",
    "with odd notes": "e = ValueError('x'); e.__notes__ = 5; raise e",
    "whose notes raise": (
        "class N:\n    def __str__(self): raise KeyError\ne = ValueError('x'); e.__notes__ = [N()]; raise e"
    ),
    "that renders itself badly": "class E(Exception):\n    def _render_traceback_(self): raise KeyError\nraise E",
    "in a circle": "a, b = ValueError('a'), ValueError('b'); a.__context__ = b; b.__context__ = a; raise a",
    "in a group": "raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [KeyError(2)])])",
    "with a long name": "raise type('E' * 100_000, (Exception,), {})",
    "that is a BaseException": "class E(BaseException): pass\nraise E('base')",
    "from generated code": "exec(compile('1/0', '<generated>', 'exec'))",
    "from a file that is gone": (
        "import pathlib, runpy, tempfile\np = pathlib.Path(tempfile.mktemp(suffix='.py'))\n"
        "p.write_text('def f(): 1/0')\nns = runpy.run_path(str(p)); p.unlink(); ns['f']()"
    ),
    "that is a cancellation": "import asyncio; raise asyncio.CancelledError('mine')",
    "that stops an iteration": "raise StopIteration(3)",
    "that is an exit of a generator": "raise GeneratorExit",
}


@pytest.mark.parametrize("what", FIGHTERS)
def test_an_exception_is_reported_as_an_error_and_harms_only_its_own_cell(what: str, kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    result = execute(kernel, FIGHTERS[what], timeout=DEADLINE)
    assert (result.status, result.state, result.ending) == ("error", "kept", "finished"), result.text
    assert result.error is not None
    assert result.error.ename
    assert result.error.traceback
    assert value(kernel, "kept") == "1"


# -- asyncio ---------------------------------------------------------------------------------------------------


def test_top_level_await_works(kernel: KernelRecord) -> None:
    assert value(kernel, "import asyncio\nawait asyncio.sleep(0, 'slept')") == "'slept'"
    assert run(kernel, "await asyncio.sleep(0)").return_value is None
    assert run(kernel, "async with asyncio.timeout(60):\n    print('inside')").output == "inside\n"


def test_tasks_go_on_between_cells(kernel: KernelRecord, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    run(
        kernel,
        "import asyncio, pathlib\nasync def later():\n    await asyncio.sleep(0.05)\n"
        f"    pathlib.Path({str(marker)!r}).touch()\ntask = asyncio.create_task(later())",
    )
    eventually(marker.exists)
    assert value(kernel, "task.done()") == "True"


def test_a_background_task_prints_into_the_next_cell(kernel: KernelRecord, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    run(
        kernel,
        "import asyncio, pathlib\nasync def later():\n    await asyncio.sleep(0.05)\n    print('from the task')\n"
        f"    pathlib.Path({str(marker)!r}).touch()\ntask = asyncio.create_task(later())",
    )
    eventually(marker.exists)
    assert run(kernel, "pass").output == "from the task\n"


def test_context_variables_last(kernel: KernelRecord) -> None:
    run(kernel, "import contextvars; v = contextvars.ContextVar('v', default=0); v.set(1)")
    assert value(kernel, "v.get()") == "1"
    run(kernel, "import asyncio; v.set(v.get() + 1); await asyncio.sleep(0)")
    assert value(kernel, "v.get()") == "2"


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio; asyncio.get_running_loop().stop()",
        "import asyncio\nfor t in asyncio.all_tasks(): t.cancel()\nawait asyncio.sleep(0)",
        "import asyncio\nasyncio.get_running_loop().close()",
        "import asyncio\nasyncio.set_event_loop(None)",
        "import asyncio\nasyncio.set_event_loop(asyncio.new_event_loop())",
        "import asyncio\nasyncio.get_running_loop().call_soon(lambda: 1/0)\nawait asyncio.sleep(0)",
        "import asyncio, sys\nasyncio.get_running_loop().call_soon(sys.exit)\nawait asyncio.sleep(0)",
        "import asyncio\nasyncio.run(asyncio.sleep(0))",
        "import asyncio, threading\nt = threading.Thread(target=asyncio.run, args=[asyncio.sleep(0)])\nt.start()",
    ],
)
def test_a_cell_that_meddles_with_the_event_loop_does_not_harm_the_next(code: str, kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.ending == "finished", result.text
    assert value(kernel, "kept") == "1"
    assert value(kernel, "import asyncio\nawait asyncio.sleep(0.001, 2)") == "2"


# -- history ---------------------------------------------------------------------------------------------------


def test_underscore_out_history_and_counter_are_those_of_ipython(kernel: KernelRecord) -> None:
    assert run(kernel, "10").execution_count == 1
    assert value(kernel, "_ + 1") == "11"
    assert value(kernel, "Out[1], _1, _2, __") == "(10, 10, 11, 10)"
    assert value(kernel, "In[1], _i1, len(In)") == "('10', '10', 5)"
    failed = execute(kernel, "1/0", timeout=DEADLINE)
    assert failed.execution_count == 5
    assert "_ + 1" in run(kernel, "%history").output
    assert value(kernel, "7") == "7"
    assert run(kernel, "5;").return_value is None
    assert value(kernel, "_") == "7"


# -- queries ---------------------------------------------------------------------------------------------------


def ask(kernel: KernelRecord, what: str, **args: Any) -> dict[str, Any]:
    query = Query(uuid.uuid4().hex, what, args)
    with connected(kernel) as connection:
        connection.send(query)
        while True:
            messages = connection.receive(DEADLINE)
            assert messages, "no reply"
            for message in messages:
                if isinstance(message, Reply) and message.id == query.id:
                    return message.content


NOISY = """
import sys, warnings
class Noisy:
    @property
    def loud(self):
        print('out'); print('err', file=sys.stderr); warnings.warn('careful')
        raise RuntimeError('no')
    def __dir__(self):
        print('dir'); raise RuntimeError('no')
    def __repr__(self):
        print('repr'); raise RuntimeError('no')
    def _ipython_key_completions_(self):
        print('keys'); raise RuntimeError('no')
    def __getattr__(self, name):
        print('getattr'); raise RuntimeError(name)
def matcher(completer, event):
    print('matcher'); raise RuntimeError('no')
get_ipython().set_hook('complete_command', matcher, str_key='%noisy')
get_ipython().set_custom_completer(matcher)
noisy = Noisy()
"""


@pytest.mark.parametrize("code", ["noisy.", "noisy.lo", "noisy.loud.", "noisy['", "%noisy ", "noi"])
def test_what_a_query_makes_user_code_write_reaches_no_cell(kernel: KernelRecord, code: str) -> None:
    run(kernel, NOISY)
    ask(kernel, "complete", code=code, cursor_pos=len(code))
    ask(kernel, "inspect", code=code, cursor_pos=len(code.rstrip(" .'[")), detail_level=1)
    ask(kernel, "variables")
    after = run(kernel, "1 + 1")
    assert (after.text, after.output, after.stderr) == ("2", "", "")


def test_what_a_thread_writes_while_a_query_is_answered_is_kept(kernel: KernelRecord) -> None:
    code = """
import threading
asked, written = threading.Event(), threading.Event()
class Slow:
    def __repr__(self):
        asked.set(); written.wait(); return 'slow'
def write():
    asked.wait(); print('from the thread'); written.set()
slow = Slow()
threading.Thread(target=write).start()
"""
    run(kernel, code)
    ask(kernel, "variables")
    assert run(kernel, "pass").output == "from the thread\n"


def test_names_are_completed_and_objects_inspected(kernel: KernelRecord) -> None:
    run(kernel, "value_one, value_two = 1, 2\ndef double(x):\n    'Doubles.'\n    return 2 * x")
    completed = ask(kernel, "complete", code="value_", cursor_pos=6)
    assert completed["matches"] == ["value_one", "value_two"]
    assert (completed["cursor_start"], completed["cursor_end"]) == (0, 6)
    inspected = ask(kernel, "inspect", code="double", cursor_pos=3)
    assert inspected["found"]
    assert "Doubles." in inspected["data"]["text/plain"]
    assert not ask(kernel, "inspect", code="nothing_here", cursor_pos=3)["found"]
    assert ask(kernel, "is_complete", code="for x in y:")["status"] == "incomplete"
    assert ask(kernel, "is_complete", code="x = 1")["status"] == "complete"


FIGHTER = """
class Bad:
    def __repr__(self): raise SystemExit
    @property
    def nbytes(self): raise KeyError
x, bad = 5, Bad()
globals()[3] = 4
"""


def test_variables_are_listed_even_if_they_fight(kernel: KernelRecord) -> None:
    run(kernel, FIGHTER)
    listed = {entry["name"]: entry for entry in ask(kernel, "variables")["variables"]}
    assert listed["x"]["preview"] == "5"
    assert "bad" in listed
    assert value(kernel, "x") == "5"


def test_a_query_that_fails_is_answered(kernel: KernelRecord) -> None:
    assert ask(kernel, "no such thing")["status"] == "error"
    assert ask(kernel, "complete")["status"] == "error"
    assert value(kernel, "1") == "1"


def test_a_query_waits_for_the_running_cell(kernel: KernelRecord) -> None:
    cell = Running(kernel, f"print('in')\n{until_queued(1)}now = 7").wait_for_output()
    names = [entry["name"] for entry in ask(kernel, "variables")["variables"]]
    assert "now" in names
    assert cell.result().ok


def test_the_kernel_can_be_brought_down_to_one_thread_and_back(kernel: KernelRecord, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    run(
        kernel,
        "import asyncio, pathlib, subprocess\nasync def later():\n    await asyncio.sleep(0.05)\n    print('task')\n"
        f"    pathlib.Path({str(marker)!r}).touch()\ntask = asyncio.create_task(later())\n"
        "p = subprocess.Popen('sleep 0.1; echo child', shell=True)",
    )
    for _ in range(20):
        answer = ask(kernel, "quiesce")
        assert (answer["threads"], answer["python_threads"]) == (1, ["MainThread"])
    eventually(marker.exists)
    assert sorted(run(kernel, "_ = p.wait()").output.split()) == ["child", "task"]


def test_threads_of_the_users_are_named_when_the_kernel_is_quiesced(kernel: KernelRecord) -> None:
    run(kernel, "import threading; e = threading.Event(); threading.Thread(target=e.wait, name='mine').start()")
    assert ask(kernel, "quiesce")["python_threads"] == ["MainThread", "mine"]
    run(kernel, "e.set()")


def test_a_macro_may_await(kernel: KernelRecord) -> None:
    run(kernel, "import asyncio\nawait asyncio.sleep(0.001)\nx = 5")
    run(kernel, "%macro -q again 1")
    run(kernel, "x = 0")
    run(kernel, "again")
    assert value(kernel, "x") == "5"


def test_a_request_leaves_nothing_to_do_in_the_event_loop(kernel: KernelRecord) -> None:
    assert value(kernel, "len(get_ipython().kernel.loop._ready)") == "0"


def test_what_a_command_leaves_in_the_background_is_no_zombie_when_it_has_ended(kernel: KernelRecord) -> None:
    pid = int(value(kernel, "x = !sleep 0.01 & echo $!\nint(x[0])"))
    eventually(lambda: run(kernel, "pass").ok and not os.path.exists(f"/proc/{pid}"))

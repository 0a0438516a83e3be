"""What is copied, renewed and shared: the rows of the table in docs/time-travel.md."""

from __future__ import annotations

import fcntl
import gc
import weakref
from pathlib import Path

import pytest
from tests.support.cells import ask_to_end, eventually, is_running, run, value

from kernelbox import KernelRecord, branch, checkpoint, destroy, get_or_create, rollback
from kernelbox.guest.copies import _library_state


@pytest.fixture
def here(home: Path, tmp_path: Path) -> KernelRecord:
    """Opens a kernel in a directory of its own."""
    return get_or_create(f"here-{tmp_path.name}", cwd=tmp_path)


def test_modules_functions_inputs_outputs_and_counts_are_copied(here: KernelRecord) -> None:
    run(here, "import json as j\ndef f(): return j.dumps(g)\ng = [1]")
    run(here, "6 * 7")
    checkpoint(here)
    copy = branch(here, "copy")
    run(here, "g.append(2)")
    rollback(here)
    for kernel in (here, copy):
        result = run(kernel, "f(), In[2], Out[2]")
        assert (result.return_value, result.execution_count) == ("('[1]', '6 * 7', 42)", 3)


def test_directory_environment_and_umask_are_copied(here: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    run(here, "import os; os.chdir('sub'); os.environ['A'] = '1'; _ = os.umask(0o27)")
    checkpoint(here)
    copy = branch(here, "copy")
    run(here, "os.chdir('/'); del os.environ['A']; _ = os.umask(0)")
    rollback(here)
    for kernel in (here, copy):
        assert value(kernel, "os.getcwd()") == repr(str(tmp_path / "sub"))
        assert value(kernel, "os.environ['A'], os.umask(0)") == repr(("1", 0o27))
        assert run(kernel, "!echo $A").output == "1\n"


def test_bash_is_copied(here: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    run(here, "cd sub; v='a b'; export e=2; f() { echo \"f $1 $v\"; }; alias ll='ls -l'; set -u", language="bash")
    checkpoint(here)
    copy = branch(here, "copy")
    run(here, "cd /; v=changed; unset -f f", language="bash")
    rollback(here)
    for kernel in (here, copy):
        shown = run(kernel, "f 1; pwd; echo $e; alias ll; [[ $- == *u* ]] && echo strict", language="bash").output
        assert shown.splitlines() == ["f 1 a b", str(tmp_path / "sub"), "2", "alias ll='ls -l'", "strict"]
    run(copy, "v=copy", language="bash")
    assert run(here, "echo $v", language="bash").output == "a b\n"


RANDOM = "import random, numpy; (random.random(), float(numpy.random.rand()))"


def test_random_numbers_go_on_after_a_rollback_and_begin_anew_in_a_branch(here: KernelRecord) -> None:
    run(here, RANDOM)
    checkpoint(here)
    expected = value(here, RANDOM)
    rollback(here)
    assert value(here, RANDOM) == expected
    rollback(here)
    fresh, same = branch(here, "fresh"), branch(here, "same", reseed=False)
    values = [value(each, RANDOM) for each in (here, fresh, same)]
    assert values[0] == values[2] == expected
    assert values[1] != expected


OWN = "rng.random(), own.random(), [int(child.generate_state(1)[0]) for child in seeds.spawn(1)]"


def test_a_generator_that_a_cell_has_made_draws_the_same_numbers_in_each_copy(here: KernelRecord) -> None:
    made = "rng, own = numpy.random.default_rng(), random.Random(); seeds = rng.bit_generator.seed_seq"
    run(here, f"import numpy, random; {made}; rng.random()")
    checkpoint(here)
    copy = branch(here, "copy")
    drawn = value(here, OWN)
    assert value(copy, OWN) == drawn
    rollback(here)
    assert value(here, OWN) == drawn
    run(copy, made)
    assert value(copy, OWN) != drawn


def test_secrets_and_ids_are_never_the_same(here: KernelRecord) -> None:
    run(here, "import os, secrets, uuid; secrets.token_hex(), uuid.uuid4(), uuid.uuid1()")
    checkpoint(here)
    copy = branch(here, "copy", reseed=False)
    drawn = [value(kernel, "secrets.token_hex(), os.urandom(8), uuid.uuid4(), uuid.uuid1()") for kernel in (here, copy)]
    rollback(here)
    drawn.append(value(here, "secrets.token_hex(), os.urandom(8), uuid.uuid4(), uuid.uuid1()"))
    columns = zip(*(each.strip("()").split(", ") for each in drawn), strict=True)
    assert all(len(set(column)) == 3 for column in columns)


def test_garbage_that_was_frozen_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        pass

    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    gone = weakref.ref(node)
    monkeypatch.setattr(_library_state, "_last", _library_state.LastLook())
    gc.disable()
    try:
        del node
        for _ in range(50):
            _library_state.freeze()
        gc.collect()
        assert gone() is not None
        _library_state.freeze()
        assert gone() is None
    finally:
        gc.unfreeze()
        gc.enable()


def test_files_on_disk_are_not_undone_and_shared(here: KernelRecord, tmp_path: Path) -> None:
    checkpoint(here)
    copy = branch(here, "copy")
    run(here, "open('made', 'w').write('x')")
    rollback(here)
    assert (tmp_path / "made").read_text() == "x"
    assert value(copy, "open('made').read()") == "'x'"


def test_an_open_file_has_a_position_of_its_own_in_each_copy(here: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("0\n1\n2\n3\n")
    run(here, "file = open('lines', 'rb', buffering=0); _ = file.readline()")
    checkpoint(here)
    copy = branch(here, "copy")
    assert value(here, "file.readline()") == r"b'1\n'"
    assert value(copy, "file.readline(), file.readline()") == r"(b'1\n', b'2\n')"
    for _ in range(2):
        rollback(here)
        assert value(here, "file.readline()") == r"b'1\n'"


@pytest.mark.parametrize("kind", ["TemporaryFile()", "NamedTemporaryFile()", "SpooledTemporaryFile(1)"])
def test_a_temporary_file_is_open_in_each_copy(here: KernelRecord, kind: str) -> None:
    run(here, f"import tempfile; file = tempfile.{kind}; _ = file.write(b'abc'); _ = file.seek(1)")
    checkpoint(here)
    copy = branch(here, "copy")
    assert value(here, "file.read()") == "b'bc'"
    assert value(copy, "file.read()") == "b'bc'"
    rollback(here)
    assert value(here, "file.read()") == "b'bc'"


def test_objects_are_looked_at_for_unwritten_text_only_if_a_file_is_open_for_writing(here: KernelRecord) -> None:
    run(here, "import gc\nlooks = []\ngc.get_objects = lambda: looks.append('a look') or []")
    checkpoint(here)
    assert value(here, "looks") == "[]"
    run(here, "file = open('t.txt', 'w')")
    checkpoint(here)
    assert value(here, "looks") == "['a look']"


def test_what_was_written_and_not_flushed_is_written_once(here: KernelRecord, tmp_path: Path) -> None:
    run(here, "log = open('log', 'a'); _ = log.write('once ')")
    checkpoint(here)
    copy = branch(here, "copy")
    run(copy, "_ = log.write('branch '); log.close()")
    run(here, "_ = log.write('original '); log.close()")
    assert (tmp_path / "log").read_text() == "once branch original "


def test_a_socket_is_dead_in_a_copy_and_lives_in_the_original(here: KernelRecord) -> None:
    run(here, "import socket; a, b = socket.socketpair(); b.settimeout(20); a.settimeout(20); _ = a.send(b'x')")
    copy = branch(here, "copy")
    assert value(copy, "a.recv(1), b.recv(1)") == "(b'', b'')"
    run(copy, "a.close(), b.close()")
    assert value(here, "b.recv(1), a.send(b'y'), b.recv(1)") == "(b'x', 1, b'y')"


def test_a_pipe_is_dead_in_a_branch_and_after_a_rollback_and_lives_in_the_original(here: KernelRecord) -> None:
    dead = "import os\ntry: _ = os.write(w, b'z')\nexcept OSError as e: print(type(e).__name__)\nprint(os.read(r, 9))"
    run(here, "import os; r, w = os.pipe(); _ = os.write(w, b'x')")
    checkpoint(here)
    copy = branch(here, "copy")
    assert run(copy, dead).output == "BrokenPipeError\nb''\n"
    run(copy, "os.close(r); os.close(w)")
    assert value(here, "os.write(w, b'y'), os.read(r, 9)") == "(1, b'xy')"
    rollback(here)
    assert run(here, dead).output == "BrokenPipeError\nb''\n"


def test_a_server_of_the_original_keeps_its_port_to_itself(here: KernelRecord) -> None:
    run(here, "import socket; s = socket.create_server(('127.0.0.1', 0)); s.settimeout(20); port = s.getsockname()[1]")
    copy = branch(here, "copy")
    run(copy, "client = socket.create_connection(('127.0.0.1', port), 20)")
    assert value(here, "s.accept()[1][0]") == "'127.0.0.1'"
    destroy(here)
    code = "try:\n    socket.create_connection(('127.0.0.1', port), 5)\nexcept OSError as e: print(type(e).__name__)"
    assert run(copy, code).output == "ConnectionRefusedError\n"


def test_shared_memory_is_shared_and_not_undone(here: KernelRecord) -> None:
    run(here, "import mmap; shared = mmap.mmap(-1, 10); shared[:3] = b'old'")
    checkpoint(here)
    copy = branch(here, "copy")
    run(here, "shared[:3] = b'new'")
    rollback(here)
    assert [value(kernel, "shared[:3]") for kernel in (here, copy)] == ["b'new'", "b'new'"]


def test_children_stay_with_the_original_and_a_rollback_ends_them(here: KernelRecord) -> None:
    run(here, "import subprocess, os; child = subprocess.Popen(['sleep', '1000'])")
    pid = int(value(here, "child.pid"))
    checkpoint(here)
    copy = branch(here, "copy")
    assert run(copy, "try: os.waitpid(-1, 0)\nexcept ChildProcessError: print('none')").output == "none\n"
    assert value(here, "child.poll() is None") == "True"
    rollback(here)
    eventually(lambda: not is_running(pid))


def test_background_tasks_run_in_both_and_go_on_after_a_rollback(here: KernelRecord) -> None:
    tick = "import asyncio\nn = 0\nasync def tick():\n    global n\n    while True:\n        n += 1\n"
    run(here, tick + "        await asyncio.sleep(0.01)\ntask = asyncio.create_task(tick())")
    checkpoint(here)
    copy = branch(here, "copy")
    run(here, "later = asyncio.create_task(tick())")
    rollback(here)
    for kernel in (here, copy):
        assert value(kernel, "[each.get_coro().__name__ for each in asyncio.all_tasks()].count('tick')") == "1"
        run(kernel, "before = n\nwhile n < before + 3: await asyncio.sleep(0.01)")


def test_only_the_original_runs_its_exit_functions(here: KernelRecord, tmp_path: Path) -> None:
    run(here, "import atexit, tempfile; d = tempfile.TemporaryDirectory(dir='.')")
    run(here, "atexit.register(lambda: open('left', 'a').write('x'))")
    copy = branch(here, "copy")
    run(copy, "path = d.name")
    ask_to_end(copy)
    assert value(here, "__import__('os').path.isdir(d.name)") == "True"
    assert not (tmp_path / "left").exists()
    ask_to_end(here)
    assert (tmp_path / "left").read_text() == "x"


def test_signal_handlers_and_alarms_are_copied(here: KernelRecord) -> None:
    run(here, "import signal; seen = []; _ = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))")
    run(here, "_ = signal.setitimer(signal.ITIMER_REAL, 0.5)")
    copy = branch(here, "copy")
    for kernel in (here, copy):
        run(kernel, "import time\nfor _ in range(2000):\n    if seen: break\n    time.sleep(0.01)\nassert seen == [1]")


def test_a_copy_can_start_programs_threads_and_processes(here: KernelRecord) -> None:
    checkpoint(here)
    rollback(here)
    copy = branch(here, "copy")
    for kernel in (here, copy):
        assert run(kernel, "!echo shell").output == "shell\n"
        assert value(kernel, "__import__('subprocess').check_output(['echo', 'x'])") == r"b'x\n'"
        run(kernel, "import threading; t = threading.Thread(target=print, args=('t',)); t.start(); t.join()")
        code = "import os\npid = os.fork()\nif pid == 0: os._exit(5)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
        assert value(kernel, code) == "5"


def test_a_file_that_its_library_closes_in_forks_is_closed_in_a_copy(here: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "font").write_text("glyphs")
    run(here, "import os; font = open('font'); os.register_at_fork(after_in_child=lambda: font.close())")
    checkpoint(here)
    first = branch(here, "first")
    run(first, "font = open('font')")
    second = branch(first, "second")
    rollback(here)
    assert [value(kernel, "font.closed") for kernel in (here, first, second)] == ["True", "False", "True"]
    assert value(first, "font.read()") == "'glyphs'"


def test_a_socket_is_dead_after_a_rollback(here: KernelRecord) -> None:
    run(here, "import socket; a, b = socket.socketpair(); b.settimeout(20)")
    checkpoint(here)
    rollback(here)
    assert value(here, "b.recv(1)") == "b''"
    assert run(here, "try: a.send(b'x')\nexcept OSError as e: print(type(e).__name__)").output == "BrokenPipeError\n"


def test_exit_functions_are_after_a_rollback_as_at_the_checkpoint(here: KernelRecord, tmp_path: Path) -> None:
    register = "atexit.register(lambda: open('left', 'a').write({!r}))"
    run(here, "import atexit; " + register.format("before "))
    checkpoint(here)
    run(here, register.format("after "))
    rollback(here)
    assert not (tmp_path / "left").exists()
    ask_to_end(here)
    assert (tmp_path / "left").read_text() == "before "


def test_a_lock_on_a_file_is_still_held_when_a_copy_has_been_made(home: Path, tmp_path: Path) -> None:
    kernel = get_or_create("here", cwd=tmp_path)
    run(kernel, "import fcntl; file = open('f', 'w'); fcntl.lockf(file, fcntl.LOCK_EX)")
    checkpoint(kernel)
    branch(kernel, "other")
    with open(tmp_path / "f", "w") as file, pytest.raises(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

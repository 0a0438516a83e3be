"""Attacks on approvals and environments that once succeeded, as they were made."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.executor import DEADLINE, run, text

import kernelbox
from kernelbox import ApprovalRequest, CodeExecutionError, CodeExecutor

pytestmark = pytest.mark.usefixtures("home")


def attack(code: str, tmp_path: Path) -> tuple[list[str], bool]:
    """Runs a hostile cell, of which only `echo safe` is accepted; returns what was asked, and whether it won."""
    made = tmp_path / "made"

    async def scenario() -> list[str]:
        asked: list[str] = []
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            try:
                async for item in executor.stream(code.replace("MADE", str(made)), timeout=DEADLINE):
                    if isinstance(item, ApprovalRequest):
                        asked.append(str(item.tool_args["cmd"]))
                        if asked[-1].strip() == "echo safe":
                            await item.accept()
                        else:
                            await item.reject()
            except CodeExecutionError:
                pass
        return asked

    return run(scenario), made.exists()


def test_an_error_handler_of_a_codec_does_not_change_what_is_shown(tmp_path: Path) -> None:
    code = r"""
import codecs
for name in ("kernelbox.escaped", "backslashreplace", "surrogatepass", "strict"):
    codecs.register_error(name, lambda e: ("", e.object.index('"}', e.start)))
get_ipython().system("echo safe\udcff; touch MADE")
"""
    asked, won = attack(code, tmp_path)
    assert not won
    assert [command for command in asked if "touch" not in command] == []


# Finds the descriptor of the client's connection.
_FIND_CLIENT = """
import os, socket, struct
fd = get_ipython().kernel.outbox.peer.sock.fileno()
"""


def test_a_socket_in_the_place_of_the_clients_is_not_asked(tmp_path: Path) -> None:
    code = f"""{_FIND_CLIENT}
import threading, json
save = os.dup(fd); a, b = socket.socketpair()
def relay():
    d = a.recv(65536); m = json.loads(d[d.index(b'["Ask"'):]); os.dup2(save, fd, False)
    m[-1] = {{"cmd": "echo safe"}}; j = json.dumps(m).encode(); os.write(save, struct.pack("!II", len(j), 0) + j)
threading.Thread(target=relay, daemon=True).start()
os.dup2(b.fileno(), fd, False)
try: get_ipython().system("touch MADE")
finally: os.dup2(save, fd, False)
"""
    assert not attack(code, tmp_path)[1]


def test_a_question_is_not_written_to_a_socket_that_a_cell_has_put_in_the_place_of_the_clients(tmp_path: Path) -> None:
    code = f"""{_FIND_CLIENT}
import threading
save = os.dup(fd); a, b = socket.socketpair()
written = []
def read():
    while b"touch" not in (came := a.recv(65536)): pass  # that the cell has begun may be written there
    written.append(came); os.dup2(save, fd, False); os._exit(9)  # or the cell would wait for ever
threading.Thread(target=read, daemon=True).start()
os.dup2(b.fileno(), fd, False)
try: get_ipython().system("touch MADE")
except Exception as exc: said = str(exc)
finally: os.dup2(save, fd, False)
print(said, written)
"""

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            return await text(executor, code.replace("MADE", str(tmp_path / "made")))

    assert run(scenario) == "shell: a cell has replaced the socket of its client []"
    assert not (tmp_path / "made").exists()


def test_a_fork_does_not_leave_the_guard_by_way_of_the_interpreters_end(tmp_path: Path) -> None:
    code = """
import os, codecs, posix
class Late:
    def __call__(self, error): return "", 0
    def __del__(self, start=posix.system): start("touch MADE")
pid = os.fork()
if not pid:
    codecs.register_error("z", Late()); os._exit = lambda *a: None
    raise SystemExit
os.waitpid(pid, 0)
"""
    assert attack(code, tmp_path) == ([], False)


def test_a_script_that_is_swapped_before_it_is_read_is_not_run(tmp_path: Path) -> None:
    code = """
import os, contextlib
evil = os.memfd_create("e"); os.write(evil, b"touch MADE\\n"); real = contextlib.suppress.__exit__
def swap(self, *x):
    for n in os.listdir("/proc/self/fd"):
        try: "memfd:script" in os.readlink("/proc/self/fd/" + n) and os.dup2(evil, int(n), False)
        except OSError: pass
    return real(self, *x)
contextlib.suppress.__exit__ = swap
try: get_ipython().run_cell_magic("bash", "", "echo safe")
finally: contextlib.suppress.__exit__ = real
"""
    assert not attack(code, tmp_path)[1]


def test_reset_of_a_kernel_that_others_replaced_gives_the_executors_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cret")

    async def scenario() -> str | None:
        async with CodeExecutor(name="replaced") as executor:
            kernelbox.destroy("replaced")
            kernelbox.execute("replaced", "theirs = 1")
            await executor.reset()
            return await text(executor, "import os; print(os.environ.get('HOST_SECRET'), 'theirs' in globals())")

    assert run(scenario) == "None False"


def test_a_thread_that_swaps_descriptors_all_the_time_does_not_change_what_a_script_is(tmp_path: Path) -> None:
    code = """
import os, threading
evil = os.memfd_create("e"); os.write(evil, b"touch MADE\\n")
stop = False
def spin():
    while not stop:
        for n in range(3, 64):
            try: os.readlink(f"/proc/self/fd/{n}").startswith("/memfd:script") and os.dup2(evil, n, False)
            except OSError: pass
threads = [threading.Thread(target=spin) for _ in range(3)]
for thread in threads: thread.start()
try:
    for _ in range(20):
        try: get_ipython().run_cell_magic("bash", "", "echo safe")
        except Exception: pass
finally:
    stop = True
    for thread in threads: thread.join()
"""
    asked, won = attack(code, tmp_path)
    assert {command.strip() for command in asked} == {"echo safe"}
    assert not won

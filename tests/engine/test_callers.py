"""Who may connect to a kernel: processes of its own user, and only of that one, except those that it started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, run, value
from tests.support.homes import new_home

from kernelbox import KernelRecord
from kernelbox.guest.output._peers import Peer, is_same_user

# A user that owns nothing.
NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
@pytest.mark.parametrize(("listens", "connects"), [(NOBODY, 0), (0, NOBODY)])
def test_another_user_is_not_let_in_and_root_is_another_user(listens: int, connects: int) -> None:
    assert _tell(listens, connects) is False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_the_same_user_is_let_in() -> None:
    assert _tell(NOBODY, NOBODY) is True


def test_a_process_that_this_one_started_is_known_to_be_inside() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # a name that the system chooses
        listener.listen()
        listener.settimeout(DEADLINE)
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({listener.getsockname()!r}); s.recv(1)"
        with subprocess.Popen([sys.executable, "-c", code]):
            accepted, _ = listener.accept()
            with accepted:
                assert "its own kernel" in Peer(accepted).refusal


def test_many_processes_of_the_user_use_a_kernel_that_none_of_them_started(kernel: KernelRecord) -> None:
    code = f"import kernelbox; print(kernelbox.execute({kernel.name!r}, '1 + 1').return_value)"
    callers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)]
    assert [caller.communicate(timeout=DEADLINE)[0] for caller in callers] == [b"2\n"] * 3


def test_a_client_that_a_cell_of_another_kernel_started_is_let_in(kernel: KernelRecord) -> None:
    run("other", f"import kernelbox; result = kernelbox.execute({kernel.name!r}, 'x = 5').ok")
    assert value(kernel, "x") == "5"


@pytest.mark.parametrize("caller", ["a thread", "a process"])
def test_a_cell_cannot_run_code_in_its_own_kernel(caller: str, kernel: KernelRecord) -> None:
    code = f"""
import subprocess, sys, threading
request = "import kernelbox; print(kernelbox.execute({kernel.name!r}, 'x = 1', timeout=30).error.evalue)"
thread = threading.Thread(target=exec, args=(request,))
"""
    if caller == "a thread":
        code += "thread.start(); thread.join()"
    else:
        code += "print(subprocess.run([sys.executable, '-c', request], capture_output=True, text=True).stdout)"
    assert "cannot use its own kernel" in run(kernel, code).output
    assert value(kernel, "'x' in globals()") == "False"


def _tell(listens: int, connects: int) -> bool:
    """Returns what a process of one user says of a connection by another."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        listener.settimeout(DEADLINE)
        asked = os.fork()
        if asked == 0:
            _judge(listener, listens)
        caller = os.fork()
        if caller == 0:
            _connect(listener.getsockname(), connects)
        _, status = os.waitpid(asked, 0)
        os.waitpid(caller, 0)
    return {10: True, 11: False}[os.waitstatus_to_exitcode(status)]


def _judge(listener: socket.socket, user: int) -> None:
    status = 1
    try:
        os.setuid(user)
        accepted, _ = listener.accept()
        status = 10 if is_same_user(accepted) else 11
        accepted.close()
    finally:
        os._exit(status)


def _connect(address: bytes, user: int) -> None:
    try:
        os.setuid(user)
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(DEADLINE)
            caller.connect(address)
            caller.recv(1)  # until it is closed
    finally:
        os._exit(0)


CLOSED = """
import os, sys
report = os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 50)
import kernelbox
if "late" in sys.argv:
    kernelbox.list_kernels()
for fd in map(int, sys.argv[2]):
    os.close(fd)
if "late" in sys.argv:
    os.close(os.dup(3))  # something else of the program
cell = "import os, sys; print('out'); print('err', file=sys.stderr); os.system('echo child')"
result = kernelbox.execute("closed", cell)
listed = kernelbox.execute("closed", "[os.readlink(f'/proc/self/fd/{fd}')[:5] for fd in range(3)]")
os.write(50, repr((result.output, result.stderr, listed.return_value)).encode())
kernelbox.destroy("closed")
"""


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("closed", ["012", "12", "02", "1"])
def test_a_client_without_standard_streams_gets_all_output(closed: str, when: str, tmp_path: Path) -> None:
    with new_home() as home:
        env = {**os.environ, "KERNELBOX_HOME": str(home)}
        command = [sys.executable, "-c", CLOSED, str(tmp_path / "report"), closed, when]
        subprocess.run(command, env=env, timeout=DEADLINE, check=False)
        told = (tmp_path / "report").read_text()
    assert told == repr(("out\nchild\n", "err\n", "['/dev/', 'pipe:', 'pipe:']"))

"""A guarded cell reaches no Unix socket, so no kernel, template or service of the machine starts a program for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.executor import DEADLINE, accept, answer_all, run, text
from tests.support.homes import destroy_all, new_home

import kernelbox
from kernelbox import CodeExecutor, get_or_create

pytestmark = pytest.mark.usefixtures("home")

# How a cell talks to a socket, and what it says when it cannot.
CALL = """
import array, ctypes, os, socket, _socket
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Execute, Query, Spawn
libc = ctypes.CDLL(None, use_errno=True)
def by_c():
    fd = libc.socket(1, 1, 0)
    if fd < 0: raise PermissionError(ctypes.get_errno())
    return fd
def in_a_fork(make):
    told, tells = os.pipe()
    if not os.fork():
        try: make(); os.write(tells, b'made')
        finally: os._exit(0)
    os.close(tells)
    if not os.read(told, 4): raise PermissionError(1)
    return socket.socket(socket.AF_INET)
def call(message, make):
    try:
        caller = make()
        caller = socket.socket(fileno=caller) if isinstance(caller, int) else caller
        caller.connect('SOCKET')
        socket.send_fds(caller, [encode(message)], [0] * 5)
        heard = caller.recv(65536)
    except PermissionError as error:
        return print('refused', type(error).__name__)
    print('heard', Decoder().feed(heard))
"""

REQUESTS = {
    "code": "Execute('x', 'open(\"{made}\", \"w\")')",
    "a command": "Execute('x', 'touch {made}', 'bash')",
    "a process": "Spawn('x', '/', '/', 0)",
}

WAYS = [
    "lambda: socket.socket(socket.AF_UNIX)",
    "lambda: _socket.socket(socket.AF_UNIX)",
    "lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]",
    "by_c",
    "lambda: in_a_fork(by_c)",
]


@pytest.fixture(scope="module")
def other_home() -> Iterator[Path]:
    """Makes a home that the guarded kernel knows nothing of, with a kernel and a template in it."""
    with new_home() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(home))
        get_or_create("other")
        patch.undo()
        yield home
        destroy_all(home, patch)


async def call_guarded(code: str, path: Path) -> str:
    async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
        return await text(executor, CALL.replace("SOCKET", str(path)) + code) or ""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asked", REQUESTS)
def test_neither_a_kernel_nor_a_template_hears_a_guarded_cell(
    asked: str, way: str, tmp_path: Path, other_home: Path
) -> None:
    """The socket is one of another home, under a name that says nothing."""
    made, path = tmp_path / "made", tmp_path / "s"
    found = other_home.glob("runtime/template-*" if asked == "a process" else "runtime/*/socket")
    os.link(next(socket for socket in found if socket.is_socket()), path)
    said = run(lambda: call_guarded(f"call({REQUESTS[asked].format(made=str(made))}, {way})", path))
    assert said.startswith("refused")
    assert not made.exists()


def test_a_cell_without_the_guard_uses_other_kernels() -> None:
    code = "import kernelbox\nprint(kernelbox.execute('other', '6 * 7').return_value)"
    assert kernelbox.execute("outer", code, timeout=DEADLINE).output == "42\n"


def test_an_approved_command_of_a_guarded_cell_uses_other_kernels() -> None:
    async def scenario() -> str | None:
        given = {name: os.environ[name] for name in ("KERNELBOX_HOME", "KERNELBOX_KEY_FILE")}
        given["PYTHONPATH"] = os.pathsep.join(sys.path)
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True, kernel_env=given) as executor:
            code = f"!{sys.executable} -m kernelbox exec --name other '6 * 7'"
            _, result = await answer_all(executor, code, accept, timeout=DEADLINE)
            assert result is not None
            return result.text

    assert "42" in (run(scenario) or "")

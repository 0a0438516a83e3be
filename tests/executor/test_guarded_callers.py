"""Kernels and templates run nothing for a guarded cell, by whatever path it has reached their sockets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import destroy_all, new_home
from tests.executor.support import DEADLINE, accept, answer_all, run, text

import kernelbox
from kernelbox import CodeExecutor, get_or_create

pytestmark = pytest.mark.usefixtures("home")

# How a cell talks to a socket at a path that says nothing of whose it is.
CALL = """
import os, socket
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Execute, Query, Spawn
def hear(caller):
    decoder, heard = Decoder(), []
    while not heard and (data := caller.recv(65536)): heard = decoder.feed(data)
    print([[getattr(message, name) for name in message.__slots__] for message in heard])
def call(message, connect=lambda caller: caller.connect('SOCKET')):
    caller = socket.socket(socket.AF_UNIX)
    connect(caller)
    socket.send_fds(caller, [encode(message)], [0] * 5)
    hear(caller)
def in_a_fork(caller, then=lambda: os.read(held, 1)):
    ended, end = os.pipe()
    if not os.fork():
        try:
            caller.connect('SOCKET')
            os.write(end, b'x')
            then()
        finally:
            os._exit(0)
    os.close(end)
    os.read(ended, 1)
def in_a_fork_that_is_gone(caller):
    in_a_fork(caller, then=lambda: None)
    os.wait()
held, holding = os.pipe()
"""

REQUESTS = {
    "code": "Execute('x', 'open(\"{made}\", \"w\")')",
    "a command": "Execute('x', 'touch {made}', 'bash')",
    "a query": "Query('x', 'variables', {{}})",
}

WAYS = ["", ", in_a_fork", ", in_a_fork_that_is_gone"]


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
def test_a_kernel_runs_nothing_for_a_guarded_cell(asked: str, way: str, tmp_path: Path, other_home: Path) -> None:
    """The socket is one of another home, under a name that says nothing."""
    made, path = tmp_path / "made", tmp_path / "s"
    (socket,) = other_home.glob("runtime/*/socket")
    os.link(socket, path)
    said = run(lambda: call_guarded(f"call({REQUESTS[asked].format(made=str(made))}{way})", path))
    if way:
        assert said == "[]"  # it was not even the process that connected
    else:
        assert "require_shell_escape cannot use other kernels" in said
    assert not made.exists()


@pytest.mark.parametrize("way", WAYS)
def test_a_template_forks_nothing_for_a_guarded_cell(way: str, tmp_path: Path, other_home: Path) -> None:
    (template,) = (path for path in other_home.glob("runtime/template-*") if path.is_socket())
    os.link(template, tmp_path / "s")
    said = run(lambda: call_guarded(f"call(Spawn('x', '/', '/', 0){way})", tmp_path / "s"))
    assert "require_shell_escape cannot use other kernels" in said


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

"""How a kernel's process comes to be: what the template sees of it, and what its opener is told when it fails."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, command_line, eventually, is_running, parent_of, run, value, wait_for_end

from kernelbox import StartFailed, execute, get_or_create, list_kernels, restart, status
from kernelbox.guest._process_tree import children
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Message, Refused, Spawn, Spawned

# The pattern does not match itself, so what it finds is a secret.
FIND_SECRETS = r"""
import re
found = set()
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps:
        span, mode = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if mode.startswith("rw"):
            try:
                memory.seek(start)
                found.update(re.findall(rb"secret-[0-9a-f]{32}", memory.read(end - start)))
            except OSError:
                pass
print(len(found))
"""

# What every request for a kernel comes with.
GIVEN = ["listener", "directory", "state", "log", "cells", "older cells", "environment", "opening"]


@pytest.mark.parametrize("template", ["1", "0"])
def test_a_kernel_finds_no_secret_of_another_in_its_memory(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    monkeypatch.setenv("KERNELBOX_TEMPLATE", template)
    given = {"PATH": os.environ["PATH"]}
    for number in range(3):
        get_or_create(f"earlier-{number}", env={**given, "API_KEY": f"secret-{secrets.token_hex(16)}"})
    assert run(get_or_create("later", env=given), FIND_SECRETS).output == "0\n"
    own = get_or_create("own", env={**given, "API_KEY": f"secret-{secrets.token_hex(16)}"})
    assert run(own, FIND_SECRETS).output == "1\n", "the search would have found one"


def test_a_variable_may_hold_any_bytes_but_nul(home: Path) -> None:
    odd = os.fsdecode(b"\xff=\n'\" \xc3\xa9")
    kernel = get_or_create("odd", env={"PATH": os.environ["PATH"], "ODD": odd, "EMPTY": "", "LONG": "x" * 100_000})
    assert value(kernel, "import os; os.environb[b'ODD']") == repr(os.fsencode(odd))
    assert value(kernel, "os.environ['EMPTY'], len(os.environ['LONG'])") == "('', 100000)"


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the interpreter is in no virtual environment")
@pytest.mark.parametrize(
    ("path", "env", "expected"),
    [
        ("/usr/bin:/bin", None, "{own}:/usr/bin:/bin"),
        ("/usr/bin:/bin:{own}", None, "/usr/bin:/bin:{own}"),
        ("/usr/bin:/bin", {"PATH": "/bin"}, "/bin"),
    ],
    ids=["not activated", "on the PATH", "given"],
)
def test_python_and_pip_in_a_cell_are_the_kernels_own_unless_the_path_says_otherwise(
    home: Path, monkeypatch: pytest.MonkeyPatch, path: str, env: dict[str, str] | None, expected: str
) -> None:
    own = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", path.format(own=own))
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")  # a template would stay for each PATH

    kernel = get_or_create("programs", env=env)

    assert value(kernel, "import os; os.environ['PATH']") == repr(expected.format(own=own))


def test_a_kernel_whose_directory_is_deleted_as_soon_as_it_is_opened_lives(home: Path, tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / "vanishing").mkdir()
        kernel = get_or_create(f"homeless {number}", cwd=tmp_path / "vanishing")
        (tmp_path / "vanishing").rmdir()
        assert value(kernel, "1 + 1") == "2"


def test_a_kernel_that_cannot_be_specialized_is_told_of_and_leaves_no_process(home: Path, tmp_path: Path) -> None:
    directory = tmp_path / "vanishing"
    directory.mkdir()
    kernel = get_or_create("homeless", cwd=directory)
    template, first = parent_of(kernel.pid or 0), kernels_of(parent_of(kernel.pid or 0))
    directory.rmdir()
    with pytest.raises(StartFailed, match=r"cannot be started, because its working directory '.*vanishing' is gone"):
        restart(kernel)
    assert value(kernel, "1 + 1") == "2", "a kernel that could not be followed by another is left alone"
    stuck = execute(kernel, "sum(range(10**13))", timeout=BEGUN)
    assert (stuck.ending, stuck.state) == ("died", "lost")
    assert stuck.error is not None
    assert "could not be started again" in stuck.error.evalue
    assert "vanishing' is gone" in stuck.error.evalue
    assert status(kernel).status == "dead"
    eventually(lambda: kernels_of(template) <= first - {kernel.pid})


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time\nwhile True:\n    try: time.sleep(100)\n    except KeyboardInterrupt: pass",
    ],
    ids=["can be interrupted", "swallows interrupts"],
)
def test_start_up_code_without_end_fails_the_start_and_leaves_no_kernel(
    home: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", code)
    monkeypatch.setenv("KERNELBOX_EXECUTION_TIMEOUT", "0.2")
    with pytest.raises(StartFailed, match=r"not kept\.\n(?s:.*)TimeoutError: timed out after 0\.2 s\Z") as caught:
        get_or_create("stubborn")
    assert "variables" not in str(caught.value)
    assert list_kernels() == []


def test_a_template_runs_no_other_programs(own_home: Path, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    request = Spawn("k", str(tmp_path), str(tmp_path), 0o22, argv=["/bin/touch", str(witness)], descriptors=GIVEN)
    with descriptors(tmp_path) as fds:
        answer = ask_template(own_home, request, fds)
    assert answer == Refused("a template forks kernels and runs no other programs")
    assert not witness.exists()


def test_a_request_without_its_descriptors_is_refused(own_home: Path, tmp_path: Path) -> None:
    with descriptors(tmp_path) as fds:
        answer = ask_template(own_home, request_in(tmp_path), fds[:2])
        unnamed = ask_template(own_home, request_in(tmp_path, GIVEN[:2]), fds[:2])
    assert answer == Refused("2 descriptors came with the request, and 8 names")
    missing = "cells, environment, log, older cells, opening, state"
    assert unnamed == Refused(f"the request has no descriptor for {missing}")


def test_a_template_goes_on_after_nonsense(own_home: Path) -> None:
    with dial_template(own_home) as client:
        client.sendall(b"\xff" * 100)
        assert client.recv(1) == b""
    assert value(get_or_create("after"), "1 + 1") == "2"


def test_the_child_of_an_opener_that_has_gone_is_ended(own_home: Path, tmp_path: Path) -> None:
    template = parent_of(get_or_create("sibling").pid or 0)
    before = kernels_of(template)
    with descriptors(tmp_path) as fds, dial_template(own_home) as client:
        socket.send_fds(client, [encode(request_in(tmp_path))], fds)
        client.shutdown(socket.SHUT_RDWR)
    eventually(lambda: kernels_of(template) <= before)
    assert is_running(template)


def test_a_template_answers_when_the_child_is_ready_and_names_it(own_home: Path, tmp_path: Path) -> None:
    with descriptors(tmp_path) as fds:
        answer = ask_template(own_home, request_in(tmp_path), fds)
    assert isinstance(answer, Spawned)
    assert os.getsid(answer.pid) == answer.pid, "it has a session of its own already"
    os.kill(answer.pid, 9)
    wait_for_end(answer.pid)
    eventually(lambda: (tmp_path / "death.json").exists())


def test_a_kernel_whose_opener_has_gone_before_its_start_was_over_is_ended(own_home: Path, tmp_path: Path) -> None:
    with descriptors(tmp_path) as fds:
        answer = ask_template(own_home, request_in(tmp_path), fds)
        assert isinstance(answer, Spawned)
        assert is_running(answer.pid)
    wait_for_end(answer.pid)
    eventually(lambda: (tmp_path / "death.json").exists())
    assert json.loads((tmp_path / "death.json").read_text())["reason"] == "its start was cut short"


def test_a_kernel_whose_opener_is_killed_in_the_start_up_code_is_ended(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    told = f"import os, time; open({str(fifo)!r}, 'w').write(str(os.getpid()))"
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", f"{told}\ntry: time.sleep(100)\nexcept KeyboardInterrupt: pass")
    opener = subprocess.Popen([sys.executable, "-c", "import kernelbox; kernelbox.get_or_create('mine')"])
    pid = int(fifo.read_text())
    opener.kill()
    opener.wait()
    wait_for_end(pid)
    assert status("mine").death == "its start was cut short"


def kernels_of(template: int) -> set[int]:
    """Returns the children of a template without its spare, which comes and goes by itself."""
    return {pid for pid in children(template) if command_line(pid) != "kernelbox: spare"}


def dial_template(home: Path) -> socket.socket:
    get_or_create("sibling")
    (path,) = [path for path in home.glob("runtime/template-*") if path.is_socket()]
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(DEADLINE)
    client.connect(str(path))
    return client


def ask_template(home: Path, request: Spawn, fds: list[int]) -> Message:
    with dial_template(home) as client:
        socket.send_fds(client, [encode(request)], fds)
        decoder = Decoder()
        while data := client.recv(65536):
            if messages := decoder.feed(data):
                return messages[0]
    raise AssertionError("the template did not answer")


def request_in(directory: Path, names: list[str] | None = None) -> Spawn:
    place = str(directory)
    return Spawn("k", place, place, 0o22, ["socket"], descriptors=GIVEN if names is None else names)


@contextmanager
def descriptors(directory: Path) -> Iterator[list[int]]:
    """Gives what must come with a request, in the order of GIVEN."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(directory / "socket"))
        listener.listen()
        (directory / "state").write_bytes(bytes(4096))
        opened = [
            os.open(directory, os.O_RDONLY | os.O_DIRECTORY),
            os.open(directory / "state", os.O_RDWR),
            os.open(directory / "log", os.O_WRONLY | os.O_CREAT),
            *(os.open(directory / name, os.O_RDWR | os.O_CREAT) for name in ("cells-0", "cells-1")),
            os.open(os.devnull, os.O_RDONLY),
            *os.pipe(),
        ]
        for fd in opened:
            stack.callback(os.close, fd)
        yield [listener.fileno(), *opened[:-1]]


def test_a_kernel_that_cannot_be_built_is_a_start_that_failed(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "IPython").mkdir()
    (tmp_path / "IPython" / "__init__.py").write_text('raise ImportError("IPython is broken here")')
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(StartFailed, match="IPython is broken here"):
        get_or_create("stillborn", env=env)
    assert list_kernels() == []


def test_a_kernel_that_ends_before_its_start_up_code_fails_the_start_at_once(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(StartFailed, match="killed by SIGKILL"):
        get_or_create("short-lived")
    assert list_kernels() == []

"""The bridge between ZeroMQ and our kernels, started from the kernelspec's `argv` as editors and `jupyter run` do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import Any, Literal

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from tests.support.cells import DEADLINE, LATER

from kernelbox import execute, list_kernels, restart

from .test_kernelspec import prefix

__all__ = ["prefix"]


@contextmanager
def started(prefix: Path, directory: Path, transport: Literal["tcp", "ipc"]) -> Iterator[BlockingKernelClient]:
    """Starts the program of the kernelspec, yields a client of it, and shuts it down."""
    with started_program(prefix, directory, transport) as (client, process):
        yield client
        client.shutdown()
        assert process.wait(DEADLINE) == 0


@contextmanager
def started_program(
    prefix: Path, directory: Path, transport: Literal["tcp", "ipc"]
) -> Iterator[tuple[BlockingKernelClient, subprocess.Popen[bytes]]]:
    """Starts the program of the kernelspec without jupyter_client's manager; yields a client of it, and the program."""
    spec = json.loads((prefix / "share/jupyter/kernels/kernelbox/kernel.json").read_text())
    ip = str(directory / "s") if transport == "ipc" else "127.0.0.1"
    file, _ = write_connection_file(str(directory / "connection.json"), ip=ip, key=b"k", transport=transport)
    argv = [word.replace("{connection_file}", file) for word in spec["argv"]]
    with subprocess.Popen(argv, cwd=directory, env=os.environ.copy(), stdin=subprocess.DEVNULL) as process:
        client = BlockingKernelClient(connection_file=file)
        client.load_connection_file()
        client.start_channels()
        try:
            until_heard(client)
            yield client, process
        finally:
            client.stop_channels()
            process.kill()


def until_heard(client: BlockingKernelClient) -> None:
    """Returns when the program answers, and what it tells all is heard; its own wait takes a slow start for a death."""
    heard = False
    while not heard:
        client.kernel_info()
        assert client.get_shell_msg(timeout=DEADLINE)["msg_type"] == "kernel_info_reply"
        with suppress(Empty):
            while client.get_iopub_msg(timeout=0.5)["content"].get("execution_state") != "idle":
                pass
            heard = True


def told(client: BlockingKernelClient, kind: str) -> dict[str, Any]:
    """Returns the next message of a kind that all are told."""
    while True:
        message: dict[str, Any] = client.get_iopub_msg(timeout=DEADLINE)
        if message["msg_type"] == kind:
            return message


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_an_editor_that_starts_the_program_itself_uses_our_kernels(
    prefix: Path, tmp_path: Path, transport: Literal["tcp", "ipc"]
) -> None:
    with started(prefix, tmp_path, transport) as client:
        client.execute("6 * 7")
        assert told(client, "execute_result")["content"]["data"] == {"text/plain": "42"}
        assert client.get_shell_msg(timeout=DEADLINE)["content"]["status"] == "ok"


def test_it_sees_what_threads_print_between_cells_and_what_others_run(prefix: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with started(prefix, tmp_path, "tcp") as client:
        request = client.execute(f"{LATER}\nlater({str(gate)!r}, lambda: print('late'))")
        assert client.get_shell_msg(timeout=DEADLINE)["content"]["status"] == "ok"
        gate.touch()
        late = told(client, "stream")
        assert (late["content"]["text"], late["parent_header"]["msg_id"]) == ("late\n", request)
        (record,) = list_kernels()
        assert execute(record, "print('theirs')").ok
        assert told(client, "execute_input")["content"]["code"] == "print('theirs')"
        assert "theirs\n" in told(client, "stream")["content"]["text"]


def test_jupyter_run_runs_a_file_in_our_kernel(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os\nprint('from', os.path.basename(os.getcwd()))")
    command = [sys.executable, "-m", "jupyter_client.runapp", "--kernel=kernelbox", "script.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ.copy(), capture_output=True, text=True, timeout=DEADLINE * 2, check=False
    )
    assert done.stdout == f"from {tmp_path.name}\n", done.stderr


NBCLIENT = """
import sys, nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
cells = [nbformat.v4.new_code_cell(source) for source in ("x = 1", "import os; os.kill(os.getpid(), 9)", "x")]
client = NotebookClient(nbformat.v4.new_notebook(cells=cells[: int(sys.argv[1])]), kernel_name="kernelbox",
                        allow_errors=True, timeout=60)
try:
    client.execute()
except DeadKernelError:
    print("dead")
"""


@pytest.mark.slow
@pytest.mark.parametrize("cells", [2, 3])
def test_nbclient_learns_that_the_kernel_has_died(prefix: Path, tmp_path: Path, cells: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NBCLIENT, str(cells)],
        cwd=tmp_path,
        env=os.environ.copy(),
        capture_output=True,
        text=True,
        timeout=DEADLINE * 2,
        check=False,
    )
    assert done.stdout == "dead\n", done.stderr


@pytest.mark.parametrize("code", ["import os; os.kill(os.getpid(), 9)", "exit"])
def test_the_program_ends_with_its_kernel(prefix: Path, tmp_path: Path, code: str) -> None:
    with started_program(prefix, tmp_path, "tcp") as (client, process):
        client.execute(code)
        assert process.wait(DEADLINE) == 0
    assert list_kernels() == []


def test_the_cause_of_a_death_is_told_before_the_program_ends(prefix: Path, tmp_path: Path) -> None:
    with started_program(prefix, tmp_path, "tcp") as (client, _):
        client.execute("import os; os.kill(os.getpid(), 9)")
        assert told(client, "error")["content"]["ename"] == "KernelDied"
        while told(client, "status")["content"]["execution_state"] != "dead":
            pass


def test_a_kernel_that_another_client_restarts_keeps_its_program(prefix: Path, tmp_path: Path) -> None:
    with started(prefix, tmp_path, "tcp") as client:
        (record,) = list_kernels()
        restart(record)
        while told(client, "status")["content"]["execution_state"] != "restarting":
            pass
        client.execute("6 * 7")
        assert told(client, "execute_result")["content"]["data"] == {"text/plain": "42"}

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

from kernelbox import execute, list_kernels

from .test_kernelspec import prefix

__all__ = ["prefix"]


@contextmanager
def started(prefix: Path, directory: Path, transport: Literal["tcp", "ipc"]) -> Iterator[BlockingKernelClient]:
    """Starts the program of the kernelspec without jupyter_client's manager; yields a client of it."""
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
            yield client
            client.shutdown()
            assert process.wait(DEADLINE) == 0
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

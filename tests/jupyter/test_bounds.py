"""What a Jupyter kernel's client takes from the network, and which paths a kernel is given."""

from __future__ import annotations

import gc
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from tests.support.cells import DEADLINE, eventually, run

from kernelbox import ExecutionResult, KernelRecord, OutputItem, StoreFailed, get_or_create, stream
from kernelbox.host.engines.jupyter._connection_file import JupyterLink
from kernelbox.host.engines.jupyter._jupyter_message import LONGEST_FRAME
from kernelbox.host.engines.jupyter._subscription import LeftOut, Subscription
from kernelbox.host.engines.jupyter._zmq_channels import ZmqChannels
from kernelbox.host.store._kernel_directory import KernelDirectory

from .test_queue import directory_at

# ZMTP 3.0 (https://rfc.zeromq.org/spec/23): the greeting with the NULL mechanism, and the READY command of a publisher.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"PUB"


@pytest.fixture
def directory() -> Iterator[KernelDirectory]:
    with tempfile.TemporaryDirectory() as name:
        os.mkdir(f"{name}/kernel", 0o700)
        yield directory_at(Path(name) / "kernel")


def test_a_kernel_that_announces_too_long_a_message_is_cut_off(directory: KernelDirectory) -> None:
    link = JupyterLink("ipc", {"shell": 1, "iopub": 2, "control": 3}, "key", "signal", "python")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory.path}/zmq-2")
        listener.listen()
        listener.settimeout(DEADLINE)
        channels = ZmqChannels(link, directory, [])
        try:
            kernel, _ = listener.accept()
            with kernel:
                kernel.settimeout(DEADLINE)
                kernel.sendall(GREETING + bytes([4, len(READY)]) + READY)
                kernel.sendall(b"\x02" + struct.pack(">Q", LONGEST_FRAME + 1))
                while kernel.recv(4096):
                    pass  # the client's greeting; then the end, which is what this is about
        finally:
            channels.close()


def test_what_is_published_and_not_read_is_bounded_in_bytes_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    large, small = [b"topic", bytes(4 * 1024 * 1024)], [b"topic", b"small"]
    context = zmq.Context()
    try:
        publisher, subscriber = context.socket(zmq.PUSH), context.socket(zmq.PULL)  # which lose nothing by themselves
        publisher.bind(f"ipc://{tmp_path}/socket")
        subscriber.connect(f"ipc://{tmp_path}/socket")
        subscription = Subscription(subscriber)
        for _ in range(100):
            publisher.send_multipart(large)
        publisher.send_multipart(small)
        publisher.close()
        eventually(lambda: "85 messages left out" in repr(subscription))
        taken = list(subscription.take())
        while small not in taken:
            assert select.select([subscription], [], [], DEADLINE)[0]
            taken += subscription.take()
        subscription.close()
    finally:
        context.term()
    *kept, left_out, last = taken
    assert kept == [large] * 15, "64 MiB, with what each takes besides"
    assert isinstance(left_out, LeftOut)
    assert left_out.messages == 85
    assert left_out.size >= 85 * len(large[1])
    assert last == small, "small messages have more room"


@pytest.mark.slow
def test_a_kernel_that_floods_a_caller_who_does_not_read_harms_nothing_and_the_caller_is_told(
    ipython: KernelRecord,
) -> None:
    flood = "for _ in range(150): print('x' * 1_000_000, flush=True)"
    events = stream(ipython, f"print('begun', flush=True)\n{flood}", timeout=DEADLINE)
    assert isinstance(next(events), OutputItem)
    subscriptions = [thing for thing in gc.get_objects() if type(thing) is Subscription]  # not what a proxy stands for
    eventually(lambda: any("bytes, 0 messages" not in repr(subscription) for subscription in subscriptions))
    *said, result = events
    lines = "".join(event.text or "" for event in said if isinstance(event, OutputItem) and event.name == "stderr")
    assert re.fullmatch(r"(\[[\d,]+ messages of the kernel \([\d,]+ bytes\) were left out: .*\]\n)+", lines)
    assert isinstance(result, ExecutionResult)
    assert (result.status, result.truncated) == ("success", True)
    assert run(ipython, "6 * 7").return_value == "42"


def test_a_program_that_ends_while_it_is_flooded_interrupts_the_cell_and_ends(ipython: KernelRecord) -> None:
    code = (
        "import kernelbox\n"
        "flood = 'while True: print(\"y\" * 20_000, flush=True)'\n"
        "events = kernelbox.stream('ipython', flood)\n"
        "next(events)  # and the stream is left when the interpreter ends"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE)
    assert run(ipython, "6 * 7").return_value == "42"


@pytest.mark.parametrize("mode", [0o777, 0o707])
def test_a_home_below_a_directory_that_others_can_rename_in_is_refused_by_jupyter_kernels(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "shared" / "home"))
    monkeypatch.setenv("KERNELBOX_ENGINE", "jupyter")
    with pytest.raises(StoreFailed, match=r"other users can rename entries of .*/shared'.*set KERNELBOX_HOME"):
        get_or_create("first")

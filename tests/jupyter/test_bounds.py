"""What a Jupyter kernel's client takes from the network, and which paths a kernel is given."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelbox import StoreFailed, get_or_create
from kernelbox.host._directory import KernelDirectory
from kernelbox.host.jupyter._channels import Channels
from kernelbox.host.jupyter._link import Link
from kernelbox.host.jupyter._message import LONGEST_FRAME

from .support import DEADLINE
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
    link = Link("ipc", {"shell": 1, "iopub": 2, "control": 3}, "key", "signal", "python")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory.path}/zmq-2")
        listener.listen()
        listener.settimeout(DEADLINE)
        channels = Channels(link, directory, [])
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


@pytest.mark.parametrize("mode", [0o777, 0o707])
def test_a_home_below_a_directory_that_others_can_rename_in_is_refused_by_jupyter_kernels(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "shared" / "home"))
    monkeypatch.setenv("KERNELBOX_ENGINE", "jupyter")
    with pytest.raises(StoreFailed, match=r"other users can rename what is in .*/shared'.*set KERNELBOX_HOME"):
        get_or_create("first")

"""Cells that run in the background, what tests wait for, always with a deadline, and what processes and outputs are."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.bounded import DEADLINE as DEADLINE

from kernelbox import ExecutionResult, KernelRecord, OutputItem, execute, stream
from kernelbox.api._configured import kernels
from kernelbox.host.engines.own._own_connection import OwnConnection
from kernelbox.host.process._process import Process

# A thread that waits for a file, and then does something: between cells, if the file is made then.
LATER = """
import pathlib, threading, time
def later(path, what):
    def wait():
        while not pathlib.Path(path).exists():
            time.sleep(0.005)
        what()
    threading.Thread(target=wait, daemon=True).start()
"""

# A cell that shows a picture without a library for it.
PICTURE = """
import struct, zlib
from IPython.display import Image, display
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
head = struct.pack('>IIBBBBB', 1, 1, 8, 0, 0, 0, 0)
png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', zlib.compress(b'\\0\\0')) + chunk(b'IEND', b'')
display(Image(png))
"""


class Running:
    """A cell that runs in a thread of ours. `wait_for_output` returns once it has written something."""

    def __init__(
        self, kernel: KernelRecord | str, code: str, *, timeout: float = DEADLINE, language: Any = "python"
    ) -> None:
        self._arguments = (kernel, code, timeout, language)
        self._written = threading.Event()
        self._ended = threading.Event()
        self._result: ExecutionResult | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_output(self) -> Running:
        assert self._written.wait(DEADLINE), "the cell has written nothing"
        return self

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def result(self) -> ExecutionResult:
        assert self._ended.wait(DEADLINE), "the cell has not ended"
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    def _run(self) -> None:
        kernel, code, timeout, language = self._arguments
        try:
            for event in stream(kernel, code, timeout=timeout, language=language):
                if isinstance(event, ExecutionResult):
                    self._result = event
                elif isinstance(event, OutputItem):
                    self._written.set()
        except BaseException as exc:  # noqa: BLE001  # raised again by `result`
            self._failure = exc
        finally:
            self._written.set()
            self._ended.set()


def run(kernel: KernelRecord | str, code: str, *, language: Any = "python") -> ExecutionResult:
    """Runs a cell that must succeed."""
    result = execute(kernel, code, language=language, timeout=DEADLINE)
    assert result.ok, result.text
    return result


def value(kernel: KernelRecord | str, expression: str) -> str:
    """Returns the repr of an expression in a kernel."""
    shown = run(kernel, expression).return_value
    assert shown is not None
    return shown


@contextlib.contextmanager
def connected(kernel: KernelRecord) -> Iterator[OwnConnection]:
    """Gives a connection of one's own to a kernel, for what the API has no function for."""
    assert kernel.pid is not None
    directory = kernels().kernel(kernel).directory
    connection = OwnConnection(directory, Process(kernel.pid, kernel.start_time))
    try:
        yield connection
    finally:
        connection.close()


def until_queued(count: int) -> str:
    """Returns the lines of a cell that wait until so many requests have come behind it."""
    return f"import time\nwhile len(get_ipython().kernel._queue) < {count}: time.sleep(0.005)\n"


def eventually(condition: Callable[[], object]) -> None:
    """Waits until a condition holds, for what the operating system has no event for."""
    deadline, pause = time.monotonic() + DEADLINE, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{condition} never became true"
        pause.wait(0.005)


def wait_for_end(pid: int) -> None:
    """Waits until a process has ended; one that is no longer there has."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        assert poller.poll(DEADLINE * 1000), f"process {pid} lives on: {command_line(pid)}"
    finally:
        os.close(pidfd)


def ask_to_end(kernel: KernelRecord) -> None:
    """Ends a kernel as `destroy` does, but gives its exit functions more than half a second."""
    pid = int(value(kernel, "__import__('os').getpid()"))
    os.kill(pid, signal.SIGTERM)
    wait_for_end(pid)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stops a process for a while: a template then ends no kernel that it finds changed."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def is_running(pid: int) -> bool:
    """Tells whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(gone)"


def parent_of(pid: int) -> int:
    """Returns the parent of a process: for a kernel, its template."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kept_bytes(outputs: Iterable[OutputItem]) -> int:
    """Returns what outputs take, each of their parts counted by itself."""
    return sum(
        sys.getsizeof(item)
        + sum(sys.getsizeof(part) for part in (item.text, item.name, item.display_id))
        + _deep_size(item.data)
        + _deep_size(item.metadata)
        for item in outputs
    )


def _deep_size(value: object) -> int:
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(_deep_size(key) + _deep_size(item) for key, item in value.items())
    if isinstance(value, list):
        return sys.getsizeof(value) + sum(map(_deep_size, value))
    return sys.getsizeof(value)

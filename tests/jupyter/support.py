"""What these tests use to hold cells and to run them in the background, always with a deadline."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

from kernelbox import ExecutionResult, KernelRecord, execute, stream

# Seconds. Far beyond what anything here takes, so that reaching it means a hang and not a busy machine.
DEADLINE = 60.0


class Gate:
    """A named pipe that a cell waits at until the test lets it pass."""

    def __init__(self, directory: Path) -> None:
        path = directory / f"gate-{os.urandom(4).hex()}"
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR)  # so that neither side waits for the other to open it
        self.wait = f"_ = open({str(path)!r}).readline()"
        """Python code that waits at the gate."""

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def let_pass(self) -> None:
        os.write(self._fd, b"\n")


class Running:
    """A cell that runs in a thread of ours."""

    def __init__(self, kernel: KernelRecord | str, code: str, *, timeout: float = DEADLINE) -> None:
        self._arguments = (kernel, code, timeout)
        self._written = threading.Event()
        self._ended = threading.Event()
        self._result: ExecutionResult | None = None
        self._failure: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def wait_for_output(self) -> Running:
        assert self._written.wait(DEADLINE), "the cell has written nothing"
        return self

    def result(self) -> ExecutionResult:
        assert self._ended.wait(DEADLINE), "the cell has not ended"
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    def _run(self) -> None:
        kernel, code, timeout = self._arguments
        try:
            for event in stream(kernel, code, timeout=timeout):
                if isinstance(event, ExecutionResult):
                    self._result = event
                else:
                    self._written.set()
        except BaseException as exc:  # noqa: BLE001  # raised again by `result`
            self._failure = exc
        finally:
            self._written.set()
            self._ended.set()


def run(kernel: KernelRecord | str, code: str, *, language: str = "python") -> ExecutionResult:
    """Runs a cell that must succeed."""
    result = execute(kernel, code, language=language, timeout=DEADLINE)
    assert result.ok, result.text
    return result


def wait_for_end(pid: int) -> None:
    """Waits until a process has ended; one that is no longer there has."""
    with contextlib.suppress(ProcessLookupError), descriptor_of(pid) as pidfd:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        assert poller.poll(DEADLINE * 1000), f"process {pid} lives on"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextlib.contextmanager
def descriptor_of(pid: int) -> Iterator[int]:
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)

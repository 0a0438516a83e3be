"""Commands started from a cell: `!cmd`, `x = !cmd`, `%%bash` and its relatives.

Each runs in a process group of its own, without stdin. Its output takes the kernel's own descriptors, so a daemon
that keeps them open holds nobody up; only when the cell captures its output is it read here.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from kernelbox.guest._guards import lifted
from kernelbox.guest._interrupts import held
from kernelbox.guest._streams import OutStream

# After an interrupt a command has this long before it is killed.
_PATIENCE = 0.5

# The process groups of commands that have ended, and may have left processes behind.
_groups: set[int] = set()


def run_command(
    command: str | Sequence[str],
    *,
    stdin: str | None = None,
    out: Callable[[str], object] | None = None,
    err: Callable[[str], object] | None = None,
) -> int:
    """Runs a command to its end and returns its exit status, negative for a signal.

    `out` and `err` receive the text; by default it goes where the cell's own does.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if out is None and not isinstance(sys.stdout, OutStream):
        out = sys.stdout.write
    if err is None and not isinstance(sys.stderr, OutStream):
        err = sys.stderr.write
    process: subprocess.Popen[bytes] | None = None
    try:
        with held(), _as_file(stdin) as source, lifted():
            process = subprocess.Popen(
                command,
                shell=isinstance(command, str),
                executable=_shell_path() if isinstance(command, str) else None,
                stdin=source,
                stdout=1 if out is None else subprocess.PIPE,
                stderr=2 if err is None else subprocess.PIPE,
                process_group=0,
            )
        _collect(process, out, err)
        status = process.wait()
        _groups.add(process.pid)
        return status
    except BaseException:
        if process is not None:
            _stop(process)
        raise
    finally:
        if process is not None:
            _close_pipes(process)


def bury_background() -> None:
    """Takes note of the end of what commands left running (`!server &`): such orphans have become our children.

    They are found by the group of their command, so that nobody is robbed of a child to wait for.
    """
    for group in list(_groups):
        try:
            while os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG) is not None:
                continue
        except ChildProcessError:
            _groups.discard(group)  # nobody of that group is left


def start_command(command: Sequence[str], *, stdin: str, out: bool, err: bool) -> subprocess.Popen[bytes]:
    """Starts a command that nobody waits for; its output is dropped, or piped to whoever reads it."""
    with _as_file(stdin) as source, lifted():
        return subprocess.Popen(
            command,
            stdin=source,
            stdout=subprocess.PIPE if out else subprocess.DEVNULL,
            stderr=subprocess.PIPE if err else subprocess.DEVNULL,
            process_group=0,
        )


def capture_command(command: str) -> tuple[str, int]:
    """Runs a command and returns what it wrote, both streams in one, and its exit status."""
    parts: list[str] = []
    status = run_command(command, out=parts.append, err=parts.append)
    return "".join(parts), status


@contextlib.contextmanager
def _as_file(text: str | None) -> Iterator[int]:
    """Gives a descriptor to read the text from: a file, which is written whole before anybody reads."""
    if text is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "replace"))
        file.seek(0)
        yield file.fileno()


def _shell_path() -> str:
    shell = os.environ.get("SHELL", "")
    return shell if os.path.basename(shell) in ("bash", "zsh", "sh", "dash", "ksh") else "/bin/sh"


def _collect(
    process: subprocess.Popen[bytes], out: Callable[[str], object] | None, err: Callable[[str], object] | None
) -> None:
    readers = []
    for pipe, write in ((process.stdout, out), (process.stderr, err)):
        if pipe is not None and write is not None:
            os.set_blocking(pipe.fileno(), False)
            readers.append((pipe.fileno(), codecs.getincrementaldecoder("utf-8")("backslashreplace"), write))
    pause = 0.0005
    while readers:
        ended = process.poll() is not None  # asked before reading: what it wrote before it ended is then all there
        got = False
        for reader in list(readers):
            fd, decoder, write = reader
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                continue
            got = True
            text = decoder.decode(data, final=not data)
            if text:
                write(text)
            if not data:
                readers.remove(reader)
        if got:
            pause = 0.0005
        elif ended:
            return
        else:
            time.sleep(pause)
            pause = min(pause * 2, 0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()

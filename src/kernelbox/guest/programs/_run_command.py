"""Commands started from a cell: `!cmd`, `x = !cmd`, `%%bash` and its relatives.

Each runs in a process group of its own, without stdin. Its output takes the kernel's own descriptors, so a daemon
that keeps them open holds nothing up; only when the cell captures its output is it read here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from subprocess import TimeoutExpired

from kernelbox.guest._interrupts import held
from kernelbox.guest._stdlib import os, signal, time
from kernelbox.guest.output._text_streams import OutStream, TextDecoder
from kernelbox.guest.programs._child import Child, Sink
from kernelbox.guest.programs._program import Program
from kernelbox.guest.programs._runner_link import start
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# After an interrupt a command has this long before it is killed.
_PATIENCE = 0.5


def run_command(
    program: Program,
    *,
    out: Callable[[str], object] | None = None,
    err: Callable[[str], object] | None = None,
) -> int:
    """Runs a command to its end and returns its exit status, negative for a signal.

    `out` and `err` receive the text; by default it goes where the cell's own does.
    """
    if out is None and not isinstance(sys.stdout, OutStream):
        out = getattr(sys.stdout, "write", None)
    if err is None and not isinstance(sys.stderr, OutStream):
        err = getattr(sys.stderr, "write", None)
    child: Child | None = None
    try:
        with held():
            child = start(program, out=_sink(out), err=_sink(err))
        _collect(child, out, err)
        return child.wait()
    except BaseException:
        if child is not None:
            _stop(child)
        raise
    finally:
        if child is not None:
            child.close_pipes()


def _sink(write: Callable[[str], object] | None) -> Sink:
    return "cell" if write is None else "pipe"


def _collect(child: Child, out: Callable[[str], object] | None, err: Callable[[str], object] | None) -> None:
    readers = []
    for pipe, write in ((child.stdout, out), (child.stderr, err)):
        if pipe is not None and write is not None:
            os.set_blocking(pipe.fileno(), False)
            readers.append((pipe.fileno(), TextDecoder(), write))
    pause = 0.0005
    while readers:
        ended = child.poll() is not None  # asked before reading: what it wrote before it ended is then all there
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


def _stop(child: Child) -> None:
    if child.poll() is not None:
        return
    child.signal_group(signal.SIGINT)
    try:
        child.wait(_PATIENCE)
    except TimeoutExpired:
        child.signal_group(signal.SIGKILL)
        child.wait()

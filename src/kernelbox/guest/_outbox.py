"""Everything a kernel says, in one order: text of every origin, displays, and the end of each execution.

Text from `print` and text from descriptors 1 and 2 (subprocesses, C code) meet here. Before anything is added the
pipes behind the descriptors are emptied, so what was written first is sent first. Text waits in the state file, at
most FLUSH_AFTER, and is sent from there.
"""

from __future__ import annotations

import codecs
import os
import select
import struct
import threading
import time
from collections.abc import Callable
from mmap import mmap

from kernelbox.guest._interrupts import Interrupts
from kernelbox.guest._peer import Peer
from kernelbox.wire import _state as state
from kernelbox.wire._bounded import BoundedText
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Message, Output

# A reader sees text this soon; the first text after a pause goes out at once.
FLUSH_AFTER = 0.02

# Longer texts skip the state file and go out in pieces of this many characters.
_PIECE = 128 * 1024

# What threads print between cells is kept for the next execution, this much of it.
_LATE_LIMIT = 1_000_000


class Outbox:
    """Orders what the kernel writes and sends it to whoever asked for the running execution."""

    def __init__(self, memory: mmap, pipes: tuple[int, int], interrupts: Interrupts, wake: Callable[[], None]) -> None:
        self._memory = memory
        self._pipes = pipes
        self._poller = select.poll()
        for pipe in pipes:
            os.set_blocking(pipe, False)
            self._poller.register(pipe, select.POLLIN)
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = tuple(decoder("backslashreplace") for _ in pipes)
        self._interrupts = interrupts
        self._wake = wake
        self._lock = threading.RLock()
        self.forked = False
        self._peer: Peer | None = None
        self._id = ""
        self._late: list[tuple[int, BoundedText]] = []
        self._seq = 0
        self._used = 0
        self._last = -1
        self._flushed_at = 0.0
        self._executions = 0
        self._write_header(state.STARTING)

    def ready(self) -> None:
        self._write_header(state.IDLE)

    # -- executions ------------------------------------------------------------------------------------------

    def begin(self, execution_id: str, peer: Peer, started: Message) -> None:
        """Turns the outbox to an execution, which first gets what was printed since the last one."""
        with self._lock:
            self._drain()
            self._flush()
            self._peer, self._id = peer, execution_id
            self._executions += 1
            self._write_header(state.BUSY, busy_since=time.time())
            peer.send(encode(started))
            late, self._late = self._late, []
            for stream, text in late:
                self._append(stream, text.text)

    def end(self, done: Message) -> None:
        """Sends what is left, then the end of the execution."""
        frame = encode(done)
        with self._lock:
            self._drain(final=True)
            self._flush()
            assert self._peer is not None
            self._peer.send(frame)
            self._peer, self._id = None, ""
            self._write_header(state.IDLE)

    def send(self, message: Message) -> None:
        """Sends a message of the running execution, after all text written before it."""
        if self.forked:
            return
        frame = encode(message)
        self._interrupts.enter()
        try:
            with self._lock:
                self._drain()
                self._flush()
                if self._peer is not None:
                    self._peer.send(frame)
        finally:
            self._interrupts.leave()
        self._wait_for_reader()

    @property
    def execution_id(self) -> str:
        return self._id

    @property
    def peer(self) -> Peer | None:
        return self._peer

    # -- text ------------------------------------------------------------------------------------------------

    def write(self, stream: int, text: str) -> None:
        """Takes text for stdout (0) or stderr (1) from any thread."""
        if self.forked:
            # A child forked by the cell: its text reaches us through the pipe, like any subprocess's.
            _write_all(stream + 1, text.encode("utf-8", "backslashreplace"))
            return
        if len(text) > _PIECE:
            for start in range(0, len(text), _PIECE):
                self.write(stream, text[start : start + _PIECE])
            return
        self._interrupts.enter()
        try:
            with self._lock:
                if self._poller.poll(0):
                    self._drain()
                self._append(stream, text)
                self._flush_soon()
        finally:
            self._interrupts.leave()
        self._wait_for_reader()

    def pump(self) -> None:
        """Takes what subprocesses and C code have written; called by the I/O thread."""
        with self._lock:
            self._drain()
            self._flush_soon()

    def resume(self, peer: Peer) -> None:
        """Sends a peer more of what waits for it, now that it reads."""
        with self._lock:
            peer.send(b"")

    def reply(self, peer: Peer, message: Message) -> None:
        """Sends a message to a peer, outside any execution."""
        frame = encode(message)
        with self._lock:
            peer.send(frame)

    @property
    def congested(self) -> bool:
        """Whether the reader is so far behind that writers must wait."""
        return self._peer is not None and self._peer.congested

    def flush(self) -> None:
        if self.forked:
            return
        self._interrupts.enter()
        try:
            with self._lock:
                self._flush()
        finally:
            self._interrupts.leave()

    def flush_due(self) -> float | None:
        """Seconds until waiting text must be sent, None if there is none."""
        if not self._used or self._peer is None:
            return None
        return max(0.0, self._flushed_at + FLUSH_AFTER - time.monotonic())

    def _append(self, stream: int, text: str) -> None:
        if self._peer is None:
            self._keep_late(stream, text)
            return
        data = text.encode("utf-8", "backslashreplace")
        if self._used + state.SEGMENT.size + len(data) > state.TEXT_ROOM:
            self._flush()
            if state.SEGMENT.size + len(data) > state.TEXT_ROOM:
                self._seq += 1
                self._peer.send(encode(Output(self._id, self._seq, state.STREAMS[stream], text)))
                return
        memory, end = self._memory, state.HEADER.size + self._used
        if self._last >= 0 and memory[self._last] == stream:
            memory[end : end + len(data)] = data
            length = end + len(data) - self._last - state.SEGMENT.size
            state.SEGMENT.pack_into(memory, self._last, stream, length)
            self._used += len(data)
        else:
            state.SEGMENT.pack_into(memory, end, stream, len(data))
            memory[end + state.SEGMENT.size : end + state.SEGMENT.size + len(data)] = data
            self._last = end
            self._used += state.SEGMENT.size + len(data)
        _USED.pack_into(memory, _USED_AT, self._used)

    def _flush_soon(self) -> None:
        if not self._used:
            return
        if time.monotonic() - self._flushed_at >= FLUSH_AFTER:
            self._flush()
        elif self._last == state.HEADER.size:
            # The first segment since the last flush: from here on the I/O thread watches the clock.
            self._wake()

    def _flush(self) -> None:
        if not self._used:
            return
        outputs = state.leftovers(self._memory[: state.HEADER.size + self._used])
        self._seq += len(outputs)
        self._used, self._last = 0, -1
        if self._peer is not None:
            self._peer.send(b"".join(map(encode, outputs)))
        _SEQ_USED.pack_into(self._memory, _SEQ_AT, self._seq + 1, 0)
        self._flushed_at = time.monotonic()

    def _drain(self, *, final: bool = False) -> None:
        for stream, (pipe, decoder) in enumerate(zip(self._pipes, self._decoders, strict=True)):
            while data := _read(pipe):
                if text := decoder.decode(data):
                    self._append(stream, text)
                if self.congested:
                    break
            if final and (text := decoder.decode(b"", final=True)):
                self._append(stream, text)

    def _keep_late(self, stream: int, text: str) -> None:
        if not self._late or self._late[-1][0] != stream:
            self._late.append((stream, BoundedText(_LATE_LIMIT)))
        self._late[-1][1].add(text)

    def _wait_for_reader(self) -> None:
        """Holds a writer back until the reader has caught up; an interrupt ends the wait."""
        while (peer := self._peer) is not None and peer.congested:
            peer.wait_writable(0.1)
            self._interrupts.enter()
            try:
                with self._lock:
                    peer.send(b"")
            finally:
                self._interrupts.leave()

    def _write_header(self, activity: int, busy_since: float = 0.0) -> None:
        state.HEADER.pack_into(
            self._memory,
            0,
            state.MAGIC,
            activity,
            self._executions,
            busy_since,
            time.time(),
            self._id.encode("ascii"),
            self._seq + 1,
            self._used,
        )


_SEQ_USED = struct.Struct("<II")
_USED = struct.Struct("<I")
_SEQ_AT = state.HEADER.size - 8
_USED_AT = state.HEADER.size - 4


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 256 * 1024)
    except BlockingIOError:
        return b""


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]

"""Everything that a kernel sends, in one order: text of every origin, displays, and the end of each execution.

All text goes through the pipes behind descriptors 1 and 2: what `print` writes, C code, subprocesses. The
pipes are the buffer. They are emptied here before anything else is sent, so what was written first is sent first; and
they outlive the kernel, whose keeper holds their other ends, so text printed just before a crash is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap

from kernelbox.guest._interrupts import Interrupts
from kernelbox.guest._process_title import show_activity
from kernelbox.guest._stdlib import threading, time
from kernelbox.guest.output._between_cells import OutputBetweenCells
from kernelbox.guest.output._cell_logger import CellLogger
from kernelbox.guest.output._origins import ORIGIN
from kernelbox.guest.output._peers import Peer, Watchers
from kernelbox.guest.output._text_streams import FullPipes, OutStream, TextDecoder, read_pipe
from kernelbox.wire import _kernel_state as state
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Begun, Clear, Comm, Display, Done, Execute, Message, Output, Started
from kernelbox.wire._schema import MAX_TOLD_CODE

keep_builtins(globals())

_NO_PEERS: list[Peer] = []

# What the state file has in the place of an execution to interrupt when none runs.
_NO_TARGET = state.target("")

# What a front end shows below a cell, beside text.
_SHOWN = frozenset({Clear, Display})

# Three quarters of a pipe: a process that wrote so much while the helper rested is about to wait for room.
_NEARLY_FULL = 48 * 1024
_READS = 4

# Characters of a line that a task of an earlier cell has begun; a longer one is passed on.
_LONGEST_BEGUN = 4096


class Outbox:
    """Orders what the kernel writes and sends it to the client that asked for the running execution."""

    def __init__(self, memory: mmap, pipes: tuple[int, int], interrupts: Interrupts, history: CellLogger) -> None:
        """`memory` is that of the state file; `pipes` are those behind descriptors 1 and 2, to be read."""
        self.current_stream = 0
        self.forked = False
        self._relieved = False
        self._memory = memory
        self._full = FullPipes(pipes)
        self._origins = {pipe: (name, TextDecoder()) for name, pipe in zip(state.STREAMS, pipes, strict=True)}
        self._interrupts = interrupts
        self.lock = self._lock = threading.RLock()
        self.streams: list[OutStream] = []
        self.peer: Peer | None = None  # the client whose cell runs
        self.execution_id = ""
        self._running: tuple[Execute, int] | None = None
        self.watchers = Watchers()
        self._between_cells = OutputBetweenCells()
        self._unseen = OutputBetweenCells()  # the part of it that no watcher has received
        self._begun: dict[tuple[str, str], str] = {}  # lines of tasks, by the execution that made the task and stream
        self.history = history
        self.executions = 0
        self._write_state(state.STARTING)

    def ready(self) -> None:
        self._write_state(state.IDLE)

    def begin(self, request: Execute, peer: Peer, execution_count: int) -> None:
        """Begins an execution. It first gets what was printed since the last one."""
        with self._lock:
            self._drain()
            self.peer, self.execution_id, self._running = peer, request.id, (request, execution_count)
            self.history.begin(request)
            self.executions += 1
            state.COUNT.pack_into(self._memory, state.COUNT_AT, execution_count)
            self._write_state(state.BUSY, state.target(request.id), busy_since=time.time(), client=peer.pid)
            peer.hold(encode(Started(request.id, execution_count)))
            if self._between_cells.has_any:
                self._send_what_came_between_cells(peer)
            if self.watchers:
                self.watchers.tell(encode(_describe(request, execution_count)), but=peer)

    def _send_what_came_between_cells(self, peer: Peer) -> None:
        has_been_told = peer in self.watchers
        for message in self._between_cells.take(self.execution_id):
            frame = encode(message)
            self.history.add(frame)
            if not has_been_told:
                peer.hold(frame)
        self._unseen.forget()

    def end(self, done: Done) -> None:
        """Sends what is left, then the end of the execution."""
        frame = encode(done)
        with self._lock:
            self._drain(final=True)
            assert self.peer is not None
            peer, self.peer, self.execution_id, self._running = self.peer, None, "", None
            self._write_state(state.IDLE)  # first: a client that has the result must not find the kernel busy
            peer.send(frame)
            if self.watchers:
                self.watchers.tell(frame, but=peer)
            self.history.end(frame, done)  # last: nobody waits for it

    def watch(self, peer: Peer) -> None:
        """Sends a client the output of all cells from now on, and what came since the last cell."""
        with self._lock:
            self._drain()
            self.watchers[peer] = 0.0
            self._tell_tasks_apart(True)
            for message in self._unseen.take(""):
                peer.send(encode(message))
            if self._running is not None and peer is not self.peer:
                peer.send(encode(_describe(*self._running)))

    def unwatch(self, peer: Peer) -> None:
        with self._lock:
            self.watchers.pop(peer, None)
            self._tell_tasks_apart(bool(self.watchers))

    def _tell_tasks_apart(self, on: bool) -> None:
        """Makes the streams find out whose text they get. Only watchers need this, and it takes time."""
        for stream in self.streams:
            stream.tell_tasks_apart(on)

    def find_elsewhere(self) -> str:
        """Returns the execution that made the task that calls, if that is not the one that runs."""
        origin = ORIGIN.get()
        return "" if origin is None or origin.execution_id == self.execution_id else origin.execution_id

    def write_for(self, execution_id: str, name: str, text: str) -> None:
        """Takes text of a task that an earlier execution has made; whole lines are sent at once."""
        with self._interrupts, self._lock:
            text = self._begun.pop((execution_id, name), "") + text
            if text[-1:] == "\n" or len(text) > _LONGEST_BEGUN:
                self._forward(name, text, execution_id)
            else:
                self._begun[execution_id, name] = text
        self._wait_for_reader()

    def ask(self, execution_id: str, make: Callable[[], Message]) -> bool:
        """Sends a question or its withdrawal, made only then, if the execution still runs; returns whether it does."""
        with self._interrupts, self._lock:
            self._drain()
            if self.peer is None or self.execution_id != execution_id:
                return False
            self.peer.send(encode(make()))
        self._wait_for_reader()
        return True

    def send(self, message: Clear | Comm | Display, *, hold: bool = False) -> None:
        """Sends a message of the running execution, after all text written before it.

        With `hold` it may wait, a moment, to travel with what comes next.
        """
        if self.forked:
            self._show_as_text(message)
            return
        frame = encode(message)
        with self._interrupts, self._lock:
            self._drain()
            if message.id != self.execution_id:  # a thread has made it before a cell began, or ended
                message.id = self.execution_id
                frame = encode(message)
            told = frame
            if self.watchers and (elsewhere := self.find_elsewhere()):
                message.id = elsewhere
                told = encode(message)
            if self.peer is None:
                self._keep(message)
            else:
                if type(message) in _SHOWN:
                    self.history.add(frame)
                if not hold:
                    self.history.flush()
                own = told if self.peer in self.watchers else frame
                (self.peer.hold if hold else self.peer.send)(own)
            if self.watchers:
                self.watchers.tell(told, but=self.peer)
        if self.watchers or (self.peer is not None and self.peer.congested):
            self._wait_for_reader()

    def _show_as_text(self, message: Message) -> None:
        """Writes what a child of the cell displays, which has no socket, to its stdout."""
        if isinstance(message, Display) and (text := message.data.get("text/plain")):
            self.streams[0].write(f"{text}\n")
            self.streams[0].flush()

    def after_fork(self) -> None:
        """Sends nothing in a child that the cell forked: its text reaches the kernel through the pipes."""
        self.forked = True
        self.lock = self._lock = threading.RLock()
        for stream in self.streams:
            stream.after_fork()

    @property
    def descriptors(self) -> list[int]:
        """What is open here, beside the pipes."""
        return [self._full.fileno(), *(stream.writer for stream in self.streams)]

    def settle(self) -> None:
        """Takes all that has been written, before the process is copied: it is the original's."""
        for stream in self.streams:
            stream.push()
        self.pump()

    def renew(self, memory: mmap, pipes: tuple[int, int], executions: int, execution_count: int) -> None:
        """Begins anew in a copy of the process, with other pipes behind the same numbers. The history stays."""
        self._memory = memory
        self._full = FullPipes(pipes)
        self._origins = {pipe: (name, TextDecoder()) for name, pipe in zip(state.STREAMS, pipes, strict=True)}
        self.watchers.clear()
        self._between_cells.forget()
        self._unseen.forget()
        self.peer, self.execution_id, self._running = None, "", None
        self.executions = max(self.executions, executions)
        state.COUNT.pack_into(memory, state.COUNT_AT, execution_count)
        for stream in self.streams:
            stream.renew()
        self._write_state(state.IDLE)

    def switch(self, stream: int) -> None:
        """Empties the pipes before another stream is written to, which keeps the two in order.

        The caller holds the lock, and has relieved the pipes before: no thread waits for the reader with the lock held.
        """
        if not self.forked:
            with self._interrupts:
                self._drain()
        self.current_stream = stream

    def relieve(self) -> None:
        """Empties the pipes, for a writer that found its pipe full or wants its text seen."""
        if self.forked:
            return
        self._relieved = True
        with self._interrupts, self._lock:
            self._drain()
        self._wait_for_reader()

    def pump(self) -> bool:
        """Takes what has been written and sends all that waits. True if more should be taken at once.

        That is so when another process writes much. A cell that does empties the pipe itself, and would only wait.
        """
        with self._lock:
            much = self._drain()
            if self.peer is not None:
                self.history.flush()
                self.peer.send(b"")
            relieved, self._relieved = self._relieved, False
        return much and not relieved

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
    def is_held_here(self) -> bool:
        """Whether this thread is in the middle of writing or sending: for a signal handler, which may have cut in."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # as threading.Condition asks

    @property
    def congested(self) -> bool:
        """Whether a reader is so far behind that writers must wait."""
        peer = self.peer
        return (peer is not None and peer.congested) or (bool(self.watchers) and bool(self._find_slow_readers()))

    def _find_slow_readers(self) -> list[Peer]:
        peer = self.peer
        slow = [peer] if peer is not None and peer.congested else _NO_PEERS
        if self.watchers:
            with self._lock:
                return slow + self.watchers.far_behind(but=peer)
        return slow

    @property
    def has_begun_lines(self) -> bool:
        """Whether a stream holds the beginning of a line."""
        return bool(self._begun) or True in [stream.has_begun_line() for stream in self.streams]

    def _drain(self, *, final: bool = False) -> bool:
        if self._begun:
            for (execution_id, name), text in [self._begun.popitem() for _ in range(len(self._begun))]:
                self._forward(name, text, execution_id)
        blocked = [stream for stream in self.streams if not stream.push()]
        full = self._full.take()
        much = bool(full) and self._empty(full, final=final)
        if blocked and (final or not self.congested) and all(stream.push() for stream in blocked):
            self._empty(self._full.take(), final=final)
        if final:
            for name, decoder in self._origins.values():
                if decoder.rest and (text := decoder.decode(b"", final=True)):
                    self._forward(name, text, final=True)
        return much

    def _empty(self, pipes: list[int], *, final: bool) -> bool:
        much = False
        for pipe in pipes:
            name, decoder = self._origins[pipe]
            # So many reads take all that was written before them, also if the keeper has enlarged the pipe. A child
            # that never stops writing must not keep us here, and at the end of a cell its text is taken whether the
            # reader is behind or not: it belongs to no other cell.
            for _ in range(_READS):
                if self.congested and not final:
                    self._full.put_back(pipe)
                    break
                if not (data := read_pipe(pipe)):
                    break
                much |= len(data) >= _NEARLY_FULL
                if text := decoder.decode(data):
                    self._forward(name, text, final=final)
            else:
                self._full.put_back(pipe)
        return much

    def _forward(self, name: str, text: str, elsewhere: str = "", *, final: bool = False) -> None:
        """Logs and sends text. Watchers learn that it belongs to the execution `elsewhere`, if not to the running one.

        The log comes first, because the process may die at any moment. At the end of a cell, `end` writes it.
        """
        if self.peer is None:
            self._between_cells.add_text(name, text)
            if not self.watchers:
                self._unseen.add_text(name, text)
                return
        frame = encode(Output(self.execution_id, name, text))
        told = encode(Output(elsewhere, name, text)) if elsewhere else frame
        if self.peer is not None:
            self.history.add(frame)
            if not final:
                self.history.flush()
            self.peer.send(told if self.peer in self.watchers else frame)
        if self.watchers:
            self.watchers.tell(told, but=self.peer)

    def _keep(self, message: Message) -> None:
        self._between_cells.add(message)
        if not self.watchers:
            self._unseen.add(message)

    def _wait_for_reader(self) -> None:
        """Holds a writer back until the readers have caught up; an interrupt ends the wait."""
        while slow := self._find_slow_readers():
            slow[0].wait_writable(0.1)
            with self._interrupts, self._lock:
                slow[0].send(b"")

    def _write_state(
        self, activity: int, target: bytes = _NO_TARGET, *, busy_since: float = 0.0, client: int = 0
    ) -> None:
        state.HEADER.pack_into(
            self._memory,
            0,
            state.MAGIC,
            activity,
            self.executions,
            busy_since,
            time.time(),
            client,
            target,
            b"",
        )
        show_activity(activity)


def _describe(request: Execute, execution_count: int) -> Begun:
    """Returns the message to watchers about a cell that begins, without the key of its client."""
    code = "" if request.language == "comm" else request.code[:MAX_TOLD_CODE]
    return Begun(request.id, code, request.language, execution_count, request.silent, request.parent)

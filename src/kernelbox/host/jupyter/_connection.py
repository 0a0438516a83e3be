"""A connection to a Jupyter kernel, with the interface of a connection to one of ours.

A cell's way: **turn** (one client at a time) → **probe** (only where the kernel may be busy, or may not be heard yet) →
**submit** → reply and idle. Up to the submit it can be withdrawn; from then on it counts as started.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import deque

from kernelbox.host import _death
from kernelbox.host._process import since_boot
from kernelbox.host.jupyter._cell import Cell
from kernelbox.host.jupyter._channels import Channels
from kernelbox.host.jupyter._link import Link
from kernelbox.host.jupyter._turn import Turn, is_busy, write_activity
from kernelbox.wire._bounded import BoundedText
from kernelbox.wire._framing import Decoder
from kernelbox.wire._messages import Done, Execute, Interrupt, Query, Reply, Started

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select

    from kernelbox.host._process import Process
    from kernelbox.host.jupyter._message import JupyterMessage
    from kernelbox.wire._messages import Message

# A kernel answers a probe in a few milliseconds; when it was not heard the next one follows after this.
_PROBE_AGAIN = 0.02

# `idle` follows the reply at once. When it has not after this long, the kernel is asked whether it is still to come.
_IDLE_PATIENCE = 1.0

# A cell that was interrupted ends soon, or goes on; one that ended without a reply is found out after this.
_REPLY_PATIENCE = 0.3

# A reader this far behind may have been left out by the kernel, and must be probed for again.
_FAR_BEHIND = 1000

# What was in flight when the kernel died arrives within this.
_LAST_WORDS_PATIENCE = 0.02

# A kernel that takes interrupts as messages answers them beside its cell.
_INTERRUPT_PATIENCE = 1.0

# What threads of earlier cells print is kept for the next one: of this many cells, this much of each stream.
_EARLIER_CELLS = 64
_LATE_LIMIT = 1_000_000

# Where the system has no descriptor for a process, how often to look.
_LOOK_AGAIN = 0.1

# Requests of other clients that are counted; a kernel that says it has more has one at least.
_OTHERS = 1_000

_QUERIES = ("complete", "inspect", "is_complete")


class JupyterConnection:
    """Runs one cell at a time on a Jupyter kernel; ends when the kernel dies."""

    _closed = True  # until there is something to close

    def __init__(self, directory: str, process: Process) -> None:
        self.directory = directory
        self.process = process
        self.ended = False
        self.pid = os.getpid()
        if not process.alive:
            raise ConnectionRefusedError("the kernel's process is gone")
        self._link = Link.read(directory)
        self._turn = Turn(directory)
        self._channels: Channels | None = None
        self._combined: select.epoll | None = None
        self._inbox: list[Message] = []
        self._cell: Cell | None = None
        self._began = 0.0
        self._earlier: deque[str] = deque(maxlen=_EARLIER_CELLS)
        self._late: dict[str, BoundedText] = {}
        self._others: set[str] = set()  # requests of clients that may not be ours, and so take no turns
        self._prefix = os.urandom(8).hex()
        self._probes = 0
        self._probing = self._answered = self._heard = self._live = self._free = False
        self._fence = ""
        self._due = math.inf
        self._closed = False

    def __repr__(self) -> str:
        return f"<JupyterConnection to {self.process!r}{' ended' if self.ended else ''}>"

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when `read` may have something."""
        if self._combined is None:
            self._combined = self._open().combine()
        return self._combined.fileno()

    @property
    def idle(self) -> bool:
        """Whether the connection can carry another execution."""
        return not self.ended and self.pid == os.getpid() and self._cell is None and not self.process.wait(0.0)

    # -- the interface of a connection -----------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Sends a message; a kernel that cannot take it any more is found out by `receive`."""
        match message:
            case Execute():
                self._begin(Cell(message))
            case Interrupt():
                self._interrupt(message)
            case Query():
                self._ask(message)
        if self._inbox:
            self._turn.ring()  # for whoever waits at `fileno`

    def send_some(self, data: memoryview) -> memoryview:
        """Sends messages that were encoded for one of our own kernels; nothing is left over."""
        for message in Decoder().feed(bytes(data)):
            self.send(message)
        return data[:0]

    def receive(self, timeout: float | None) -> list[Message]:
        """Waits for messages. None have come if the time is up or, with `ended` set, if the kernel is gone."""
        messages = self.read()
        if messages or self.ended:
            return messages
        self._wait(math.inf if timeout is None else timeout)
        return self.read()

    def read(self) -> list[Message]:
        """Takes what has arrived."""
        if self.ended:
            return []
        self._turn.hush()
        self._take()
        self._advance()
        if not self._inbox and self.process.wait(0.0):
            while self._open().wait_for_message(_LAST_WORDS_PATIENCE):
                self._take()
            self.ended = not self._inbox
        messages, self._inbox = self._inbox, []
        return messages

    def close(self) -> None:
        self.ended = True
        if self._combined is not None:
            self._combined.close()
            self._combined = None
        if self._channels is not None:
            self._channels.close()
            self._channels = None
        if not self._closed:
            self._closed = True
            self._turn.close()
            self.process.close()

    def __del__(self) -> None:
        try:
            if not self._closed:
                self.close()
        except (AttributeError, TypeError):
            return  # the interpreter is ending, and the modules that closing needs are gone

    def handshake(self, timeout: float) -> bool:
        """Waits until the kernel answers and is heard; returns whether it does, in time."""
        deadline = time.monotonic() + timeout
        self._probe()
        while self._probing and not self.ended and time.monotonic() < deadline:
            self._wait(deadline - time.monotonic())
            self.read()
        return not self._probing and not self.ended

    def ask_to_shut_down(self) -> None:
        """Asks the kernel to end in good order."""
        self._open().send("control", "shutdown_request", {"restart": False}, os.urandom(8).hex())

    def _wait(self, patience: float) -> None:
        patience = min(patience, self._due - time.monotonic())
        if self.process.fileno() < 0:
            patience = min(patience, _LOOK_AGAIN)
        self._open().wait(None if patience == math.inf else patience)

    # -- a cell ----------------------------------------------------------------------------------------------

    def _begin(self, cell: Cell) -> None:
        refusal = cell.refuse(self._link.language)
        if refusal is not None:
            self._inbox.append(refusal)
            return
        self._open()
        if self._take() >= _FAR_BEHIND:
            self._live = False
        try:
            self._turn.ask()
        except OSError:  # its directory is gone, and so will be the kernel
            self.ended = True
            return
        self._cell, self._free = cell, False
        self._advance()

    def _advance(self) -> None:
        """Does what time or the turn has made possible."""
        cell = self._cell
        if self._probing:
            if self._answered and self._heard:
                self._probing, self._live, self._free, self._due = False, True, True, math.inf
                self._others.clear()
            elif self._answered and time.monotonic() >= self._due:
                self._due = math.inf
                self._send_probe()
        if cell is None or not self._turn.held or self._probing:
            return
        if not cell.submitted:
            if not self._free and (not self._live or self._others or is_busy(self.directory)):
                self._probe()
            else:
                self._submit(cell)
        elif self._due <= time.monotonic() and not self._fence:
            self._raise_fence()

    def _probe(self) -> None:
        """Asks for a sign of life on both channels: the reply says that no cell runs, the status that we hear."""
        self._probing, self._answered, self._heard = True, False, False
        self._send_probe()

    def _send_probe(self) -> str:
        self._probes += 1
        self._answered = False
        probe = f"{self._prefix}-{self._probes}"
        self._open().send("shell", "kernel_info_request", {}, probe)
        return probe

    def _raise_fence(self) -> None:
        """Sends a request behind the cell's: when it has been served the cell is over, whatever was lost of it."""
        self._due = math.inf
        self._heard = False
        self._fence = self._send_probe()

    def _submit(self, cell: Cell) -> None:
        cell.submitted = True
        self._fence, self._due = "", math.inf
        self._began = since_boot()
        write_activity(self.directory, "busy", cell.id)
        self._open().send("shell", "execute_request", cell.content(self._link.language), cell.id)
        self._inbox.append(Started(cell.id, 0))  # its number follows
        for name, text in self._late.items():
            self._inbox += cell.take_output(name, text.text)
        self._late.clear()

    def _conclude(self, cell: Cell) -> None:
        if cell.asks_to_exit:
            _death.announce(self.directory, self.process, "the cell called exit()")
        self._cell, self._fence, self._due = None, "", math.inf
        self._earlier.append(cell.id)
        write_activity(self.directory, "idle")
        self._turn.give_back()

    # -- what the kernel says --------------------------------------------------------------------------------

    def _take(self) -> int:
        count = 0
        for count, (channel, message) in enumerate(self._open().take(), start=1):  # noqa: B007  # returned
            if channel == "iopub":
                self._take_published(message)
            elif channel == "shell":
                self._take_reply(message)
        return count

    def _take_published(self, message: JupyterMessage) -> None:
        cell = self._cell
        if cell is not None and message.parent == cell.id:
            was_running = cell.running
            self._deliver(cell, cell.take_published(message))
            if cell.running and not was_running and cell.interrupted:
                self._stop()  # it was asked for before the kernel had begun
        elif message.parent.startswith(self._prefix):
            self._heard |= not self._fence or message.text("execution_state") == "idle"
            self._pass_fence()
        elif message.kind == "status" and message.text("execution_state") == "idle":
            self._others.discard(message.parent)
        elif message.kind == "status" and len(self._others) < _OTHERS:
            self._others.add(message.parent)
        elif message.kind == "stream" and message.parent in self._earlier:
            self._take_late("stderr" if message.text("name") == "stderr" else "stdout", message.text("text"))

    def _take_late(self, name: str, text: str) -> None:
        """Takes what a thread of an earlier cell printed: for the cell that runs, or else for the next."""
        if self._cell is not None and self._cell.submitted:
            self._inbox += self._cell.take_output(name, text)
        else:
            self._late.setdefault(name, BoundedText(_LATE_LIMIT)).add(text)

    def _take_reply(self, message: JupyterMessage) -> None:
        cell = self._cell
        if cell is not None and message.parent == cell.id:
            self._look_again_in(_IDLE_PATIENCE)
            self._deliver(cell, cell.take_reply(message))
        elif message.parent.startswith(self._prefix):
            self._answered = True
            if self._probing:
                self._look_again_in(_PROBE_AGAIN)
            self._pass_fence()
        elif message.kind.removesuffix("_reply") in _QUERIES:
            self._inbox.append(Reply(message.parent, message.content))

    def _pass_fence(self) -> None:
        if self._cell is not None and self._fence and self._answered and self._heard:
            self._deliver(self._cell, self._cell.give_up())

    def _deliver(self, cell: Cell, messages: list[Message]) -> None:
        self._inbox += messages
        if cell.done:
            self._conclude(cell)

    # -- what the client asks beside its cell ----------------------------------------------------------------

    def _interrupt(self, message: Interrupt) -> None:
        cell = self._cell
        if not message.id:
            self._strike()
        elif cell is None or cell.id != message.id or cell.replied:
            return
        elif not cell.submitted:
            self._withdraw(cell)
        else:
            cell.interrupted = True
            if message.harder:
                # A cell that waited for what is killed goes on by itself; another interrupt now would hit what the
                # kernel does at the end of it, which is how replies get lost.
                if cell.begun and not self.process.kill_descendants(since=self._began):
                    self._strike()
                self._raise_fence()
            elif cell.running:
                self._stop()

    def _withdraw(self, cell: Cell) -> None:
        self._cell, self._probing, self._due = None, False, math.inf
        self._turn.give_back()
        self._inbox.append(Done(cell.id, "aborted"))

    def _stop(self) -> None:
        self._strike()
        self._look_again_in(_REPLY_PATIENCE)

    def _strike(self) -> None:
        if self._link.interrupt_mode == "signal":
            self.process.signal_group(signal.SIGINT)
            return
        self._open().send("control", "interrupt_request", {}, os.urandom(8).hex())
        # We may exit next, and ZeroMQ sends in the background: wait for the kernel to have it.
        self._open().wait_for_message(_INTERRUPT_PATIENCE, "control")

    def _ask(self, query: Query) -> None:
        if query.what == "leave":
            self._leave_if_unused(query)
            return
        if query.what not in _QUERIES:
            reason = f"a Jupyter kernel cannot be asked for {query.what!r}; kernelbox's own can"
            self._inbox.append(Reply(query.id, {"status": "error", "ename": "NotSupported", "evalue": reason}))
            return
        self._open().send("shell", f"{query.what}_request", dict(query.args), query.id)

    def _leave_if_unused(self, query: Query) -> None:
        """Asks the kernel to end, unless a cell runs or ran lately; no answer then, like one of ours."""
        seconds = float(query.args["unused_for"])
        self._turn.ask()
        state = _death.read_state(self.directory)
        if not self._turn.held or state is None or state.activity == "busy" or time.time() - state.last_used < seconds:
            self._turn.give_back()
            self._inbox.append(Reply(query.id, {"left": False}))
            return
        # The turn is kept until we close, so that nobody begins a cell meanwhile.
        _death.announce(self.directory, self.process, f"ended after {seconds:g} s without work, as somebody asked for")
        self.ask_to_shut_down()

    def _look_again_in(self, seconds: float) -> None:
        self._due = time.monotonic() + seconds
        if self._combined is not None:  # somebody waits at `fileno`, who knows nothing of this
            timer = threading.Timer(seconds, self._turn.ring)
            timer.daemon = True
            timer.start()

    def _open(self) -> Channels:
        if self._channels is None:
            watched = [self._turn.fileno(), *([self.process.fileno()] if self.process.fileno() >= 0 else [])]
            self._channels = Channels(self._link, self.directory, watched)
        return self._channels

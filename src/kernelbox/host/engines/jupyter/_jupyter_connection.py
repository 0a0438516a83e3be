"""A connection to a Jupyter kernel, with the same interface as one to kernelbox's own kernels.

A `Conversation` decides what to do. This module does it, with sockets, clocks, files and signals.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time

from kernelbox.host.engines._local import LocalConnection
from kernelbox.host.engines.jupyter._actions import SendRequest, Step, WriteActivity, WriteReason
from kernelbox.host.engines.jupyter._client_queue import QueueLock
from kernelbox.host.engines.jupyter._connection_file import JupyterLink
from kernelbox.host.engines.jupyter._conversation import Conversation
from kernelbox.host.engines.jupyter._subscription import LeftOut
from kernelbox.host.engines.jupyter._zmq_channels import ZmqChannels
from kernelbox.host.process._forks import forget_in_forks
from kernelbox.host.process._process import since_boot
from kernelbox.host.store import _death_notes as _notes
from kernelbox.host.store._state_file import read_state, write_activity
from kernelbox.wire._messages import Answer, Execute, Interrupt, Message, Query, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.engines.jupyter._actions import Action
    from kernelbox.host.engines.jupyter._zmq_channels import Combined
    from kernelbox.host.process._process import Process
    from kernelbox.host.store._kernel_directory import KernelDirectory

# Messages that were under way when the kernel died arrive within this time.
_LAST_WORDS_PATIENCE = 0.02

# How often to check the process, if the system has no descriptor for it.
_LOOK_AGAIN = 0.1


class JupyterConnection(LocalConnection):
    """Runs one cell at a time on a Jupyter kernel; ends when the kernel dies."""

    _closed = True  # until there is something to close

    def __init__(self, directory: KernelDirectory, process: Process) -> None:
        super().__init__(directory, process)
        self.ended = False
        self.inherited = False
        if not process.alive:
            raise ConnectionRefusedError("the kernel's process is gone")
        self._link = JupyterLink.read(directory)
        self._conversation = Conversation(
            prefix=os.urandom(8).hex(), language=self._link.language, interrupt_mode=self._link.interrupt_mode
        )
        self._queue = QueueLock(directory)
        self._channels: ZmqChannels | None = None
        self._combined: Combined | None = None
        self._inbox: list[Message] = []
        self._busy_since = 0.0
        self._alarm: threading.Timer | None = None
        self._alarm_due = math.inf
        self._closed = False
        forget_in_forks(self)

    def __repr__(self) -> str:
        return f"<JupyterConnection to {self.process!r}{' ended' if self.ended else ''}>"

    def fileno(self) -> int:
        if self._combined is None:
            self._combined = self._open().combine()
        return self._combined.fileno()

    @property
    def idle(self) -> bool:
        if self.ended or self._conversation.stage != "resting":
            return False
        return not self.process.wait(0.0)

    def send(self, message: Message) -> None:
        """Sends a message; if the kernel is gone, `receive` notices."""
        if self.ended:
            return
        if self._channels is not None:
            self._take()  # the messages that have arrived decide what this one means
        match message:
            case Execute():
                self._perform(self._conversation.execute(message))
            case Interrupt():
                self._perform(self._conversation.interrupt(message, now=time.monotonic()))
            case Query():
                self._perform(self._conversation.query(message))
            case Answer():
                self._perform(self._conversation.answer(message))
            case Watch():
                self._watch()
        self._set_alarm()
        if self._inbox or self.ended:
            self._queue.wake()  # the caller may wait at `fileno`

    unsent = awaits_rest = lacks_rest = False  # ZeroMQ buffers messages, and delivers them complete

    def flush(self) -> None:
        """Does nothing: see `unsent`."""

    def still_serves(self) -> bool:
        return False

    def receive(self, timeout: float | None) -> list[Message]:
        messages = self.read()
        if messages or self.ended:
            return messages
        self._wait(math.inf if timeout is None else timeout)
        return self.read()

    def read(self) -> list[Message]:
        """Returns the messages that have arrived."""
        if self.ended:
            return []
        if sys.is_finalizing():
            self._end()  # nothing more arrives
            return []
        self._queue.clear()
        self._take()
        if self._queue.first:
            self._tell_first()
        self._perform(self._conversation.tick(now=time.monotonic()))
        if not self._inbox and self.process.wait(0.0):
            while self._open().wait_for_message(_LAST_WORDS_PATIENCE):
                self._take()
            if not self._inbox:
                self._end()
        self._set_alarm()
        messages, self._inbox = self._inbox, []
        return messages

    def interrupt(self, execution_id: str, *, harder: bool = False) -> None:
        """Interrupts an execution, in the way that the kernelspec names."""
        self.process.wake()
        self.send(Interrupt(execution_id, harder=harder))

    def interrupt_holder(self) -> bool:
        """Interrupts the cell that the kernel runs. A Jupyter kernel does not say whether it ran one."""
        self.interrupt("")
        return True

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
            self._set_alarm()
            self._queue.close()
            self.process.close()

    def forget(self) -> None:
        self.ended = self.inherited = self._closed = True
        if self._combined is not None:
            self._combined.close()
        if self._channels is not None:
            self._channels.forget()
        self._queue.forget()
        self.process.close()

    def __del__(self) -> None:
        try:
            if not self._closed:
                self.close()
        except (AttributeError, TypeError):
            return  # the interpreter is ending, and modules that this needs are gone

    def handshake(self, timeout: float) -> bool:
        """Waits until the kernel answers and its publications arrive; returns whether they do in time."""
        deadline = time.monotonic() + timeout
        self._perform(self._conversation.greet(now=time.monotonic()))
        while not self._conversation.heard and not self.ended and time.monotonic() < deadline:
            self._wait(deadline - time.monotonic())
            self.read()
        return self._conversation.heard and not self.ended

    def ask_to_shut_down(self) -> None:
        self._open().send(SendRequest("control", "shutdown_request", {"restart": False}, os.urandom(8).hex()))

    def _watch(self) -> None:
        """Begins to pass on all that the kernel publishes, and the input requests of cells."""
        self._open().take_questions()
        if self._combined is not None:  # made without the channel for input
            self._combined.close()
            self._combined = None
        self._perform(self._conversation.watch())
        self._perform(self._conversation.greet(now=time.monotonic()))

    # -- what happens ----------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Passes what has arrived to the conversation."""
        now = time.monotonic()
        for channel, message in self._open().take():
            if isinstance(message, LeftOut):
                self._perform(self._conversation.left_out(message.messages, message.size))
            elif channel == "iopub":
                self._perform(self._conversation.published(message, now=now))
            elif channel == "shell":
                self._perform(self._conversation.replied(message, now=now))
            elif channel == "stdin":
                self._perform(self._conversation.asked(message))

    def _tell_first(self) -> None:
        """Tells a waiting conversation that this client is the first in the queue."""
        if self._conversation.stage in ("queueing", "leaving"):
            state, now = read_state(self.directory), time.monotonic()
            busy = state is not None and state.activity == "busy"
            unused_for = None if state is None else time.time() - state.last_used
            self._perform(self._conversation.first_in_queue(busy=busy, unused_for=unused_for, now=now))

    def _wait(self, patience: float) -> None:
        patience = min(patience, self._conversation.due - time.monotonic())
        if self.process.fileno() < 0:
            patience = min(patience, _LOOK_AGAIN)
        self._open().wait(None if patience == math.inf else patience)

    def _set_alarm(self) -> None:
        """Makes `fileno` readable when the conversation is due, for event loops, which do not know `due`."""
        due = math.inf if self._combined is None else self._conversation.due
        if due == self._alarm_due:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_due = due
        if due < math.inf:
            self._alarm = threading.Timer(max(0.0, due - time.monotonic()), self._on_alarm)
            self._alarm.daemon = True
            self._alarm.start()

    def _on_alarm(self) -> None:
        self._alarm_due = math.inf
        self._queue.wake()

    # -- what is done ----------------------------------------------------------------------------------------

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Message():
                    self._inbox.append(action)
                case SendRequest():
                    self._request(action)
                case Step.JOIN_QUEUE:
                    self._join_queue()
                case Step.LEAVE_QUEUE:
                    self._queue.leave()
                case WriteActivity(activity, execution_id):
                    self._busy_since = since_boot()
                    write_activity(self.directory, activity, execution_id)
                case Step.INTERRUPT_GROUP:
                    self.process.signal_group(signal.SIGINT)
                case Step.KILL_DESCENDANTS:
                    some = self.process.kill_descendants(since=self._busy_since)
                    self._perform(self._conversation.descendants_killed(some=some, now=time.monotonic()))
                case WriteReason(reason):
                    _notes.write_reason(self.directory, self.process, reason)
                case Step.KILL_KERNEL:
                    self.process.signal(signal.SIGKILL)

    def _request(self, request: SendRequest) -> None:
        self._open().send(request)
        if request.patience:
            self._open().wait_for_message(request.patience, request.channel)

    def _join_queue(self) -> None:
        try:
            self._queue.join()
        except OSError:  # its directory is gone, and the kernel will be soon
            self._end()
            return
        if self._queue.first:
            self._tell_first()
        else:
            self._perform(self._conversation.behind_others())

    def _end(self) -> None:
        self.ended = True
        self._perform(self._conversation.process_ended())

    def _open(self) -> ZmqChannels:
        if self._channels is None:
            watched = [self._queue.fileno(), *([self.process.fileno()] if self.process.fileno() >= 0 else [])]
            self._channels = ZmqChannels(self._link, self.directory, watched)
        return self._channels

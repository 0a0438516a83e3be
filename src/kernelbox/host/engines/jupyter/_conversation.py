"""One client's conversation with a Jupyter kernel, as a pure machine: events go in, actions come out.

The stages of a cell:

    resting     no cell
    queueing    other clients are before this one
    probing     the kernel may be busy, or may not be heard yet: wait for its answer to a probe
    submitted   wait for its reply and for `idle`
    exiting     the cell called `exit()`: wait for the end of the process

Until it is submitted a cell can be withdrawn; from then on it counts as started. The reply and `idle` can be lost. Once
something suggests that, a probe is sent behind the cell: when the kernel has answered it, the cell is over.
"""

from __future__ import annotations

import math

from kernelbox.host.engines.jupyter._actions import (
    Deliver,
    InterruptGroup,
    JoinQueue,
    KillDescendants,
    KillKernel,
    LeaveQueue,
    SendRequest,
    WriteActivity,
    WriteReason,
)
from kernelbox.host.engines.jupyter._jupyter_cell import JupyterCell, Onlooker
from kernelbox.host.engines.jupyter._probe import Probe
from kernelbox.host.engines.jupyter._published import EarlierOutput, Reception
from kernelbox.wire._messages import INPUT_TOOL, SHELL_SERVER, Ask, Done, Reply, Started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from kernelbox.host.engines.jupyter._actions import Action
    from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
    from kernelbox.wire._messages import Answer, Execute, Interrupt, Message, Query

    Stage = Literal["resting", "queueing", "leaving", "probing", "submitted", "exiting", "ended"]

# A kernel answers a probe in a few milliseconds; where half of the answer is missing the next one follows after this.
PROBE_AGAIN = 0.02

# A probe without any answer waits behind a cell, most probably. In case that all of it was lost it is sent again after
# this, and then after twice as long each time: what waits in the kernel stays little.
PROBE_PATIENCE = 1.0

# `idle` follows the reply at once. When it has not after this long, the kernel is asked whether it is still to come.
IDLE_PATIENCE = 1.0

# The same for a reply that has not come: `idle` was heard, or the cell was interrupted, which can cost the reply.
REPLY_PATIENCE = 0.3

# A kernel that takes interrupts as messages answers them beside its cell.
INTERRUPT_PATIENCE = 1.0

# A kernel whose cell called `exit()` has this long to run its exit functions; it is Jupyter's shutdown_wait_time.
EXIT_PATIENCE = 5.0

# Which request of Jupyter's answers a question of ours.
_QUERIES = {
    "complete": "complete",
    "inspect": "inspect",
    "is_complete": "is_complete",
    "history": "history",
    "comms": "comm_info",
    "kernel_info": "kernel_info",
}
_REPLIES = tuple(f"{name}_reply" for name in _QUERIES.values())

# What ipykernel takes for the end of input, and raises EOFError for.
_END_OF_INPUT = "\x04"


class Conversation:
    """Decides what to send, to do and to tell the client. `prefix` begins the ids of its own requests.

    Each method takes one event and returns what must be done, in order; a method that is named in the docstring of an
    action is to be called when that has been done.
    """

    def __init__(self, *, prefix: str, language: str, interrupt_mode: str) -> None:
        self._prefix = prefix
        self._language = language
        self._interrupt_mode = interrupt_mode
        self._stage: Stage = "resting"
        self._due = math.inf
        self._cell: JupyterCell | None = None
        self._leave: Query | None = None
        self._probe: Probe | None = None
        self._reception = Reception()
        self._late = EarlierOutput()
        self._requests = 0
        self._onlooker: Onlooker | None = None
        self._asks = 0

    def __repr__(self) -> str:
        return f"<Conversation {self._stage}{f' {self._cell!r}' if self._cell else ''}>"

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def due(self) -> float:
        """When `tick` wants to be called next."""
        return self._due

    @property
    def heard(self) -> bool:
        """Whether the kernel has answered, and what it publishes is heard."""
        return self._reception.heard

    # -- what the client asks for ----------------------------------------------------------------------------

    def greet(self, *, now: float) -> list[Action]:
        """Begins to find out whether the kernel answers; `heard` says so."""
        return [self._send_probe(now)] if self._stage == "resting" else []

    def watch(self) -> list[Action]:
        """Begins to tell the client what it has not asked for, and to take questions of its cells for it."""
        self._onlooker = Onlooker()
        return []

    def answer(self, answer: Answer) -> list[Action]:
        """Takes what a person has answered; input that is refused has come to its end."""
        if self._stage != "submitted" or self._cell is None or answer.id != self._cell.id:
            return []
        value = answer.payload.decode("utf-8", "replace") if answer.accepted else _END_OF_INPUT
        return [SendRequest("stdin", "input_reply", {"value": value}, self._new_id())]

    def execute(self, request: Execute) -> list[Action]:
        """Takes a cell to run."""
        if self._stage == "ended":
            return []
        assert self._stage == "resting", "a connection carries one cell at a time"
        cell = JupyterCell(request)
        refusal = cell.refuse(self._language)
        if refusal is not None:
            return [Deliver(refusal)]
        self._reception.catch_up()
        self._cell, self._probe = cell, None
        self._enter("queueing")
        return [JoinQueue()]

    def interrupt(self, message: Interrupt, *, now: float) -> list[Action]:
        """Stops the cell `message.id`, or whatever the kernel runs if there is none given."""
        cell = self._cell
        if self._stage == "ended":
            return []
        if not message.id:
            return [self._interrupt_kernel()]
        if cell is None or cell.id != message.id:
            return []
        if self._stage in ("queueing", "probing"):
            return self._withdraw(cell)
        if self._stage == "exiting" or cell.replied:
            return []  # it is over: what an interrupt struck now would not be this cell
        cell.interrupted = True
        if message.harder:
            return [KillDescendants()] if cell.begun else [self._send_probe(now)]
        return self._stop(now) if cell.running else []

    def descendants_killed(self, *, some: bool, now: float) -> list[Action]:
        """Takes whether there was something to kill.

        A cell that waited for what was killed goes on by itself: another interrupt would strike what the kernel does at
        the end of the cell, which is how replies get lost.
        """
        if self._stage != "submitted":
            return []
        return [*([] if some else [self._interrupt_kernel()]), self._send_probe(now)]

    def query(self, query: Query) -> list[Action]:
        """Takes a question to the kernel; `leave` asks it to end if it has not been used for a while."""
        if self._stage == "ended":
            return []
        if query.what == "leave":
            if self._stage != "resting":
                return [Deliver(Reply(query.id, {"left": False}))]
            self._leave = query
            self._enter("leaving")
            return [JoinQueue()]
        if query.what not in _QUERIES:
            reason = f"a Jupyter kernel cannot be asked for {query.what!r}; kernelbox's own can"
            return [Deliver(Reply(query.id, {"status": "error", "ename": "NotSupported", "evalue": reason}))]
        args = {name: value for name, value in query.args.items() if value is not None}
        return [SendRequest("shell", f"{_QUERIES[query.what]}_request", args, query.id)]

    # -- what happens ----------------------------------------------------------------------------------------

    def first_in_queue(self, *, busy: bool, unused_for: float | None, now: float) -> list[Action]:
        """Takes that it is our place to use the kernel, and what the state file says.

        `busy` then means that the client before us ended while its cell ran. `unused_for` is None if it is not known.
        """
        if self._stage == "leaving":
            return self._leave_if_unused(busy=busy, unused_for=unused_for)
        if self._stage != "queueing":
            return []
        if self._reception.heard and not self._reception.serves_others and not busy:
            return self._submit(now)
        self._enter("probing")
        return [self._send_probe(now)]

    def behind_others(self) -> list[Action]:
        """Takes that other clients are before us in the queue; a cell waits for them."""
        return self._stay() if self._stage == "leaving" else []

    def tick(self, *, now: float) -> list[Action]:
        """Does what time has made possible."""
        if now < self._due:
            return []
        self._due = math.inf  # unless something is begun below
        if self._stage == "exiting":
            return [KillKernel()]
        return [self._send_probe(now)] if self._probe is not None or self._stage == "submitted" else []

    def published(self, message: KernelMessage, *, now: float) -> list[Action]:
        """Takes what the kernel published (iopub)."""
        if self._stage == "ended":
            return []
        if self._stage == "resting":
            self._reception.take_at_rest()
        if self._cell is not None and message.parent == self._cell.id:
            return self._published_about_cell(self._cell, message, now)
        if self._probe is not None and self._probe.take_published(message):
            self._reception.forget_others()
            return self._heed_probe(now)
        if message.kind == "status" and not message.parent.startswith(self._prefix):
            self._reception.take_status(message)
        owned = self._late.owns(message)
        if owned and self._cell is not None and self._stage in ("submitted", "exiting"):
            return _deliver(self._cell.take_output(message.text("name"), message.text("text")))
        if self._onlooker is not None:
            return _deliver(self._onlooker.take(message))
        if owned:
            self._late.keep(message)
        return []

    def asked(self, message: KernelMessage) -> list[Action]:
        """Takes what the kernel wants to have asked of a person (stdin)."""
        if message.kind != "input_request" or self._cell is None or message.parent != self._cell.id:
            return []
        self._asks += 1
        args = {"prompt": message.text("prompt"), "password": message.content.get("password") is True}
        return [Deliver(Ask(self._cell.id, self._asks, SHELL_SERVER, INPUT_TOOL, args))]

    def left_out(self, messages: int, size: int) -> list[Action]:
        """Takes that published messages were left out, because too much waited to be read."""
        if self._cell is not None and self._stage in ("submitted", "exiting"):
            return _deliver(self._cell.take_loss(messages, size))
        self._reception.heard = False
        return []

    def replied(self, message: KernelMessage, *, now: float) -> list[Action]:
        """Takes the kernel's reply to a request (shell)."""
        if self._stage == "ended":
            return []
        if self._cell is not None and message.parent == self._cell.id:
            return self._replied_to_cell(self._cell, message, now)
        if self._probe is not None and self._probe.take_reply(message):
            return self._heed_probe(now)
        if message.kind in _REPLIES and not message.parent.startswith(self._prefix):
            return [Deliver(Reply(message.parent, message.content))]
        return []

    def process_ended(self) -> list[Action]:
        """Takes that the kernel's process has ended, and with it what this client waited for."""
        queued = self._stage not in ("resting", "ended")
        self._cell = self._leave = self._probe = None
        self._enter("ended")
        return [LeaveQueue()] if queued else []

    # -- a cell ----------------------------------------------------------------------------------------------

    def _enter(self, stage: Stage) -> None:
        self._stage, self._due = stage, math.inf

    def _submit(self, now: float) -> list[Action]:
        cell = self._cell
        assert cell is not None
        self._enter("submitted")
        request = cell.submit(self._language, stdin=self._onlooker is not None)
        if cell.is_comm:
            self._due = now + IDLE_PATIENCE  # there will be no reply; the kernel is asked whether it is through
        messages: list[Message] = [Started(cell.id, 0)]  # its number follows
        for name, text in self._late.take():
            messages += cell.take_output(name, text)
        return [WriteActivity("busy", cell.id), request, *_deliver(messages)]

    def _published_about_cell(self, cell: JupyterCell, message: KernelMessage, now: float) -> list[Action]:
        if not cell.submitted:
            return []  # a cell that ran before may say anything
        was_running = cell.running
        actions = _deliver(cell.take_published(message))
        if cell.running and not was_running and cell.interrupted:
            actions += self._stop(now)  # it was asked for before the kernel had begun
        return actions + self._after(cell, now, REPLY_PATIENCE)

    def _replied_to_cell(self, cell: JupyterCell, message: KernelMessage, now: float) -> list[Action]:
        if not cell.submitted or cell.replied:
            return []
        actions = _deliver(cell.take_reply(message))
        if cell.asks_to_exit:  # now, because the process may end before `idle` is heard
            actions.append(WriteReason("the cell called exit()"))
        return actions + self._after(cell, now, IDLE_PATIENCE)

    def _after(self, cell: JupyterCell, now: float, patience: float) -> list[Action]:
        """Decides what follows from a message about the cell; waits for the second half of its end."""
        if self._stage != "submitted":
            return []
        if not cell.done:
            if cell.served and self._due == math.inf and self._probe is None:
                self._due = now + patience
            return []
        self._probe = None
        if cell.asks_to_exit:
            self._stage, self._due = "exiting", now + EXIT_PATIENCE
            return [self._request_shutdown()]
        self._late.remember(cell.id)
        self._cell = None
        self._enter("resting")
        return [WriteActivity("idle"), LeaveQueue()]

    def _withdraw(self, cell: JupyterCell) -> list[Action]:
        self._cell = self._probe = None
        self._enter("resting")
        return [LeaveQueue(), Deliver(Done(cell.id, "aborted"))]

    def _stop(self, now: float) -> list[Action]:
        self._due = now + REPLY_PATIENCE
        return [self._interrupt_kernel()]

    def _interrupt_kernel(self) -> Action:
        if self._interrupt_mode == "signal":
            return InterruptGroup()
        # The client may exit next, and ZeroMQ sends in the background: wait for the kernel to have it.
        return SendRequest("control", "interrupt_request", {}, self._new_id(), INTERRUPT_PATIENCE)

    # -- probes ----------------------------------------------------------------------------------------------

    def _send_probe(self, now: float) -> Action:
        if self._probe is None:
            self._probe = Probe()
        request_id = self._new_id()
        self._probe.sent(request_id)
        self._due = now + PROBE_PATIENCE * 2 ** (self._probe.times_sent - 1)
        return SendRequest("shell", "kernel_info_request", {}, request_id)

    def _heed_probe(self, now: float) -> list[Action]:
        """Decides what follows from an answer to the probe."""
        assert self._probe is not None
        if not self._probe.complete:
            if self._probe.half_lost:
                self._due = min(self._due, now + PROBE_AGAIN)
            return []
        self._probe, self._reception.heard, self._due = None, True, math.inf
        if self._stage == "probing":
            return self._submit(now)
        if self._stage == "submitted":
            assert self._cell is not None
            return _deliver(self._cell.give_up()) + self._after(self._cell, now, 0.0)
        return []

    # -- the end of the kernel -------------------------------------------------------------------------------

    def _leave_if_unused(self, *, busy: bool, unused_for: float | None) -> list[Action]:
        """Asks the kernel to end, unless a cell runs or ran lately; like one of ours, it does not answer then.

        The place in the queue is kept, so that no other client begins a cell meanwhile.
        """
        assert self._leave is not None
        seconds = float(self._leave.args["unused_for"])
        if busy or self._reception.serves_others or unused_for is None or unused_for < seconds:
            return self._stay()
        self._enter("exiting")
        reason = f"ended after {seconds:g} s without work, as a client asked for"
        return [WriteReason(reason), self._request_shutdown()]

    def _stay(self) -> list[Action]:
        assert self._leave is not None
        query, self._leave = self._leave, None
        self._enter("resting")
        return [LeaveQueue(), Deliver(Reply(query.id, {"left": False}))]

    def _request_shutdown(self) -> Action:
        return SendRequest("control", "shutdown_request", {"restart": False}, self._new_id())

    def _new_id(self) -> str:
        self._requests += 1
        return f"{self._prefix}-{self._requests}"


def _deliver(messages: Iterable[Message]) -> list[Action]:
    return [Deliver(message) for message in messages]

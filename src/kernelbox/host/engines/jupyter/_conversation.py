"""One client's conversation with a Jupyter kernel, as a pure state machine: events go in, actions come out.

The stages of a cell:

    resting     no cell
    queueing    other clients are before this one
    probing     the kernel may be busy, or its publications may not arrive yet: wait for its answer to a probe
    submitted   wait for its reply and for `idle`
    exiting     the cell called `exit()`: wait for the end of the process

Until it is submitted, a cell can be withdrawn. From then on it counts as started. The reply and `idle` can be lost. If
something suggests that, a probe is sent behind the cell. When the kernel has answered the probe, the cell is over.
"""

from __future__ import annotations

import math

from kernelbox.host.engines.jupyter._actions import SendRequest, Step, WriteActivity, WriteReason
from kernelbox.host.engines.jupyter._jupyter_cell import JupyterCell, Onlooker
from kernelbox.host.engines.jupyter._probe import Probe
from kernelbox.host.engines.jupyter._published import EarlierOutput, Reception
from kernelbox.wire._messages import INPUT_TOOL, SHELL_SERVER, Ask, Done, Reply, Started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from kernelbox.host.engines.jupyter._actions import Action
    from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
    from kernelbox.wire._messages import Answer, Execute, Interrupt, Message, Query

    Stage = Literal["resting", "queueing", "leaving", "probing", "submitted", "exiting", "ended"]

# A kernel answers a probe in a few milliseconds. If half of the answer is missing, the next probe follows after this.
PROBE_AGAIN = 0.02

# A probe without any answer probably waits behind a cell. In case it was lost, it is sent again after this, and then
# after twice as long each time, so that few probes wait in the kernel.
PROBE_PATIENCE = 1.0

# `idle` follows the reply at once. If it is missing for this long, a probe is sent.
IDLE_PATIENCE = 1.0

# The same for a missing reply after `idle`, or after an interrupt, which can cost the reply.
REPLY_PATIENCE = 0.3

# A kernel that takes interrupts as messages answers them while its cell runs.
INTERRUPT_PATIENCE = 1.0

# A kernel whose cell called `exit()` has this long to run its exit functions; it is Jupyter's shutdown_wait_time.
EXIT_PATIENCE = 5.0

# Jupyter's request for each of our queries.
_QUERIES = {
    "complete": "complete",
    "inspect": "inspect",
    "is_complete": "is_complete",
    "history": "history",
    "comms": "comm_info",
    "kernel_info": "kernel_info",
}
_REPLIES = tuple(f"{name}_reply" for name in _QUERIES.values())

# ipykernel raises EOFError for this input.
_END_OF_INPUT = "\x04"


class Conversation:
    """Decides what to send, to do and to tell the client. The ids of its own requests begin with `prefix`.

    Each method takes one event and returns actions to carry out in order. If the docstring of an action names a method
    here, call it when the action is done.
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
        """When to call `tick` next."""
        return self._due

    @property
    def heard(self) -> bool:
        """Whether the kernel has answered, and its publications arrive."""
        return self._reception.heard

    # -- what the client asks for ----------------------------------------------------------------------------

    def greet(self, *, now: float) -> list[Action]:
        """Begins to find out whether the kernel answers; then `heard` becomes true."""
        return [self._send_probe(now)] if self._stage == "resting" else []

    def watch(self) -> list[Action]:
        """Begins to report what other clients do, and the input requests of its own cells."""
        self._onlooker = Onlooker()
        return []

    def answer(self, answer: Answer) -> list[Action]:
        """Takes an answer to an input request; a refusal means end of input."""
        if self._stage != "submitted" or self._cell is None or answer.id != self._cell.id:
            return []
        value = answer.payload.decode("utf-8", "replace") if answer.accepted else _END_OF_INPUT
        return [SendRequest("stdin", "input_reply", {"value": value}, self._new_id())]

    def execute(self, request: Execute) -> list[Action]:
        if self._stage == "ended":
            return []
        assert self._stage == "resting", "a connection carries one cell at a time"
        cell = JupyterCell(request)
        refusal = cell.refuse(self._language)
        if refusal is not None:
            return [refusal]
        self._reception.catch_up()
        self._cell, self._probe = cell, None
        self._enter("queueing")
        return [Step.JOIN_QUEUE]

    def interrupt(self, message: Interrupt, *, now: float) -> list[Action]:
        """Stops the cell `message.id`; with an empty id, any cell that the kernel runs."""
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
            return []  # it is over, and an interrupt would hit something else
        cell.interrupted = True
        if message.harder:
            return [Step.KILL_DESCENDANTS] if cell.begun else [self._send_probe(now)]
        return self._stop(now) if cell.running else []

    def descendants_killed(self, *, some: bool, now: float) -> list[Action]:
        """Takes whether there was something to kill.

        A cell that waited for a killed process continues by itself. Another interrupt could hit the kernel at the end
        of the cell, and the reply would be lost.
        """
        if self._stage != "submitted":
            return []
        return [*([] if some else [self._interrupt_kernel()]), self._send_probe(now)]

    def query(self, query: Query) -> list[Action]:
        """Takes a query; `leave` asks the kernel to end if it has not been used for a while."""
        if self._stage == "ended":
            return []
        if query.what == "leave":
            if self._stage != "resting":
                return [Reply(query.id, {"left": False})]
            self._leave = query
            self._enter("leaving")
            return [Step.JOIN_QUEUE]
        if query.what not in _QUERIES:
            reason = f"Jupyter kernels do not answer {query.what!r}, only kernelbox's own kernels do"
            return [Reply(query.id, {"status": "error", "ename": "NotSupported", "evalue": reason})]
        args = {name: value for name, value in query.args.items() if value is not None}
        return [SendRequest("shell", f"{_QUERIES[query.what]}_request", args, query.id)]

    # -- what happens ----------------------------------------------------------------------------------------

    def first_in_queue(self, *, busy: bool, unused_for: float | None, now: float) -> list[Action]:
        """Notes that this client is the first in the queue, and what the state file says.

        `busy` then means that the previous client ended while its cell ran. `unused_for` is None if unknown.
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
        """Notes that other clients are ahead in the queue; a cell waits for them."""
        return self._stay() if self._stage == "leaving" else []

    def tick(self, *, now: float) -> list[Action]:
        """Notes that time has passed."""
        if now < self._due:
            return []
        self._due = math.inf  # unless something is begun below
        if self._stage == "exiting":
            return [Step.KILL_KERNEL]
        return [self._send_probe(now)] if self._probe is not None or self._stage == "submitted" else []

    def published(self, message: KernelMessage, *, now: float) -> list[Action]:
        """Takes a publication of the kernel (iopub)."""
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
            return [*self._cell.take_output(message.text("name"), message.text("text"))]
        if self._onlooker is not None:
            return [*self._onlooker.take(message)]
        if owned:
            self._late.keep(message)
        return []

    def asked(self, message: KernelMessage) -> list[Action]:
        """Takes an input request of the kernel (stdin)."""
        if message.kind != "input_request" or self._cell is None or message.parent != self._cell.id:
            return []
        self._asks += 1
        args = {"prompt": message.text("prompt"), "password": message.content.get("password") is True}
        return [Ask(self._cell.id, self._asks, SHELL_SERVER, INPUT_TOOL, args)]

    def left_out(self, messages: int, size: int) -> list[Action]:
        """Notes that publications were dropped, because too many were unread."""
        if self._cell is not None and self._stage in ("submitted", "exiting"):
            return [*self._cell.take_loss(messages, size)]
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
            return [Reply(message.parent, message.content)]
        return []

    def process_ended(self) -> list[Action]:
        queued = self._stage not in ("resting", "ended")
        self._cell = self._leave = self._probe = None
        self._enter("ended")
        return [Step.LEAVE_QUEUE] if queued else []

    # -- a cell ----------------------------------------------------------------------------------------------

    def _enter(self, stage: Stage) -> None:
        self._stage, self._due = stage, math.inf

    def _submit(self, now: float) -> list[Action]:
        cell = self._cell
        assert cell is not None
        self._enter("submitted")
        request = cell.submit(self._language, stdin=self._onlooker is not None)
        if cell.is_comm:
            self._due = now + IDLE_PATIENCE  # there will be no reply, so a probe finds out when it is over
        messages: list[Message] = [Started(cell.id, 0)]  # its number follows
        for name, text in self._late.take():
            messages += cell.take_output(name, text)
        return [WriteActivity("busy", cell.id), request, *messages]

    def _published_about_cell(self, cell: JupyterCell, message: KernelMessage, now: float) -> list[Action]:
        if not cell.submitted:
            return []  # an earlier cell may have forged it
        was_running = cell.running
        actions: list[Action] = [*cell.take_published(message)]
        if cell.running and not was_running and cell.interrupted:
            actions += self._stop(now)  # it was requested before the cell began
        return actions + self._after(cell, now, REPLY_PATIENCE)

    def _replied_to_cell(self, cell: JupyterCell, message: KernelMessage, now: float) -> list[Action]:
        if not cell.submitted or cell.replied:
            return []
        actions: list[Action] = [*cell.take_reply(message)]
        if cell.asks_to_exit:  # now, because the process may end before `idle` arrives
            actions.append(WriteReason("the cell called exit()"))
        return actions + self._after(cell, now, IDLE_PATIENCE)

    def _after(self, cell: JupyterCell, now: float, patience: float) -> list[Action]:
        """Decides what follows from a message about the cell; ends it when both halves of its end have arrived."""
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
        return [WriteActivity("idle"), Step.LEAVE_QUEUE]

    def _withdraw(self, cell: JupyterCell) -> list[Action]:
        self._cell = self._probe = None
        self._enter("resting")
        return [Step.LEAVE_QUEUE, Done(cell.id, "aborted")]

    def _stop(self, now: float) -> list[Action]:
        self._due = now + REPLY_PATIENCE
        return [self._interrupt_kernel()]

    def _interrupt_kernel(self) -> Action:
        if self._interrupt_mode == "signal":
            return Step.INTERRUPT_GROUP
        # The client may exit next, and ZeroMQ sends in the background. So wait until the kernel has it.
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
            return [*self._cell.give_up(), *self._after(self._cell, now, 0.0)]
        return []

    # -- the end of the kernel -------------------------------------------------------------------------------

    def _leave_if_unused(self, *, busy: bool, unused_for: float | None) -> list[Action]:
        """Asks the kernel to end, unless a cell runs or ran lately. Then there is no answer, as with our own kernels.

        The client stays first in the queue, so that no other client begins a cell meanwhile.
        """
        assert self._leave is not None
        seconds = float(self._leave.args["unused_for"])
        if busy or self._reception.serves_others or unused_for is None or unused_for < seconds:
            return self._stay()
        self._enter("exiting")
        reason = f"ended after {seconds:g} s without work, as a client requested"
        return [WriteReason(reason), self._request_shutdown()]

    def _stay(self) -> list[Action]:
        assert self._leave is not None
        query, self._leave = self._leave, None
        self._enter("resting")
        return [Step.LEAVE_QUEUE, Reply(query.id, {"left": False})]

    def _request_shutdown(self) -> Action:
        return SendRequest("control", "shutdown_request", {"restart": False}, self._new_id())

    def _new_id(self) -> str:
        self._requests += 1
        return f"{self._prefix}-{self._requests}"

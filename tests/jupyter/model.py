"""A Jupyter kernel, its queue of clients and its channels, as a model: what it says can be delayed and lost at will."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from kernelbox.host.engines.jupyter._actions import Action, SendRequest, Step, WriteActivity, WriteReason
from kernelbox.host.engines.jupyter._conversation import Conversation
from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
from kernelbox.wire._messages import Done, Execute, Interrupt, Message

FOREIGN = "foreign"


@dataclass
class Served:
    """A request that the kernel has got."""

    id: str
    kind: str


class ModelKernel:
    """Serves requests in their order, one at a time, and publishes in one order; each channel arrives when it may."""

    def __init__(self) -> None:
        self.alive = True
        self.waiting: deque[Served] = deque()
        self.running: Served | None = None
        self.begun: set[str] = set()
        self.iopub: deque[KernelMessage] = deque()
        self.shell: deque[KernelMessage] = deque()

    def begin(self, *, publishes: bool = True) -> None:
        if self.running is not None or not self.waiting:
            return
        self.running = self.waiting.popleft()
        self.begun.add(self.running.id)
        if publishes:
            self.publish("status", execution_state="busy")
            if self.running.kind == "execute_request":
                self.publish("execute_input", execution_count=1)

    def write(self) -> None:
        if self.running is not None:
            self.publish("stream", name="stdout", text="text")

    def finish(self, *, replies: bool = True, publishes: bool = True, exits: bool = False) -> None:
        if self.running is None:
            return
        request = self.running
        content: dict[str, Any] = {"status": "ok", "execution_count": 1}
        if exits:
            content["payload"] = [{"source": "ask_exit", "keepkernel": False}]
        if replies and not request.id.startswith(FOREIGN):
            self.shell.append(KernelMessage(request.kind.replace("_request", "_reply"), request.id, content))
        if publishes:
            self.publish("status", execution_state="idle")
        self.running = None

    def publish(self, kind: str, **content: Any) -> None:
        assert self.running is not None
        self.iopub.append(KernelMessage(kind, self.running.id, content))


class Client:
    """Does what a conversation decides, on the model, and checks of each action that it may be done."""

    def __init__(self, interrupt_mode: Literal["signal", "message"]) -> None:
        self.conversation = Conversation(prefix="own", language="python", interrupt_mode=interrupt_mode)
        self.kernel = ModelKernel()
        self.now = 0.0
        self.place: Literal["none", "waiting", "first"] = "none"
        self.queue_is_free = True
        self.state_file: Literal["idle", "busy"] = "idle"
        self.executions: list[str] = []
        self.submitted: list[str] = []
        self.done: list[str] = []
        self.reasons: list[str] = []
        self.strikes_allowed = False

    @property
    def stage(self) -> str:
        return self.conversation.stage

    @property
    def current(self) -> str:
        return self.executions[-1] if self.executions else "none yet"

    # -- events ------------------------------------------------------------------------------------------------

    def execute(self) -> None:
        execution_id = f"cell-{len(self.executions)}"
        self.executions.append(execution_id)
        self.perform(self.conversation.execute(Execute(execution_id, "1")))

    def interrupt(self, execution_id: str, *, harder: bool = False) -> None:
        self.strikes_allowed = execution_id == ""
        self.perform(self.conversation.interrupt(Interrupt(execution_id, harder), now=self.now))
        self.strikes_allowed = False

    def become_first(self) -> None:
        if self.place == "waiting":
            self.place = "first"
            self.tell_first()

    def tell_first(self) -> None:
        busy = self.state_file == "busy"
        self.perform(self.conversation.first_in_queue(busy=busy, unused_for=1.0, now=self.now))

    def hear(self) -> None:
        if self.kernel.iopub:
            self.perform(self.conversation.published(self.kernel.iopub.popleft(), now=self.now))

    def get_reply(self) -> None:
        if self.kernel.shell:
            self.perform(self.conversation.replied(self.kernel.shell.popleft(), now=self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.perform(self.conversation.tick(now=self.now))
        assert self.conversation.due > self.now, "what was due is still due, so that a client would spin"

    def lose_kernel(self) -> None:
        self.kernel.alive = False
        self.perform(self.conversation.process_ended())

    # -- actions -----------------------------------------------------------------------------------------------

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Message():
                    self.deliver(action)
                case SendRequest():
                    self.request(action)
                case Step.JOIN_QUEUE:
                    self.join()
                case Step.LEAVE_QUEUE:
                    assert self.place != "none", "left a queue that it was not in"
                    self.place = "none"
                case WriteActivity(activity):
                    assert self.place == "first", "wrote the state without being first"
                    self.state_file = activity
                case Step.INTERRUPT_GROUP:
                    self.check_strike()
                case Step.KILL_DESCENDANTS:
                    assert self.current in self.kernel.begun, "killed processes that are not the cell's"
                    self.perform(self.conversation.descendants_killed(some=False, now=self.now))
                case WriteReason(reason):
                    self.reasons.append(reason)
                case Step.KILL_KERNEL:
                    assert self.reasons, "killed a kernel without saying why"
                    self.lose_kernel()

    def deliver(self, message: Message) -> None:
        execution_id = getattr(message, "id", "")
        if not execution_id.startswith("cell-"):
            return
        assert execution_id not in self.done, "something came after Done"
        assert execution_id == self.current
        if isinstance(message, Done):
            self.done.append(execution_id)
            assert (message.status == "aborted") <= (execution_id not in self.kernel.begun), "a cell that ran is kept"

    def request(self, request: SendRequest) -> None:
        if request.kind == "interrupt_request":
            self.check_strike()
        elif request.kind == "execute_request":
            assert self.place == "first", "submitted without being first"
            assert self.state_file == "busy", "submitted before it was written down"
            assert request.id not in self.submitted, "submitted twice"
            assert request.id not in self.done, "submitted after its end"
            self.submitted.append(request.id)
        if request.channel == "shell":
            self.kernel.waiting.append(Served(request.id, request.kind))

    def join(self) -> None:
        assert self.place == "none", "joined a queue that it was in"
        if self.queue_is_free:
            self.place = "first"
            self.tell_first()
        else:
            self.place = "waiting"
            self.perform(self.conversation.behind_others())

    def check_strike(self) -> None:
        assert self.strikes_allowed or self.current in self.kernel.begun, "struck what may be the cell of another"

"""Whatever a kernel delays or loses, beside any other clients, with interrupts at any time: each cell ends once.

Hypothesis plays the kernel's part, on the model in `model.py`, which checks every single action.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.strategies import untimed

from kernelbox.host.engines.jupyter._conversation import Conversation
from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
from kernelbox.wire._messages import Done, Execute, Interrupt, Query

from .model import FOREIGN, Client, Served

# More rounds than any honest way to the end of a cell takes.
ROUNDS = 200

EXIT = "the cell called exit()"


class ConversationWithAKernel(RuleBasedStateMachine):
    """Each step is something that can happen by itself; at the end the kernel does what is left for it to do."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Client("signal")

    @initialize(
        interrupt_mode=st.sampled_from(["signal", "message"]),
        abandoned=st.booleans(),
        queue_is_free=st.booleans(),
    )
    def begin(self, interrupt_mode: Any, abandoned: bool, queue_is_free: bool) -> None:
        self.client = Client(interrupt_mode)
        self.client.queue_is_free = queue_is_free
        if abandoned:  # by a client that was killed while its cell ran
            self.client.state_file = "busy"
            self.client.kernel.running = Served(f"{FOREIGN}-abandoned", "execute_request")

    def alive(self) -> bool:
        return self.client.kernel.alive

    # -- the client ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.client.stage == "resting")
    @rule()
    def execute(self) -> None:
        self.client.execute()

    @precondition(lambda self: self.client.stage == "resting")
    @rule()
    def greet(self) -> None:
        self.client.perform(self.client.conversation.greet(now=self.client.now))

    @rule(harder=st.booleans())
    def interrupt(self, harder: bool) -> None:
        self.client.interrupt(self.client.current, harder=harder)

    @rule()
    def interrupt_whatever_runs(self) -> None:
        self.client.interrupt("")

    @rule(what=st.sampled_from(["complete", "variables", "leave"]), unused_for=st.sampled_from([0.5, 2.0]))
    def ask(self, what: str, unused_for: float) -> None:
        self.client.perform(self.client.conversation.query(Query("question", what, {"unused_for": unused_for})))

    @rule(seconds=st.sampled_from([0.0, 0.02, 0.3, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.client.wait(seconds)

    @rule()
    def become_first(self) -> None:
        self.client.become_first()

    # -- the kernel ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.alive())
    @rule(publishes=st.booleans())
    def begin_request(self, publishes: bool) -> None:
        self.client.kernel.begin(publishes=publishes)

    @precondition(lambda self: self.alive())
    @rule()
    def write(self) -> None:
        self.client.kernel.write()

    @precondition(lambda self: self.alive())
    @rule(replies=st.booleans(), publishes=st.booleans(), exits=st.sampled_from([False, False, True]))
    def finish_request(self, replies: bool, publishes: bool, exits: bool) -> None:
        self.client.kernel.finish(replies=replies, publishes=publishes, exits=exits)

    @precondition(lambda self: self.alive())
    @rule(kind=st.sampled_from(["execute_request", "kernel_info_request"]))
    def serve_another_client(self, kind: str) -> None:
        kernel = self.client.kernel
        kernel.waiting.append(Served(f"{FOREIGN}-{len(kernel.begun) + len(kernel.waiting)}", kind))

    @rule()
    def hear(self) -> None:
        self.client.hear()

    @rule()
    def get_reply(self) -> None:
        self.client.get_reply()

    @rule(chance=st.integers(0, 9))
    def die(self, chance: int) -> None:
        if chance == 0:
            self.client.lose_kernel()

    # -- what is true at any time ----------------------------------------------------------------------------

    @invariant()
    def a_place_is_held_exactly_while_it_is_needed(self) -> None:
        assert (self.client.place == "none") == (self.client.stage in ("resting", "ended"))

    @invariant()
    def every_execution_has_ended_exactly_once_but_the_one_that_is_under_way(self) -> None:
        under_way = self.client.stage in ("queueing", "probing", "submitted") or EXIT in self.client.reasons
        if self.alive():
            assert self.client.done == self.client.executions[: -1 if under_way else None]

    @invariant()
    def a_client_at_rest_leaves_a_kernel_that_is_said_to_be_idle(self) -> None:
        if self.client.stage == "resting" and self.client.current in self.client.submitted:
            assert self.client.state_file == "idle"

    def teardown(self) -> None:
        """Loses nothing from here on: the cell must end, at the latest when its client loses patience."""
        self.come_to_rest()
        if self.client.stage == "submitted":  # both halves of its end were lost, or the kernel was not heard at all
            for harder in (False, True):
                self.client.interrupt(self.client.current, harder=harder)
                self.come_to_rest()
        assert self.client.stage in ("resting", "ended"), f"waits for something that does not come: {self.client.stage}"
        assert self.client.place == "none"

    def come_to_rest(self) -> None:
        client, kernel = self.client, self.client.kernel
        for _ in range(ROUNDS):
            client.become_first()
            if kernel.alive:
                kernel.finish()
                kernel.begin()
            while kernel.iopub:
                client.hear()
            while kernel.shell:
                client.get_reply()
            client.wait(min(max(0.0, client.conversation.due - client.now), 10.0))
            if client.stage in ("resting", "ended") and not kernel.waiting and kernel.running is None:
                return
            if client.stage == "exiting" and client.conversation.due > client.now + 10:
                client.lose_kernel()  # it was asked to end


TestConversationWithAKernel = ConversationWithAKernel.TestCase
TestConversationWithAKernel.settings = settings(untimed, max_examples=300, stateful_step_count=40)


# -- a kernel that says anything whatever ------------------------------------------------------------------------

ids = st.sampled_from(["x", "y", "own-1", "own-2", "own-3", "theirs", ""])
contents: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "execution_state": st.sampled_from(["idle", "busy", "starting", None]),
        "status": st.sampled_from(["ok", "error", "abort", "aborted", 7]),
        "text": st.sampled_from(["text", "", None]),
        "payload": st.sampled_from([[{"source": "ask_exit"}], [{"data": {"text/plain": "page"}}], "odd"]),
        "data": st.sampled_from([{"text/plain": "shown"}, 7]),
        "execution_count": st.sampled_from([1, "odd"]),
    },
)
kinds = st.sampled_from(
    ["status", "stream", "execute_input", "execute_reply", "kernel_info_reply", "complete_reply", "error", "odd"]
)
events = st.one_of(
    st.tuples(st.sampled_from(["published", "replied"]), st.builds(KernelMessage, kinds, ids, contents)),
    st.tuples(st.just("interrupt"), st.builds(Interrupt, ids, st.booleans())),
    st.tuples(st.just("execute"), st.sampled_from(["x", "y"])),
    st.tuples(st.sampled_from(["first", "wait", "killed"]), st.booleans()),
)


@settings(untimed, max_examples=300)
@given(st.lists(events, max_size=40))
def test_a_kernel_that_says_anything_whatever_cannot_end_an_execution_twice(
    happenings: list[tuple[str, Any]],
) -> None:
    conversation = Conversation(prefix="own", language="python", interrupt_mode="signal")
    open_executions: list[str] = []
    now = 0.0
    for what, detail in happenings:
        actions = []
        match what:
            case "published":
                actions = conversation.published(detail, now=now)
            case "replied":
                actions = conversation.replied(detail, now=now)
            case "interrupt":
                actions = conversation.interrupt(detail, now=now)
            case "execute" if conversation.stage == "resting":
                open_executions.append(detail)
                actions = conversation.execute(Execute(detail, "1"))
            case "first":
                actions = conversation.first_in_queue(busy=detail, unused_for=None, now=now)
            case "killed":
                actions = conversation.descendants_killed(some=detail, now=now)
            case "wait":
                now += 10.0
                actions = conversation.tick(now=now)
        for action in actions:
            if isinstance(action, Done):
                open_executions.remove(action.id)
    assert len(open_executions) == (conversation.stage != "resting")

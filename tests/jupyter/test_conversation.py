"""What a client of a Jupyter kernel does and says, event by event: no sockets, no clock."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest

from kernelbox.host.engines.jupyter import _actions, _conversation, _jupyter_cell, _probe, _published
from kernelbox.host.engines.jupyter._actions import Action, SendRequest, Step, WriteActivity, WriteReason
from kernelbox.host.engines.jupyter._conversation import (
    EXIT_PATIENCE,
    IDLE_PATIENCE,
    INTERRUPT_PATIENCE,
    PROBE_AGAIN,
    PROBE_PATIENCE,
    REPLY_PATIENCE,
    Conversation,
)
from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
from kernelbox.host.engines.jupyter._published import FAR_BEHIND, Reception
from kernelbox.wire._messages import Done, Execute, Interrupt, Message, Output, Query, Reply, Started

NOW = 100.0
STAGES = ["queueing", "probing", "submitted", "running", "exiting"]


class Talk:
    """A conversation with a kernel that says what the test wants, at the time that the test wants."""

    def __init__(self, *, interrupt_mode: str = "signal", language: str = "python") -> None:
        self.conversation = Conversation(prefix="own", language=language, interrupt_mode=interrupt_mode)
        self.now = NOW

    def execute(self, execution_id: str = "x", **options: Any) -> list[Action]:
        return self.conversation.execute(Execute(execution_id, "1", **options))

    def first(self, *, busy: bool = False, unused_for: float | None = 0.0) -> list[Action]:
        return self.conversation.first_in_queue(busy=busy, unused_for=unused_for, now=self.now)

    def interrupt(self, execution_id: str = "x", *, harder: bool = False) -> list[Action]:
        return self.conversation.interrupt(Interrupt(execution_id, harder), now=self.now)

    def query(self, what: str, **args: object) -> list[Action]:
        return self.conversation.query(Query("q", what, args))

    def publish(self, kind: str, parent: str = "x", **content: Any) -> list[Action]:
        return self.conversation.published(KernelMessage(kind, parent, content), now=self.now)

    def status(self, state: str, parent: str = "x") -> list[Action]:
        return self.publish("status", parent, execution_state=state)

    def reply(self, parent: str = "x", kind: str = "execute_reply", **content: Any) -> list[Action]:
        return self.conversation.replied(KernelMessage(kind, parent, {"status": "ok"} | content), now=self.now)

    def wait(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self.conversation.tick(now=self.now)

    def answer(self, probe: Action) -> list[Action]:
        """Answers a probe as a kernel does that is free and is heard."""
        assert isinstance(probe, SendRequest)
        actions = self.status("busy", probe.id)
        actions += self.reply(probe.id, "kernel_info_reply")
        return actions + self.status("idle", probe.id)

    def greet(self) -> Talk:
        (probe,) = self.conversation.greet(now=self.now)
        assert self.answer(probe) == []
        return self

    def run(self, execution_id: str = "x") -> Talk:
        """Brings a cell as far as a kernel that was greeted has begun to run it."""
        self.execute(execution_id)
        self.first()
        self.status("busy", execution_id)
        self.publish("execute_input", execution_id, execution_count=1)
        return self

    @property
    def stage(self) -> str:
        return self.conversation.stage

    @property
    def due_in(self) -> float:
        return self.conversation.due - self.now


def bring_to(stage: str) -> Talk:
    talk = Talk()
    if stage not in ("queueing", "probing"):
        talk.greet()
    talk.execute()
    if stage != "queueing":
        talk.first()
    if stage in ("running", "exiting"):
        talk.publish("execute_input", execution_count=1)
    if stage == "exiting":
        talk.reply(payload=EXIT)
        talk.status("idle")
    assert talk.stage == {"running": "submitted"}.get(stage, stage)
    return talk


EXIT = [{"source": "ask_exit", "keepkernel": False}]


def delivered(actions: list[Action]) -> list[Message]:
    return [action for action in actions if isinstance(action, Message)]


def requested(actions: list[Action]) -> list[tuple[str, str, str]]:
    return [(action.channel, action.kind, action.id) for action in actions if isinstance(action, SendRequest)]


def probes(actions: list[Action]) -> bool:
    return [kind for _, kind, _ in requested(actions)] == ["kernel_info_request"]


def probe_in(actions: list[Action]) -> SendRequest:
    (probe,) = [
        action for action in actions if isinstance(action, SendRequest) and action.kind == "kernel_info_request"
    ]
    return probe


def test_the_machine_imports_nothing_that_touches_the_world() -> None:
    for module in (_actions, _conversation, _jupyter_cell, _probe, _published):
        imported = {name for name, value in vars(module).items() if isinstance(value, ModuleType)}
        assert imported <= {"math", "re"}, module.__name__


# -- a cell's way ----------------------------------------------------------------------------------------------


def test_a_cell_first_takes_its_place_in_the_queue() -> None:
    assert Talk().greet().execute() == [Step.JOIN_QUEUE]


def test_a_cell_waits_in_the_queue_as_long_as_others_are_before_it() -> None:
    talk = Talk().greet()
    talk.execute()
    assert talk.conversation.behind_others() == []
    assert talk.wait(1e9) == []
    assert (talk.stage, talk.conversation.due) == ("queueing", math.inf)


def test_the_first_in_the_queue_submits_to_a_kernel_that_is_known_to_be_free() -> None:
    talk = Talk().greet()
    talk.execute()
    busy, request, started = talk.first()
    assert busy == WriteActivity("busy", "x")
    assert isinstance(request, SendRequest)
    assert (request.channel, request.kind, request.id, request.content["code"]) == (
        "shell",
        "execute_request",
        "x",
        "1",
    )
    assert started == Started("x", 0)


@pytest.mark.parametrize("order", [("reply", "idle"), ("idle", "reply")])
def test_a_cell_ends_with_its_reply_and_idle_in_either_order(order: tuple[str, str]) -> None:
    talk = bring_to("running")
    first, second = [talk.reply(execution_count=1) if half == "reply" else talk.status("idle") for half in order]
    assert first == []
    assert second == [Done("x", "ok", 1), WriteActivity("idle"), Step.LEAVE_QUEUE]
    assert (talk.stage, talk.conversation.due) == ("resting", math.inf)


def test_a_cell_that_the_kernel_cannot_run_is_refused_and_takes_no_place() -> None:
    talk = Talk(language="r")
    (refusal,) = delivered(talk.execute(language="bash"))
    assert isinstance(refusal, Done)
    assert (refusal.status, refusal.ename, talk.stage) == ("error", "NotSupported", "resting")


def test_a_second_cell_at_the_same_time_is_a_mistake_of_the_caller() -> None:
    talk = bring_to("queueing")
    with pytest.raises(AssertionError, match="one cell at a time"):
        talk.execute("y")


def test_being_first_twice_submits_once() -> None:
    talk = bring_to("submitted")
    assert talk.first() == []


@pytest.mark.parametrize("stage", ["queueing", "probing"])
def test_what_is_said_about_a_cell_before_it_was_submitted_is_not_believed(stage: str) -> None:
    talk = bring_to(stage)
    assert talk.publish("stream", name="stdout", text="forged") == []
    assert talk.reply() == talk.status("idle") == []
    assert talk.stage == stage


def test_a_second_reply_changes_nothing() -> None:
    talk = bring_to("running")
    assert talk.reply(execution_count=1) == talk.reply(status="error", ename="E") == []
    assert delivered(talk.status("idle")) == [Done("x", "ok", 1)]


def test_what_comes_about_a_cell_that_has_ended_is_not_told() -> None:
    talk = bring_to("running")
    talk.reply()
    talk.status("idle")
    assert talk.reply() == talk.status("idle") == talk.publish("display_data", data={"text/plain": "x"}) == []


# -- probes ----------------------------------------------------------------------------------------------------


def test_a_kernel_that_was_never_heard_is_probed_before_the_first_cell() -> None:
    talk = Talk()
    talk.execute()
    (probe,) = talk.first()
    assert requested([probe]) == [("shell", "kernel_info_request", "own-1")]
    assert requested(talk.answer(probe)) == [("shell", "execute_request", "x")]
    assert talk.conversation.heard


def test_a_kernel_whose_last_client_left_it_busy_is_probed() -> None:
    talk = Talk().greet()
    talk.execute()
    (probe,) = talk.first(busy=True)
    assert talk.stage == "probing"
    assert requested(talk.answer(probe)) == [("shell", "execute_request", "x")]


def test_a_kernel_that_serves_another_client_is_probed() -> None:
    talk = Talk().greet()
    talk.status("busy", "theirs")
    talk.execute()
    assert probes(talk.first())


def test_a_kernel_that_has_served_another_client_is_not_probed() -> None:
    talk = Talk().greet()
    talk.status("busy", "theirs")
    talk.status("idle", "theirs")
    talk.execute()
    assert requested(talk.first()) == [("shell", "execute_request", "x")]


def test_a_client_that_left_too_much_unread_probes() -> None:
    talk = Talk().greet()
    for _ in range(FAR_BEHIND):
        talk.publish("stream", "theirs", text="much")
    talk.execute("x")
    talk.answer(probe_in(talk.first()))
    talk.reply("x")
    talk.status("idle", "x")
    talk.execute("y")
    assert not probes(talk.first()), "it has been heard since"


def test_requests_of_others_whose_idle_was_lost_are_over_when_the_kernel_answers_a_probe() -> None:
    talk = Talk().greet()
    talk.status("busy", "theirs")
    talk.execute("x")
    talk.answer(probe_in(talk.first()))
    talk.reply("x")
    talk.status("idle", "x")
    talk.execute("y")
    assert not probes(talk.first())


def test_what_the_kernel_says_about_our_own_requests_is_not_about_others() -> None:
    talk = Talk(interrupt_mode="message").greet()
    (request,) = talk.interrupt("")
    assert isinstance(request, SendRequest)
    talk.status("busy", request.id)
    talk.execute()
    assert not probes(talk.first())


def test_a_probe_that_was_answered_but_not_heard_is_sent_again() -> None:
    talk = Talk()
    talk.execute()
    probe = probe_in(talk.first())
    assert talk.reply(probe.id, "kernel_info_reply") == []
    assert talk.due_in == pytest.approx(PROBE_AGAIN)
    again = probe_in(talk.wait(PROBE_AGAIN))
    assert again.id != probe.id
    assert requested(talk.answer(again)) == [("shell", "execute_request", "x")]


def test_a_probe_whose_reply_was_lost_is_sent_again() -> None:
    talk = Talk()
    talk.execute()
    probe = probe_in(talk.first())
    talk.status("busy", probe.id)
    assert talk.due_in > PROBE_AGAIN, "the kernel is at it"
    talk.status("idle", probe.id)
    again = probe_in(talk.wait(PROBE_AGAIN))
    assert requested(talk.reply(again.id, "kernel_info_reply")) == [("shell", "execute_request", "x")]


def test_a_probe_without_any_answer_is_sent_again_ever_more_rarely() -> None:
    talk = bring_to("probing")
    pauses = []
    for _ in range(12):
        pauses.append(talk.due_in)
        assert probes(talk.wait(talk.due_in))
    assert pauses == [pytest.approx(PROBE_PATIENCE * 2**times) for times in range(12)]


def test_any_of_the_probes_that_were_sent_can_be_answered() -> None:
    talk = Talk()
    talk.execute()
    first = probe_in(talk.first())
    talk.wait(talk.due_in)
    assert requested(talk.answer(first)) == [("shell", "execute_request", "x")]


def test_the_answer_to_the_probe_of_a_withdrawn_cell_says_nothing_about_the_next() -> None:
    talk = Talk()
    talk.execute("x")
    stale = probe_in(talk.first())
    talk.interrupt("x")
    talk.execute("y")
    probe = probe_in(talk.first())
    assert talk.answer(stale) == []
    assert talk.stage == "probing"
    assert requested(talk.answer(probe)) == [("shell", "execute_request", "y")]


def test_the_answer_to_a_probe_from_before_the_cell_does_not_end_the_cell() -> None:
    talk = Talk().greet()
    talk.execute("x")
    stale = probe_in(talk.first(busy=True))
    talk.interrupt("x")
    talk.run("y")
    talk.interrupt("y")
    probe = probe_in(talk.wait(REPLY_PATIENCE))
    assert talk.answer(stale) == []
    assert talk.reply(probe.id, "kernel_info_reply") == [], "only the stale one was heard"
    assert talk.stage == "submitted"


def test_the_probe_of_a_withdrawn_cell_is_not_repeated() -> None:
    talk = bring_to("probing")
    talk.interrupt()
    assert talk.reply("own-1", "kernel_info_reply") == []
    assert talk.conversation.due == math.inf


def test_a_request_of_others_that_began_after_the_probe_is_remembered_for_the_next_cell() -> None:
    talk = Talk()
    talk.execute("x")
    probe = probe_in(talk.first())
    talk.status("busy", "before")
    talk.status("idle", probe.id)
    talk.status("busy", "after")
    talk.reply(probe.id, "kernel_info_reply")
    talk.reply("x")
    talk.status("idle", "x")
    talk.execute("y")
    assert probes(talk.first()), "the kernel serves a request of another client"


def test_statuses_that_a_cell_makes_up_are_not_kept_without_end() -> None:
    reception = Reception()
    for number in range(5000):
        reception.take_status(KernelMessage("status", f"made up {number}", {"execution_state": "busy"}))
    assert repr(reception) == "<Reception unknown, 1000 requests of others>"
    assert reception.serves_others


def test_greeting_says_when_the_kernel_answers_and_is_heard() -> None:
    talk = Talk()
    probe = probe_in(talk.conversation.greet(now=talk.now))
    talk.reply(probe.id, "kernel_info_reply")
    before = talk.conversation.heard
    talk.status("idle", probe.id)
    assert (before, talk.conversation.heard) == (False, True)
    assert talk.conversation.due == math.inf


def test_a_cell_after_a_greeting_without_an_answer_probes_for_itself() -> None:
    talk = Talk()
    stale = probe_in(talk.conversation.greet(now=talk.now))
    talk.execute()
    probe = probe_in(talk.first())
    assert talk.answer(stale) == []
    assert requested(talk.answer(probe)) == [("shell", "execute_request", "x")]


# -- what was lost ---------------------------------------------------------------------------------------------


def test_a_lost_idle_is_found_out_by_a_probe_behind_the_cell() -> None:
    talk = bring_to("running")
    talk.reply(execution_count=1)
    assert talk.due_in == pytest.approx(IDLE_PATIENCE)
    probe = probe_in(talk.wait(IDLE_PATIENCE))
    done, *rest = talk.answer(probe)
    assert done == Done("x", "ok", 1, cut=True)
    assert rest == [WriteActivity("idle"), Step.LEAVE_QUEUE]


def test_a_lost_reply_is_found_out_though_this_client_has_interrupted_nothing() -> None:
    talk = bring_to("running")
    talk.status("idle")
    assert talk.due_in == pytest.approx(REPLY_PATIENCE)
    (done,) = delivered(talk.answer(probe_in(talk.wait(REPLY_PATIENCE))))
    assert isinstance(done, Done)
    assert (done.status, done.interrupted, done.cut) == ("error", True, True)


def test_a_reply_and_idle_that_come_while_the_probe_is_under_way_are_not_lost() -> None:
    talk = bring_to("running")
    talk.status("idle")
    probe = probe_in(talk.wait(REPLY_PATIENCE))
    assert delivered(talk.reply(execution_count=1)) == [Done("x", "ok", 1)]
    assert talk.answer(probe) == []


def test_a_probe_behind_the_cell_of_which_half_is_lost_is_sent_again() -> None:
    talk = bring_to("running")
    talk.reply(execution_count=1)
    probe = probe_in(talk.wait(IDLE_PATIENCE))
    assert talk.reply(probe.id, "kernel_info_reply") == []
    again = probe_in(talk.wait(PROBE_AGAIN))
    assert delivered(talk.answer(again)) == [Done("x", "ok", 1, cut=True)]


def test_a_probe_behind_a_cell_that_runs_on_does_not_end_it() -> None:
    talk = bring_to("running")
    talk.interrupt()
    for _ in range(5):
        assert probes(talk.wait(talk.due_in))
    assert talk.stage == "submitted"


def test_output_that_comes_while_the_probe_is_under_way_belongs_to_the_cell() -> None:
    talk = bring_to("running")
    talk.interrupt()
    talk.wait(REPLY_PATIENCE)
    assert delivered(talk.publish("stream", name="stdout", text="on")) == [Output("x", "stdout", "on")]


# -- interrupts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["queueing", "probing"])
@pytest.mark.parametrize("harder", [False, True])
def test_a_cell_that_was_not_submitted_is_withdrawn_and_strikes_no_one(stage: str, harder: bool) -> None:
    talk = bring_to(stage)
    assert talk.interrupt(harder=harder) == [Step.LEAVE_QUEUE, Done("x", "aborted")]
    assert (talk.stage, talk.conversation.due) == ("resting", math.inf)
    assert talk.first() == []


def test_a_running_cell_is_interrupted_by_a_signal_to_its_group() -> None:
    talk = bring_to("running")
    assert talk.interrupt() == [Step.INTERRUPT_GROUP]
    assert talk.due_in == pytest.approx(REPLY_PATIENCE)


def test_a_kernel_that_wants_messages_is_interrupted_by_one_and_waited_for() -> None:
    talk = Talk(interrupt_mode="message").greet().run()
    (request,) = talk.interrupt()
    assert isinstance(request, SendRequest)
    assert (request.channel, request.kind, request.patience) == ("control", "interrupt_request", INTERRUPT_PATIENCE)


def test_a_cell_that_the_kernel_has_not_begun_is_interrupted_when_it_begins() -> None:
    talk = bring_to("submitted")
    assert talk.interrupt() == []
    actions = talk.publish("execute_input", execution_count=1)
    assert actions == [Started("x", 1), Step.INTERRUPT_GROUP]


def test_a_silent_cell_has_begun_with_its_busy() -> None:
    talk = Talk().greet()
    talk.execute(silent=True)
    talk.first()
    assert talk.interrupt() == []
    assert talk.status("busy") == [Step.INTERRUPT_GROUP]


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupt_of_another_execution_does_nothing(stage: str) -> None:
    talk = bring_to(stage)
    assert talk.interrupt("y") == talk.interrupt("y", harder=True) == []


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupt_of_whatever_runs_strikes_at_once(stage: str) -> None:
    assert bring_to(stage).interrupt("") == [Step.INTERRUPT_GROUP]


@pytest.mark.parametrize("harder", [False, True])
def test_a_cell_that_has_its_reply_is_not_struck(harder: bool) -> None:
    talk = bring_to("running")
    talk.reply()
    assert talk.interrupt(harder=harder) == []


def test_interrupting_harder_kills_what_the_cell_started_and_asks_whether_it_is_over() -> None:
    talk = bring_to("running")
    assert talk.interrupt(harder=True) == [Step.KILL_DESCENDANTS]
    (probe,) = talk.conversation.descendants_killed(some=True, now=talk.now)
    (done,) = delivered(talk.answer(probe))
    assert isinstance(done, Done)
    assert done.interrupted


def test_interrupting_harder_strikes_again_where_there_was_nothing_to_kill() -> None:
    talk = bring_to("running")
    talk.interrupt(harder=True)
    strike, probe = talk.conversation.descendants_killed(some=False, now=talk.now)
    assert strike == Step.INTERRUPT_GROUP
    assert probes([probe])


def test_interrupting_harder_kills_nothing_while_the_kernel_has_not_begun() -> None:
    talk = bring_to("submitted")
    assert requested(talk.interrupt(harder=True)) == [("shell", "kernel_info_request", "own-2")]


def test_after_each_harder_interrupt_the_probe_is_sent_anew_and_any_answer_ends_the_cell() -> None:
    talk = bring_to("running")
    talk.interrupt(harder=True)
    (first,) = talk.conversation.descendants_killed(some=True, now=talk.now)
    talk.interrupt(harder=True)
    _, second = talk.conversation.descendants_killed(some=False, now=talk.now)
    assert first != second
    assert [type(message) for message in delivered(talk.answer(first))] == [Done]
    assert talk.answer(second) == []


# -- exit() ----------------------------------------------------------------------------------------------------


def test_a_cell_that_calls_exit_waits_for_the_end_of_the_kernel_and_is_not_done() -> None:
    talk = bring_to("running")
    assert talk.reply(payload=EXIT) == [WriteReason("the cell called exit()")]
    (shutdown,) = talk.status("idle")
    assert requested([shutdown]) == [("control", "shutdown_request", "own-2")]
    assert talk.stage == "exiting"
    assert talk.due_in == pytest.approx(EXIT_PATIENCE)
    assert talk.conversation.process_ended() == [Step.LEAVE_QUEUE]


def test_an_exit_whose_idle_came_first_is_one_too() -> None:
    talk = bring_to("running")
    talk.status("idle")
    written, shutdown = talk.reply(payload=EXIT)
    assert written == WriteReason("the cell called exit()")
    assert requested([shutdown]) == [("control", "shutdown_request", "own-2")]


def test_a_cell_that_fails_after_it_called_exit_ends_its_kernel_all_the_same() -> None:
    talk = bring_to("running")
    assert WriteReason("the cell called exit()") in talk.reply(status="error", ename="E", payload=EXIT)
    assert delivered(talk.status("idle")) == []


def test_an_exit_that_keeps_the_kernel_is_an_ordinary_end() -> None:
    talk = bring_to("running")
    talk.reply(payload=[{"source": "ask_exit", "keepkernel": True}])
    assert delivered(talk.status("idle")) == [Done("x", "ok")]


def test_what_a_kernel_writes_while_it_exits_belongs_to_the_cell() -> None:
    talk = bring_to("exiting")
    assert delivered(talk.publish("stream", name="stdout", text="bye")) == [Output("x", "stdout", "bye")]


def test_a_kernel_that_does_not_exit_is_killed_once() -> None:
    talk = bring_to("exiting")
    assert talk.wait(EXIT_PATIENCE) == [Step.KILL_KERNEL]
    assert talk.wait(1e9) == []


def test_an_answer_to_a_probe_does_not_spare_a_kernel_that_does_not_exit() -> None:
    talk = bring_to("running")
    talk.interrupt()
    probe = probe_in(talk.wait(REPLY_PATIENCE))
    talk.reply(payload=EXIT)
    talk.status("idle")
    assert talk.answer(probe) == []
    assert talk.wait(EXIT_PATIENCE) == [Step.KILL_KERNEL]


def test_a_cell_that_waits_for_the_exit_cannot_be_interrupted() -> None:
    talk = bring_to("exiting")
    assert talk.interrupt() == talk.interrupt(harder=True) == []


# -- late output -----------------------------------------------------------------------------------------------


def test_what_an_earlier_cell_prints_between_cells_comes_with_the_next() -> None:
    talk = Talk().greet().run("x")
    talk.reply("x")
    talk.status("idle", "x")
    assert talk.publish("stream", "x", name="stdout", text="late ") == []
    talk.execute("y")
    assert talk.publish("stream", "x", name="stdout", text="later") == []
    assert delivered(talk.first()) == [Started("y", 0), Output("y", "stdout", "late later")]
    talk.reply("y")
    talk.status("idle", "y")
    talk.execute("z")
    assert delivered(talk.first()) == [Started("z", 0)]


def test_what_an_earlier_cell_prints_while_another_runs_comes_with_that_at_once() -> None:
    talk = Talk().greet().run("x")
    talk.reply("x")
    talk.status("idle", "x")
    talk.run("y")
    assert delivered(talk.publish("stream", "x", name="odd", text="late")) == [Output("y", "stdout", "late")]


def test_what_an_earlier_cell_prints_while_the_kernel_exits_comes_with_the_last() -> None:
    talk = Talk().greet().run("x")
    talk.reply("x")
    talk.status("idle", "x")
    talk.run("y")
    talk.reply("y", payload=EXIT)
    talk.status("idle", "y")
    assert delivered(talk.publish("stream", "x", name="stderr", text="late")) == [Output("y", "stderr", "late")]


def test_what_cells_of_other_clients_print_is_not_ours() -> None:
    talk = bring_to("running")
    assert talk.publish("stream", "theirs", name="stdout", text="theirs") == []


# -- questions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["complete", "inspect", "is_complete"])
def test_a_question_goes_to_the_kernel_and_its_reply_to_the_client(what: str) -> None:
    talk = Talk()
    assert talk.query(what, code="pri") == [SendRequest("shell", f"{what}_request", {"code": "pri"}, "q")]
    assert delivered(talk.reply("q", f"{what}_reply", matches=[])) == [Reply("q", {"status": "ok", "matches": []})]


def test_a_question_that_only_our_own_kernels_understand_is_refused() -> None:
    (reply,) = delivered(Talk().query("variables"))
    assert isinstance(reply, Reply)
    assert reply.content["ename"] == "NotSupported"
    assert "'variables'" in reply.content["evalue"]


def test_an_unused_kernel_is_asked_to_end_and_keeps_its_place_until_it_has() -> None:
    talk = Talk()
    assert talk.query("leave", unused_for=60.0) == [Step.JOIN_QUEUE]
    written, shutdown = talk.first(unused_for=61.0)
    assert isinstance(written, WriteReason)
    assert "60 s without work" in written.reason
    assert requested([shutdown]) == [("control", "shutdown_request", "own-1")]
    assert talk.conversation.process_ended() == [Step.LEAVE_QUEUE]


@pytest.mark.parametrize(
    ("busy", "unused_for"), [(True, 61.0), (False, 59.0), (False, None)], ids=["busy", "used lately", "unknown"]
)
def test_a_kernel_that_is_in_use_stays(busy: bool, unused_for: float | None) -> None:
    talk = Talk()
    talk.query("leave", unused_for=60.0)
    assert talk.first(busy=busy, unused_for=unused_for) == [Step.LEAVE_QUEUE, Reply("q", {"left": False})]
    assert talk.stage == "resting"


def test_a_kernel_that_others_queue_for_stays() -> None:
    talk = Talk()
    talk.query("leave", unused_for=0.0)
    assert talk.conversation.behind_others() == [Step.LEAVE_QUEUE, Reply("q", {"left": False})]


def test_a_kernel_that_serves_a_client_outside_the_queue_stays() -> None:
    talk = Talk().greet()
    talk.status("busy", "theirs")
    talk.query("leave", unused_for=0.0)
    assert delivered(talk.first(unused_for=1e9)) == [Reply("q", {"left": False})]


@pytest.mark.parametrize("stage", STAGES)
def test_a_kernel_that_has_a_cell_of_this_client_stays(stage: str) -> None:
    assert bring_to(stage).query("leave", unused_for=0.0) == [Reply("q", {"left": False})]


# -- the end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_the_end_of_the_process_frees_the_place_and_nothing_is_done_after_it(stage: str) -> None:
    talk = bring_to(stage)
    assert talk.conversation.process_ended() == [Step.LEAVE_QUEUE]
    assert talk.stage == "ended"
    assert talk.conversation.process_ended() == []
    for actions in (
        talk.execute("y"),
        talk.first(),
        talk.interrupt(),
        talk.interrupt(""),
        talk.query("complete"),
        talk.query("leave", unused_for=0.0),
        talk.reply(),
        talk.status("idle"),
        talk.wait(1e9),
        talk.conversation.greet(now=talk.now),
        talk.conversation.behind_others(),
        talk.conversation.descendants_killed(some=False, now=talk.now),
    ):
        assert actions == []


def test_the_end_of_the_process_between_cells_leaves_no_queue() -> None:
    assert Talk().greet().conversation.process_ended() == []


def test_what_was_left_out_of_a_cell_is_said_in_its_result() -> None:
    talk = Talk().greet().run()
    (said,) = delivered(talk.conversation.left_out(3, 4000))
    assert isinstance(said, Output)
    assert (said.id, said.name) == ("x", "stderr")
    assert said.text.startswith("[3 messages of the kernel (4,000 bytes) were left out")
    talk.reply()
    (done,) = delivered(talk.status("idle"))
    assert isinstance(done, Done)
    assert done.cut


def test_a_client_at_rest_for_which_messages_were_left_out_makes_sure_that_it_is_heard() -> None:
    talk = Talk().greet()
    assert talk.conversation.left_out(3, 4000) == []
    talk.execute()
    assert probes(talk.first())

"""One execution as a state machine: every way it can go, with the clock as an argument."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import any_text, messages, untimed

from kernelbox.wire._execution import Execution
from kernelbox.wire._messages import (
    Answer,
    Ask,
    Clear,
    Comm,
    Display,
    Done,
    Execute,
    Farewell,
    Interrupt,
    Message,
    Output,
    Query,
    Refused,
    Reply,
    Spawned,
    Started,
)
from kernelbox.wire._results import ErrorInfo, ExecutionResult, OutputItem, Picture
from kernelbox.wire._timeout_ladder import GRACE, HELD_GRACE, LAST_GRACE, WITHDRAW_GRACE

if TYPE_CHECKING:
    from kernelbox.wire._timeout_ladder import Holder

NOW = 1000.0
TIMEOUT = 10.0

STAGES = ["queued", "running", "withdrawing", "interrupting", "interrupting harder", "killing"]

INTERRUPTED = "the cell was interrupted and the kernel kept its variables"
UNRUN = "while it waited behind another cell; it never ran"
RESTARTED = "it did not stop when interrupted, so the kernel was restarted: its variables are lost"


def begin(*, timeout: float | None = TIMEOUT, started: bool = True, text_limit: int = 0) -> Execution:
    execution = Execution(Execute("me", "code", text_limit=text_limit), timeout=timeout, now=NOW)
    if started:
        assert execution.receive(Started("me", 7), now=NOW) == []
    return execution


def bring_to(stage: str) -> Execution:
    """Returns an execution that has come to a stage by the timeout."""
    execution = begin(started=stage not in ("queued", "withdrawing"))
    while repr(execution) != f"<Execution me {'running' if stage == 'queued' else stage}>":
        assert execution.tick(now=execution.ladder.due) is not None
    return execution


def finish(execution: Execution, *, now: float = NOW + 1, **done: Any) -> ExecutionResult:
    assert execution.receive(Done("me", done.pop("status", "ok"), **done), now=now) == []
    assert execution.result is not None
    return execution.result


def result_of(execution: Execution) -> ExecutionResult:
    assert execution.result is not None
    return execution.result


def outcome(execution: Execution) -> tuple[str, str, str]:
    result = result_of(execution)
    return result.status, result.ending, result.state


# -- without haste ---------------------------------------------------------------------------------------------


def test_a_cell_that_succeeds_gives_all_it_said_and_what_became_of_it() -> None:
    execution = begin()
    execution.receive(Output("me", "stdout", "out\n"), now=NOW)
    execution.receive(Output("me", "stderr", "err\n"), now=NOW)
    execution.receive(Display("me", "execute_result", {"text/plain": "42"}, {"a": 1}, "", 7), now=NOW)
    assert execution.result is None
    result = finish(execution, now=NOW + 1.25, execution_count=7, changed={"added": ["x"]})
    assert result == ExecutionResult(
        "success",
        output="out\n",
        stderr="err\n",
        error=None,
        return_value="42",
        execution_count=7,
        duration_ms=1250,
        outputs=[
            OutputItem("stream", "out\n", "stdout"),
            OutputItem("stream", "err\n", "stderr"),
            OutputItem("execute_result", "42", None, {"text/plain": "42"}, {"a": 1}),
        ],
        truncated=False,
        text="out\nerr\n42",
        state="kept",
        ending="finished",
        changed={"added": ["x"]},
        execution_id="me",
    )


def test_what_a_cell_has_said_can_be_read_while_it_runs() -> None:
    execution = begin()
    execution.receive(Output("me", "stdout", "so far"), now=NOW)
    assert execution.text == "so far"


def test_a_cell_that_raises_something_of_its_own_when_it_is_interrupted_shows_where() -> None:
    execution = bring_to("interrupting")
    raised = ["Cell In[1], line 1", "ValueError: in a finally"]
    result = finish(execution, status="error", interrupted=True, ename="ValueError", evalue="x", traceback=raised)
    assert result.error is not None
    assert result.error.traceback[:-1] == raised
    assert result.error.ename == "TimeoutError"


@pytest.mark.parametrize(("length", "shown"), [(200, "x" * 200), (201, "x" * 200 + "…")])
def test_a_call_that_waits_for_an_answer_is_named_and_shortened_where_it_is_long(length: int, shown: str) -> None:
    execution = begin()
    execution.wait_for_answer("x" * length)
    execution.tick(now=NOW + TIMEOUT)
    execution.wait_for_answer("answered since")
    result = finish(execution, interrupted=True)
    assert result.error is not None
    assert result.error.evalue == f"timed out after 10 s while {shown} waited for an answer; {INTERRUPTED}"


CUT_OFF = "a cell has closed its connection, so its result is lost; the kernel goes on with its variables"


def test_a_connection_that_is_cut_off_ends_the_execution_and_not_the_kernel() -> None:
    execution = begin()
    execution.receive(Output("me", "stdout", "before"), now=NOW)
    execution.cut_off("a cell has closed its connection", now=NOW + 2)
    result = result_of(execution)
    assert outcome(execution) == ("error", "interrupted", "kept")
    assert (result.output, result.duration_ms) == ("before", 2000)
    assert result.error == ErrorInfo("ConnectionLost", CUT_OFF, [f"ConnectionLost: {CUT_OFF}"])


def test_a_connection_that_is_cut_off_after_a_timeout_is_told_as_a_timeout() -> None:
    execution = bring_to("interrupting")
    execution.cut_off("a cell has closed its connection", now=NOW + TIMEOUT)
    result = result_of(execution)
    assert outcome(execution) == ("timeout", "interrupted", "kept")
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("TimeoutError", f"timed out after 10 s; {CUT_OFF}")


@pytest.mark.parametrize(
    ("traceback", "evalue", "cut"),
    [("x" * 40, "e", False), ("x" * 101, "e", True), ("x", "e" * 1_000_000, False), ("x", "e" * 1_000_001, True)],
    ids=["whole", "long traceback", "whole value", "long value"],
)
def test_an_error_of_which_something_is_left_out_is_told_as_truncated(traceback: str, evalue: str, cut: bool) -> None:
    result = finish(begin(text_limit=100), status="error", ename="E", evalue=evalue, traceback=[traceback])
    assert result.truncated is cut
    assert result.error is not None
    assert (result.error.traceback == [traceback] and result.error.evalue == evalue) is not cut


def test_a_cell_that_fails_gives_its_error() -> None:
    execution = begin()
    execution.receive(Output("me", "stdout", "before"), now=NOW)
    lines = ["Traceback:", "ValueError: no"]
    result = finish(execution, status="error", execution_count=7, ename="ValueError", evalue="no", traceback=lines)
    assert result.error == ErrorInfo("ValueError", "no", ["Traceback:", "ValueError: no"])
    assert outcome(execution) == ("error", "finished", "kept")
    assert result.text == "before\nTraceback:\nValueError: no"
    assert result.outputs[-1] == OutputItem("error", text="ValueError: no", data=result.error.to_dict())
    assert (result.output, result.execution_count) == ("before", 7)


def test_an_error_that_the_cell_has_written_out_itself_is_not_shown_again() -> None:
    execution = begin()
    execution.receive(Output("me", "stderr", "UsageError: no such magic\n"), now=NOW)
    result = finish(execution, status="error", ename="UsageError", evalue="no such magic")
    assert result.error == ErrorInfo("UsageError", "no such magic")
    assert (result.text, len(result.outputs)) == ("UsageError: no such magic", 1)


def test_an_error_of_the_cell_is_an_output_that_a_waiting_clear_waits_for() -> None:
    execution = begin()
    execution.receive(Output("me", "stdout", "progress\n"), now=NOW)
    execution.receive(Clear("me", True), now=NOW)
    assert finish(execution, status="error", traceback=["ValueError: no"]).text == "ValueError: no"


@pytest.mark.parametrize("ending", ["died", "killed"])
def test_the_end_of_the_kernel_leaves_what_a_waiting_clear_had_left(ending: str) -> None:
    execution = bring_to("killing")
    execution.receive(Output("me", "stdout", "progress\n"), now=NOW)
    execution.receive(Clear("me", True), now=NOW)
    if ending == "died":
        execution.died("gone", now=NOW)
    else:
        execution.killed(now=NOW)
    assert result_of(execution).text.startswith("progress\n")


def test_the_number_of_a_finished_cell_is_the_one_that_its_end_gives() -> None:
    assert finish(begin(), execution_count=8).execution_count == 8
    assert finish(begin(), execution_count=None).execution_count is None


def test_text_that_the_guest_has_cut_from_an_error_counts_as_cut() -> None:
    assert finish(begin(), cut=True).truncated is True
    assert finish(begin()).truncated is False


def test_output_above_the_limit_of_the_request_is_cut() -> None:
    execution = begin(text_limit=200)
    execution.receive(Output("me", "stdout", "x" * 1000), now=NOW)
    result = finish(execution)
    assert result.truncated is True
    assert max(len(result.text), len(result.output), len(result.outputs[0].text or "")) <= 200


@untimed
@given(any_text, any_text, st.lists(any_text, max_size=3), st.booleans())
def test_whatever_an_error_says_can_be_written_to_a_file(
    ename: str, evalue: str, traceback: list[str], interrupted: bool
) -> None:
    execution = begin()
    if interrupted:
        execution.tick(now=execution.ladder.due)
    result = finish(execution, status="error", ename=ename, evalue=evalue, traceback=traceback, interrupted=interrupted)
    assert result.error is not None
    for text in (result.text, result.error.ename, result.error.evalue, *result.error.traceback):
        text.encode("utf-8")


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (Output("me", "stderr", "x"), OutputItem("stream", "x", "stderr")),
        (
            Display("me", "display_data", {"text/plain": "x"}, {}, "d", blobs={"image/png": b"P"}),
            OutputItem("display_data", "x", None, {"text/plain": "x", "image/png": "UA=="}, {}, "d", Picture()),
        ),
        (Clear("me", True), OutputItem("clear_output", metadata={"wait": True})),
        (Ask("me", 1, "server", "tool", {"x": 1}), Ask("me", 1, "server", "tool", {"x": 1})),
        (Comm("me", "comm_open", {"y": 2}), Comm("me", "comm_open", {"y": 2})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_caller_wants_to_see_is_an_event(message: Message, event: object) -> None:
    assert begin().receive(message, now=NOW) == [event]


@pytest.mark.parametrize(
    "message",
    [
        Started("me", 1),
        Reply("me", {}),
        Execute("me", "x"),
        Interrupt("me"),
        Answer("me", 1, True),
        Query("me", "complete", {}),
        Farewell("bye"),
        Spawned(1, 2),
        Refused("no"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_of_no_interest_to_a_caller_is_no_event(message: Message) -> None:
    execution = begin()
    assert execution.receive(message, now=NOW) == []
    assert execution.result is None


def test_clearing_leaves_only_what_came_after() -> None:
    execution = begin()
    execution.receive(Output("me", "stdout", "old"), now=NOW)
    execution.receive(Clear("me", False), now=NOW)
    execution.receive(Output("me", "stdout", "new"), now=NOW)
    assert finish(execution).text == "new"


@pytest.mark.parametrize(
    "message",
    [
        Started("other", 1),
        Output("other", "stdout", "x"),
        Display("other", "execute_result", {"text/plain": "x"}, {}),
        Clear("other", False),
        Ask("other", 1, "server", "tool", {}),
        Comm("other", "comm_open", {}),
        Done("other", "error"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_for_another_execution_is_ignored(message: Message) -> None:
    execution = begin(started=False)
    execution.receive(Output("me", "stdout", "mine"), now=NOW)
    assert execution.receive(message, now=NOW) == []
    assert execution.started is False
    result = finish(execution)
    assert (result.text, result.return_value, result.status) == ("mine", None, "success")


@untimed
@given(messages)
def test_nothing_that_comes_after_the_end_changes_the_result(message: Message) -> None:
    execution = begin()
    before = finish(execution, execution_count=7).to_dict()
    if hasattr(message, "id"):
        message.id = "me"
    assert execution.receive(message, now=NOW + 99) == []
    assert execution.recover([Output("me", "stdout", "late")]) == []
    assert execution.tick(now=NOW + 99) is None
    assert execution.cancel(now=NOW + 99) is None
    execution.killed(now=NOW + 99)
    execution.died("late", now=NOW + 99)
    execution.cut_off("late", now=NOW + 99)
    execution.hold(99)
    assert result_of(execution).to_dict() == before


def test_an_execution_shows_where_it_stands() -> None:
    execution = begin()
    assert repr(execution) == "<Execution me running>"
    execution.tick(now=execution.ladder.due)
    assert repr(execution) == "<Execution me interrupting>"
    finish(execution, interrupted=True)
    assert repr(execution) == "<Execution me timeout>"


# -- the ladder ------------------------------------------------------------------------------------------------


def test_without_a_timeout_nothing_is_ever_ordered() -> None:
    execution = begin(timeout=None)
    assert execution.ladder.due == math.inf
    assert execution.tick(now=NOW + 1e9) is None


@pytest.mark.parametrize("started", [True, False])
def test_nothing_is_ordered_before_the_time_is_up(started: bool) -> None:
    execution = begin(started=started)
    assert execution.ladder.due == NOW + TIMEOUT
    assert execution.tick(now=NOW) is None
    assert execution.tick(now=NOW + TIMEOUT - 0.001) is None
    assert execution.ladder.due == NOW + TIMEOUT
    assert execution.tick(now=NOW + TIMEOUT) == "interrupt"


def test_a_timeout_of_nothing_is_up_at_once() -> None:
    assert begin(timeout=0).tick(now=NOW) == "interrupt"


@pytest.mark.parametrize("late", [0.0, 0.3, 100.0])
def test_each_rung_is_climbed_when_the_grace_of_the_one_before_is_over(late: float) -> None:
    execution = begin()
    climbed = []
    for order, grace in (("interrupt", GRACE), ("interrupt harder", LAST_GRACE), ("kill", math.inf)):
        now = execution.ladder.due + late
        assert execution.tick(now=execution.ladder.due - 0.001) is None
        climbed.append(execution.tick(now=now))
        assert climbed[-1] == order
        assert execution.ladder.due == now + grace
        assert execution.tick(now=now) is None
    assert execution.result is None
    assert execution.tick(now=NOW + 1e9) is None


def test_the_whole_ladder_takes_less_than_a_caller_will_wait() -> None:
    assert WITHDRAW_GRACE + GRACE + LAST_GRACE < 4
    assert min(WITHDRAW_GRACE, GRACE, LAST_GRACE) > 0


def test_output_is_taken_on_every_rung() -> None:
    execution = begin()
    for order in ("interrupt", "interrupt harder", "kill"):
        assert execution.tick(now=execution.ladder.due) == order
        assert len(execution.receive(Output("me", "stdout", f"{order}\n"), now=NOW + 20)) == 1
    execution.killed(now=NOW + 30)
    assert result_of(execution).output == "interrupt\ninterrupt harder\nkill\n"


@pytest.mark.parametrize("stage", ["interrupting", "interrupting harder"])
@pytest.mark.parametrize("status", ["ok", "error"])
def test_a_cell_that_stops_when_interrupted_has_timed_out_and_keeps_the_state(stage: str, status: str) -> None:
    execution = bring_to(stage)
    execution.receive(Output("me", "stdout", "partial"), now=NOW + 11)
    where = ["Cell In[7], line 1"] if status == "error" else []
    result = finish(
        execution,
        status=status,
        now=NOW + 12,
        execution_count=7,
        ename="KeyboardInterrupt",
        traceback=[*where, "KeyboardInterrupt: "] if where else [],
        interrupted=True,
        changed={"added": ["x"]},
    )
    assert outcome(execution) == ("timeout", "interrupted", "kept")
    sentence = f"timed out after 10 s; {INTERRUPTED}"
    assert result.error == ErrorInfo("TimeoutError", sentence, [*where, f"TimeoutError: {sentence}"])
    assert result.text == "\n".join(["partial", *where, f"TimeoutError: {sentence}"])
    assert (result.duration_ms, result.execution_count, result.changed) == (12_000, 7, {"added": ["x"]})


@pytest.mark.parametrize("stage", ["withdrawing", "interrupting", "interrupting harder"])
def test_a_cell_that_ends_by_itself_while_it_is_being_stopped_has_simply_finished(stage: str) -> None:
    execution = bring_to(stage)
    finish(execution, interrupted=False)
    assert outcome(execution) == ("success", "finished", "kept")
    assert result_of(execution).error is None

    execution = bring_to(stage)
    finish(execution, status="error", ename="ValueError", evalue="no", interrupted=False)
    assert outcome(execution) == ("error", "finished", "kept")
    assert result_of(execution).error == ErrorInfo("ValueError", "no")


def test_a_cell_that_does_not_stop_costs_the_kernel() -> None:
    execution = bring_to("killing")
    execution.killed(now=NOW + 13)
    result = result_of(execution)
    assert outcome(execution) == ("timeout", "restarted", "lost")
    sentence = f"timed out after 10 s; {RESTARTED}"
    assert result.error == ErrorInfo("TimeoutError", sentence, [f"TimeoutError: {sentence}"])
    assert result.text == f"TimeoutError: {sentence}"
    assert (result.duration_ms, result.execution_count, result.changed) == (13_000, 7, None)


@pytest.mark.parametrize("interrupted", [True, False])
def test_an_end_that_comes_when_the_kernel_is_being_killed_does_not_claim_that_state_was_kept(
    interrupted: bool,
) -> None:
    execution = bring_to("killing")
    assert execution.receive(Done("me", "ok", interrupted=interrupted), now=NOW + 20) == []
    assert execution.result is None
    execution.killed(now=NOW + 21)
    assert outcome(execution) == ("timeout", "restarted", "lost")


@pytest.mark.parametrize(("timeout", "words"), [(0.5, "0.5 s"), (2.0, "2 s"), (120, "120 s"), (3600.0, "3600 s")])
def test_the_timeout_is_named_as_people_write_it(timeout: float, words: str) -> None:
    execution = begin(timeout=timeout)
    execution.tick(now=execution.ladder.due)
    error = finish(execution, interrupted=True).error
    assert error is not None
    assert error.evalue.startswith(f"timed out after {words};")


# -- interrupts that are not ours ------------------------------------------------------------------------------


def test_a_cell_interrupted_by_somebody_else_fails_with_its_own_error() -> None:
    execution = begin()
    lines = ["Traceback:", "KeyboardInterrupt"]
    result = finish(execution, status="error", ename="KeyboardInterrupt", traceback=lines, interrupted=True)
    assert outcome(execution) == ("error", "interrupted", "kept")
    assert result.error == ErrorInfo("KeyboardInterrupt", "", lines)


def test_a_cell_that_survives_an_interrupt_by_somebody_else_succeeds() -> None:
    execution = begin()
    finish(execution, interrupted=True)
    assert outcome(execution) == ("success", "interrupted", "kept")
    assert result_of(execution).error is None


# -- the queue -------------------------------------------------------------------------------------------------


def test_an_execution_whose_time_is_up_in_the_queue_is_withdrawn() -> None:
    execution = begin(started=False)
    assert execution.tick(now=execution.ladder.due) == "interrupt"
    assert execution.ladder.due == NOW + TIMEOUT + WITHDRAW_GRACE
    result = finish(execution, status="aborted", now=NOW + 10.5)
    assert outcome(execution) == ("timeout", "never ran", "kept")
    sentence = f"timed out after 10 s {UNRUN}"
    assert result.error == ErrorInfo("TimeoutError", sentence, [f"TimeoutError: {sentence}"])
    assert (result.execution_count, result.duration_ms) == (None, 10_500)


def test_an_execution_that_the_kernel_does_not_answer_for_is_abandoned() -> None:
    execution = begin(started=False)
    execution.tick(now=execution.ladder.due)
    assert execution.tick(now=execution.ladder.due - 0.001) is None
    assert execution.tick(now=NOW + 11) == "abandon"
    assert outcome(execution) == ("timeout", "never ran", "kept")
    assert result_of(execution).text == f"TimeoutError: timed out after 10 s {UNRUN}"
    assert result_of(execution).duration_ms == 11_000
    assert execution.tick(now=NOW + 1e9) is None


HELD: dict[Holder, str] = {
    "none": "while it waited behind work that an earlier cell had left in the background",
    "abandoned": "while it waited behind a cell whose client had gone away",
}


@pytest.mark.parametrize("holder", HELD)
def test_what_holds_the_kernel_and_is_no_clients_cell_is_interrupted_and_then_killed(holder: Holder) -> None:
    execution = bring_to("withdrawing")
    assert execution.tick(now=execution.ladder.due, holder=holder) == "interrupt harder"
    assert execution.ladder.due == NOW + TIMEOUT + WITHDRAW_GRACE + HELD_GRACE
    assert execution.tick(now=execution.ladder.due, holder=holder) == "kill"
    execution.killed(now=NOW + 20)
    assert outcome(execution) == ("timeout", "restarted", "lost")
    assert result_of(execution).text == f"TimeoutError: timed out after 10 s {HELD[holder]}; {RESTARTED}"


@pytest.mark.parametrize("holder", HELD)
def test_an_execution_behind_what_could_be_interrupted_never_ran_and_says_why(holder: Holder) -> None:
    execution = bring_to("withdrawing")
    execution.tick(now=execution.ladder.due, holder=holder)
    finish(execution, status="aborted")
    assert outcome(execution) == ("timeout", "never ran", "kept")
    sentence = f"timed out after 10 s {HELD[holder]}, which was interrupted; it never ran"
    assert result_of(execution).text == f"TimeoutError: {sentence}"


def test_the_kernel_may_say_why_a_withdrawn_execution_has_not_begun() -> None:
    execution = bring_to("withdrawing")
    result = finish(execution, status="aborted", evalue="while it waited behind a task, which was interrupted")
    assert result.text == (
        "TimeoutError: timed out after 10 s while it waited behind a task, which was interrupted; it never ran"
    )


def test_an_execution_that_runs_when_its_time_is_up_is_interrupted_although_the_kernel_could_not_say_so() -> None:
    execution = begin(started=False)
    assert execution.tick(now=execution.ladder.due, holder="this") == "interrupt"
    assert execution.ladder.due == NOW + TIMEOUT + GRACE
    late = bring_to("withdrawing")
    assert late.tick(now=late.ladder.due, holder="this") == "interrupt"
    assert late.ladder.due == NOW + TIMEOUT + WITHDRAW_GRACE + GRACE


def test_an_execution_that_starts_while_it_is_withdrawn_is_interrupted() -> None:
    execution = bring_to("withdrawing")
    execution.receive(Started("me", 7), now=NOW + 10.5)
    assert execution.tick(now=NOW + 10.6) is None
    assert execution.tick(now=NOW + 11) == "interrupt"
    assert execution.ladder.due == NOW + 11 + GRACE
    assert execution.tick(now=execution.ladder.due) == "interrupt harder"
    assert execution.tick(now=execution.ladder.due) == "kill"


def test_an_execution_that_starts_while_it_is_withdrawn_may_be_stopped_by_the_first_interrupt() -> None:
    execution = bring_to("withdrawing")
    execution.receive(Started("me", 7), now=NOW + 10.5)
    finish(execution, status="error", interrupted=True)
    assert outcome(execution) == ("timeout", "interrupted", "kept")


@pytest.mark.parametrize("stage", ["queued", "withdrawing"])
def test_an_execution_known_to_run_from_elsewhere_is_treated_as_started(stage: str) -> None:
    execution = bring_to(stage)
    execution.started = True
    assert execution.tick(now=execution.ladder.due) == "interrupt"
    assert execution.tick(now=execution.ladder.due) == "interrupt harder"


def test_an_execution_dropped_from_the_queue_by_somebody_else_was_cancelled() -> None:
    execution = begin(started=False)
    result = finish(execution, status="aborted")
    assert outcome(execution) == ("error", "never ran", "kept")
    assert result.error == ErrorInfo("Cancelled", f"cancelled {UNRUN}", [f"Cancelled: cancelled {UNRUN}"])


# -- cancelling ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [TIMEOUT, None])
def test_cancelling_climbs_the_same_ladder(timeout: float | None) -> None:
    execution = begin(timeout=timeout)
    assert execution.cancel(now=NOW + 1) == "interrupt"
    assert execution.ladder.due == NOW + 1 + GRACE
    assert execution.cancel(now=NOW + 2) is None
    assert execution.tick(now=execution.ladder.due) == "interrupt harder"
    assert execution.tick(now=execution.ladder.due) == "kill"
    execution.killed(now=NOW + 9)
    assert outcome(execution) == ("error", "restarted", "lost")
    sentence = f"cancelled; {RESTARTED}"
    assert result_of(execution).error == ErrorInfo("Cancelled", sentence, [f"Cancelled: {sentence}"])


def test_a_cancelled_cell_that_stops_keeps_the_state() -> None:
    execution = begin()
    execution.cancel(now=NOW + 1)
    result = finish(execution, status="error", traceback=["KeyboardInterrupt"], interrupted=True)
    assert outcome(execution) == ("error", "interrupted", "kept")
    assert result.error == ErrorInfo("Cancelled", INTERRUPTED, [f"Cancelled: {INTERRUPTED}"])


def test_a_cancelled_cell_that_had_just_finished_succeeds() -> None:
    execution = begin()
    execution.cancel(now=NOW + 1)
    finish(execution)
    assert outcome(execution) == ("success", "finished", "kept")


@pytest.mark.parametrize("timeout", [TIMEOUT, None])
@pytest.mark.parametrize("answered", [True, False])
def test_cancelling_in_the_queue_withdraws(timeout: float | None, answered: bool) -> None:
    execution = begin(timeout=timeout, started=False)
    assert execution.cancel(now=NOW + 1) == "interrupt"
    assert execution.ladder.due == NOW + 1 + WITHDRAW_GRACE
    if answered:
        finish(execution, status="aborted")
    else:
        assert execution.tick(now=execution.ladder.due) == "abandon"
    assert outcome(execution) == ("error", "never ran", "kept")
    assert result_of(execution).text == f"Cancelled: cancelled {UNRUN}"


@pytest.mark.parametrize("stage", ["withdrawing", "interrupting", "interrupting harder", "killing"])
def test_cancelling_what_is_already_being_stopped_changes_nothing(stage: str) -> None:
    execution = bring_to(stage)
    due = execution.ladder.due
    assert execution.cancel(now=NOW + 50) is None
    assert execution.ladder.due == due
    execution.started = True
    execution.killed(now=NOW + 60)
    assert result_of(execution).status == "timeout"


# -- waiting for a person --------------------------------------------------------------------------------------


def test_time_spent_waiting_for_a_person_moves_the_deadline() -> None:
    execution = begin()
    execution.hold(5)
    execution.hold(2.5)
    assert execution.ladder.due == NOW + TIMEOUT + 7.5
    assert execution.tick(now=NOW + TIMEOUT + 7) is None
    assert execution.tick(now=NOW + TIMEOUT + 7.5) == "interrupt"


def test_waiting_for_a_person_makes_no_deadline_where_there_is_none() -> None:
    execution = begin(timeout=None)
    execution.hold(5)
    assert execution.ladder.due == math.inf


@pytest.mark.parametrize("stage", ["withdrawing", "interrupting", "interrupting harder", "killing"])
def test_what_is_being_stopped_gets_no_more_time(stage: str) -> None:
    execution = bring_to(stage)
    due = execution.ladder.due
    execution.hold(5)
    assert execution.ladder.due == due


# -- death -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_a_kernel_that_dies_ends_the_execution_at_any_stage(stage: str) -> None:
    execution = bring_to(stage)
    execution.receive(Output("me", "stdout", "before\n"), now=NOW)
    execution.died("killed by SIGKILL", now=NOW + 20)
    result = result_of(execution)
    assert outcome(execution) == ("error", "died", "lost")
    said = "killed by SIGKILL; its variables are lost"
    assert result.error == ErrorInfo("KernelDied", said, [f"KernelDied: {said}"])
    assert result.text == f"before\nKernelDied: {said}"
    assert result.duration_ms == 20_000
    assert result.execution_count == (None if stage in ("queued", "withdrawing") else 7)
    assert execution.tick(now=NOW + 1e9) is None


def test_a_kernel_that_was_killed_and_not_replaced_has_died_and_says_why() -> None:
    execution = bring_to("killing")
    execution.died("killed; no other could be started", now=NOW + 20)
    execution.killed(now=NOW + 21)
    assert outcome(execution) == ("error", "died", "lost")
    assert result_of(execution).text == "KernelDied: killed; no other could be started; its variables are lost"
    assert result_of(execution).duration_ms == 20_000


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_kernel_says_before_it_leaves_is_kept_for_the_one_who_looks_for_the_cause(stage: str) -> None:
    execution = bring_to(stage)
    assert execution.farewell == ""
    assert execution.receive(Farewell("the cell called exit()"), now=NOW) == []
    assert execution.farewell == "the cell called exit()"
    assert execution.result is None


def test_a_farewell_after_the_end_is_heard_too() -> None:
    execution = begin()
    finish(execution)
    execution.receive(Farewell("the cell called exit()"), now=NOW)
    assert execution.farewell == "the cell called exit()"
    assert outcome(execution) == ("success", "finished", "kept")


# -- what a dead kernel had written ----------------------------------------------------------------------------


def test_what_a_dead_kernel_had_written_and_not_sent_follows_what_it_had_sent() -> None:
    execution = begin()
    execution.receive(Output("me", "stdout", "sent "), now=NOW)
    last_words = [Output("me", "stdout", "out"), Output("me", "stderr", "err")]
    assert len(execution.recover(last_words)) == 2
    execution.died("gone", now=NOW)
    assert (result_of(execution).output, result_of(execution).stderr) == ("sent out", "err")


def test_what_a_dead_kernel_had_written_is_taken_once() -> None:
    execution = begin()
    leftovers = [Output("me", "stdout", "a"), Output("me", "stderr", "b")]
    assert len(execution.recover(leftovers)) == 2
    assert execution.recover(leftovers) == []
    execution.died("gone", now=NOW)
    assert (result_of(execution).output, result_of(execution).stderr) == ("a", "b")


def test_text_of_another_execution_is_not_taken_and_hides_nothing() -> None:
    execution = begin()
    execution.receive(Output("other", "stdout", "x"), now=NOW)
    assert execution.recover([Output("other", "stdout", "x"), Output("me", "stdout", "mine")]) == [
        OutputItem("stream", "mine", "stdout")
    ]


def test_nothing_written_is_nothing_taken() -> None:
    assert begin().recover([]) == []


def test_a_kernel_that_could_not_be_started_again_is_reported_as_the_end_of_a_timeout() -> None:
    execution = begin(timeout=1)
    execution.killed(now=NOW + 5, failure="no space left")
    assert result_of(execution).ending == "died"
    assert "no space left" in (result_of(execution).error or ErrorInfo("", "")).evalue


# -- any order whatever ----------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("tick"), st.sampled_from([0.0, 0.5, 1.0, 2.0, 20.0])),
    st.tuples(st.just("receive"), st.sampled_from(["started", "output", "ok", "interrupted", "aborted", "other"])),
    st.tuples(st.sampled_from(["cancel", "hold", "died", "killed"]), st.none()),
)
MESSAGES: dict[str, Message] = {
    "started": Started("me", 7),
    "output": Output("me", "stdout", "x"),
    "ok": Done("me", "ok"),
    "interrupted": Done("me", "error", interrupted=True),
    "aborted": Done("me", "aborted"),
    "other": Done("other", "ok"),
}


@untimed
@given(st.lists(steps, max_size=12), st.sampled_from([None, 0.0, 1.0]))
def test_whatever_happens_in_whatever_order_the_orders_escalate_and_the_first_result_stands(
    happenings: list[tuple[str, Any]], timeout: float | None
) -> None:
    execution = begin(timeout=timeout, started=False)
    now, orders, first = NOW, list[str](), None
    for what, detail in happenings:
        order = None
        match what:
            case "tick":
                now += detail
                order = execution.tick(now=now)
                assert execution.ladder.due > now or execution.result is not None
            case "receive":
                execution.receive(MESSAGES[detail], now=now)
            case "cancel":
                order = execution.cancel(now=now)
            case "hold":
                execution.hold(1)
            case "died":
                execution.died("gone", now=now)
            case "killed":
                execution.killed(now=now)
        if order is not None:
            assert first is None, "an order came after the result"
            assert order in ("interrupt", "abandon") or execution.started, "only a cell that runs may be stopped"
            orders.append(order)
        first = first or execution.result
        assert execution.result is first
    assert orders in [
        [],
        *(["interrupt"] * asked + rest for asked in (1, 2) for rest in ([], ["abandon"], *ESCALATION)),
    ]
    if "abandon" in orders:
        assert first is not None
        assert first.ending == "never ran"
    if first is not None:
        assert (first.status == "success") == (first.error is None)
        assert (first.state == "lost") == (first.ending in ("died", "restarted"))


ESCALATION = [["interrupt harder"], ["interrupt harder", "kill"]]


# -- what no guest of ours sends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 10, 1_000])
def test_an_error_of_any_size_is_bounded_in_the_result(limit: int) -> None:
    execution = begin(text_limit=limit)
    many = ["\ud800" * 1_000] * 5_000 + [""] * 50_000 + ["last"]
    result = finish(execution, status="error", ename="E", evalue="x" * 5_000_000, traceback=many)
    longest = limit or 2 * 1024 * 1024
    assert result.error is not None
    assert len(result.error.evalue) <= (1_000_000 if limit else longest)
    assert len("\n".join(result.error.traceback)) <= longest
    assert len(result.error.traceback) <= 10_001
    assert limit == 10 or result.error.traceback[-1].endswith("last")
    assert result.truncated
    assert not limit or len(result.text) <= limit


def test_a_last_word_of_any_size_is_bounded() -> None:
    execution = begin()
    execution.receive(Farewell("x" * 5_000_000), now=NOW)
    assert len(execution.farewell) <= 2_000


def test_what_a_task_of_the_cell_writes_after_its_end_is_passed_on_as_it_came() -> None:
    late = Output("me", "stdout", "late")
    raw = Execution(Execute("me", "code"), timeout=None, now=NOW, raw=True)
    assert raw.receive_all([Done("me", "ok", 1), late], now=NOW) == [late]
    plain = begin()
    assert plain.receive_all([Done("me", "ok", 1), late], now=NOW) == []

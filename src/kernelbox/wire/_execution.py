"""One run of one cell, as a pure state machine: messages and the time go in, events, orders and the result come out.

When its time is up, `_timeout_ladder.py` decides what is done.
"""

from __future__ import annotations

from kernelbox.wire._messages import (
    Ask,
    Begun,
    Clear,
    Comm,
    Display,
    Done,
    Execute,
    Farewell,
    Message,
    Output,
    Payload,
    Started,
    Withdraw,
)
from kernelbox.wire._output_limit import bound, value_limit
from kernelbox.wire._results import ErrorInfo, ExecutionResult, SetBack
from kernelbox.wire._schema import MAX_ERROR, MAX_LINES
from kernelbox.wire._timeout_ladder import TimeoutLadder
from kernelbox.wire.results._transcript import Transcript, writable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from kernelbox.wire._results import OutputItem
    from kernelbox.wire._timeout_ladder import Holder, Order

    Event = OutputItem | Ask | Withdraw | Comm | Payload | Started | Begun | Output | Display | Clear | Done

# The messages that a watcher receives about other clients' cells.
_ABOUT_CELLS = (Begun, Output, Display, Clear, Comm, Done)

# The end of every sentence about a death.
LOST = "; its variables are lost"

# Characters of a kernel's farewell: our own sentences have a tenth of it.
_LONGEST_REASON = 2_000

# Characters of a call that a sentence shows.
_LONGEST_CALL = 200


def _where(traceback: list[str]) -> list[str]:
    """Returns where a cell was when it was interrupted: its traceback without our own KeyboardInterrupt."""
    if not traceback or traceback[-1].rstrip(" :") != "KeyboardInterrupt":
        return traceback
    lines = traceback[:-1]
    return lines if any(lines) else []


class Execution:
    """Follows one execution from its request to its result.

    A `raw` one keeps no outputs: its events are the messages as they arrived and, on a connection that watches the
    kernel, those of other cells too.
    """

    def __init__(self, request: Execute, *, timeout: float | None, now: float, raw: bool = False) -> None:
        self.request = request
        self._raw = raw
        self.result: ExecutionResult | None = None
        self.started = False
        self._timeout = timeout
        self._began = now
        self._now = now
        self.ladder = TimeoutLadder(timeout, now=now)
        """It says when `tick` wants to be called next."""
        self._cause: Literal["timeout", "cancel"] | None = None
        self._transcript = Transcript(request.text_limit)
        self._execution_count: int | None = None
        self.farewell = ""
        """What the kernel said when it ended itself."""
        self._recovered = False
        self._unanswered = ""
        self._timed_out_at = ""

    def __repr__(self) -> str:
        return f"<Execution {self.request.id} {self.result.status if self.result else self.ladder.rung}>"

    @property
    def text(self) -> str:
        """What the cell has written and shown so far."""
        return self._transcript.text

    @property
    def is_long(self) -> bool:
        """Whether so much was written that its end takes long, unless `put_together` runs first, in a thread."""
        return self._transcript.is_long

    def put_together(self) -> None:
        """Joins the written text, which takes long if there is much of it, before `Done` is received."""
        self._transcript.put_together()

    def hold(self, seconds: float) -> None:
        """Moves the deadline: time spent waiting for a person does not count."""
        self.ladder.hold(seconds)

    def wait_for_answer(self, call: str) -> None:
        """Notes the call that waits for the application's answer; an empty text if none does."""
        self._unanswered = call if len(call) <= _LONGEST_CALL else f"{call[:_LONGEST_CALL]}…"

    def receive_all(self, messages: list[Message], *, now: float) -> list[Event]:
        """Takes messages that arrived together and returns what they mean to the caller."""
        return [event for message in messages for event in self.receive(message, now=now)]

    def receive(self, message: Message, *, now: float) -> list[Event]:
        """Takes a message from the kernel and returns what it means to the caller."""
        self._now = now
        if isinstance(message, Farewell):
            self.farewell = bound(message.reason, _LONGEST_REASON)
            return []
        if getattr(message, "id", None) != self.request.id or self.result is not None:  # of a task that it left behind
            return [message] if self._raw and isinstance(message, _ABOUT_CELLS) else []
        match message:
            case Started():
                self.started = True
                self._execution_count = message.execution_count
                return [message] if self._raw else []
            case Output() | Display() | Clear() if self._raw:
                return [message]
            case Output():
                return [self._transcript.add_output(message)]
            case Display():
                return [self._transcript.add_display(message)]
            case Clear():
                return [self._transcript.clear(message)]
            case Ask() | Withdraw() | Comm() | Payload():
                return [message]
            case Done() if self.ladder.rung != "killing":  # it comes too late to keep the kernel
                self._finish(message)
        return []

    def tick(self, *, now: float, holder: Holder = "other") -> Order | None:
        """Returns what must be done because time has passed; `holder` says what the kernel is busy with."""
        self._now = now
        if self.result is not None or now < self.ladder.due:
            return None
        if self.ladder.rung == "running":
            self._cause = "timeout"
            self._timed_out_at = self._unanswered
        self.started |= holder == "this"
        order = self.ladder.climb(now=now, started=self.started, holder=holder)
        if order == "abandon":
            self._end_unrun()
        return order

    def cancel(self, *, now: float) -> Order | None:
        """Begins to stop the execution because the caller cancelled it."""
        if self.result is not None or self.ladder.rung != "running":
            return None
        self._cause = "cancel"
        return self.ladder.climb(now=now, started=self.started)

    def recover(self, leftovers: list[Output] | None) -> list[Event]:
        """Takes, once, what the kernel had written but not sent when it died; None if it did not run this then."""
        if self.result is not None or self._recovered or leftovers is None:
            return []
        self._recovered = self.started = True
        ours = [output for output in leftovers if output.id == self.request.id]
        return [*ours] if self._raw else [self._transcript.add_output(output) for output in ours]

    def killed(self, *, now: float, failure: str = "", set_back: SetBack | None = None) -> None:
        """Ends the execution: the kernel did not stop and was killed; a new one has its name, or could not start."""
        self._now = now
        if self.result is None and set_back is not None:
            told = f"{self._what_happened()}; it did not stop when interrupted, so the kernel was killed"
            self._end("rolled back", f"{told}, and {set_back}", set_back=set_back)
        if self.result is None:
            aftermath = f"killed, and could not be started again ({failure})" if failure else "restarted"
            self._end(
                "died" if failure else "restarted",
                f"{self._what_happened()}; it did not stop when interrupted, so the kernel was {aftermath}: "
                "its variables are lost",
            )

    def died(self, cause: str, *, now: float, set_back: SetBack | None = None) -> None:
        """Ends the execution: the kernel is gone, or a copy has taken its place that was made before."""
        self._now = now
        if self.result is not None:
            return
        self._cause = None  # the death ended the cell, not the timeout or the cancellation
        if set_back is None:
            self._end("died", f"{cause}{LOST}", ename="KernelDied")
        elif set_back.asked_for:
            told = "while the cell ran" if self.started else "before the cell ran"
            self._end("rolled back", f"{told}, {set_back}", ename="RolledBack", set_back=set_back)
        else:
            self._end("died", f"{cause}; {set_back}", ename="KernelDied", set_back=set_back)

    def cut_off(self, reason: str, *, now: float) -> None:
        """Ends the execution: the kernel lives, but its messages about this cell can no longer reach us."""
        self._now = now
        if self.result is None:
            told = f"{reason}, so its result is lost; the kernel goes on with its variables"
            if self._cause is None:
                self._end("interrupted", told, ename="ConnectionLost")
            else:
                self._end("interrupted", f"{self._what_happened()}; {told}")

    def _finish(self, done: Done) -> None:
        if done.status == "aborted":
            self._end_unrun(done.evalue)
            return
        if done.interrupted and self._cause is not None:
            kept = "the cell was interrupted and the kernel kept its variables"
            self._end(
                "interrupted",
                kept if self._what_happened() == "cancelled" else f"{self._what_happened()}; {kept}",
                traceback=_where(done.traceback),
                done=done,
            )
            return
        error = ErrorInfo(done.ename, done.evalue, done.traceback) if done.status == "error" else None
        self._conclude("interrupted" if done.interrupted else "finished", error, done=done)

    def _end_unrun(self, reason: str = "") -> None:
        if not reason:
            behind = f"{self.ladder.held_by}, which was interrupted" if self.ladder.held_by else "another cell"
            reason = f"while it waited behind {behind}"
        self._end("never ran", f"{self._why()} {reason}; it never ran")

    def _what_happened(self) -> str:
        return f"{self._why()} while it waited behind {self.ladder.held_by}" if self.ladder.held_by else self._why()

    def _why(self) -> str:
        if self._cause != "timeout":
            return "cancelled"
        asked = f" while {self._timed_out_at} waited for an answer" if self._timed_out_at else ""
        return f"timed out after {self._timeout:g} s{asked}"

    def _end(
        self,
        ending: Literal["interrupted", "restarted", "died", "rolled back", "never ran"],
        evalue: str,
        *,
        ename: str | None = None,
        traceback: list[str] | None = None,
        done: Done | None = None,
        set_back: SetBack | None = None,
    ) -> None:
        ename = ename or ("TimeoutError" if self._cause == "timeout" else "Cancelled")
        self._conclude(ending, ErrorInfo(ename, evalue, [*(traceback or ()), f"{ename}: {evalue}"]), done=done)
        if set_back is not None and self.result is not None:
            set_back.note_in(self.result)

    def _conclude(
        self,
        ending: Literal["finished", "interrupted", "restarted", "died", "rolled back", "never ran"],
        error: ErrorInfo | None,
        *,
        done: Done | None,
    ) -> None:
        transcript, cut = self._transcript, False
        if error is not None:
            error, cut = self._fit(error)
            if error.traceback:  # without one it is already in stderr, as IPython does with a misused magic
                transcript.add_error(error, by_cell=done is not None)
        timed_out = self._cause == "timeout" and ending != "finished"
        text = transcript.text
        self.result = ExecutionResult(
            status="timeout" if timed_out else "error" if error else "success",
            output=transcript.stdout.text,
            stderr=transcript.stderr.text,
            error=error,
            return_value=transcript.return_value,
            execution_count=done.execution_count if done else self._execution_count,
            duration_ms=round((self._now - self._began) * 1000),
            outputs=transcript.items,
            truncated=transcript.truncated or cut or bool(done and done.cut),
            text=text,
            state="lost" if ending in ("restarted", "died") else "kept",
            ending=ending,
            changed=done.changed if done else None,
            value=transcript.value,
            exit_code=done.exit_code if done else None,
            execution_id=self.request.id,
        )

    def _fit(self, error: ErrorInfo) -> tuple[ErrorInfo, bool]:
        """Returns an error cut to its limits, and whether it was cut; one from our own guest fits already."""
        limit = min(self.request.text_limit or MAX_ERROR, MAX_ERROR)
        whole, value = writable("\n".join(error.traceback)), writable(error.evalue)
        text, evalue = bound(whole, limit), bound(value, min(value_limit(limit), MAX_ERROR))
        lines = text.split("\n", MAX_LINES) if error.traceback else []
        return ErrorInfo(writable(error.ename), evalue, lines), len(text) < len(whole) or len(evalue) < len(value)

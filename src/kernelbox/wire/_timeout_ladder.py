"""The timeout ladder: what is done, step by step, with a cell whose time is up or that was cancelled.

Each rung is tried only when the one before did not stop the cell:

    interrupt  ──GRACE──▶  interrupt harder  ──LAST_GRACE──▶  kill, and restart the kernel

A cell that still waits in the queue is withdrawn instead: it must not stop another client's cell. If the kernel does
not confirm that, and no cell of a living client holds it, then something that an earlier cell left behind holds it: a
task, a thread, a cell whose client has gone. The ladder continues at its second rung.

The ladder only decides. `core/cells/_execution_orders.py` carries its orders out. For a cell whose client has gone, the
kernel climbs the same rungs itself: `lose` in `guest/serve/_kernel_process.py`.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Order = Literal["interrupt", "interrupt harder", "kill", "abandon"]

    # What the kernel is busy with: this execution, one of another client, one whose client has gone, or none at all.
    Holder = Literal["this", "other", "abandoned", "none"]

# Long enough for a numpy call or a `finally:` block to end by itself; with LAST_GRACE below the 4 s a caller may wait.
GRACE = 1.5
LAST_GRACE = 1.0

# How long a withdrawn execution waits for the kernel to say that it dropped it.
WITHDRAW_GRACE = 1.0

# How long an interrupted leftover of an earlier cell has to stop. A busy machine must not look like one that does not:
# this is longer than any pause seen with 200 kernels starting on two cores.
HELD_GRACE = 5.0

_HELD_BY: dict[Holder, str] = {
    "none": "work that an earlier cell had left in the background",
    "abandoned": "a cell whose client had gone away",
}


class TimeoutLadder:
    """Where one execution is on the ladder, and when it must climb."""

    def __init__(self, timeout: float | None, *, now: float) -> None:
        self.due = math.inf if timeout is None else now + timeout
        """When the next rung is due."""
        self.rung: Literal["running", "withdrawing", "interrupting", "interrupting harder", "killing"] = "running"
        self.held_by = ""
        """In words, what the kernel was found to be busy with, if that is left from an earlier cell."""

    def hold(self, seconds: float) -> None:
        """Moves the deadline: time spent waiting for a person does not count."""
        if self.rung == "running":
            self.due += seconds

    def climb(self, *, now: float, started: bool, holder: Holder = "other") -> Order | None:
        """Goes to the next rung and returns what must be done there; `started` says that the kernel runs the cell."""
        match self.rung:
            case "running" if not started:
                self.rung, self.due = "withdrawing", now + WITHDRAW_GRACE
                return "interrupt"
            case "withdrawing" if not started and holder == "other":
                return "abandon"
            case "withdrawing" if not started:
                self.held_by = _HELD_BY[holder]
                self.rung, self.due = "interrupting harder", now + HELD_GRACE
                return "interrupt harder"
            case "running" | "withdrawing":
                self.rung, self.due = "interrupting", now + GRACE
                return "interrupt"
            case "interrupting":
                self.rung, self.due = "interrupting harder", now + LAST_GRACE
                return "interrupt harder"
            case "interrupting harder":
                self.rung, self.due = "killing", math.inf
                return "kill"
            case "killing":
                return None

"""How a kernel ended, in words."""

from __future__ import annotations

import json
import os
import signal
import time

from kernelbox.wire import _state
from kernelbox.wire._messages import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.host._process import Process

# Files in a kernel's directory.
DEATH, INTENT, REPORTED, STATE = "death.json", "ending", "reported", "state"

# The keeper writes its note in a few milliseconds; a caller is to hear of a death within 0.2 s.
_NOTE_PATIENCE = 0.15

# The number of text found in a dead kernel's pipes, which nobody can have sent.
_AFTER_ALL = 1 << 40


def announce(directory: str, reason: str) -> None:
    """Writes down why a kernel is about to be ended, for those who wait for it."""
    with open(os.path.join(directory, INTENT), "w", encoding="utf-8") as file:
        file.write(reason)


def find_cause(directory: str, process: Process) -> str:
    """Returns why a kernel that has ended did so; waits a moment for its keeper's note."""
    note = wait_for_note(directory, _NOTE_PATIENCE)
    if not os.path.isdir(directory):
        return "destroyed"
    if intent := _read_text(os.path.join(directory, INTENT)):
        return intent
    if note is None:
        if process.alive:
            return "the connection to the kernel was lost"
        return "the process is gone, and so is the one that could have told why"
    return describe(note)


def describe(note: dict[str, Any]) -> str:
    """Puts a keeper's note in words."""
    number = note.get("signal")
    if number is not None:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        if note.get("out_of_memory"):
            return f"killed by {name}, probably out of memory"
        return f"killed by {name}"
    return f"the process exited with status {note.get('exit_status')}"


def wait_for_note(directory: str, patience: float) -> dict[str, Any] | None:
    """Returns the keeper's note, once it is there."""
    deadline, pause = time.monotonic() + patience, 0.001
    while True:
        if text := _read_text(os.path.join(directory, DEATH)):
            note: dict[str, Any] = json.loads(text)
            return note
        if time.monotonic() > deadline or not os.path.isdir(directory):
            return None
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


def read_leftovers(directory: str, execution_id: str) -> list[Output]:
    """Returns what the dead kernel had written but not sent: from its state file, then from its pipes."""
    try:
        with open(os.path.join(directory, STATE), "rb") as file:
            outputs = _state.leftovers(file.read())
    except OSError:
        outputs = []
    note = wait_for_note(directory, 0.0)
    for name, text in zip(_state.STREAMS, (note or {}).get("last_words", ()), strict=False):
        if text:
            outputs.append(Output(execution_id, _AFTER_ALL, name, text))
    return outputs


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""

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

# Files in a kernel's directory: its keeper's note, why it was ended on purpose, that its death has been told, its state.
DEATH, INTENT, REPORTED, STATE = "death.json", "ending.json", "reported", "state"

# The keeper writes its note in a few milliseconds; a caller is to hear of a death within 0.2 s.
NOTE_PATIENCE = 0.15

# The number of text found in a dead kernel's pipes, which nobody can have sent.
_AFTER_ALL = 1 << 40


def announce(directory: str, pid: int, reason: str) -> None:
    """Writes down why a process is about to be ended, for those who wait for it."""
    path = os.path.join(directory, INTENT)
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"pid": pid, "reason": reason}, file)
        os.replace(path + ".new", path)
    except OSError:
        return  # a full disk, or a directory that has gone: the kernel can be ended all the same


def find_cause(directory: str, process: Process, patience: float = NOTE_PATIENCE) -> str:
    """Returns why a process that has ended did so; waits a moment for its keeper's note."""
    note = wait_for_note(directory, patience)
    if not os.path.isdir(directory):
        return "destroyed"
    intent = _read(os.path.join(directory, INTENT))
    if intent is not None and intent.get("pid") == process.pid:
        return str(intent.get("reason"))
    if note is None or note.get("pid") != process.pid:
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
        if (note := _read(os.path.join(directory, DEATH))) is not None:
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


def claim_report(directory: str) -> bool:
    """Takes it upon the caller to tell of a death; False if somebody has been told."""
    try:
        os.close(os.open(os.path.join(directory, REPORTED), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True  # it cannot be noted: better told twice than never
    return True


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None

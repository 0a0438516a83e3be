"""Notes about the end of a kernel's process: why a host ended it, how its keeper saw it end, whether it has been told.

Each note names the process it is about: a kernel keeps its directory when it is restarted, and a client may still ask
about the process before. A keeper may know its kernels by other numbers than hosts do, and names them by their start.
A cell can write to the directory too. What hosts write they sign, and believe only if the signature fits; the keeper's
note is only shown.
"""

from __future__ import annotations

import json
import signal
import time

from kernelbox.base._text import escape
from kernelbox.host.store._state_file import read_state
from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._layout import DEATH, INTENT, KEPT, REPORTED
from kernelbox.wire._messages import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.host.process._process import Process
    from kernelbox.host.store._kernel_directory import KernelDirectory

# The note about an end is written before its process is gone; this long is a moment for notes that come from elsewhere.
CAUSE_PATIENCE = 0.15

# While the process is a zombie of its keeper's, that is about to write; a keeper that takes longer is stuck.
_ZOMBIE_PATIENCE = 5.0

# When srt has ended, with the keeper that ran in it, its parent reports the deaths of the kernels within this time.
_SRT_PATIENCE = 5.0

# A keeper sees a death within milliseconds; one that does not by then may have been stopped.
_STOPPED_AFTER = 0.1

# A keeper's note carries at most 1 MiB of each stream, of which JSON may make six times as much.
_LONGEST_NOTE = 16 * 1024 * 1024

# A cause is a sentence; one that a cell has forged is cut.
_LONGEST_CAUSE = 1000


def write_reason(directory: KernelDirectory, process: Process, reason: str) -> None:
    """Writes down why a process is about to be ended, for those who wait for it."""
    note = {"pid": process.pid, "start_time": process.start_time, "reason": reason}
    try:
        note["signature"] = _sign_intent(directory, process, reason)
        with directory.open() as place:
            place.replace(INTENT, json.dumps(note).encode())
    except OSError:
        return  # a full disk, or a directory that has gone: the kernel can be ended all the same


def find_cause(
    directory: KernelDirectory, process: Process, farewell: str = "", *, patience: float = CAUSE_PATIENCE
) -> str:
    """Returns why a process that has ended did so; waits a moment for its keeper's note.

    `farewell` is what the kernel said before it left. Cells can forge it, and the notes: the cause is only shown.
    """
    return escape(_find_cause(directory, process, farewell, patience))[:_LONGEST_CAUSE]


def _find_cause(directory: KernelDirectory, process: Process, farewell: str, patience: float) -> str:
    intent = _read_about(process, directory, INTENT)
    reason = None if intent is None else intent.get("reason")
    if intent and isinstance(reason, str) and intent.get("signature") == _sign_intent(directory, process, reason):
        return reason
    if farewell:
        return farewell
    note = wait_for_note(directory, process, patience=patience)
    if note is None and directory.exists() and _ran_in_srt(directory):
        note = wait_for_note(directory, process, patience=_SRT_PATIENCE)
    if not directory.exists():
        return "destroyed"
    state = read_state(directory)
    if state is not None and state.farewell and (note is None or note.get("signal") is None):
        return state.farewell  # its own word, which a signal would have cut short
    if note is not None:
        return describe(note)
    if process.alive:
        return "the connection to the kernel was lost"
    return "the process is gone, and so is the one that could have told why"


def describe(note: dict[str, Any]) -> str:
    """Puts a keeper's note in words."""
    number, status, reason = note.get("signal"), note.get("exit_status"), note.get("reason")
    if (excess := _describe_excess(note.get("excess"))) is not None:
        return excess
    if isinstance(reason, str) and reason:
        return reason
    if type(number) is int:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        if note.get("out_of_memory"):
            return f"killed by {name}, probably out of memory"
        return f"killed by {name}"
    return f"the process exited with status {status}" if type(status) is int else "its keeper's note was forged"


def _describe_excess(excess: object) -> str | None:
    """Says which limit a kernel went beyond, if its keeper has noted one."""
    from kernelbox.base._limits import describe_excess

    match excess:
        case [str(name), int() | float() as limit, int() | float() as used]:
            return describe_excess(name, limit, used)
    return None


def wait_for_note(
    directory: KernelDirectory, process: Process, *, patience: float = CAUSE_PATIENCE
) -> dict[str, Any] | None:
    """Returns the keeper's note about a process that has ended, once it is there."""
    began, pause = time.monotonic(), 0.001
    while True:
        keeper = process.waiting_keeper
        if keeper and time.monotonic() - began > _STOPPED_AFTER:
            process.continue_parent()
        if (note := _read(directory, DEATH)) is not None and note.get("start_time") == process.start_time:
            return note
        if time.monotonic() - began >= (_ZOMBIE_PATIENCE if keeper else patience) or not directory.exists():
            return None
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


def read_leftovers(directory: KernelDirectory, process: Process, execution_id: str) -> list[Output]:
    """Returns what a dead kernel had written for an execution but not sent, from its pipes."""
    note = wait_for_note(directory, process, patience=0.0)
    if note is None or note.get("execution") != execution_id:
        return []  # it belongs to the cell that ran, not to one that waited behind it
    words = note.get("last_words")
    words = [word for word in words if isinstance(word, str)] if isinstance(words, list) else []
    return [Output(execution_id, name, text) for name, text in zip(_state.STREAMS, words, strict=False) if text]


def claim_report(directory: KernelDirectory, process: Process) -> bool:
    """Takes it upon the caller to tell of a death; False if it has been told."""
    try:
        name, signature = _report_about(directory, process)
        with directory.open() as place:
            if place.add(name, signature):
                return True
            if was_reported(directory, process):
                return False
            place.remove_tree(name)  # a cell has put it there
            return place.add(name, signature)
    except OSError:
        return True  # it cannot be noted: better told twice than never


def was_reported(directory: KernelDirectory, process: Process) -> bool:
    """Tells whether a death has been told."""
    try:
        name, signature = _report_about(directory, process)
        with directory.open() as place:
            return place.read(name, len(signature)) == signature
    except OSError:
        return False


def _report_about(directory: KernelDirectory, process: Process) -> tuple[str, bytes]:
    """Returns the name of the note that a death has been told, and what is in it."""
    name = f"{REPORTED}{process.pid}-{process.start_time}"
    return name, directory.sign(name).encode()


def _sign_intent(directory: KernelDirectory, process: Process, reason: str) -> str:
    return directory.sign(INTENT, process.pid, process.start_time, reason)


def _ran_in_srt(directory: KernelDirectory) -> bool:
    """Tells whether a kernel's keeper ran in srt, whose parent reports the kernel's end if the keeper cannot."""
    try:
        with directory.open() as place:
            return place.exists(KEPT)
    except OSError:
        return False


def _read_about(process: Process, directory: KernelDirectory, name: str) -> dict[str, Any] | None:
    data = _read(directory, name)
    if data is None or (data.get("pid"), data.get("start_time")) != (process.pid, process.start_time):
        return None  # it is about another process
    return data


def _read(directory: KernelDirectory, name: str) -> dict[str, Any] | None:
    try:
        with directory.open() as place:
            data = json.loads(place.read(name, _LONGEST_NOTE))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None

"""Notes about the end of a kernel's process: why a host ended it, how its keeper saw it end, whether it was reported.

Each note names its process: a restarted kernel keeps its directory, and a client may still ask about the previous
process. A keeper may see other pids than hosts do, so its note names the process by its start time. Cells can write to
the directory too. Hosts sign their notes and believe only signed ones. The keeper's note is only shown.
"""

from __future__ import annotations

import time

from kernelbox.base._text import escape
from kernelbox.host.store._state_file import read_state
from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._json import dump, load
from kernelbox.wire._layout import DEATH, INTENT, KEPT, REPORTED
from kernelbox.wire._messages import UNBORN, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.host.files._place import Place
    from kernelbox.host.process._process import Process
    from kernelbox.host.store._kernel_directory import KernelDirectory

# The beginning of the reason why a kernel's process is ended by a rollback; the number of the checkpoint follows.
ROLLED_BACK = "rolled back to checkpoint "

# The last reasons of a kernel are kept: it may have been rolled back again before a client asks about the first time.
_MOST_REASONS = 8

# The last reports of deaths are kept. A client that knows only an older death of a kernel reports it once more.
_MOST_REPORTS = 8

# Most notes are written before the process is gone. This is how long to wait for a note from another process.
CAUSE_PATIENCE = 0.15

# While the process is a zombie, its keeper is about to write the note. A keeper that takes longer is stuck.
_ZOMBIE_PATIENCE = 5.0

# When srt has ended together with its keeper, the parent of srt reports the deaths of the kernels within this time.
_SRT_PATIENCE = 5.0

# A keeper sees a death within milliseconds. If it takes longer than this, it may have been stopped.
_STOPPED_AFTER = 0.1

# A keeper's note holds at most 1 MiB of each stream, which can become six times as long in JSON.
_LONGEST_NOTE = 16 * 1024 * 1024

# A cause is a sentence. One that a cell has forged may be longer, and is cut.
_LONGEST_CAUSE = 1000


def write_reason(directory: KernelDirectory, process: Process, reason: str, *, by_heir: bool = False) -> None:
    """Notes why a process is about to be ended, for the clients that wait for it.

    If an heir is to take its place, the note holds from then on: the keeper gives it its name.
    """
    try:
        note = _sign_intent(directory, process.pid, process.start_time, reason)
        reasons = [*_read_reasons(directory), note]
        with directory.open() as place:
            place.replace(f"{INTENT}{UNBORN}" if by_heir else INTENT, dump({"reasons": reasons[-_MOST_REASONS:]}))
    except OSError:
        return  # a full disk, or a missing directory, must not keep the kernel alive


def find_cause(
    directory: KernelDirectory, process: Process, farewell: str = "", *, patience: float = CAUSE_PATIENCE
) -> str:
    """Returns why a process ended; waits a moment for its keeper's note.

    `farewell` is the kernel's last message. Cells can forge it and the keeper's note, so the cause is only shown.
    """
    return escape(_find_cause(directory, process, farewell, patience))[:_LONGEST_CAUSE]


def _find_cause(directory: KernelDirectory, process: Process, farewell: str, patience: float) -> str:
    for intent in reversed(_read_reasons(directory)):
        if (intent["pid"], intent["start_time"]) == (process.pid, process.start_time):
            return str(intent["reason"])
    if farewell:
        return farewell
    note = wait_for_note(directory, process, patience=patience)
    if note is None and directory.exists() and _ran_in_srt(directory):
        note = wait_for_note(directory, process, patience=_SRT_PATIENCE)
    if not directory.exists():
        return "destroyed"
    state = read_state(directory)
    if state is not None and state.farewell and (note is None or note.get("signal") is None):
        return state.farewell  # what it wrote itself; a signal leaves no time for that
    if note is not None:
        return describe(note)
    if process.alive:
        return "the connection to the kernel was lost"
    return "the process is gone, and so is its keeper, which could have said why"


def describe(note: dict[str, Any]) -> str:
    """Returns a keeper's note as a sentence."""
    number, status, reason = note.get("signal"), note.get("exit_status"), note.get("reason")
    if (excess := _describe_excess(note.get("excess"))) is not None:
        return excess
    if isinstance(reason, str) and reason:
        return reason
    if type(number) is int:
        try:
            import signal

            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        if note.get("out_of_memory"):
            return f"killed by {name}, probably out of memory"
        return f"killed by {name}"
    return f"the process exited with status {status}" if type(status) is int else "its keeper's note was forged"


def _describe_excess(excess: object) -> str | None:
    """Returns which limit a kernel exceeded, if its keeper has noted one."""
    from kernelbox.base._limits import describe_excess

    match excess:
        case [str(name), int() | float() as limit, int() | float() as used]:
            return describe_excess(name, limit, used)
    return None


def wait_for_note(
    directory: KernelDirectory, process: Process, *, patience: float = CAUSE_PATIENCE
) -> dict[str, Any] | None:
    """Waits for the keeper's note about a process that has ended, and returns it."""
    began, pause = time.monotonic(), 0.0002
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


def read_leftovers(
    directory: KernelDirectory, process: Process, execution_id: str, *, patience: float = 0.0
) -> list[Output] | None:
    """Returns the output of an execution that a dead kernel left unread in its pipes; None if it did not run then."""
    note = wait_for_note(directory, process, patience=patience)
    if note is None or note.get("execution") != execution_id:
        return None  # the output belongs to the cell that ran, not to one that waited
    words = note.get("last_words")
    words = [word for word in words if isinstance(word, str)] if isinstance(words, list) else []
    return [Output(execution_id, name, text) for name, text in zip(_state.STREAMS, words, strict=False) if text]


def claim_report(directory: KernelDirectory, process: Process) -> bool:
    """Claims the report of a death for the caller; False if it was already reported."""
    try:
        name, signature = _report_about(directory, process)
        with directory.open() as place:
            if place.add(name, signature):
                _remove_old_reports(place)
                return True
            if was_reported(directory, process):
                return False
            place.remove_tree(name)  # a cell has made it
            return place.add(name, signature)
    except OSError:
        return True  # the note cannot be written: better reported twice than never


def _remove_old_reports(place: Place) -> None:
    """Removes all but the last notes about reported deaths: a kernel with checkpoints dies many times in one place."""
    found = [name for name in place.listdir() if name.startswith(REPORTED)]
    found.sort(key=lambda name: int(began) if (began := name.rpartition("-")[2]).isdecimal() else 0)
    for name in found[:-_MOST_REPORTS]:
        place.remove_tree(name)  # another client may just have removed it, and a cell made a directory of it


def was_reported(directory: KernelDirectory, process: Process) -> bool:
    try:
        name, signature = _report_about(directory, process)
        with directory.open() as place:
            return place.read(name, len(signature)) == signature
    except OSError:
        return False


def _report_about(directory: KernelDirectory, process: Process) -> tuple[str, bytes]:
    """Returns the name and the content of the note that a death was reported."""
    name = f"{REPORTED}{process.pid}-{process.start_time}"
    return name, directory.sign(name).encode()


def _sign_intent(directory: KernelDirectory, pid: int, start_time: int, reason: str) -> dict[str, Any]:
    """Returns a host's note about why it ends a process."""
    signature = directory.sign(INTENT, pid, start_time, reason)
    return {"pid": pid, "start_time": start_time, "reason": reason, "signature": signature}


def _ran_in_srt(directory: KernelDirectory) -> bool:
    """Tells whether a kernel's keeper ran in srt. Then the parent of srt reports a death that the keeper cannot."""
    try:
        with directory.open() as place:
            return place.exists(KEPT)
    except OSError:
        return False


def _read_reasons(directory: KernelDirectory) -> list[dict[str, Any]]:
    """Returns the notes of hosts about why they ended processes of the kernel, without what cells have forged."""
    found = (_read(directory, INTENT) or {}).get("reasons")
    genuine: list[dict[str, Any]] = []
    for note in found[-_MOST_REASONS:] if isinstance(found, list) else ():
        match note:
            case {"pid": int(pid), "start_time": int(start_time), "reason": str(reason)}:
                if note == (signed := _sign_intent(directory, pid, start_time, reason)):
                    genuine.append(signed)
    return genuine


def _read(directory: KernelDirectory, name: str) -> dict[str, Any] | None:
    try:
        with directory.open() as place:
            data = load(place.read(name, _LONGEST_NOTE))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None

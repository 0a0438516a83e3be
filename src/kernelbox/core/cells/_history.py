"""The history of a name: the cells that ran under it, as values read from the log of its kernel."""

from __future__ import annotations

from collections import deque

from kernelbox.base._errors import KernelBoxError, OutputNotKept
from kernelbox.base._text import escape
from kernelbox.host._engines import engine_named
from kernelbox.host.store._cell_files import make_loss, read_log
from kernelbox.host.store._record import format_time
from kernelbox.wire._cell_log import BEGAN, ENDED, SHOWN, make_header, read_began, read_ended, read_records
from kernelbox.wire._framing import Decoder, ProtocolError
from kernelbox.wire._messages import Clear, Display, Done, Output
from kernelbox.wire._output_limit import bound
from kernelbox.wire._results import ErrorInfo
from kernelbox.wire._values import dataclass, field
from kernelbox.wire.results._transcript import Transcript, writable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.wire._cell_log import LogRecord

    PastStatus = Literal["success", "error", "interrupted", "running", "died", "unknown"]

# The most cells to return, the last ones: a forged log may have a hundred times as many.
_MOST_CELLS = 10_000

# Characters of one text: more than a kernel logs of a cell.
_LONGEST_TEXT = 4_000_000

# Seconds that a kernel has to answer questions.
_PATIENCE = 10.0

_STATUSES: dict[str, PastStatus] = {"ok": "success", "error": "error", "interrupted": "interrupted"}

# The last second that a time can have: the end of the year 9999.
_LAST_TIME = 253402300799


@dataclass(frozen=True, slots=True)
class PastCell:
    """A cell that a kernel has run. `lost` says why the variables were lost after it; "" if they were not.

    `text` is what the result's `text` was, `status` success, error, interrupted, running, died, or unknown if its end
    was not logged. Times are ISO 8601 in UTC.
    """

    execution_id: str
    execution_count: int | None
    code: str
    language: str
    status: PastStatus
    text: str = ""
    began_at: str | None = None
    ended_at: str | None = None
    lost: str = ""

    def __repr__(self) -> str:
        lost = f" lost={self.lost:.60}" if self.lost else ""
        return f"<PastCell {self.execution_count or ''} {self.status} {self.code[:60]!r}{lost}>"


@dataclass(slots=True)
class LoggedCell:
    """A cell in the log of a kernel. A `count` of None is that of a cell without one, or that did not end."""

    execution_id: str
    language: str
    code: str
    began_at: float
    frames: list[bytes] = field(default_factory=list)
    count: int | None = None
    status: PastStatus = "running"
    ended_at: float | None = None
    lost: str = ""

    def read(self) -> Transcript:
        """Returns what the cell has written and shown, whole."""
        transcript = Transcript(_LONGEST_TEXT)
        for message in _decode(b"".join(self.frames)):
            match message:
                case Output():
                    transcript.add_output(message)
                case Display():
                    transcript.add_display(message)
                case Clear():
                    transcript.clear(message)
                case Done(status="error") if message.traceback:  # without one it is already in stderr
                    error = ErrorInfo(
                        writable(message.ename), writable(message.evalue), [*map(writable, message.traceback)]
                    )
                    transcript.add_error(error, by_cell=True)
        return transcript

    def describe(self, text_limit: int) -> PastCell:
        return PastCell(
            self.execution_id,
            self.count,
            self.code,
            self.language,
            self.status,
            bound(self.read().text, text_limit),
            _format(self.began_at),
            None if self.ended_at is None else _format(self.ended_at),
            self.lost,
        )


@dataclass(frozen=True, slots=True)
class CellLog:
    """The cells in the log of a kernel, oldest first; `is_cut` if there were earlier ones."""

    cells: list[LoggedCell]
    is_cut: bool

    def find(self, execution_id: str) -> LoggedCell | None:
        return next((cell for cell in reversed(self.cells) if cell.execution_id == execution_id), None)


def read_cells(kernel: KernelHandle) -> CellLog:
    """Reads the log of a kernel, alive or dead."""
    if not engine_named(kernel.record.engine).logs_cells:
        return _ask_for_inputs(kernel)
    records, is_cut = read_log(kernel.directory)
    if kernel.record.alive:
        log = arrange(records, is_cut)
        if kernel.record.status == "running" or not log.cells or log.cells[-1].status != "running":
            return log
        # It logs the end of a cell just after the client has the result, and answers after that.
        answered = kernel.ask("is_complete", {"code": ""}) is not None
        again = arrange(*read_log(kernel.directory))
        if answered and (same := again.find(log.cells[-1].execution_id)) is not None and same.status == "running":
            same.status = "unknown"  # it has ended, and its end could not be logged
        return again
    loss = make_loss(records, kernel.cause(), kernel.leftovers) if records else b""
    return arrange([*records, *read_records(make_header(1) + loss)[0]], is_cut)


def read_output(kernel: KernelHandle, execution_id: str) -> str:
    """Returns the whole text of an execution from the log of a kernel, alive or dead; raises OutputNotKept."""
    log = read_cells(kernel)
    if (cell := log.find(execution_id)) is not None:
        return cell.read().text
    if not engine_named(kernel.record.engine).logs_cells:
        why = "kernels of other kernelspecs keep no outputs"
    elif log.is_cut:
        why = "newer cells have taken its place"
    else:
        why = "it is not in the log"
    raise OutputNotKept(kernel.name, execution_id, why)


def arrange(records: Iterable[LogRecord], is_cut: bool) -> CellLog:
    """Returns the cells that the records of a log describe. Records that make no sense are left out."""
    cells: deque[LoggedCell] = deque(maxlen=_MOST_CELLS)
    count = 0
    for record in records:
        last = cells[-1] if cells else None
        try:
            if record.kind == BEGAN:
                if last is not None and last.status == "running":
                    last.status = "unknown"
                execution_id, language, code = map(writable, read_began(record.body))
                cells.append(LoggedCell(escape(execution_id), escape(language), code, record.at))
                count += 1
            elif last is None or last.lost:
                continue
            elif record.kind not in (SHOWN, ENDED):
                last.lost = escape(record.body.decode("utf-8", "replace")) or "unknown"
                if last.status == "running":
                    last.status, last.ended_at = "died", record.at
            elif last.status == "running":
                frames = record.body
                if record.kind == ENDED:
                    last.count, status, frames = read_ended(record.body)
                    last.status, last.ended_at = _STATUSES.get(status, "unknown"), record.at
                last.frames.append(frames)
        except ValueError:
            continue  # a cell has written it
    return CellLog(list(cells), is_cut or count > len(cells))


def _ask_for_inputs(kernel: KernelHandle) -> CellLog:
    """Returns the inputs that a kernel of another engine remembers. It has no log, and its outputs are not kept."""
    asked = {"hist_access_type": "tail", "n": _MOST_CELLS, "output": False, "raw": True}
    reply = kernel.query("history", asked, patience=_PATIENCE)
    try:
        inputs = [(int(line), str(code)) for _, line, code in reply["history"]]
    except (LookupError, TypeError, ValueError) as exc:
        said = reply.get("evalue", "a cell has tampered with it")
        raise KernelBoxError(f"kernel {kernel.name!r} has no history: {said!s:.1000}") from exc
    cells = [LoggedCell("", "python", writable(code), 0.0, [], line, "unknown") for line, code in inputs]
    return CellLog(cells, False)


def _decode(frames: bytes) -> list[object]:
    """Returns the messages in frames, up to the first that is not one, which a cell has written."""
    messages: list[object] = []
    decoder, at = Decoder(), 0
    try:
        while at < len(frames):
            size = 8 + int.from_bytes(frames[at : at + 4]) + int.from_bytes(frames[at + 4 : at + 8])
            messages += decoder.feed(frames[at : at + size])
            at += size
    except ProtocolError:
        pass
    return messages


def _format(at: float) -> str | None:
    return format_time(at) if 0 < at < _LAST_TIME else None

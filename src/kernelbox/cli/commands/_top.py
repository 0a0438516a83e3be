"""`top`: a live table of the kernels, with keys to interrupt and destroy them."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from argparse import Namespace
from collections.abc import Callable

from kernelbox.api import _sync
from kernelbox.api._configured import kernels
from kernelbox.base._errors import KernelBoxError
from kernelbox.base._text import escape
from kernelbox.cli.commands._inspect import first_line, show_size
from kernelbox.cli.terminal._output import emit
from kernelbox.cli.terminal._pretty import paint
from kernelbox.cli.terminal._tables import STATUS_COLORS, ago, format_table, print_table, width_of
from kernelbox.core._every_kernel import list_all
from kernelbox.host.engines._limiting import measured
from kernelbox.host.store._record import KernelRecord, parse_time
from kernelbox.wire._values import dataclass

# Seconds between two looks.
_EVERY = 1.0

_HEAD = ("NAME", "STATE", "MEMORY", "CPU", "CPU TIME", "CELLS", "SINCE", "RUNS")
_NUMBERS = (2, 3, 4, 5)

_ENTER_SCREEN, _LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"

_UP, _DOWN, _QUIT = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j"), ("q", "\x03", "\x04")
# One key: the name of an arrow, or a character.
_KEY = re.compile(r"\x1b[\[O].|.", re.DOTALL)
_HELP = "↑ ↓ choose   i interrupt   d destroy   q leave"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a kernel does and uses at one moment. `percent` is of one processor, since the look before."""

    record: KernelRecord
    percent: float | None
    runs: str

    def to_dict(self) -> dict[str, object]:
        record = self.record
        known = {name: getattr(record, name) for name in ("name", "kernel_id", "status", "usage", "busy_since")}
        return {**known, "cpu_percent": self.percent, "runs": self.runs}

    def row(self, now: float) -> tuple[str, ...]:
        record, usage = self.record, self.record.usage or {}
        since = parse_time(record.busy_since) if record.busy_since else parse_time(record.last_used_at)
        return (
            escape(record.name)[:40],
            record.status,
            show_size(usage["memory"]) if "memory" in usage else "-",
            "-" if self.percent is None else f"{self.percent:.0f} %",
            f"{usage['cpu']:.1f} s" if "cpu" in usage else "-",
            str(record.attempt_count),
            ago(now - since),
            escape(self.runs or record.death or ""),
        )


class KernelSampler:
    """Looks at the kernels of a home, and at what each has used since the last look."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def look(self) -> list[Usage]:
        """Returns what the kernels do now."""
        here, now = kernels(), time.monotonic()
        records = measured(list_all(here))
        found = []
        for record in records:
            seconds = (record.usage or {}).get("cpu", 0.0)
            earlier = self._before.get(record.kernel_id)
            percent = None
            if earlier is not None and now > earlier[0]:
                percent = max(0.0, 100 * (seconds - earlier[1]) / (now - earlier[0]))
            found.append(Usage(record, percent, _what_runs(record)))
            self._before[record.kernel_id] = now, seconds
        return found


def run(options: Namespace) -> int:
    """Runs the command."""
    watch = KernelSampler()
    if options.form == "json":
        emit({"kernels": [usage.to_dict() for usage in watch.look()]})
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _Top(watch).run()
    else:
        now = time.time()
        print_table(_HEAD, [usage.row(now) for usage in watch.look()], _NUMBERS)
    return 0


def _what_runs(record: KernelRecord) -> str:
    """Returns the first line of the cell that runs in a kernel."""
    if record.status != "running":
        return ""
    try:
        cells = kernels().kernel(record).history(1)
    except KernelBoxError:
        return ""
    return first_line(cells[-1].code) if cells and cells[-1].status == "running" else "(between cells)"


class _Top:
    """The live table on a terminal."""

    def __init__(self, watch: KernelSampler) -> None:
        self._watch = watch
        self._seen: list[Usage] = []
        self._chosen = ""
        self._notice = ""
        self._asks = False

    def run(self) -> None:
        """Shows the table until the user leaves."""
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
        sys.stdout.write(_ENTER_SCREEN)
        try:
            tty.setraw(fd)
            while True:
                self._seen = self._watch.look()
                self._draw()
                deadline = time.monotonic() + _EVERY
                while (left := deadline - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
                    if not self._press_all(os.read(fd, 1024).decode("ascii", "replace")):
                        return
                    self._draw()
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
            sys.stdout.write(_LEAVE_SCREEN)
            sys.stdout.flush()

    @property
    def _position(self) -> int:
        ids = [usage.record.kernel_id for usage in self._seen]
        return ids.index(self._chosen) if self._chosen in ids else 0

    def _press_all(self, keys: str) -> bool:
        """Acts on keys, of which a slow line brings several at once; returns whether to go on.

        No keys mean that the terminal is gone. What was typed ahead of a question is no answer to it.
        """
        for key in _KEY.findall(keys):
            if not self._press(key):
                return False
            if self._asks:
                break
        return bool(keys)

    def _press(self, key: str) -> bool:
        asked, self._asks = self._asks, False
        if key in _QUIT:
            return False
        if not self._seen:
            return True
        record = self._seen[self._position].record
        self._notice = ""
        if asked:
            if key == "y":
                self._notice = self._try(lambda: _sync.destroy(record), f"destroyed {record.name!r}")
                self._seen = self._watch.look()
        elif key in (*_UP, *_DOWN):
            at = self._position + (1 if key in _DOWN else -1)
            self._chosen = self._seen[max(0, min(at, len(self._seen) - 1))].record.kernel_id
        elif key == "i":
            self._notice = self._try(lambda: _sync.interrupt(record), f"interrupted {record.name!r}")
        elif key == "d":
            self._asks = True
            self._notice = f"destroy {record.name!r} and its variables? y or n"
        return True

    def _try(self, act: Callable[[], bool], done: str) -> str:
        try:
            return done if act() else "there was nothing to do"
        except KernelBoxError as exc:
            return str(exc)

    def _draw(self) -> None:
        size = os.get_terminal_size()
        now = time.time()
        rows = [usage.row(now) for usage in self._seen]
        head, *lines = format_table(_HEAD, rows, width_of(sys.stdout) - 2, _NUMBERS)
        shown = []
        for at, (line, usage) in enumerate(zip(lines, self._seen, strict=True)):
            mark = "▸ " if at == self._position else "  "
            shown.append(mark + paint(line, STATUS_COLORS[usage.record.status], sys.stdout))
        if not rows:
            shown.append("  there are no kernels")
        room = max(size.lines - 3, 1)
        first = max(0, self._position + 1 - room)  # the chosen kernel is always on the screen
        shown = [paint("  " + head, "bold", sys.stdout), *shown[first : first + room]]
        foot = [paint(escape(self._notice or _HELP)[: size.columns], "dim", sys.stdout)]
        text = f"{_CLEAR_LINE}\r\n".join([*shown, "", *foot])
        sys.stdout.write(f"{_HOME}{text}{_CLEAR_LINE}{_CLEAR_BELOW}")
        sys.stdout.flush()

"""The commands about copies of kernels: branch, checkpoint, checkpoints, rollback, drop, promote, list --tree."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from kernelbox.api import _copies, _sync
from kernelbox.api._configured import kernels
from kernelbox.base._limits import show_amount
from kernelbox.base._text import escape
from kernelbox.cli.terminal._output import FAILED, answer, say
from kernelbox.core._time_travel import choose_number
from kernelbox.core._time_travel import drop as end_checkpoint
from kernelbox.host._engines import engine_named
from kernelbox.host.store._checkpoint_files import Checkpoint
from kernelbox.host.store._record import KernelRecord


def branch(options: Namespace) -> int:
    made = _copies.branch(_find(options), names=options.to, reseed=not options.same_random, timeout=options.timeout)
    data = {"branches": [record.to_dict() for record in made]}
    return answer(options, data, "\n".join(_line_of(record) for record in made))


def checkpoint(options: Namespace) -> int:
    made = _copies.checkpoint(_find(options), options.label, timeout=options.timeout)
    if made.evicted:
        say(f"dropped {_count('checkpoint', made.evicted)}: there were too many of them, too old or too large")
    return answer(options, made.to_dict(), _describe(made))


def checkpoints(options: Namespace) -> int:
    found = _copies.checkpoints(_find(options))
    if found and found[-1].evicted:
        say(f"dropped {_count('checkpoint', found[-1].evicted)}: there were too many of them, too old or too large")
    text = "\n".join(map(_describe, found)) or "there are no checkpoints"
    return answer(options, {"checkpoints": [each.to_dict() for each in found]}, text)


def rollback(options: Namespace) -> int:
    record = _copies.rollback(_find(options), None if options.to is None else _number_or_label(options.to))
    lost = _count("execution", record.lost_executions) if record.lost_executions else "nothing"
    say(f"rolled {record.name!r} back to checkpoint {record.restored_from}; lost: {lost}")
    return answer(options, record.to_dict(), _line_of(record))


def drop(options: Namespace) -> int:
    record, here = _find(options), kernels()
    number = choose_number(here, record.kernel_id, _number_or_label(options.checkpoint))
    dropped = number is not None and end_checkpoint(here, record.kernel_id, number)
    if not dropped:
        say(f"kernel {record.name!r} has no checkpoint {options.checkpoint!r}")
    answer(options, {"dropped": dropped}, f"dropped checkpoint {number}" if dropped else "")
    return 0 if dropped else FAILED


def promote(options: Namespace) -> int:
    branch = _find(options)
    record = _copies.promote(branch, timeout=options.timeout)
    return answer(options, record.to_dict(), f"{branch.name!r} is now {record.name!r}\n{_line_of(record)}")


def show_tree(options: Namespace, records: Sequence[KernelRecord]) -> int:
    """Shows kernels below the kernels that they are branches of, each with its checkpoints."""
    below: dict[str | None, list[KernelRecord]] = {}
    known = {record.kernel_id for record in records}
    for record in records:
        below.setdefault(record.parent if record.parent in known else None, []).append(record)
    store = kernels().store
    frozen = {
        record.kernel_id: engine_named(record.engine).measure_checkpoints(store.directory(record.kernel_id))
        for record in records
    }

    def as_tree(record: KernelRecord) -> dict[str, Any]:
        return {
            **record.to_dict(),
            "checkpoints": [each.to_dict() for each in frozen[record.kernel_id]],
            "branches": [as_tree(each) for each in below.get(record.kernel_id, [])],
        }

    def draw(record: KernelRecord) -> Iterator[str]:
        """Yields the lines of a kernel, its checkpoints and its branches."""
        yield f"{escape(record.name)}  {record.status}"
        parts = [[_describe(each)] for each in frozen[record.kernel_id]]
        parts += [list(draw(each)) for each in below.get(record.kernel_id, [])]
        for index, lines in enumerate(parts):
            is_last = index == len(parts) - 1
            yield f"{'└─' if is_last else '├─'} {lines[0]}"
            for line in lines[1:]:
                yield f"{'  ' if is_last else '│ '} {line}"

    roots = below.get(None, [])
    text = "\n".join(line for record in roots for line in draw(record))
    return answer(options, {"kernels": [as_tree(record) for record in roots]}, text or "there are no kernels")


def _find(options: Namespace) -> KernelRecord:
    return _sync.status(options.names[0])


def _number_or_label(text: str) -> int | str:
    """Reads what names a checkpoint; a label is never just a number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _describe(checkpoint: Checkpoint) -> str:
    label = f" {escape(checkpoint.label)!r}" if checkpoint.label else ""
    used = f", {show_amount('memory', checkpoint.private_bytes, like=1000)}" if checkpoint.private_bytes else ""
    cells = f"{checkpoint.execution_count} cell{'' if checkpoint.execution_count == 1 else 's'}"
    return f"checkpoint {checkpoint.number}{label}: after {cells}{used}"


def _line_of(record: KernelRecord) -> str:
    return f"{escape(record.name)}  {record.status}  pid {record.pid}  id {record.kernel_id}"


def _count(what: str, numbers: list[int]) -> str:
    return f"{what}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"

"""Sandboxed kernels against plain ones of the same template: starting, executing, memory, many at once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import kernelbox
from benchmarks._measure import Row, percentile, scaled, show, times
from benchmarks._pairs import Openers, compare_executions, compare_starts, opener
from kernelbox.host.process._process import Process


def rows() -> Iterator[Row]:
    """Yields the rows in the order of docs/performance.md."""
    with tempfile.TemporaryDirectory() as workspace:
        kernels = {name: opener(workspace, sandbox=name == "sandboxed") for name in ("plain", "sandboxed")}
        for open_one in kernels.values():
            kernelbox.destroy(open_one())
        yield from _start(kernels)
        yield from _execute(kernels)
        yield from _memory(kernels)
        yield from _burst(kernels)


def _start(kernels: Openers) -> Iterator[Row]:
    taken = compare_starts(kernels)
    plain, sandboxed = percentile(taken["plain"], 50), percentile(taken["sandboxed"], 50)
    yield Row(
        "new sandboxed kernel to first result, template warm",
        show(taken["sandboxed"]),
        f"plain {show(taken['plain'])}",
        f"{sandboxed / plain:.2f} ×",
        "≤ 1.7 ×",
        sandboxed <= 1.7 * plain,
    )


def _execute(kernels: Openers) -> Iterator[Row]:
    taken, ratio = compare_executions(kernels, "sandboxed")
    yield Row(
        "`execute(kernel, '1+1')` in a sandbox",
        show(taken["sandboxed"]),
        f"plain {show(taken['plain'])}",
        f"{ratio:.2f} ×",
        "≤ 1.03 ×",
        ratio <= 1.03,
    )


def _memory(kernels: Openers) -> Iterator[Row]:
    differences = sorted(_measure(kernels["sandboxed"]) - _measure(kernels["plain"]) for _ in range(scaled(9)))
    more = percentile(differences, 50)
    yield Row(
        "memory of a sandboxed kernel beyond a plain one's", f"{more / 1024:.2f} MB", "", "", "≤ 0.5 MB", more <= 512
    )


def _measure(open_one: Callable[[], kernelbox.KernelRecord]) -> float:
    """Returns the kilobytes of a kernel, with its first process if it has one.

    It is the only one: a kernel that is opened later has the template write to pages which the others then have alone.
    """
    record = open_one()
    taken = _private(record.pid)
    if record.sandbox is not None:
        first = Process(record.pid or 0, record.start_time).first_of_namespace()
        assert first is not None
        taken += _private(first.pid)
    kernelbox.destroy(record)
    return taken


def _burst(kernels: Openers) -> Iterator[Row]:
    taken: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(scaled(3)):
        for name, open_one in kernels.items():
            opened: list[kernelbox.KernelRecord] = []
            taken[name] = sorted([*taken[name], *times(lambda: opened.extend(_open_many(open_one)), 1)])  # noqa: B023  # called at once
            for record in opened:
                kernelbox.destroy(record)
    plain, sandboxed = percentile(taken["plain"], 50), percentile(taken["sandboxed"], 50)
    yield Row(
        f"{scaled(100)} new sandboxed kernels at once from 4 threads",
        f"{sandboxed:.2f} s",
        f"plain {plain:.2f} s",
        f"{sandboxed / plain:.2f} ×",
        "≤ 1.5 ×",
        sandboxed <= 1.5 * plain,
    )


def _open_many(open_one: Callable[[], kernelbox.KernelRecord]) -> list[kernelbox.KernelRecord]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: open_one(), range(scaled(100))))


def _private(pid: int | None) -> int:
    """Returns the kilobytes that a process shares with no other."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_"))

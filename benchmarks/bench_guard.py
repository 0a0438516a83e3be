"""Guarded kernels against plain ones of the same template: starting, executing, approved commands, memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import kernelbox
from benchmarks._measure import Row, interleaved, percentile, show
from benchmarks._pairs import compare_starts
from kernelbox.api._configured import kernels
from kernelbox.base._environment import scrubbed_environment
from kernelbox.core._options import KernelOptions

_numbers = itertools.count()


def rows() -> Iterator[Row]:
    """Yields the rows in the order of docs/performance.md."""
    openers = {name: _opener(name) for name in ("plain", "guarded")}
    for open_one in openers.values():
        kernelbox.destroy(open_one())
    starts = compare_starts(openers)
    yield _compare("new guarded kernel to first result, template warm", starts, "guarded", "plain")
    records = {name: open_one() for name, open_one in openers.items()}
    cells = interleaved(
        {name: lambda record=record: kernelbox.execute(record, "1+1") for name, record in records.items()},  # type: ignore[misc]  # a default binds it
        rounds=20,
        batch=50,
    )
    yield _compare("`execute(kernel, '1+1')` in a guarded kernel", cells, "guarded", "plain", 1.03)
    commands = interleaved(
        {name: lambda record=record: _approve(record) for name, record in records.items()},  # type: ignore[misc]  # as above
        rounds=40,
        batch=1,
    )
    yield _compare("`!true`, approved, in a guarded kernel", commands, "guarded", "plain", 1.0)
    yield Row("memory of a runner", f"{_runner_memory(records['guarded']):.1f} MB")


def _opener(name: str) -> Callable[[], kernelbox.KernelRecord]:
    """Returns what opens a kernel and has its first result; both kinds have one environment, and so one template."""
    options = KernelOptions(env=scrubbed_environment({}), guarded=name == "guarded")

    def open_one() -> kernelbox.KernelRecord:
        record = kernels().create(f"{name}-{next(_numbers)}", options)
        assert kernelbox.execute(record, "1+1").return_value == "2"
        return record

    return open_one


def _approve(record: kernelbox.KernelRecord) -> None:
    assert kernelbox.execute(record, "!true", approve=lambda request: True).ok


def _compare(what: str, taken: dict[str, list[float]], one: str, other: str, most: float = 0.0) -> Row:
    ratio = percentile(taken[one], 50) / percentile(taken[other], 50)
    reference = f"{other} {show(taken[other])}"
    if not most:
        return Row(what, show(taken[one]), reference, f"{ratio:.2f} ×")
    return Row(what, show(taken[one]), reference, f"{ratio:.2f} ×", f"≤ {most:g} ×", ratio <= most)


def _runner_memory(record: kernelbox.KernelRecord) -> float:
    """Returns what a runner has that no other process shares, in megabytes."""
    with open(f"/proc/{record.pid}/task/{record.pid}/children") as file:
        runner = file.read().split()[0]
    if os.getuid() != 0:
        return float("nan")  # its memory is hidden from others of its user
    with open(f"/proc/{runner}/smaps_rollup") as file:
        sizes = dict(line.split(":", 1) for line in file if line.startswith("Private"))
    return sum(int(size.split()[0]) for size in sizes.values()) / 1024

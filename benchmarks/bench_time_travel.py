"""Time travel: branches, checkpoints, rollbacks and restores, compared with a new kernel in the same run.

Figures that others have published, each on a machine of its own. DeltaBox: checkpoint 10.8 ms, rollback 1.9 ms, files
included (arXiv 2605.22781v2). forkd: a live branch of a microVM of 1.5 GB pauses it for 56 ms, and 100 children of a
snapshot take 101 ms (its README, 0.4). Sandboxes of E2B's kind: about 4 s per GB to pause, 1 s to resume (documentation
of Novita's E2B-compatible service).
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import kernelbox
from benchmarks._measure import Row, interleaved, percentile, scaled, show

_NUMBERS = itertools.count(1)
_GIGABYTE = "data = [bytearray(b'x') * 10_000_000 for _ in range({count})]"
_OBJECTS = "data = [[n] for n in range({count})]"


def rows() -> Iterator[Row]:
    """Yields the numbers of copies, of kernels of several sizes."""
    os.environ["KERNELBOX_PRELOAD"] = ""
    kernelbox.get_or_create("warm")
    megabytes, objects = scaled(100) * 10, scaled(8_000_000)
    yield from _branches(f"{megabytes:,} MB of arrays", _GIGABYTE.format(count=megabytes // 10), 0.010, 1.3)
    yield from _branches(f"{objects:,} small objects", _OBJECTS.format(count=objects), 0.040, None)
    yield from _eight_branches(megabytes)
    yield from _rollbacks(megabytes)
    yield from _restores()


def _branches(what: str, code: str, reach: float, most: float | None) -> Iterator[Row]:
    kernel = kernelbox.get_or_create("large")
    _run("large", code)
    kernelbox.destroy(kernelbox.branch(kernel, "first"))  # what is done once is not measured
    taken = interleaved(
        {"branch": lambda: kernelbox.branch(kernel, _name()), "new": lambda: kernelbox.create(_name())},
        rounds=20,
        batch=1,
    )
    branch, new = (percentile(taken[name], 50) for name in ("branch", "new"))
    ok = branch <= reach and (most is None or branch <= most * new)
    goal = f"≤ {reach * 1e3:.0f} ms" + (f", ≤ {most} ×" if most else "")
    yield Row(
        f"branch of a kernel with {what}", show(taken["branch"]), show(taken["new"]), _ratio(branch, new), goal, ok
    )
    kernelbox.destroy("large")
    _end_copies()


def _eight_branches(megabytes: int) -> Iterator[Row]:
    kernel = kernelbox.get_or_create("large")
    _run("large", _GIGABYTE.format(count=megabytes // 10))
    before = _memory([kernelbox.status("large").pid])
    made: list[kernelbox.Kernel] = []

    def branch() -> None:
        made[:] = kernelbox.branch(kernel, names=[_name() for _ in range(8)])

    taken = interleaved({"eight": branch}, rounds=1, batch=1)["eight"]
    after = _memory([kernelbox.status("large").pid, *(each.pid for each in made)])
    ok = percentile(taken, 50) <= 0.1 and after <= before * 1.05
    value = f"{show(taken)}, {after / before - 1:+.1%} memory"
    yield Row(f"8 branches of {megabytes:,} MB at once", value, "", "", "≤ 100 ms, ≤ 5 %", ok)
    kernelbox.destroy("large")
    _end_copies()


def _rollbacks(megabytes: int) -> Iterator[Row]:
    kernel = kernelbox.get_or_create("large")
    _run("large", _GIGABYTE.format(count=megabytes // 10))
    taken = interleaved(
        {
            "checkpoint": lambda: kernelbox.checkpoint(kernel),
            "rollback": lambda: kernelbox.rollback(kernel),
            "new": lambda: kernelbox.create(_name()),
        },
        rounds=20,
        batch=1,
    )
    new = percentile(taken["new"], 50)
    frozen = kernelbox.checkpoints(kernel)[-1].private_bytes / 1e6
    shown = f"{show(taken['checkpoint'])}, {frozen:.1f} MB"
    ratio = _ratio(percentile(taken["checkpoint"], 50), new)
    yield Row(f"checkpoint of {megabytes:,} MB", shown, show(taken["new"]), ratio, "≤ 3.5 MB", frozen <= 3.5)
    rollback = percentile(taken["rollback"], 50)
    row = (show(taken["rollback"]), show(taken["new"]), _ratio(rollback, new), "≤ 6 ms", rollback <= 0.006)
    yield Row(f"rollback of {megabytes:,} MB", *row)
    kernelbox.destroy("large")
    _end_copies()


def _restores() -> Iterator[Row]:
    kernelbox.get_or_create("mortal")
    kernelbox.checkpoint("mortal")
    taken = sorted(_restore() for _ in range(scaled(20)))
    restore = percentile(taken, 50)
    yield Row("restore after a kill", show(taken), "", "", "≤ 10 ms", restore <= 0.010)
    kernelbox.destroy("mortal")


def _restore() -> float:
    """Kills a kernel that has a checkpoint; returns the seconds that it takes to come back."""
    pid = kernelbox.status("mortal").pid
    assert pid is not None
    ended = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([ended], [], [])
    os.close(ended)
    began = time.perf_counter()
    kernelbox.get_or_create("mortal")
    return time.perf_counter() - began


def _name() -> str:
    return f"copy-{next(_NUMBERS)}"


def _end_copies() -> None:
    for record in kernelbox.list_kernels():
        if record.name.startswith("copy-"):
            kernelbox.destroy(record)


def _run(kernel: str, code: str) -> None:
    result = kernelbox.execute(kernel, code, timeout=600)
    assert result.ok, result.text


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f} ×"


def _memory(pids: list[int | None]) -> float:
    """Returns the bytes that processes have together, shared pages counted once (Pss of proc(5))."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) * 1024.0 for line in lines if line.startswith("Pss:"))

"""Time travel: branches, checkpoints, rollbacks and restores, compared with a new kernel in the same run.

Figures that others have published, each on a machine of its own. DeltaBox: checkpoint 10.8 ms, rollback 1.9 ms, files
included (arXiv 2605.22781v2). forkd: a live branch of a microVM of 1.5 GB pauses it for 56 ms, and 100 children of a
snapshot take 101 ms (its README, 0.4). Sandboxes of E2B's kind: about 4 s per GB to pause, 1 s to resume (documentation
of Novita's E2B-compatible service).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kernelbox
from benchmarks._measure import Row, percentile, scaled, show
from kernelbox.host.process._process import children_of, parent_of

_NUMBERS = itertools.count(1)
_ARRAYS = "import numpy; data = [numpy.ones(12_500_000) for _ in range({count})]"  # 100 MB each
_OBJECTS = "data = [[n] for n in range({count})]"

# What the libraries are used for before a branch: their pools have threads then.
_USES = {
    "pandas": "import numpy, pandas\n"
    "frame = pandas.DataFrame({'key': numpy.arange(100_000) % 7, 'value': numpy.arange(100_000.0)})\n"
    "frame.groupby('key').value.mean(), frame.corr(), frame.values.T @ frame.values",
    "sklearn": "import numpy, sklearn.cluster, sklearn.ensemble\n"
    "points = numpy.random.default_rng(3).random((2000, 4)); labels = points.sum(axis=1) > 2\n"
    "sklearn.cluster.KMeans(4, n_init=1).fit(points)\n"
    "sklearn.ensemble.HistGradientBoostingClassifier(max_iter=20).fit(points, labels)",
    "torch": "import torch\n"
    "weights = torch.rand(300, 300, requires_grad=True)\n"
    "(torch.rand(300, 300) @ weights).relu().sum().backward()",
}

# Seconds between a step and the next, as a cell would take: what a step leaves to be done is done then.
_PAUSE = 0.2


def rows() -> Iterator[Row]:
    """Yields the numbers of copies, of kernels of several sizes."""
    os.environ["KERNELBOX_PRELOAD"] = ""
    kernelbox.get_or_create("warm")
    megabytes, objects = scaled(10) * 100, scaled(8_000_000)
    arrays, lists = _ARRAYS.format(count=megabytes // 100), _OBJECTS.format(count=objects)
    yield from _branches(f"{megabytes:,} MB of arrays", arrays, 0.010, 1.3)
    yield from _branches(f"{objects:,} small objects", lists, 0.040, None)
    for name, use in _USES.items():
        if importlib.util.find_spec(name) is not None:
            yield from _branches(f"{name} after real use", use, 0.060, None, again=True)
    yield from _eight_branches(megabytes, arrays)
    yield from _rollbacks(f"{megabytes:,} MB of arrays", arrays)
    yield from _rollbacks(f"{objects:,} small objects", lists)
    yield from _restores()


def _branches(what: str, code: str, reach: float, most: float | None, *, again: bool = False) -> Iterator[Row]:
    """Measures branches; with `again` the code is run before each, so that pools have threads."""
    kernel = kernelbox.get_or_create("large")
    _run("large", code)
    kernelbox.destroy(kernelbox.branch(kernel, "first"))  # what is done once is not measured

    def prepare() -> None:
        _end_copies()
        if again:
            _run("large", code)

    taken = _in_turns(
        {
            "branch": lambda: kernelbox.branch(kernel, _name()),
            "new": lambda: kernelbox.create(_name()),
            "forked": _create_without_spare,
        },
        prepare,
    )
    branch, new, forked = (percentile(taken[name], 50) for name in ("branch", "new", "forked"))
    ok = branch <= reach and (most is None or branch <= most * forked)
    goal = f"≤ {reach * 1e3:.0f} ms" + (f", ≤ {most} × without a spare" if most else "")
    reference = f"{show(taken['new'])}; without a spare {show(taken['forked'])}"
    ratio = f"{_ratio(branch, new)}; {_ratio(branch, forked)}"
    yield Row(f"branch of a kernel with {what}", show(taken["branch"]), reference, ratio, goal, ok)
    kernelbox.destroy("large")
    _end_copies()


def _create_without_spare() -> float:
    """Returns the seconds that a kernel takes right after another: the template has made no spare meanwhile."""
    kernelbox.create(_name())
    began = time.perf_counter()
    kernelbox.create(_name())
    return time.perf_counter() - began


def _eight_branches(megabytes: int, code: str) -> Iterator[Row]:
    kernel = kernelbox.get_or_create("large")
    _run("large", code)
    kernelbox.destroy(kernelbox.branch(kernel, "first"))
    before, after = _memory(kernel), list[int]()

    def measure() -> None:
        if after:
            after[-1] = _memory(kernel)
        _end_copies()
        after.append(0)

    def branch() -> None:
        kernelbox.branch(kernel, names=[_name() for _ in range(8)])

    taken = _in_turns({"eight": branch}, measure, rounds=5)["eight"]
    measure()
    more = percentile(sorted(after[:-1]), 50) / before - 1
    ok = percentile(taken, 50) <= 0.1 and more <= 0.05
    value = f"{show(taken)}, {more:+.1%} memory"
    yield Row(f"8 branches of {megabytes:,} MB at once", value, "", "", "≤ 100 ms, ≤ 5 %", ok)
    kernelbox.destroy("large")
    _end_copies()


def _rollbacks(what: str, code: str) -> Iterator[Row]:
    kernel = kernelbox.get_or_create("large")
    _run("large", code)
    taken = _in_turns(
        {
            "checkpoint": lambda: kernelbox.checkpoint(kernel),
            "rollback": lambda: kernelbox.rollback(kernel),
            "new": lambda: kernelbox.create(_name()),
        },
        _end_copies,
    )
    new = percentile(taken["new"], 50)
    frozen = kernelbox.checkpoints(kernel)[-1].private_bytes / 1e6
    shown = f"{show(taken['checkpoint'])}, {frozen:.1f} MB"
    ratio = _ratio(percentile(taken["checkpoint"], 50), new)
    yield Row(f"checkpoint of {what}", shown, show(taken["new"]), ratio, "≤ 3.5 MB", frozen <= 3.5)
    rollback = percentile(taken["rollback"], 50)
    row = (show(taken["rollback"]), show(taken["new"]), _ratio(rollback, new), "≤ 6 ms", rollback <= 0.006)
    yield Row(f"rollback of {what}", *row)
    kernelbox.destroy("large")
    _end_copies()


def _restores() -> Iterator[Row]:
    for what, limits, die in (("a kill", None, _kill), ("an OOM kill", {"memory": "300MB"}, _exhaust)):
        kernelbox.get_or_create("mortal", limits=limits)
        kernelbox.checkpoint("mortal")
        taken = _in_turns({"restore": die, "new": lambda: kernelbox.create(_name())}, _end_copies)
        restore, new = percentile(taken["restore"], 50), percentile(taken["new"], 50)
        row = (show(taken["restore"]), show(taken["new"]), _ratio(restore, new), "≤ 10 ms", restore <= 0.010)
        yield Row(f"restore after {what}", *row)
        kernelbox.destroy("mortal")
        _end_copies()


def _kill() -> float:
    """Kills a kernel that has a checkpoint; returns the seconds that it takes to come back."""
    pid = kernelbox.status("mortal").pid
    assert pid is not None
    ended = _End(pid)
    os.kill(pid, signal.SIGKILL)
    ended.join()
    kernelbox.get_or_create("mortal")
    return time.perf_counter() - ended.at


def _exhaust() -> float:
    """Has a kernel exceed its memory limit; returns the seconds from its end to the result of the cell."""
    pid = kernelbox.status("mortal").pid
    assert pid is not None
    ended = _End(pid)
    result = kernelbox.execute("mortal", "data = bytearray(b'x') * 2_000_000_000", timeout=60)
    taken = time.perf_counter()
    ended.join()
    assert result.state == "rolled back", result.text
    return taken - ended.at


class _End(threading.Thread):
    """Notes when a process ends."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.at = 0.0
        self._process = os.pidfd_open(pid)
        self.start()

    def run(self) -> None:
        select.select([self._process], [], [])
        self.at = time.perf_counter()
        os.close(self._process)


def _in_turns(
    actions: dict[str, Callable[[], object]], prepare: Callable[[], None], *, rounds: int = 20
) -> dict[str, list[float]]:
    """Measures actions in turns, with a pause before each. One that returns seconds has measured itself."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(scaled(rounds)):
        prepare()
        for name, action in actions.items():
            time.sleep(_PAUSE)
            began = time.perf_counter()
            told = action()
            taken[name].append(told if isinstance(told, float) else time.perf_counter() - began)
    return {name: sorted(values) for name, values in taken.items()}


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


def _memory(kernel: kernelbox.KernelRecord) -> int:
    """Returns the bytes that a keeper and all its kernels have together, each page counted once (proc(5)).

    Pages of no file are shared within such a family only. Page tables are each process's own.
    """
    keeper = parent_of(kernelbox.status(kernel).pid or 0)
    family = [keeper, *children_of(keeper)]
    lines = [line for pid in family for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    lines += [line for pid in family for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "VmPTE:")))

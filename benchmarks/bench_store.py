"""The store and the lifecycle: finding, listing, opening and destroying, in large numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import kernelbox
from benchmarks._measure import Row, interleaved, percentile, scaled, show, times

_THREADS = 8

# Seconds for each of many kernels: 2,000 in half a minute.
_OPENED_IN = 0.015


def rows() -> Iterator[Row]:
    """Yields the numbers of the store, on kernels without preloaded modules."""
    os.environ["KERNELBOX_PRELOAD"] = ""
    kernelbox.get_or_create("warm")
    yield from _get()
    yield from _names()
    yield from _cycles()
    yield from _crowd()


def _get() -> Iterator[Row]:
    taken = times(lambda: kernelbox.get_or_create("warm"), 2000)
    yield Row("`get_or_create` of an existing kernel", show(taken), "", "", "≤ 1 ms", percentile(taken, 50) <= 0.001)


def _names() -> Iterator[Row]:
    """Runs a cell by a kernel's record, its name, its id, and by a record from before a restart."""
    old = kernelbox.status("warm")
    kernelbox.restart("warm")
    record = kernelbox.status("warm")
    ways = {"record": record, "name": "warm", "id": record.kernel_id, "record from before a restart": old}
    taken = interleaved({way: partial(kernelbox.execute, key, "1+1") for way, key in ways.items()}, rounds=60, batch=10)
    for way in list(ways)[1:]:
        ratio = percentile(taken[way], 50) / percentile(taken["record"], 50)
        reference = f"by record {show(taken['record'])}"
        yield Row(f"`1+1` by {way}", show(taken[way]), reference, f"{ratio:.2f} ×", "≤ 1.1 ×", ratio <= 1.1)


def _cycles() -> Iterator[Row]:
    """Opens and destroys kernels, and looks for what each may leave: processes, descriptors, files, memory."""
    template = _parent_of("warm")
    for number in range(scaled(50)):  # what grows once, at first use, is no leak
        _cycle(number)
    before = _footprint(template)
    taken = times(lambda: _cycle(0), 1000)
    after = _footprint(template)
    growth = {what: after[what] - before[what] for what in before}
    ok = all(value <= 0 for what, value in growth.items() if what != "template kB") and growth["template kB"] < 1024
    shown = ", ".join(f"{what} {value:+d}" for what, value in growth.items())
    yield Row(f"{len(taken):,} × create, execute, destroy: growth", shown, "", "", "none", ok)
    yield Row("create, execute, destroy: each", show(taken))


def _cycle(number: int) -> None:
    name = f"cycle-{number}"
    assert kernelbox.execute(kernelbox.create(name), "1+1").return_value == "2"
    assert kernelbox.destroy(name)


def _crowd() -> Iterator[Row]:
    """Opens many kernels, lists them, and asks every one of them."""
    live, listed = scaled(2000), scaled(1000)
    part = max(1, live // 20)
    names = [f"crowd-{number}" for number in range(live)]
    with ThreadPoolExecutor(_THREADS) as pool:

        def open_all(names: list[str]) -> tuple[float, float]:
            """Returns how long opening took, and the processor time of this process for each kernel."""
            began, used = time.perf_counter(), time.process_time()
            list(pool.map(kernelbox.get_or_create, names))
            return time.perf_counter() - began, (time.process_time() - used) / max(1, len(names))

        first, middle = open_all(names[:part]), open_all(names[part:listed])
        listing = times(kernelbox.list_kernels, 10)
        measuring = times(lambda: kernelbox.list_kernels(usage=True), 3)
        more, last = open_all(names[listed:-part]), open_all(names[-part:])
        opened = sum(each[0] for each in (first, middle, more, last))
        found = times(lambda: kernelbox.get_or_create("warm"), 500)
        answers = list(pool.map(_ask, names))
    right = sum(answers)
    yield Row(
        f"`list_kernels()` of {listed:,} live kernels",
        show(listing),
        "",
        f"{percentile(listing, 50) / listed * 1e6:.0f} µs each",
        "≤ 120 µs each",
        percentile(listing, 50) / listed <= 120e-6,
    )
    yield Row(
        "the same with `usage=True`", show(measuring), "", f"{percentile(measuring, 50) / listed * 1e6:.0f} µs each"
    )
    yield Row(
        f"processor time to open a kernel beside {live - part:,}",
        f"{last[1] * 1e3:.1f} ms",
        f"the first {part:,}: {first[1] * 1e3:.1f} ms",
        f"{last[1] / first[1]:.2f} ×",
        "≤ 1.2 ×",
        last[1] <= 1.2 * first[1],
    )
    yield Row(
        f"`get_or_create` of an existing kernel among {live:,}",
        show(found),
        "",
        "",
        "≤ 1 ms",
        percentile(found, 50) <= 0.001,
    )
    limit = live * _OPENED_IN
    yield Row(
        f"{live:,} live idle kernels",
        f"opened in {opened:.0f} s, {right:,} answer",
        "",
        "",
        f"≤ {limit:.0f} s, all",
        right == live and opened <= limit,
    )
    began = time.perf_counter()
    destroyed = len(kernelbox.wipe())
    yield Row(f"`wipe()` of {destroyed:,} kernels", f"{time.perf_counter() - began:.0f} s")


def _ask(name: str) -> bool:
    """Asks a kernel in a connection of its own, and gives that up again: 2,000 would be many descriptors."""
    from kernelbox.api._configured import kernels

    record = kernelbox.status(name)
    right = kernelbox.execute(record, "6 * 7", timeout=300).return_value == "42"
    kernels().pool.drop(record)
    return right


def _footprint(template: int) -> dict[str, int]:
    home = Path(os.environ["KERNELBOX_HOME"])
    return {
        "processes": len(_children(template)),
        "our descriptors": len(os.listdir("/proc/self/fd")),
        "template descriptors": len(os.listdir(f"/proc/{template}/fd")),
        "files": sum(len(files) + len(folders) for _, folders, files in os.walk(home)),
        "template kB": _memory(template),
    }


def _parent_of(name: str) -> int:
    record = kernelbox.status(name)
    return int(Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()[1])


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _memory(pid: int) -> int:
    """Returns the kilobytes that a process has in memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

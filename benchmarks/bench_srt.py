"""Kernels in srt (sandbox-runtime) against plain ones: the first of a policy, the next, and executing.

Run it as an ordinary user: for the superuser srt is no sandbox.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

import kernelbox
from benchmarks._measure import Row, interleaved, percentile, show
from kernelbox.base._config import scrubbed_environment
from kernelbox.sandbox._config import SandboxConfig
from kernelbox.sandbox._passed import settings_for_srt

_numbers = itertools.count()


def rows() -> Iterator[Row]:
    """Yields the rows in the order of docs/performance.md."""
    if os.geteuid() == 0:
        yield Row("kernels in srt", "not measured", "an ordinary user has to run it")
        return
    yield _first()
    with tempfile.TemporaryDirectory() as workspace:
        kernels = {name: _opener(workspace, srt=name == "srt") for name in ("plain", "srt")}
        for open_one in kernels.values():
            open_one()  # it keeps its template
        yield _next(kernels)
        yield _execute(kernels)
        kernelbox.wipe()


def _opener(workspace: str, *, srt: bool) -> Callable[[], kernelbox.KernelRecord]:
    """Returns what opens a kernel and has its first result; both kinds have one environment."""
    environment = scrubbed_environment({})

    def open_one() -> kernelbox.KernelRecord:
        name, level = f"bench-{next(_numbers)}", "srt" if srt else None
        record = kernelbox.get_or_create(name, cwd=workspace, env=environment, sandbox=srt, sandbox_level=level)
        assert kernelbox.execute(record, "1+1").return_value == "2"
        return record

    return open_one


def _first() -> Row:
    """Compares the first kernel of a policy with srt's own start and that of a template, each by itself, in turns."""
    taken: dict[str, list[float]] = {"srt": [], "template": [], "first": []}
    for _ in range(7):
        with tempfile.TemporaryDirectory() as workspace:
            taken["srt"].append(_start_srt(workspace))
            taken["template"].append(_timed(_opener(workspace, srt=False)))
            kernelbox.wipe()
            taken["first"].append(_timed(_opener(workspace, srt=True)))
            kernelbox.wipe()
    middle = {name: percentile(sorted(values), 50) for name, values in taken.items()}
    allowed = middle["srt"] + middle["template"]
    return Row(
        "first kernel in srt to first result",
        show(sorted(taken["first"])),
        f"`srt` {middle['srt'] * 1e3:.0f} ms + a template {middle['template'] * 1e3:.0f} ms",
        f"{middle['first'] / allowed:.2f} ×",
        "≤ 1 ×",
        middle["first"] <= allowed,
    )


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _start_srt(workspace: str) -> float:
    """Returns the seconds until a program runs in srt, by the same rules."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(settings_for_srt(SandboxConfig(level="srt")), file)
        file.flush()
        command = ["srt", "--settings", file.name, "--", "date", "+%s.%N"]
        began = time.time()
        said = subprocess.run(command, cwd=workspace, stdout=subprocess.PIPE, text=True, check=True).stdout
        return float(said) - began


def _next(kernels: dict[str, Callable[[], kernelbox.KernelRecord]]) -> Row:
    opened: list[kernelbox.KernelRecord] = []
    taken = interleaved(
        {name: lambda open_one=open_one: opened.append(open_one()) for name, open_one in kernels.items()},  # type: ignore[misc]  # a default binds it
        rounds=40,
        batch=1,
    )
    for record in opened:
        kernelbox.destroy(record)
    plain, srt = percentile(taken["plain"], 50), percentile(taken["srt"], 50)
    ratio = f"{srt / plain:.2f} ×"
    return Row("next kernel in srt", show(taken["srt"]), f"plain {show(taken['plain'])}", ratio, "≤ 30 ms", srt <= 0.03)


def _execute(kernels: dict[str, Callable[[], kernelbox.KernelRecord]]) -> Row:
    records = {name: open_one() for name, open_one in kernels.items()}
    taken = interleaved(
        {name: lambda record=record: kernelbox.execute(record, "1+1") for name, record in records.items()},  # type: ignore[misc]  # as above
        rounds=40,
        batch=20,
    )
    plain, srt = percentile(taken["plain"], 50), percentile(taken["srt"], 50)
    ratio, ok = f"{srt / plain:.2f} ×", srt <= 1.03 * plain
    return Row(
        "`execute(kernel, '1+1')` in srt", show(taken["srt"]), f"plain {show(taken['plain'])}", ratio, "≤ 1.03 ×", ok
    )

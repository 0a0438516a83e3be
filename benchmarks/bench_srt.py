"""Kernels in srt (sandbox-runtime) against plain ones: the first of a policy, the next, and executing.

Run it as an ordinary user: for the superuser srt is no sandbox.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

import kernelbox
from benchmarks._measure import Row, percentile, scaled, show
from benchmarks._pairs import Openers, compare_executions, compare_starts, opener
from kernelbox.sandbox._sandbox_config import SandboxConfig
from kernelbox.sandbox._srt_settings import settings_for_srt


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
    return opener(workspace, sandbox=srt, sandbox_level="srt" if srt else None)


def _first() -> Row:
    """Compares the first kernel of a policy with srt's own start and that of a template, each by itself, in turns."""
    taken: dict[str, list[float]] = {"srt": [], "template": [], "first": []}
    for _ in range(scaled(7)):
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


def _next(kernels: Openers) -> Row:
    taken = compare_starts(kernels)
    plain, srt = percentile(taken["plain"], 50), percentile(taken["srt"], 50)
    ratio = f"{srt / plain:.2f} ×"
    return Row("next kernel in srt", show(taken["srt"]), f"plain {show(taken['plain'])}", ratio, "≤ 30 ms", srt <= 0.03)


def _execute(kernels: Openers) -> Row:
    taken, ratio = compare_executions(kernels, "srt")
    plain, what = f"plain {show(taken['plain'])}", "`execute(kernel, '1+1')` in srt"
    return Row(what, show(taken["srt"]), plain, f"{ratio:.2f} ×", "≤ 1.03 ×", ratio <= 1.03)

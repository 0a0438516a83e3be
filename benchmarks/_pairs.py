"""Kernels of two kinds of one template, compared: how long they take to start, and to execute."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import kernelbox
from benchmarks._measure import interleaved, percentile, scaled
from kernelbox.base._environment import scrubbed_environment

Openers = dict[str, Callable[[], kernelbox.KernelRecord]]

# Some kernels are slower than others of their kind for as long as they live, by up to a seventh: one pair tells little.
_PAIRS = 9

_numbers = itertools.count()


def opener(workspace: str, **options: Any) -> Callable[[], kernelbox.KernelRecord]:
    """Returns what opens a kernel and has its first result; all kinds have one environment, and so one template."""
    environment = scrubbed_environment({})

    def open_one() -> kernelbox.KernelRecord:
        record = kernelbox.get_or_create(f"bench-{next(_numbers)}", cwd=workspace, env=environment, **options)
        assert kernelbox.execute(record, "1+1").return_value == "2"
        return record

    return open_one


def compare_starts(openers: Openers) -> dict[str, list[float]]:
    """Returns how long kernels of each kind took to their first result."""
    opened: list[kernelbox.KernelRecord] = []
    taken = interleaved(
        {name: lambda open_one=open_one: opened.append(open_one()) for name, open_one in openers.items()},  # type: ignore[misc]  # a default binds it
        rounds=40,
        batch=1,
    )
    for record in opened:
        kernelbox.destroy(record)
    return taken


def compare_executions(openers: Openers, kind: str) -> tuple[dict[str, list[float]], float]:
    """Returns how long a short cell took in kernels of each kind, and the ratio of `kind` to plain ones: of several
    pairs of kernels, the middle one's."""
    together: dict[str, list[float]] = {name: [] for name in openers}
    ratios = []
    for _ in range(scaled(_PAIRS)):
        records = {name: open_one() for name, open_one in openers.items()}
        taken = interleaved(
            {name: lambda record=record: kernelbox.execute(record, "1+1") for name, record in records.items()},  # type: ignore[misc]  # a default binds it
            rounds=10,
            batch=20,
        )
        ratios.append(percentile(taken[kind], 50) / percentile(taken["plain"], 50))
        for name, record in records.items():
            together[name] += taken[name]
            kernelbox.destroy(record)
    return {name: sorted(values) for name, values in together.items()}, percentile(sorted(ratios), 50)

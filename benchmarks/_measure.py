"""Rows of the benchmark table, and how times become one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_scale = 1.0


@dataclass(frozen=True)
class Row:
    """One measured number: what, how much, against what, and what was to be reached."""

    what: str
    value: str
    reference: str = ""
    ratio: str = ""
    reach: str = ""
    ok: bool | None = None


def set_scale(scale: float) -> None:
    """Has a run measure a part of what it would: as much as shows that every benchmark works, for example."""
    global _scale
    _scale = scale


def scaled(count: int) -> int:
    """Returns how many of something to measure, two at least."""
    return max(2, round(count * _scale))


def times(action: Callable[[], object], count: int) -> list[float]:
    """Returns how long each of `count` calls took, scaled, in seconds, in the order of size."""
    return sorted(_time(action) for _ in range(scaled(count)))


def interleaved(actions: dict[str, Callable[[], object]], *, rounds: int, batch: int) -> dict[str, list[float]]:
    """Measures several actions in turns, so that whatever else the machine does strikes them alike."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(scaled(rounds)):
        for name, action in actions.items():
            taken[name] += [_time(action) for _ in range(batch)]
    return {name: sorted(values) for name, values in taken.items()}


def _time(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def show(ordered: list[float]) -> str:
    """Returns p50 and p95 in milliseconds."""
    return f"{percentile(ordered, 50) * 1e3:.2f} / {percentile(ordered, 95) * 1e3:.2f} ms"


def table(rows: list[Row]) -> str:
    """Returns the rows as a Markdown table."""
    lines = ["| what | measured (p50 / p95) | reference | ratio | to reach | |", "|---|---|---|---|---|---|"]
    for row in rows:
        verdict = "" if row.ok is None else "yes" if row.ok else "**no**"
        lines.append(f"| {row.what} | {row.value} | {row.reference} | {row.ratio} | {row.reach} | {verdict} |")
    return "\n".join(lines)

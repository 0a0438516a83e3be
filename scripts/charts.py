"""Draws the chart of docs/performance.md from the table in it: docs/pictures/speed.svg.

python scripts/charts.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
CHART = DOCS / "pictures" / "speed.svg"

# What the table calls a row, and the heading of its bars.
_GROUPS = {
    "new kernel to first result": "Start a kernel and run a cell",
    "`1+1` in a live kernel": "Run a cell in a live kernel",
}
_NAMES = {"jupyter_client": "Jupyter", "KernelBox": "KernelBox 0.1", "ipybox": "ipybox*"}

# A card of its own, so that it can be read on any background.
_STYLE = """
  text { font-family: system-ui, sans-serif; font-size: 15px; fill: #1f2933 }
  .card { fill: #ffffff; stroke: #d9dee5 } .title { font-weight: 600; font-size: 17px }
  .small { font-size: 12px; fill: #667085 } .ours { fill: #0b7a75 } .other { fill: #b4bcc8 } .win { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9ee } .card { fill: #1b1f27; stroke: #343b47 } .small { fill: #9aa4b2 }
    .ours { fill: #2dd4bf } .other { fill: #566072 }
  }
"""
# Narrow, so that the words are still large enough on a telephone.
_WIDTH, _LEFT, _BAR, _ROW = 460, 136, 185, 30


@dataclass(frozen=True)
class Bar:
    """One bar: how many times as long as kernelbox somebody takes."""

    name: str
    times: int
    label: str


def bars(page: str, what: str) -> list[Bar]:
    """Returns the bars of one group, from the rows of the table."""
    row = rf"^\| {re.escape(what)} \| (\S+ ms) \| (\w+)[^|]*\| [^|]*\| (\d+) \|$"
    rows = re.findall(row, page, re.MULTILINE)
    others = [Bar(_NAMES[name], int(times), f"{times} × as long") for _, name, times in rows]
    return [Bar("kernelbox", 1, rows[0][0]), *others]


def draw(page: str) -> str:
    """Returns the chart as SVG."""
    parts, top = [], 20
    for what, title in _GROUPS.items():
        group = bars(page, what)
        longest = max(bar.times for bar in group)
        top += 22
        parts.append(f'<text class="title" x="20" y="{top}">{title}</text>')
        top += 14
        for bar in group:
            width = max(round(_BAR * bar.times / longest), 3)
            ours = bar.name == "kernelbox"
            strong = ' class="win"' if ours else ""
            kind = "ours" if ours else "other"
            parts.append(
                f'<text x="20" y="{top + 18}"{strong}>{bar.name}</text>'
                f'<rect class="{kind}" x="{_LEFT}" y="{top + 4}" width="{width}" height="20" rx="3"/>'
                f'<text x="{_LEFT + width + 8}" y="{top + 19}"{strong}>{bar.label}</text>'
            )
            top += _ROW
        top += 10
    note = "Shorter is better. One machine; * ipybox by its published figure."
    parts.append(f'<text class="small" x="20" y="{top + 8}">{note}</text>')
    height = top + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="Times to start a kernel and to run a cell">\n<style>{_STYLE}</style>\n'
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="10"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    CHART.write_text(draw((DOCS / "performance.md").read_text(encoding="utf-8")), encoding="utf-8")
    print(CHART)

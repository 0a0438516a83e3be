"""Writes docs/llms.txt: the pages of the site for models, each with what it is for (llmstxt.org).

python scripts/llms_txt.py
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

_HEAD = """# kernelbox

> Persistent, named Python kernels for AI agents. Install with `pip install 'kernelbox>=0.2'`.
> `from kernelbox import Kernel`; `Kernel(name).execute(code)` returns a result with `ok`, `text`, `value`, `error` and
> `images`. Variables stay.
"""


def text() -> str:
    """Returns the list, in the groups of the site."""
    (project,) = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8")).values()
    return _HEAD + "".join(_lines(project["nav"]))


def _lines(entries: list[dict[str, Any]]) -> list[str]:
    lines = []
    for title, value in (pair for entry in entries for pair in entry.items()):
        if isinstance(value, list):
            lines += [f"\n## {title}\n\n", *_lines(value)]
        elif value != "index.md":
            lines.append(f"- [{title}]({value}): {_purpose(DOCS / value)}\n")
    return lines


def _purpose(page: Path) -> str:
    """Returns the first sentence of a page."""
    body = page.read_text(encoding="utf-8").partition("\n\n")[2]
    plain = (part for part in body.split("\n\n") if not part.startswith(("```", "<", "|", "!", "*")))
    sentence = re.split(r"(?<=[.:])\s", next(plain, "").replace("\n", " "))[0]
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence).rstrip(":.") + "."


if __name__ == "__main__":
    (ROOT / "site" / "llms.txt").write_text(text(), encoding="utf-8")

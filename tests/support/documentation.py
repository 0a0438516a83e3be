"""The pages of the documentation, and the blocks in them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# A fenced block, with the excuse above it if it cannot run here.
_BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n+)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    code: str
    excuse: str


# Pages whose blocks need more around them: tests/pythons makes an environment, others install a framework.
_RUN_ELSEWHERE = ("your-python.md", "integrations/")


def all_pages() -> list[Path]:
    """Returns the pages whose blocks run in an empty directory."""
    pages = [page for page in sorted(DOCS.rglob("*.md")) if not _relative(page).startswith(_RUN_ELSEWHERE)]
    return [ROOT / "README.md", *pages]


def _relative(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def blocks(page: Path) -> list[Block]:
    return [Block(language, code, excuse) for excuse, language, code in _BLOCK.findall(page.read_text())]


def landing_pages() -> list[Path]:
    """Returns the pages that people read first: the README, the landing page, the tutorial and the how-to guides."""
    return [ROOT / "README.md", DOCS / "index.md", *guides()]


def guides() -> list[Path]:
    """Returns the pages of the site's groups "Tutorial" and "How-to", wherever their files are."""
    (site,) = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8")).values()
    groups = {title: entries for entry in site["nav"] for title, entries in entry.items()}
    return [DOCS / path for group in ("Tutorial", "How-to") for path in pages_of(groups[group])]


def pages_of(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yields the paths of the pages in a part of the site's menu, its groups included."""
    for value in (value for entry in entries for value in entry.values()):
        yield from pages_of(value) if isinstance(value, list) else [value]

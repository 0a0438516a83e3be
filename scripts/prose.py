"""Measures the English of pages: words and commas per sentence, and code blocks per 1,000 words.

    python scripts/prose.py README.md docs/index.md
    python scripts/prose.py                          # every page

Code, tables, headings and comments do not count. An item of a list counts as a sentence.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# Tables, headings, rules, HTML and comments.
_OTHER = re.compile(r"^(?:\||#|---|\s*<).*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)(?:\{[^}]*\})?")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?:])[\s*]+|\n{2,}")


@dataclass(frozen=True)
class Prose:
    """What a page's sentences are like."""

    words: int
    sentences: int
    commas: int
    blocks: int

    @property
    def words_per_sentence(self) -> float:
        return self.words / max(self.sentences, 1)

    @property
    def commas_per_sentence(self) -> float:
        return self.commas / max(self.sentences, 1)

    @property
    def blocks_per_thousand_words(self) -> float:
        return 1000 * self.blocks / max(self.words, 1)


def measure(text: str) -> Prose:
    """Measures the prose of a page in Markdown."""
    blocks = len(_FENCE.findall(text))
    for pattern in (_FENCE, _COMMENT, _OTHER):
        text = pattern.sub("\n\n", text)
    text = _LINK.sub(r"\1", _CODE.sub("code", text))
    text = _ITEM.sub("\n\n", text)
    sentences = [piece.split() for piece in _SENTENCE.split(text)]
    # A single word is no sentence, but the label of a list or a rest of markup.
    sentences = [words for words in sentences if len(words) > 1]
    words = sum(map(len, sentences))
    commas = sum(word.count(",") for words in sentences for word in words)
    return Prose(words, len(sentences), commas, blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    pages = parser.parse_args().pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    print("  words  words/sentence  commas/sentence  blocks/1,000  page")
    for page in pages:
        prose = measure(page.read_text(encoding="utf-8"))
        print(
            f"{prose.words:7,}  {prose.words_per_sentence:14.1f}  {prose.commas_per_sentence:15.2f}"
            f"  {prose.blocks_per_thousand_words:12.1f}  {page}"
        )


if __name__ == "__main__":
    main()

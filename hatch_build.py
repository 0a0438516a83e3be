"""The README as a package index shows it: no link and no picture that leads only to a file of the repository.

The build calls this. pyproject.toml can name the address of the repository's files, as `base` of
`tool.hatch.metadata.hooks.custom`: then links are made absolute instead.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
# A link or picture with its text and its target in this repository.
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)([^)]+)\)\n\n", re.MULTILINE)
# A paragraph that is a list of links below a label in bold letters: without the links it says nothing.
_LINKS = re.compile(r"^\*\*[\w ]+:\*\* \[.*?\n\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def for_index(text: str, base: str = "") -> str:
    """Returns the text with links that work outside of the repository, or with none."""
    text = _COMMENT.sub("", text)
    if base:
        return re.sub(r"\]\((?!https?:|#)", f"]({base}", text)
    return _LINK.sub(r"\1", _LINKS.sub("", _PICTURE.sub("", text)))


class IndexReadme(MetadataHookInterface):
    """Sets the project's README."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": for_index(text, str(self.config.get("base", ""))),
        }

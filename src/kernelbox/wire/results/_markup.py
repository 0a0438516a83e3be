"""A result as a notebook shows it: what was written, tables and pictures, in the order in which they came.

Kernels run untrusted code, and a notebook runs the scripts in what it shows. So only the harmless elements and
attributes of a cell's HTML are passed on, and pictures are inside `img`, where no script of an SVG runs.
"""

from __future__ import annotations

import base64
from html import escape
from html.parser import HTMLParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelbox.wire._results import OutputItem

# Elements of tables and of text, with no attribute that names an address or a script.
_ELEMENTS = frozenset(
    [
        "b",
        "blockquote",
        "br",
        "caption",
        "code",
        "col",
        "colgroup",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "i",
        "li",
        "ol",
        "p",
        "pre",
        "s",
        "small",
        "span",
        "strong",
        "sub",
        "summary",
        "sup",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "u",
        "ul",
    ]
)
_ATTRIBUTES = frozenset({"align", "border", "class", "colspan", "rowspan", "scope", "span"})

# Elements whose text is not for reading.
_SILENT = frozenset({"script", "style", "head", "title", "template", "iframe", "object", "svg", "math"})

_WRITTEN = '<pre style="margin:0;white-space:pre-wrap{}">{}</pre>'


def to_html(outputs: Sequence[OutputItem]) -> str:
    """Returns the outputs of a cell as harmless HTML."""
    return "\n".join(filter(None, map(_show, outputs)))


def _show(item: OutputItem) -> str:
    if (image := item.image_data) is not None:
        mime, data = image
        source = base64.b64encode(data.encode()).decode() if mime == "image/svg+xml" else data
        return f'<img src="data:{mime};base64,{escape(source)}">'
    markup = item.data.get("text/html")
    if isinstance(markup, str) and item.kind != "error":
        return harmless(markup)
    color = ";color:#b00020" if item.kind == "error" or item.name == "stderr" else ""
    text = item.readable.rstrip("\n")
    return _WRITTEN.format(color, escape(text)) if text else ""


def harmless(markup: str) -> str:
    """Returns HTML without scripts, styles, addresses and everything else that a page would act on."""
    cleaner = _Cleaner()
    cleaner.feed(markup)
    cleaner.close()
    return "".join(cleaner.parts)


class _Cleaner(HTMLParser):
    """Writes the harmless parts of a document."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent += 1
        elif tag in _ELEMENTS and not self._silent:
            kept = "".join(f' {name}="{escape(value or "")}"' for name, value in attrs if name in _ATTRIBUTES)
            self.parts.append(f"<{tag}{kept}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag in _ELEMENTS and not self._silent:
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(escape(data))

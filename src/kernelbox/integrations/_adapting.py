"""What the integrations share."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator

from kernelbox.base._errors import MissingExtra
from kernelbox.wire._results import ExecutionResult

# What a model reads about a tool that runs Python.
DESCRIPTION = (
    "Runs Python in a persistent IPython kernel. Variables, imports and files last from call to call. The value of the "
    "last expression is shown, and plots come back as images. `!command` runs a shell command."
)


@contextlib.contextmanager
def needs(package: str) -> Iterator[None]:
    """Translates the ImportError of a framework that is not installed into a sentence."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise MissingExtra.of_framework(package, exc.name or package) from exc


def text_and_pictures(result: ExecutionResult) -> tuple[str, list[tuple[str, bytes]]]:
    """Returns what a model should read, and the pictures with their MIME types."""
    text, *pictures = result.to_content("mcp")
    return text["text"], [(picture["mimeType"], base64.b64decode(picture["data"])) for picture in pictures]

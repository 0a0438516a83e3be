"""What the integrations share."""

from __future__ import annotations

import base64
import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from kernelbox.api._kernel import Kernel
from kernelbox.api._sync import get_or_create
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


def open_session(name: str, options: dict[str, Any]) -> tuple[Kernel, dict[str, Any]]:
    """Opens the kernel of a session; returns it with the options of its cells. `options` are those of `Kernel`."""
    of_cells = inspect.signature(Kernel.execute).parameters
    cell = {option: value for option, value in options.items() if option in of_cells}
    own = {option: value for option, value in options.items() if option not in cell}
    return get_or_create(name, **own), cell


def text_and_pictures(result: ExecutionResult) -> tuple[str, list[tuple[str, bytes]]]:
    """Returns what a model should read, and the pictures with their MIME types."""
    text, *pictures = result.to_content("mcp")
    return text["text"], [(picture["mimeType"], base64.b64decode(picture["data"])) for picture in pictures]

"""`%less` and `%more` without a terminal to turn pages in: they print, and need no program to do it."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.page import page
from IPython.utils.openpy import read_py_file

from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())


@magics_class
class Pages(Magics):
    """What ipykernel has in place of the aliases that IPython would define."""

    @line_magic
    def less(self, line: str) -> None:
        """Shows a file."""
        if not line:
            raise UsageError("Missing filename.")
        if line.endswith(".py"):
            page(read_py_file(line, skip_encoding_cookie=False))
        else:
            with open(line) as file:
                page(file.read())

    more: Any = line_magic("more")(less)  # type: ignore[arg-type]  # IPython annotates it for bare use only

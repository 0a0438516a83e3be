"""Runs a few cells in the template, so that what IPython imports and builds at first use is shared by all kernels."""

from __future__ import annotations

import asyncio
import contextlib
import io
import linecache
import sys
import threading
from typing import Any

from kernelbox.guest import _kernel  # noqa: F401  # imported for the forks
from kernelbox.guest._shell import ZMQInteractiveShell
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Done, Execute, Message
from kernelbox.wire._values import compile_constructors

_CELLS = (
    "pass",
    "x = 1\nx",
    "print('x')",
    "1 / 0",
    "pritn",
    "def f(: pass",
    "%time pass",
    "await asyncio.sleep(0)",
    "x?",
)


# Where `%tb` and debuggers find the last exception.
_LAST = ("last_type", "last_value", "last_traceback", "last_exc")


class _Nowhere:
    """An outbox for cells without a client."""

    execution_id = ""
    peer = None

    def send(self, message: Message, *, hold: bool = False) -> None:
        encode(message)


def warm_up() -> None:
    """Builds the shell and uses it, then makes it as good as new."""
    shell = ZMQInteractiveShell.instance()
    shell.display_pub.outbox = shell.displayhook.outbox = _Nowhere()  # type: ignore[assignment]  # for a moment
    assert shell.extension_manager is not None
    shell.extension_manager.load_extension("storemagic")  # as ipykernel does
    pristine = dict(shell.user_ns)
    shell.user_ns["asyncio"] = asyncio
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        asyncio.run(_run_cells(shell))
    compile_constructors()
    Decoder().feed(encode(Execute("0", "")) + encode(Done("0", "ok")))
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    shell.reset(new_session=True)
    for name in pristine.keys() - shell.user_ns.keys():
        shell.user_ns[name] = pristine[name]
    shell.compile._filename_map.clear()
    linecache.clearcache()
    _forget(shell)


def _forget(shell: ZMQInteractiveShell) -> None:
    """Takes away what `reset` leaves of the cells: the last inputs, values and exception."""
    shell.error = None
    shell._last_input_line = None  # type: ignore[attr-defined]  # the shell's own
    history: Any = shell.history_manager
    history.output_hist_reprs.clear()
    history.db_input_cache.clear()
    history.db_output_cache.clear()
    for name in ("_i", "_ii", "_iii", "_i00"):
        setattr(history, name, "")
    for name in ("_i", "_ii", "_iii"):
        shell.user_ns[name] = shell.user_ns_hidden[name] = ""
    for name in _LAST:
        vars(sys).pop(name, None)


async def _run_cells(shell: ZMQInteractiveShell) -> None:
    for code in _CELLS:
        cell = shell.transform_cell(code)
        await shell.run_cell_async(code, store_history=True, transformed_cell=cell)
        shell.events.trigger("post_execute")
        if shell.error is not None:
            shell.describe(shell.error, 1000)

"""How a template warms up before it forks: **preload** → fork → specialize.

It runs a few cells, so that what IPython imports and builds at first use is shared by all kernels. Padding takes what
is free between its objects: a kernel that made its own objects there would copy those pages, one for a few bytes.
Beyond the padding they lie together, and so does what the template itself makes for each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import io
import linecache
import sys
import threading
from typing import Any

from kernelbox.guest.serve import _kernel_process  # noqa: F401  # imported for the forks
from kernelbox.guest.shell._shell import ZMQInteractiveShell
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._layout import IMPORTING, TOOLS, WARM
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


# Python has pools for each size of small objects, up to 512 bytes by steps of 16 (Objects/obmalloc.c).
_SIZES = range(48, 513, 16)

# Bytes for each size, half a megabyte in all: with more a kernel's memory gets no less.
_BYTES = 16 * 1024

_padding: list[bytes] = []


class _Nowhere:
    """An outbox for cells without a client."""

    execution_id = ""
    peer = None

    def send(self, message: Message, *, hold: bool = False) -> None:
        encode(message)


def preload(modules: list[str]) -> None:
    """Imports what every kernel will need, and builds the shell; raises RuntimeError if that starts a thread."""
    from kernelbox.guest._immortal import make_immortal

    for module in modules:
        print(IMPORTING, module, flush=True)  # into the log, where hosts look if we do not come back from it
        try:
            importlib.import_module(module)
        except BaseException as exc:  # a module may even call sys.exit()
            if module in TOOLS:
                continue  # the cell that imports it gets the error; others do not need it
            raise RuntimeError(
                f"importing {module!r} failed: {type(exc).__name__}: {exc}; "
                "install or mend it, or take it out of KERNELBOX_PRELOAD"
            ) from exc
        started = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if started:
            raise RuntimeError(
                f"importing {module!r} starts threads ({', '.join(started)}), which do not survive a fork; "
                "take it out of KERNELBOX_PRELOAD"
            )
    print(WARM, flush=True)
    warm_up()
    if modules:  # our own imports leave a quarter of a megabyte, and to find that takes a tenth of the start
        gc.collect()
    pad()
    make_immortal()
    gc.freeze()  # or the first collection in a child would copy every page of the template


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
    gc.freeze()
    shell.reset(new_session=True)  # it collects garbage, and would look at everything that has been imported
    gc.unfreeze()
    for name in pristine.keys() - shell.user_ns.keys():
        shell.user_ns[name] = pristine[name]
    shell.compile._filename_map.clear()
    linecache.clearcache()
    _forget(shell)


def _forget(shell: ZMQInteractiveShell) -> None:
    """Removes what `reset` leaves of the cells: the last inputs, values and exception."""
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


def pad() -> None:
    """Takes what is free between the small objects of this process, for good."""
    for size in _SIZES:
        _padding.extend(bytes(size - sys.getsizeof(b"")) for _ in range(_BYTES // size))

"""What a front end may ask between cells: completion, inspection, history, variables, and whether the kernel can fork.

Most queries run user code: properties, `__repr__`, `__dir__`. That code has a time limit, and what it raises is
reported as its own failure.
"""

from __future__ import annotations

import io
import sys as user_sys
from typing import TYPE_CHECKING, Any, TextIO

from kernelbox.guest._interrupts import TimeUp
from kernelbox.guest._stdlib import contextlib, os, sys, threading, time
from kernelbox.guest.serve._transfers import LONGEST as LONGEST_TRANSFER
from kernelbox.guest.serve._transfers import NAMES as TRANSFERS
from kernelbox.guest.shell._traceback import format_value
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._json import exact, type_name
from kernelbox.wire._messages import Query
from kernelbox.wire._output_limit import bound

if TYPE_CHECKING:
    from kernelbox.guest._interrupts import Interrupts
    from kernelbox.guest.serve._kernel_process import KernelProcess
    from kernelbox.guest.shell._shell import ZMQInteractiveShell

keep_builtins(globals())

# The most variables in a reply, and characters of their previews, names and types.
_MOST_VARIABLES = 10_000
_PREVIEW = 80
_LONGEST_NAME = 256

# Seconds that user code may take for one variable, for all of them (callers wait 10 by default), and for the rest.
_ONE_VARIABLE = 0.5
_ALL_VARIABLES = 3.0
_LONGEST_QUERY = 3.0
_NO_TIME_LEFT = f"<not looked at: the variables before it took {_ALL_VARIABLES:g} s>"

# Completions that are offered, and the characters of each.
_MOST_MATCHES = 1_000
_LONGEST_MATCH = 1_000

# The most inputs in a reply, the last ones.
_MOST_INPUTS = 10_000

# Characters of the text about an object: its source may be a whole module.
_LONGEST_INSPECTION = 1_000_000


def answer(kernel: KernelProcess, query: Query) -> dict[str, Any]:
    """Answers a query; the content is what Jupyter's replies of the same name carry.

    What user code and IPython's completer write meanwhile belongs to no cell, and is dropped.
    """
    out, err = _Silent(user_sys.stdout), _Silent(user_sys.stderr)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            kernel.interrupts.allow(LONGEST_TRANSFER if query.what in TRANSFERS else _LONGEST_QUERY)
            return _answer(kernel, query)
    except TimeUp:
        evalue = f"code of the kernel's own objects took longer than {_LONGEST_QUERY:g} s, and was stopped"
        return {"status": "error", "ename": "TimeoutError", "evalue": evalue}
    except BaseException as exc:  # noqa: BLE001  # whatever user code raises
        return {"status": "error", "ename": type_name(exc), "evalue": bound(format_value(exc), 1000)}
    finally:
        out.thread = err.thread = None  # a logger may have kept them


def _answer(kernel: KernelProcess, query: Query) -> dict[str, Any]:
    shell, args = kernel.shell, query.args
    if query.what in TRANSFERS:
        return kernel.transfers.answer(kernel, query.what, args, query.payload)
    match query.what:
        case "complete":
            return _complete(shell, str(args["code"]), int(args["cursor_pos"]))
        case "inspect":
            return _inspect(shell, str(args["code"]), int(args["cursor_pos"]), int(args.get("detail_level", 0)))
        case "is_complete":
            status, indent = shell.check_complete(str(args["code"]))
            return {"status": status, "indent": indent or ""}
        case "history":
            return {"status": "ok", "history": _history(shell, args)}
        case "expressions":
            return {"status": "ok", "user_expressions": shell.user_expressions(args["expressions"])}
        case "comms":
            return {"status": "ok", "comms": kernel.comm_manager.describe(str(args["target_name"]))}
        case "variables":
            return {"variables": _variables(shell, kernel.interrupts)}
        case "leave":
            return {**kernel.leave_if_unused(float(args["unused_for"]))}
        case "quiesce":
            with kernel.quiesced():
                names = [thread.name for thread in threading.enumerate()]
                return {"threads": len(os.listdir("/proc/self/task")), "python_threads": names}
    raise ValueError(f"no such query: {query.what!r}")


class _Silent(io.TextIOBase):
    """Drops what the thread that makes it writes. Text of other threads goes on to the stream behind."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.thread: int | None = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self._stream.write(text)

    def flush(self) -> None:
        if threading.get_ident() != self.thread:
            self._stream.flush()


def _complete(shell: ZMQInteractiveShell, code: str, cursor: int) -> dict[str, Any]:
    from IPython.core.completer import provisionalcompleter, rectify_completions

    shell.Completer.use_jedi = False  # it would import and keep 20 MB to guess what the live objects say
    with provisionalcompleter():
        found = list(rectify_completions(code, shell.Completer.completions(code, cursor)))[:_MOST_MATCHES]
    start, end = (found[0].start, found[0].end) if found else (cursor, cursor)
    return {
        "status": "ok",
        "matches": [exact(c.text) for c in found if len(c.text) <= _LONGEST_MATCH],
        "cursor_start": start,
        "cursor_end": end,
        "metadata": {},
    }


def _inspect(shell: ZMQInteractiveShell, code: str, cursor: int, detail: int) -> dict[str, Any]:
    from IPython.utils.tokenutil import token_at_cursor

    name = token_at_cursor(code, cursor)
    try:
        data = shell.object_inspect_mime(name, detail_level=detail)
    except KeyError:
        return {"status": "ok", "found": False, "data": {}, "metadata": {}}
    told = {mime: bound(exact(text), _LONGEST_INSPECTION) for mime, text in data.items() if issubclass(type(text), str)}
    return {"status": "ok", "found": True, "data": told, "metadata": {}}


def _history(shell: ZMQInteractiveShell, args: dict[str, Any]) -> list[tuple[int, int, Any]]:
    """Returns inputs of this kernel's process, as Jupyter's `history_request` asks for them; there is no other session.

    `hist_access_type` is range (from `start` to before `stop`), tail (the last `n`), or search (the last `n` that match
    `pattern`, which has `*` and `?`; with `unique` each once).
    """
    manager = shell.history_manager
    assert manager is not None
    output, raw, kind = bool(args.get("output")), bool(args.get("raw", True)), args["hist_access_type"]
    if kind == "range":
        start, stop = int(args.get("start") or 0), args.get("stop")
        found = manager.get_range(0, start, stop, raw=raw, output=output)
        return [(session, line, _told(entry)) for session, line, entry in found][-_MOST_INPUTS:]
    wanted = _MOST_INPUTS if args.get("n") is None else min(_MOST_INPUTS, max(0, int(args["n"])))
    if kind == "search":
        pattern, unique = str(args.get("pattern") or "*"), bool(args.get("unique"))
        found = manager.search(pattern, raw=raw, output=output, n=wanted, unique=unique)
    else:
        found = manager.get_tail(wanted, raw=raw, output=output, include_latest=True)
    return [(session, line, _told(entry)) for session, line, entry in found]


def _told(entry: Any) -> Any:
    """Returns an input, or an input and its output, as plain text."""
    if issubclass(type(entry), str):
        return exact(entry)
    return [None if part is None else exact(part) for part in entry]


def _variables(shell: ZMQInteractiveShell, interrupts: Interrupts) -> list[dict[str, Any]]:
    hidden, until = shell.user_ns_hidden, time.monotonic() + _ALL_VARIABLES
    names = sorted(
        name
        for name in list(shell.user_ns)
        if type(name) is str and len(name) <= _LONGEST_NAME and name[:1] != "_" and name not in hidden
    )
    found = []
    for name in names[:_MOST_VARIABLES]:
        value = shell.user_ns.get(name)
        left = until - time.monotonic()
        size, preview = _look(value, interrupts, min(left, _ONE_VARIABLE)) if left > 0 else (0, _NO_TIME_LEFT)
        found.append({"name": name, "type": _type(value), "size": size, "preview": preview})
    return found


def _look(value: object, interrupts: Interrupts, seconds: float) -> tuple[int, str]:
    """Returns the size and the preview of a value; user code may produce both."""
    size, preview = 0, "<repr took too long>"
    try:
        interrupts.allow(seconds)
        try:
            preview = _short_repr(value)
        except TimeUp:
            raise
        except BaseException as exc:  # noqa: BLE001  # a repr is user code
            preview = f"<repr failed: {type_name(exc)}>"
        size = _size(value)
        interrupts.allow(_LONGEST_QUERY)
    except TimeUp:
        interrupts.allow(_LONGEST_QUERY)
    return size, preview if len(preview) <= _PREVIEW else preview[: _PREVIEW - 1] + "…"


def _type(value: object) -> str:
    name = exact(type.__dict__["__qualname__"].__get__(type(value)))  # a metaclass may have another
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _short_repr(value: object) -> str:
    """Returns a repr without looking at all of a large string or container."""
    import reprlib

    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 2 * _PREVIEW
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = short.maxfrozenset = short.maxdeque = 20
    if type(value) is str:
        return repr(value[:_PREVIEW])
    return exact(short.repr(value))


def _size(value: object) -> int:
    """Bytes held by the object itself; arrays and dataframes know what they hold."""
    try:
        nbytes = getattr(value, "nbytes", None)
        size = int.__int__(nbytes) if issubclass(type(nbytes), int) else sys.getsizeof(value)  # type: ignore[arg-type]
        return size if 0 <= size <= sys.maxsize else 0
    except TimeUp:
        raise
    except BaseException:  # noqa: BLE001  # properties and __sizeof__ are user code
        return 0

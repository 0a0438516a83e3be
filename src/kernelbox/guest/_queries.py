"""What a front end may ask between cells: completion, inspection, the variables, and whether the kernel can fork."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from kernelbox.wire._messages import Query

if TYPE_CHECKING:
    from kernelbox.guest._kernel import Kernel
    from kernelbox.guest._shell import ZMQInteractiveShell

_PREVIEW = 80


def answer(kernel: Kernel, query: Query) -> dict[str, Any]:
    """Answers a query; the content is what Jupyter's replies of the same name carry."""
    shell, args = kernel.shell, query.args
    match query.what:
        case "complete":
            return _complete(shell, str(args["code"]), int(args["cursor_pos"]))
        case "inspect":
            return _inspect(shell, str(args["code"]), int(args["cursor_pos"]), int(args.get("detail_level", 0)))
        case "is_complete":
            status, indent = shell.check_complete(str(args["code"]))
            return {"status": status, "indent": indent or ""}
        case "variables":
            return {"variables": _variables(shell)}
        case "leave":
            return {**kernel.leave_if_unused(float(args["unused_for"]))}
        case "quiesce":
            with kernel.quiesced():
                return {"threads": len(os.listdir("/proc/self/task")), "python_threads": _thread_names()}
    raise ValueError(f"no such query: {query.what!r}")


def _complete(shell: ZMQInteractiveShell, code: str, cursor: int) -> dict[str, Any]:
    from IPython.core.completer import provisionalcompleter, rectify_completions

    shell.Completer.use_jedi = False  # it would import and keep 20 MB to guess what the live objects say
    with provisionalcompleter():
        found = list(rectify_completions(code, shell.Completer.completions(code, cursor)))
    start, end = (found[0].start, found[0].end) if found else (cursor, cursor)
    return {
        "status": "ok",
        "matches": [c.text for c in found],
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
    return {"status": "ok", "found": True, "data": data, "metadata": {}}


def _variables(shell: ZMQInteractiveShell) -> list[dict[str, Any]]:
    hidden = shell.user_ns_hidden
    names = [name for name in shell.user_ns if isinstance(name, str) and name[:1] != "_" and name not in hidden]
    return [_describe(name, shell.user_ns[name]) for name in sorted(names)]


def _describe(name: str, value: object) -> dict[str, Any]:
    try:
        preview = _short_repr(value)
    except (Exception, SystemExit) as exc:  # noqa: BLE001  # a repr is user code
        preview = f"<repr failed: {type(exc).__name__}>"
    if len(preview) > _PREVIEW:
        preview = preview[: _PREVIEW - 1] + "…"
    return {"name": name, "type": type(value).__qualname__, "size": _size(value), "preview": preview}


def _short_repr(value: object) -> str:
    """Returns a repr without looking at all of a large string or container."""
    import reprlib

    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 2 * _PREVIEW
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = short.maxfrozenset = short.maxdeque = 20
    if type(value) is str:
        return repr(value[:_PREVIEW])
    return short.repr(value)


def _size(value: object) -> int:
    """Bytes held by the object itself; arrays and dataframes know what they hold."""
    try:
        nbytes = getattr(value, "nbytes", None)
        return nbytes if isinstance(nbytes, int) else sys.getsizeof(value)
    except (Exception, SystemExit):  # noqa: BLE001  # properties and __sizeof__ are user code
        return 0


def _thread_names() -> list[str]:
    import threading

    return [thread.name for thread in threading.enumerate()]

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
            return {"status": status, "indent": " " * int(indent or 0)}
        case "variables":
            return {"variables": _variables(shell)}
        case "quiesce":
            with kernel.quiesced():
                return {"threads": len(os.listdir("/proc/self/task")), "python_threads": _thread_names()}
    raise ValueError(f"no such query: {query.what!r}")


def snapshot(shell: ZMQInteractiveShell) -> dict[str, int]:
    """Returns the identity of every variable a user would call theirs."""
    hidden = shell.user_ns_hidden
    return {name: id(value) for name, value in shell.user_ns.items() if name not in hidden and name[0] != "_"}


def changes(before: dict[str, int], after: dict[str, int]) -> dict[str, list[str]]:
    """Returns which names were added, bound to something else, or removed."""
    return {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
        "removed": sorted(before.keys() - after.keys()),
    }


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
    return [_describe(name, shell.user_ns[name]) for name in sorted(snapshot(shell))]


def _describe(name: str, value: object) -> dict[str, Any]:
    try:
        preview = repr(value)[: _PREVIEW + 1]
    except Exception as exc:  # noqa: BLE001  # a repr is user code
        preview = f"<repr failed: {type(exc).__name__}>"
    if len(preview) > _PREVIEW:
        preview = preview[: _PREVIEW - 1] + "…"
    return {"name": name, "type": type(value).__qualname__, "size": _size(value), "preview": preview}


def _size(value: object) -> int:
    """Bytes held by the object itself; arrays and dataframes know what they hold."""
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    try:
        return sys.getsizeof(value)
    except Exception:  # noqa: BLE001  # __sizeof__ is user code
        return 0


def _thread_names() -> list[str]:
    import threading

    return [thread.name for thread in threading.enumerate()]

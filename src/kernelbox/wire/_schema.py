"""What each field of a message accepts: types, closed sets of words, and sizes.

Kernels run untrusted code, which can write to the socket. Anything that our own guest would not send is rejected on
arrival, so the rest of the host never sees it.
"""

from __future__ import annotations

from kernelbox.wire import _messages as m
from kernelbox.wire._builtins import keep_builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

keep_builtins(globals())

# MIME types of one display; a type and a subtype have 127 characters each at most (RFC 6838, 4.2).
MAX_MIME_TYPES = 100
MAX_MIME_TYPE = 255

# Characters of a display's id: IPython makes 32, people use paths and sentences.
MAX_DISPLAY_ID = 1_000

# Names in each list of changed variables, and characters of a name: `import *` of the largest libraries stays below.
MAX_CHANGED = 2_000
MAX_VARIABLE = 256

# Characters of a cell's value as JSON.
MAX_VALUE = 1_000_000

# Characters of an error's value and of its traceback, for a caller without a lower limit: both fit one message even
# when every character is escaped. A traceback is split into at most this many lines; the last holds the rest.
MAX_ERROR = 2 * 1024 * 1024
MAX_LINES = 10_000

# Buffers of one comm message: a widget that shows a table has one for each column.
MAX_BUFFERS = 10_000

# Characters of a front end's own id of an execution; Jupyter's have 50 at most.
MAX_PARENT = 256

# Characters of a cell's code that are sent to watchers.
MAX_TOLD_CODE = 1_000_000

# What Jupyter calls the messages of comms.
COMM_KINDS = ("comm_open", "comm_msg", "comm_close")

# An exit status is a C int.
_LARGEST_STATUS = 2**31

# Characters in the name of a tool, a server or an exception.
_LONGEST_NAME = 1_000


def find_fault(kind: str, values: list[Any]) -> str:
    """Returns what is wrong with the fields of a message, or an empty text."""
    for value, (name, types, check) in zip(values, SCHEMA[kind][1], strict=True):
        if type(value) not in types or (check is not None and value is not None and not check(value)):
            return f"{kind}.{name} cannot be {_beginning(value)}"
    return ""


def _beginning(value: object) -> str:
    """Returns a short description of a value, which costs little even if the value is large."""
    if isinstance(value, str):
        return repr(value[:60])
    return repr(value) if isinstance(value, int | float | None) else f"this {type(value).__name__}"


def _up_to(most: int) -> Any:
    """Returns a check of the length of a text or a list."""
    return lambda value: len(value) <= most


def _all_of(*types: type) -> Any:
    """Returns a check of the types in a list, or of the values of a dict."""

    def check(value: Any) -> bool:
        parts = value.values() if type(value) is dict else value
        return {type(part) for part in parts} <= known

    known = {*types}
    return check


def _is_id(value: str) -> bool:
    """Tells whether an execution's id fits into the state file."""
    return len(value) <= 32 and value.isascii() and "\0" not in value


def _one_of(*words: str) -> Any:
    return frozenset(words).__contains__


def _is_bundle(value: dict[str, Any]) -> bool:
    return not value or (len(value) <= MAX_MIME_TYPES and max(map(len, value)) <= MAX_MIME_TYPE)


def _is_changed(value: dict[str, Any]) -> bool:
    return value.keys() <= {"added", "changed", "removed"} and all(map(_are_variables, value.values()))


def _are_variables(names: object) -> bool:
    if type(names) is not list or len(names) > MAX_CHANGED:
        return False
    return all(type(name) is str and len(name) <= MAX_VARIABLE for name in names)


# By annotation: the types that a field accepts, and a further check of a value that is not None. Most fields need no
# call, because reading messages is a large part of what a short cell costs the host.
_CHECKS: dict[str, tuple[tuple[type, ...], Any]] = {
    "str": ((str,), None),
    "Language": ((str,), _one_of("python", "bash", "comm")),
    "int": ((int,), None),
    "bool": ((bool,), None),
    "float": ((int, float), None),
    "int | None": ((int, type(None)), None),
    "list[str]": ((list,), _all_of(str)),
    "dict[str, int]": ((dict,), _all_of(int)),
    "dict[str, float]": ((dict,), _all_of(int, float)),
    "bytes": ((bytes,), None),  # the raw part
    "list[bytes]": ((list,), _up_to(MAX_BUFFERS)),  # split from the raw part
    "dict[str, bytes]": ((dict,), _is_bundle),  # split from the raw part
    "dict[str, Any]": ((dict,), None),
    "dict[str, list[str]] | None": ((dict, type(None)), _is_changed),
}

# Fields that accept less than their annotation says.
_NARROWER = {
    "Execute.id": lambda value: _is_id(value) and value != "",
    "Execute.key": _is_id,
    "Execute.parent": _up_to(MAX_PARENT),
    "Begun.parent": _up_to(MAX_PARENT),
    "Output.name": _one_of("stdout", "stderr"),
    "Display.kind": _one_of("display_data", "execute_result", "update_display_data", "error"),
    "Display.data": _is_bundle,
    "Display.value": _up_to(MAX_VALUE),
    "Display.display_id": _up_to(MAX_DISPLAY_ID),
    "Ask.server_name": _up_to(_LONGEST_NAME),
    "Ask.tool_name": _up_to(_LONGEST_NAME),
    "Comm.msg_type": _one_of(*COMM_KINDS),
    "Done.status": _one_of("ok", "error", "aborted"),
    "Done.exit_code": lambda value: abs(value) < _LARGEST_STATUS,
    "Done.ename": _up_to(_LONGEST_NAME),
}


def _choose_check(kind: str, name: str, annotation: str) -> tuple[str, tuple[type, ...], Any]:
    types, check = _CHECKS[annotation]
    return name, types, _NARROWER.get(f"{kind}.{name}") or (_is_id if name == "id" else check)


SCHEMA = {
    cls.__name__: (cls, [_choose_check(cls.__name__, name, hint) for name, hint in cls.__annotations__.items()])
    for cls in vars(m).values()
    if isinstance(cls, type) and issubclass(cls, m.Message) and cls is not m.Message
}

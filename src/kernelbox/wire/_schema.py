"""What each field of a message takes: types, closed sets of words, and how much.

Kernels run untrusted code, which can write to the socket: what our own guest would not send is refused on arrival, so
that nothing behind the wire has to expect it.
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

# Characters of what a display is updated by: IPython makes 32, people take paths and sentences.
MAX_DISPLAY_ID = 1_000

# Names in each list of what a cell changed, and their characters: more than `import *` of the largest libraries brings.
MAX_CHANGED = 2_000
MAX_VARIABLE = 256

# Characters of an error's value, and of its traceback, for a caller who wants more or all: both fit one message,
# whatever it takes to escape them. Of a traceback so many lines are told apart; what follows stays together.
MAX_ERROR = 2 * 1024 * 1024
MAX_LINES = 10_000

# Buffers of one comm message: a widget that shows a table has one for each column.
MAX_BUFFERS = 10_000

# Characters of the id under which a front end knows an execution; Jupyter's have 50 at most.
MAX_PARENT = 256

# Characters of a cell's code that watchers are told.
MAX_TOLD_CODE = 1_000_000

# What Jupyter calls the messages of comms.
COMM_KINDS = ("comm_open", "comm_msg", "comm_close")

# Characters in the name of a tool, a server or an exception.
_LONGEST_NAME = 1_000


def find_fault(kind: str, values: list[Any]) -> str:
    """Returns what is wrong with the fields of a message, nothing if they are what it takes."""
    for value, (name, check) in zip(values, SCHEMA[kind][1], strict=True):
        if not check(value):
            return f"{kind}.{name} cannot be {_beginning(value)}"
    return ""


def _is_map_of(check: Any) -> Any:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_list_of(check: Any, most: int | None = None) -> Any:
    return lambda value: isinstance(value, list) and (most is None or len(value) <= most) and all(map(check, value))


def _is_str(value: object) -> bool:
    return type(value) is str


def _is_short(longest: int) -> Any:
    return lambda value: type(value) is str and len(value) <= longest


def _beginning(value: object) -> str:
    """Returns what can be said of a value at little cost, however large it is."""
    if isinstance(value, str):
        return repr(value[:60])
    return repr(value) if isinstance(value, int | float | None) else f"this {type(value).__name__}"


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_id(value: object) -> bool:
    """Tells whether the state file, which says what runs, has room for an execution's id."""
    return type(value) is str and len(value) <= 32 and value.isascii() and "\0" not in value


def _is_one_of(*words: str) -> Any:
    return lambda value: type(value) is str and value in words


def _is_bundle(value: object) -> bool:
    if not isinstance(value, dict) or len(value) > MAX_MIME_TYPES:
        return False
    return not value or max(map(len, value)) <= MAX_MIME_TYPE


_has_lists_of_names = _is_map_of(_is_list_of(_is_short(MAX_VARIABLE), MAX_CHANGED))


def _is_changed(value: Any) -> bool:
    return value is None or (_has_lists_of_names(value) and value.keys() <= {"added", "changed", "removed"})


# How a field's annotation is checked.
_CHECKS: dict[str, Any] = {
    "str": _is_str,
    "Language": _is_one_of("python", "bash", "comm"),
    "int": _is_int,
    "bool": lambda value: type(value) is bool,
    "float": _is_number,
    "int | None": lambda value: value is None or _is_int(value),
    "list[str]": _is_list_of(_is_str),
    "dict[str, float]": _is_map_of(_is_number),
    "bytes": lambda value: True,  # the raw part
    "list[bytes]": lambda value: isinstance(value, list) and len(value) <= MAX_BUFFERS,  # made of the raw part too
    "dict[str, bytes]": _is_bundle,  # made of the raw part, which is bytes
    "dict[str, Any]": lambda value: isinstance(value, dict),
    "dict[str, list[str]] | None": _is_changed,
}

# Fields that take less than their annotation says.
_NARROWER = {
    "Execute.id": lambda value: _is_id(value) and value != "",
    "Execute.key": _is_id,
    "Execute.parent": _is_short(MAX_PARENT),
    "Begun.parent": _is_short(MAX_PARENT),
    "Output.name": _is_one_of("stdout", "stderr"),
    "Display.kind": _is_one_of("display_data", "execute_result", "update_display_data", "error"),
    "Display.data": _is_bundle,
    "Display.display_id": _is_short(MAX_DISPLAY_ID),
    "Ask.server_name": _is_short(_LONGEST_NAME),
    "Ask.tool_name": _is_short(_LONGEST_NAME),
    "Comm.msg_type": _is_one_of(*COMM_KINDS),
    "Done.status": _is_one_of("ok", "error", "aborted"),
    "Done.ename": _is_short(_LONGEST_NAME),
}


def _choose_check(kind: str, name: str, annotation: str) -> Any:
    return _NARROWER.get(f"{kind}.{name}") or (_is_id if name == "id" else _CHECKS[annotation])


SCHEMA = {
    cls.__name__: (
        cls,
        [(name, _choose_check(cls.__name__, name, hint)) for name, hint in cls.__annotations__.items()],
    )
    for cls in vars(m).values()
    if isinstance(cls, type) and issubclass(cls, m.Message) and cls is not m.Message
}

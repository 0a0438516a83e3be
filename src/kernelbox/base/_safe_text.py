"""How values from a kernel are shown to people: short, and without anything that a terminal obeys or hides."""

from __future__ import annotations

from kernelbox.base._text import spell_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# In characters. One argument leaves room for the others; all of them together fit a page or two.
_ROOM_FOR_ONE = 2_000
_ROOM_FOR_ALL = 8_000
_ROOM_FOR_A_NAME = 100

# Below this there is no room for a beginning and an end.
_LEAST_ROOM = 40

# Lists in lists in lists: deeper than a person reads.
_LEVELS = 10


def show_call(server: str, tool: str, args: Mapping[str, object]) -> str:
    """Returns a call as `server.tool(name=value, …)`. Names that are not plain words are quoted like values."""
    shown: list[str] = []
    room = _ROOM_FOR_ALL
    for name, value in args.items():
        if room <= 0:
            shown.append(f"… {len(args):,} arguments in all")
            break
        shown.append(f"{show_name(name)}={show(value, min(room, _ROOM_FOR_ONE))}")
        room -= len(shown[-1])
    return f"{show_name(server)}.{show_name(tool)}({', '.join(shown)})"


# Characters of a question to a person. All of it is shown, so a longer one is not asked.
_LONGEST_QUESTION = 20_000

TOO_LONG = (
    f"it has more than {_LONGEST_QUESTION:,} characters, which a person cannot check; put the text into a file, or "
    "allow the call by a rule of a policy"
)


def show_whole(server: str, tool: str, args: Mapping[str, object]) -> tuple[str, list[tuple[str, str]]] | None:
    """Returns the name of a call and its arguments for a decision, escaped and not cut; None if they are too long."""
    call = f"{_whole_name(server)}.{_whole_name(tool)}"
    shown = [(_whole_name(name), spell_out(repr(value))) for name, value in args.items()]
    length = len(call) + sum(len(name) + len(value) for name, value in shown)
    return (call, shown) if length <= _LONGEST_QUESTION else None


def _whole_name(name: str) -> str:
    plain = name.isascii() and name.replace("-", "_").isidentifier()
    return name if plain else spell_out(repr(name))


def show_name(name: str) -> str:
    """Returns a plain word unchanged, and any other name quoted, so that it does not look like part of the sentence."""
    plain = len(name) <= _ROOM_FOR_A_NAME and name.isascii() and name.replace("-", "_").isidentifier()
    return name if plain else show(name, _ROOM_FOR_A_NAME)


def show(value: object, room: int = _ROOM_FOR_ONE, *, levels: int = _LEVELS) -> str:
    """Returns a JSON value in Python's notation, escaped; a long one is cut to about `room` and its length noted."""
    if isinstance(value, str):
        return _show_text(value, max(room, _LEAST_ROOM))
    if isinstance(value, list | dict) and levels == 0:
        return f"… {len(value):,} items …"
    if isinstance(value, list):
        return f"[{_show_items(((item,) for item in value), len(value), room, levels)}]"
    if isinstance(value, dict):
        return f"{{{_show_items(value.items(), len(value), room, levels)}}}"
    return repr(value)


def _show_text(text: str, room: int) -> str:
    if len(text) <= room:
        whole = spell_out(repr(text))
        if len(whole) <= room + len("''"):
            return whole
    head = spell_out(repr(text[:room]))[: room * 3 // 4]
    tail = spell_out(repr(text[-room:]))[-(room // 4) :]
    return f"{head} … {len(text):,} characters in all … {tail}"


def _show_items(items: Iterable[tuple[object, ...]], count: int, room: int, levels: int) -> str:
    """Shows the items of a list, or the pairs of a dict."""
    shown: list[str] = []
    for item in items:
        if room <= 0:
            shown.append(f"… {count:,} items in all")
            break
        parts = []
        for part in item:
            parts.append(show(part, room, levels=levels - 1))
            room -= len(parts[-1])
        shown.append(": ".join(parts))
    return ", ".join(shown)

"""What a kernel sends, as people may be shown it: nothing that a terminal obeys or hides, and bounded in length."""

from __future__ import annotations

from kernelbox.base._text import spell_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Characters. One argument leaves room for the others; all of them together still fit a page or two.
_ROOM_FOR_ONE = 2_000
_ROOM_FOR_ALL = 8_000
_ROOM_FOR_A_NAME = 100

# Below this there is no room for a beginning and an end.
_LEAST_ROOM = 40

# Lists in lists in lists: deeper than a person reads.
_LEVELS = 10


def show_call(server: str, tool: str, args: Mapping[str, object]) -> str:
    """Returns a call as `server.tool(name=value, …)`. Names that are no plain words are quoted, as values are."""
    shown: list[str] = []
    room = _ROOM_FOR_ALL
    for name, value in args.items():
        if room <= 0:
            shown.append(f"… {len(args):,} arguments in all")
            break
        shown.append(f"{show_name(name)}={show(value, min(room, _ROOM_FOR_ONE))}")
        room -= len(shown[-1])
    return f"{show_name(server)}.{show_name(tool)}({', '.join(shown)})"


def show_name(name: str) -> str:
    """Returns a name as it is if it is a plain word, else quoted: it cannot pass for a piece of the sentence."""
    plain = len(name) <= _ROOM_FOR_A_NAME and name.isascii() and name.replace("-", "_").isidentifier()
    return name if plain else show(name, _ROOM_FOR_A_NAME)


def show(value: object, room: int = _ROOM_FOR_ONE, *, levels: int = _LEVELS) -> str:
    """Returns a JSON value as Python writes it, escaped, and shortened if it takes more than about `room` characters.

    What is shortened says so, with its length.
    """
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

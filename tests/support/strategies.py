"""Values of every message, for hypothesis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kernelbox.wire import _messages
from kernelbox.wire._messages import Message

# Examples are not timed: a loaded machine is not a bug. Half the usual number keeps them fast.
untimed = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])

KINDS: list[type[Message]] = [
    cls for cls in vars(_messages).values() if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message
]

# Messages that guests and templates send; what they say arrives in whole characters.
FROM_GUEST: set[type[Message]] = {
    _messages.Started,
    _messages.Begun,
    _messages.Output,
    _messages.Display,
    _messages.Clear,
    _messages.Ask,
    _messages.Comm,
    _messages.Payload,
    _messages.Done,
    _messages.Reply,
    _messages.Farewell,
    _messages.Spawned,
    _messages.Introduced,
    _messages.Refused,
}

whole_text = st.text(max_size=20)

# Paths and environments may hold bytes that are no text, which Python keeps as lone surrogates.
any_text = whole_text | st.text("a\udc80\udcff", max_size=5)


def json_of(text: SearchStrategy[str]) -> SearchStrategy[Any]:
    """Builds values that JSON has a form for."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=8,
    )


json_values = json_of(any_text)


class Text(str):
    """A string that lies about itself, as a subclass can."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0

    def __str__(self) -> str:
        raise KeyError

    def encode(self, *_: object) -> bytes:
        raise KeyError


class Items(list[object]):
    """A list that never ends when it is asked for its items."""

    def __iter__(self) -> Iterator[object]:
        return itertools.repeat(self)


class Map(dict[object, object]):
    """A dictionary that shows other items than it holds."""

    def items(self) -> Any:
        raise KeyError


def endless() -> Iterator[int]:
    yield from itertools.count()


class Broken:
    """An object that fails when it is asked for anything."""

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError(name)


class Endless:
    """An object whose items are itself."""

    def __iter__(self) -> Iterator[object]:
        yield self


def nested(depth: int, kind: type = list) -> object:
    """Returns a value of so many levels."""
    value: object = 0
    for _ in range(depth):
        value = [value] if kind is list else {"x": value}
    return value


def circular() -> object:
    circle: list[object] = []
    circle += [circle]
    return circle


def doubling() -> object:
    """Returns a value of 200 lists that has 2 to the power of 90 parts."""
    value: object = 0
    for _ in range(90):
        value = [value, value]
    return value


# Made anew for each example: generators can be read once.
HOSTILE: dict[str, Callable[[], object]] = {
    "a string that lies": lambda: Text("x"),
    "half a character": lambda: "\ud800",
    "an endless list": lambda: Items([1]),
    "a dictionary that lies": lambda: Map({"a": 1}),
    "a generator": lambda: (n for n in range(3)),
    "an endless generator": endless,
    "a failing object": Broken,
    "an object in itself": Endless,
    "a list in itself": circular,
    "a value of 2**90 parts": doubling,
    "lists nested too deeply": lambda: nested(101),
    "objects nested too deeply": lambda: nested(5_000, dict),
    "not a number": lambda: math.nan,
    "infinity": lambda: -math.inf,
    "6,000 digits": lambda: 10**6000,
    "700 digits": lambda: -(10**700),
    "bytes": lambda: b"\xff",
    "a bytearray": lambda: bytearray(b"\xff"),
    "a memoryview": lambda: memoryview(b"\xff" * 9)[::2],
    "a set": lambda: {1, "a"},
    "a date": lambda: datetime(2025, 1, 2, tzinfo=UTC),
    "a fraction": lambda: Fraction(1, 3),
    "an object": object,
    "a class": lambda: datetime,
    "a complex number": lambda: 1j,
    "keys that are no text": lambda: {None: 1, True: 2, 3: 4, 5.5: 6, math.inf: 7},
    "keys that are no JSON": lambda: {(1, 2): 3},
    "a million items": lambda: range(1_000_000),
}
hostile_values: SearchStrategy[Any] = st.recursive(
    st.sampled_from(sorted(HOSTILE)).map(lambda name: HOSTILE[name]()) | json_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=5,
)


def _by_annotation(text: SearchStrategy[str]) -> dict[str, SearchStrategy[Any]]:
    names = st.lists(text, max_size=3)
    return {
        "str": text,
        "Language": st.sampled_from(["python", "bash", "comm"]),
        "int": st.integers(),
        "bool": st.booleans(),
        "float": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "int | None": st.none() | st.integers(),
        "list[str]": names,
        "dict[str, str]": st.dictionaries(text, text, max_size=3),
        "dict[str, int]": st.dictionaries(text, st.integers()),
        "dict[str, float]": st.dictionaries(text, st.integers() | st.floats(allow_nan=False, allow_infinity=False)),
        "bytes": st.binary(max_size=40),
        "list[bytes]": st.lists(st.binary(max_size=40), max_size=3),
        "dict[str, bytes]": st.dictionaries(text, st.binary(max_size=40), max_size=3),
        "dict[str, Any]": st.dictionaries(text, json_of(text), max_size=3),
        "dict[str, list[str]] | None": st.none()
        | st.dictionaries(st.sampled_from(["added", "changed", "removed"]), names, max_size=3),
        "Any": json_of(text),
    }


_FROM_GUEST, _FROM_HOST = _by_annotation(whole_text), _by_annotation(any_text)

_ids = st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=32)

# Fields that take less than their annotation says, or change on the way.
_NARROWER: dict[str, SearchStrategy[Any]] = {
    "Execute.id": _ids.filter(bool),
    "Execute.key": _ids,
    "Done.exit_code": st.none() | st.integers(-(2**31) + 1, 2**31 - 1),
    "Output.name": st.sampled_from(["stdout", "stderr"]),
    "Output.text": st.text(max_size=100),
    "Display.kind": st.sampled_from(["display_data", "execute_result", "update_display_data", "error"]),
    "Comm.msg_type": st.sampled_from(["comm_open", "comm_msg", "comm_close"]),
    "Done.status": st.sampled_from(["ok", "error", "aborted"]),
}


def messages_of(kind: type[Message]) -> SearchStrategy[Message]:
    """Builds messages of one kind."""
    specs = fields(kind)  # type: ignore[arg-type]  # all are dataclasses
    usual = _FROM_GUEST if kind in FROM_GUEST else _FROM_HOST
    values = [
        _NARROWER.get(f"{kind.__name__}.{spec.name}", _ids if spec.name == "id" else usual[str(spec.type)])
        for spec in specs
    ]
    return st.builds(kind, *values)


messages: SearchStrategy[Message] = st.one_of([messages_of(kind) for kind in KINDS])


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Cuts bytes into pieces, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

"""Values of every message, for hypothesis."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kernelbox.wire import _messages
from kernelbox.wire._messages import Message

# Examples are not timed: a loaded machine is not a bug. Half the usual number keeps them fast.
untimed = settings(deadline=None, max_examples=50)

KINDS: list[type[Message]] = [
    cls for cls in vars(_messages).values() if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message
]

# Paths and environments may hold bytes that are no text, which Python keeps as lone surrogates.
any_text = st.text(max_size=20) | st.text("a\udc80\udcff", max_size=5)

json_values: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
_json_maps: SearchStrategy[Any] = st.dictionaries(any_text, json_values, max_size=3)

_BY_ANNOTATION: dict[str, SearchStrategy[Any]] = {
    "str": any_text,
    "Language": st.sampled_from(["python", "bash"]),
    "int": st.integers(),
    "bool": st.booleans(),
    "float": st.floats(allow_nan=False) | st.integers(),
    "int | None": st.none() | st.integers(),
    "list[str]": st.lists(any_text, max_size=3),
    "dict[str, str]": st.dictionaries(any_text, any_text, max_size=3),
    "dict[str, bytes]": st.dictionaries(any_text, st.binary(max_size=40), max_size=3),
    "dict[str, Any]": _json_maps,
    "dict[str, list[str]] | None": st.none() | st.dictionaries(any_text, st.lists(any_text, max_size=3), max_size=3),
    "Any": json_values,
}

# Fields that take less than their annotation says, or change on the way.
_NARROWER: dict[str, SearchStrategy[Any]] = {
    "Execute.id": st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=32),
    "Output.name": st.sampled_from(["stdout", "stderr"]),
    "Output.text": st.text(max_size=100),
    "Display.kind": st.sampled_from(["display_data", "execute_result", "update_display_data", "error"]),
    "Done.status": st.sampled_from(["ok", "error", "aborted"]),
}


def messages_of(kind: type[Message]) -> SearchStrategy[Message]:
    """Builds messages of one kind."""
    specs = fields(kind)  # type: ignore[arg-type]  # all are dataclasses
    values = [_NARROWER.get(f"{kind.__name__}.{spec.name}", _BY_ANNOTATION[str(spec.type)]) for spec in specs]
    return st.builds(kind, *values)


messages: SearchStrategy[Message] = st.one_of([messages_of(kind) for kind in KINDS])


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Cuts bytes into pieces, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

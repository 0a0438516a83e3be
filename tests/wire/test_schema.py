"""What each field of a message takes, and what is said of one that takes something else."""

from __future__ import annotations

import pytest

from kernelbox.wire._schema import find_fault


def fault_of_ask(*, id: object = "me", ask: object = 1, server: object = "s", tool: object = "t") -> str:
    return find_fault("Ask", [id, ask, server, tool, {}])


@pytest.mark.parametrize(
    ("field", "fits", "does_not"),
    [
        ("id", "x" * 32, "x" * 33),
        ("id", "", "é"),
        ("id", "a b", "a\0"),
        ("ask", -1, True),
        ("server", "x" * 1000, "x" * 1001),
        ("tool", "é" * 1000, "é" * 1001),
        ("tool", "", None),
    ],
)
def test_a_field_takes_what_fits_it_and_nothing_more(field: str, fits: object, does_not: object) -> None:
    assert fault_of_ask(**{field: fits}) == ""
    assert fault_of_ask(**{field: does_not}) != ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * 2000, f"'{'x' * 60}'"),
        (5, "5"),
        (1.5, "1.5"),
        (None, "None"),
        (["x" * 10_000_000], "this list"),
    ],
)
def test_a_fault_is_told_with_the_beginning_of_the_value(value: object, said: str) -> None:
    assert fault_of_ask(tool=value) == f"Ask.tool_name cannot be {said}"


def test_a_message_has_as_many_values_as_fields() -> None:
    with pytest.raises(ValueError, match="longer"):
        find_fault("Ask", ["me", 1])

"""JSON in bounds: what values become before they are sent, what each costs, and what is not read."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kernelbox.wire._json import (
    MAX_DEPTH,
    MAX_VALUES,
    Converter,
    TooLarge,
    dump,
    exact,
    load,
    outside_texts,
    type_name,
)

# The most commas and brackets that a message has: two for each value, and some for the message around them.
MOST_SEPARATORS = 2 * MAX_VALUES + 10_000


class Text(str):
    def __str__(self) -> str:
        return "not what it holds"


class Number(int):
    def __int__(self) -> int:
        return 99


class Fraction(float):
    def __float__(self) -> float:
        return 99.0


class Mapping(dict[Any, Any]):
    def items(self) -> Any:
        return [("false", 0)]


class Sequence(list[Any]):
    def __iter__(self) -> Any:
        return iter(["false"])


class Pair(tuple[Any, ...]):
    def __iter__(self) -> Any:
        return iter(["false"])


class Index:
    def __index__(self) -> int:
        return 7


class Real:
    def __float__(self) -> float:
        return 7.5


def shown(value: object) -> str:
    return type(value).__name__


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (-1.5, -1.5),
        ("é", "é"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (b"abcd", "YWJjZA=="),
        (bytearray(b"x"), "eA=="),
        (memoryview(b"x"), "eA=="),
        ((1, [2]), [1, [2]]),
        ({3}, [3]),
        (range(2), [0, 1]),
        ({"a": (1,), 2: 3, 1.5: 4, None: 5, True: 6}, {"a": [1], "2": 3, "1.5": 4, "null": 5, "true": 6}),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (Index(), 7),
        (Real(), 7.5),
        (Text("x"), "x"),
        (Number(5), 5),
        (Fraction(5.5), 5.5),
        (Mapping(a=1), {"a": 1}),
        ({Text("x"): 1}, {"x": 1}),
        (Sequence([1]), [1]),
        (Pair([1]), [1]),
    ],
    ids=shown,
)
def test_a_value_becomes_what_it_holds_in_the_forms_that_json_has(value: object, plain: object) -> None:
    converted = Converter().convert(value)
    assert converted == plain
    assert type(converted) is type(plain)


@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, {b"x": 1}], ids=shown)
def test_a_value_without_a_form_in_json_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"object is not JSON serializable|keys must be text, not (tuple|bytes)"):
        Converter().convert(value)


@pytest.mark.parametrize("value", [float("inf"), {1: 2}, {None: 2}, {1.5: 2}])
def test_a_strict_one_makes_no_text_of_what_is_none(value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"inf has no form in JSON|keys must be text, not"):
        Converter(strict=True).convert(value)
    assert Converter(strict=True).convert({"x": [1, 2.5, None]}) == {"x": [1, 2.5, None]}


@pytest.mark.parametrize(
    ("value", "characters", "values"),
    [
        (None, 6, 1),
        (False, 6, 1),
        ("abc", 5, 1),
        (0, 2, 1),
        (2**29, 12, 1),
        (1.5, 10, 1),
        (b"abc", 6, 1),
        (b"abcdef", 10, 1),
        ([], 2, 1),
        ([0, 0], 6, 3),
        ({}, 2, 1),
        ({"ab": 0}, 8, 3),
        ({1: 0}, 6, 3),
        ({1}, 4, 2),
    ],
    ids=shown,
)
def test_a_value_costs_its_text_and_two_characters(value: object, characters: int, values: int) -> None:
    converter = Converter(characters, values)
    converter.convert(value)
    assert (converter.characters, converter.values) == (0, 0)
    for less in ((characters - 1, values), (characters, values - 1)):
        with pytest.raises(TooLarge):
            Converter(*less).convert(value)


def test_all_that_one_converts_shares_its_limits() -> None:
    converter = Converter(characters=10, values=3)
    converter.convert("abc")
    assert (converter.characters, converter.values) == (5, 2)
    with pytest.raises(TooLarge):
        converter.convert("abcd")


def test_a_whole_number_is_sent_up_to_what_every_python_reads() -> None:
    assert Converter().convert(2**2100 - 1) == 2**2100 - 1
    with pytest.raises(ValueError, match="more than 640 digits"):
        Converter().convert(2**2100)


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: (value,), lambda value: {"x": value}, iter])
def test_a_value_is_sent_as_deep_as_the_limit_and_no_deeper(wrap: Any) -> None:
    outer = wrap([nested(MAX_DEPTH - 1)] if wrap is iter else nested(MAX_DEPTH - 1))
    Converter().convert(outer)
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels deep"):
        Converter().convert(wrap([nested(MAX_DEPTH)] if wrap is iter else nested(MAX_DEPTH)))


def test_a_value_that_stands_for_itself_ends_at_the_limit() -> None:
    class Endless:
        def isoformat(self) -> object:
            return self

    with pytest.raises(ValueError, match="nested"):
        Converter().convert(Endless())


def test_a_text_of_the_users_own_class_becomes_an_exact_one() -> None:
    assert type(exact(Text("x"))) is str
    assert exact(Text("x")) == "x"


def test_a_type_is_called_by_its_own_name_whatever_its_metaclass_says() -> None:
    class Lying(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            return "another"

    assert type_name(Lying("x" * 2000, (), {})()) == "x" * 1000


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":[1,2.5,"x",null,true]}', {"a": [1, 2.5, "x", None, True]}),
        (b"[NaN,Infinity,-Infinity,1e999,-1e999]", ["nan", "inf", "-inf", "inf", "-inf"]),
        (b'"' + b"x" * 700 + b'"', "x" * 700),
        (b"[" + b"1" * 640 + b"]", [int("1" * 640)]),
        (b'["\xed\xa0\x80"]', ["\ud800"]),
        (b"[1e999" + b" " * 700 + b",NaN]", ["inf", "nan"]),
    ],
    ids=["short", "constants", "long", "digits", "half", "long constants"],
)
def test_json_is_read_back(data: bytes, value: object) -> None:
    assert load(data) == value


@pytest.mark.parametrize(
    "data",
    [b"", b" ", b"[1", b"[1]x", b"[1] [2]", b"[1]" + b" " * 200 + b"x", b"\xff", b"[" + b"1" * 641 + b"]"],
    ids=["empty", "blank", "open", "behind", "two", "far behind", "no text", "digits"],
)
def test_what_is_no_single_value_of_bounded_size_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not JSON|more than one value|can't decode|too many digits|Expecting"):
        load(data)


def test_json_is_read_as_deep_as_a_value_in_a_message_and_no_deeper() -> None:
    deepest = MAX_DEPTH + 3  # of the message itself: an array, a field, and what is in that
    load(b"[" * deepest + b"]" * deepest)
    load(b'{"x":' * deepest + b"1" + b"}" * deepest)
    for data in (b"[" * (deepest + 1) + b"]" * (deepest + 1), b'{"x":' * (deepest + 1) + b"1" + b"}" * (deepest + 1)):
        with pytest.raises(ValueError, match="nested too deeply"):
            load(data)


def test_brackets_in_texts_are_no_levels() -> None:
    text = '[{\\"' * 200 + "\\\\"
    assert load(f'["{text}",1]'.encode())[1] == 1


@pytest.mark.parametrize("data", [b"[" * 101, b"[" * 101 + b"}" * 100, b'["' + b"[" * 101])
def test_brackets_that_do_not_close_are_refused_whatever_is_in_them(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not closed|Expecting|Unterminated"):
        load(data)


def test_as_many_values_are_read_as_can_be_sent() -> None:
    assert len(load(b"[" + b"1," * (MOST_SEPARATORS - 1) + b"1]")) == MOST_SEPARATORS
    assert len(load(b"[" + b"[]," * (MOST_SEPARATORS // 2 - 1) + b"[]]")) == MOST_SEPARATORS // 2
    for data in (
        b"[" + b"1," * MOST_SEPARATORS + b"1]",
        b"[" + b"[]," * (MOST_SEPARATORS // 2) + b"[]]",
        b"[" + b"{}," * (MOST_SEPARATORS // 2) + b"{}]",
    ):
        with pytest.raises(ValueError, match="too many values"):
            load(data)


@pytest.mark.parametrize("separator", [b",", b"[", b"{"])
def test_what_is_outside_of_texts_is_counted(separator: bytes) -> None:
    assert outside_texts(b'"' + separator * 9 + b'"' + separator * 3, 3) == separator * 3
    with pytest.raises(ValueError, match="too many values"):
        outside_texts(separator * 4, 3)


def test_texts_are_counted_before_they_are_taken_apart() -> None:
    assert outside_texts(b'"' * 8 + b"x", 2) == b"x"
    with pytest.raises(ValueError, match="too many texts"):
        outside_texts(b'"' * 9, 2)


def test_a_quote_that_is_escaped_ends_no_text() -> None:
    assert outside_texts(b'["a\\",b\\\\"],[1]', 9) == b"[],[1]"


def test_json_is_written_on_one_line_that_any_file_takes() -> None:
    data = dump({"é\ud800": [1, None, "\n"]})
    assert data == b'{"\xc3\xa9\\ud800":[1,null,"\\n"]}'
    assert load(data) == {"é\ud800": [1, None, "\n"]}

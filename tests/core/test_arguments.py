"""Arguments: what can be used is passed on as it is meant, everything else is refused by its name."""

from __future__ import annotations

import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy
import pytest

from kernelbox import InvalidInput, StartFailed
from kernelbox.core import _arguments as arguments

LARGEST = 1.7976931348623157e308

USABLE: dict[str, tuple[Any, ...]] = {
    "check_name": ("a", "x" * 1000, "Küche / 2", " a "),
    "check_key": ("a", "0123456789abcdef"),
    "check_code": ("", "x" * 8_000_000, "\0" * 5_900_000, "1\n"),
    "check_lifetime": ("kernel", "process"),
    "check_tags": ({}, {"a": "b"}, {"a": "x" * 9_999}),
    "check_kernel_type": (None, "python3"),
    "check_environment": (None, {}, {"A": "b=c"}),
}

UNUSABLE: dict[str, tuple[Any, ...]] = {
    "check_name": ("", " ", "a\n", "x" * 1001, "\ud800", None, 5, b"a"),
    "check_key": ("", "a\n", None, 5, b"a"),
    "check_code": ("x" * 8_000_001, "\0" * 6_000_000, None, 5, b"1"),
    "check_lifetime": ("", "forever", None),
    "check_tags": (None, [], {"a": 1}, {1: "a"}, {"a": "x" * 10_000}),
    "check_kernel_type": ("", 5, b"python3"),
    "check_environment": ([], "A=b", {"A": 1}, {1: "A"}, {"": "a"}, {"A=B": "c"}, {"A\0": "b"}, {"A": "b\0"}),
    "check_language": ("", "ruby", None, 5),
}


@pytest.mark.parametrize("check", USABLE)
def test_what_can_be_used_is_passed_on_as_it_is(check: str) -> None:
    for value in USABLE[check]:
        assert getattr(arguments, check)(value) == value


@pytest.mark.parametrize("check", UNUSABLE)
def test_what_cannot_be_used_is_refused_by_its_name(check: str) -> None:
    for value in UNUSABLE[check]:
        with pytest.raises(InvalidInput, match=r"^(a kernel's name|the kernel|code|[a-z_]+) cannot be .+: .+"):
            getattr(arguments, check)(value)


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        ("check_name", "a kernel's name cannot be 5: use a string"),
        ("check_key", "the kernel cannot be 5: use a KernelRecord, a name or an id"),
        ("check_code", "code cannot be 5: use a string"),
    ],
)
def test_what_is_no_text_is_refused_as_such(check: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{sentence}$"):
        getattr(arguments, check)(5)


@pytest.mark.parametrize(("given", "known"), [("python", "python"), ("PY", "python"), ("Bash", "bash"), ("sh", "bash")])
def test_a_language_has_several_names(given: str, known: str) -> None:
    assert arguments.check_language(given) == known


def test_a_byte_order_mark_is_no_part_of_the_code() -> None:
    assert arguments.check_code("\ufeff1\ufeff") == "1\ufeff"


def test_what_is_kept_is_a_copy() -> None:
    tags, env = {"a": "b"}, {"A": "b"}
    assert arguments.check_tags(tags) is not tags
    assert arguments.check_environment(env) is not env
    assert arguments.check_environment(MappingProxyType(env)) == env


def test_an_environment_is_refused_by_the_name_that_the_caller_knows() -> None:
    with pytest.raises(InvalidInput, match=r"^kernel_env cannot be "):
        arguments.check_environment(5, "kernel_env")
    with pytest.raises(InvalidInput, match=r"^kernel_env cannot be 'A=B': a variable has a name without '='"):
        arguments.check_environment({"A=B": ""}, "kernel_env")


@pytest.mark.parametrize("value", [True, False])
def test_a_switch_is_true_or_false(value: bool) -> None:
    assert arguments.check_switch("x", value) is value
    for other in (None, 0, 1, "no"):
        with pytest.raises(InvalidInput, match=r"^x cannot be"):
            arguments.check_switch("x", other)


@pytest.mark.parametrize(
    ("limit", "kept"), [(None, 7), (0, 0), (-1, 0), (1, 1), (10**6, 10**6), (10**400, 2**63 - 1), (-(10**400), 0)]
)
def test_a_limit_of_characters_is_a_whole_number(limit: int | None, kept: int) -> None:
    assert arguments.check_output_limit(limit, 7) == kept


@pytest.mark.parametrize("limit", [1.0, "1", True, [], float("nan")])
def test_any_other_limit_of_characters_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^output_char_limit cannot be"):
        arguments.check_output_limit(limit, 7)


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(None, 60.0), (0, 60.0), (-0.0, 60.0), (1, 1.0), (0.001, 0.001), (LARGEST, LARGEST)],
)
def test_a_timeout_of_nothing_is_the_default(timeout: float | None, seconds: float) -> None:
    assert arguments.check_timeout(timeout, 60.0) == seconds
    assert type(arguments.check_timeout(timeout, 60.0)) is float


@pytest.mark.parametrize("timeout", [-1, -0.001, -LARGEST, numpy.float64(-1)])
def test_a_timeout_below_nothing_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidInput, match=r"^timeout cannot be .*: use a number of seconds, or 0 or None"):
        arguments.check_timeout(timeout, 60.0)


@pytest.mark.parametrize("seconds", [Decimal("2.5"), Fraction(5, 2), numpy.float64(2.5), numpy.float32(2.5)])
def test_a_time_may_be_a_number_of_any_library(seconds: Any) -> None:
    for checked in (arguments.check_timeout(seconds, 60.0), arguments.check_seconds("patience", seconds)):
        assert (checked, type(checked)) == (2.5, float)


def test_whole_numbers_of_a_library_are_taken() -> None:
    two: Any = numpy.int64(2)
    assert arguments.check_timeout(two, 60.0) == arguments.check_output_limit(two, 7) == 2


NO_NUMBERS: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "huge": 10**400,
    "text": "5",
    "switch": True,
    "complex": 1j,
    "array": numpy.array([1, 2]),
}


@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_time_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^timeout cannot be .* None for the configured one"):
        arguments.check_timeout(value, 60.0)
    with pytest.raises(InvalidInput, match=r"^patience cannot be .* None for no limit"):
        arguments.check_seconds("patience", value)


@pytest.mark.parametrize("seconds", [None, 1, 0.5, LARGEST])
def test_a_limit_of_time_is_above_zero_or_none(seconds: float | None) -> None:
    assert arguments.check_seconds("patience", seconds) == seconds
    for other in (0, 0.0, -1):
        with pytest.raises(InvalidInput, match=r"^patience cannot be"):
            arguments.check_seconds("patience", other)


def test_a_path_is_made_absolute_whether_or_not_anything_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert arguments.check_path("images_dir", Path("a") / ".." / "b") == str(tmp_path / "b")
    assert arguments.check_path("images_dir", "/c") == "/c"
    for other in ("", "a\0b", b"/c", 5, None):
        with pytest.raises(InvalidInput, match=r"^images_dir cannot be"):
            arguments.check_path("images_dir", other)


def test_a_kernel_starts_in_a_directory_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert arguments.check_directory(None) == arguments.check_directory(".") == str(tmp_path)
    (tmp_path / "file").touch()
    for other in ("missing", "file", tmp_path / "file"):
        with pytest.raises(InvalidInput, match=r"^cwd cannot be .* there is no such directory"):
            arguments.check_directory(other)


def test_a_current_directory_that_has_been_deleted_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StartFailed, match="the current directory has been deleted; change to another, or give cwd"):
        arguments.check_directory(None)
    assert arguments.check_directory(os.sep) == os.sep

"""Limits as values: what is understood, what is refused, how they are shown and compared."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelbox import InvalidInput, KernelBoxConfig, Limits, create
from kernelbox.base._limits import NAMES, check_limits, describe_excess, parse_limits, read_amount, show_amount

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("name", "given", "amount"),
    [
        ("memory", "512MB", 512_000_000),
        ("memory", "512 mb", 512_000_000),
        ("memory", "512M", 512_000_000),
        ("memory", "512MiB", 512 * MEBIBYTE),
        ("memory", "1.5gib", 1536 * MEBIBYTE),
        ("memory", "2Gi", 2048 * MEBIBYTE),
        ("memory", "40000000", 40_000_000),
        ("memory", 40_000_000.0, 40_000_000),
        ("disk", "1TB", 10**12),
        ("file_size", "64kB", 64_000),
        ("cpu", "90", 90),
        ("cpu", 2.5, 2.5),
        ("cpu", "1.5min", 90),
        ("cpu", "2h", 7200),
        ("processes", "40", 40),
        ("files", 100, 100),
        *((name, zero, 0) for name in NAMES for zero in (0, "0")),
    ],
)
def test_a_limit_is_read_as_a_number_of_bytes_seconds_or_things(name: str, given: Any, amount: float) -> None:
    assert Limits(**{name: given}).given == {name: amount}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrong",
    ["", "lots", "-5", "1 GB GB", "GB", "5 parsecs", "nan", "inf", math.nan, math.inf, -1, True, [], b"1", 2**70],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=f"the limit {name} cannot be"):
        Limits(**{name: wrong})


@pytest.mark.parametrize(
    ("name", "too_little", "least"),
    [("memory", "1MB", "32 MB"), ("cpu", 0.1, "1 s"), ("processes", 1, "8"), ("files", 10, "64"), ("disk", 1, "64 kB")],
)
def test_a_limit_below_what_a_kernel_needs_is_refused(name: str, too_little: Any, least: str) -> None:
    with pytest.raises(InvalidInput, match=f"at least {least}, or 0 for none"):
        Limits(**{name: too_little})


@pytest.mark.parametrize(("name", "wrong"), [("files", 100.5), ("processes", "100MB"), ("files", "1e2.5")])
def test_things_are_counted_in_whole_numbers(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="a whole number"):
        Limits(**{name: wrong})


def test_limits_can_be_given_as_a_mapping() -> None:
    assert check_limits({"memory": "1GB", "cpu": None}) == Limits(memory=10**9)
    assert check_limits(None) is None


@pytest.mark.parametrize("wrong", [5, "memory=1GB", ["memory"], {"ram": 1}, {5: 1}])
def test_what_is_no_mapping_of_limits_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=r"limit.* cannot be"):
        check_limits(wrong)


def test_what_is_not_said_is_left_to_the_configuration_and_0_lifts_its_limit() -> None:
    configured = {"memory": 10**9, "files": 100, "cpu": 0.0}
    assert Limits(memory="2GB", processes=50).over(configured) == {"memory": 2 * 10**9, "processes": 50, "files": 100}
    assert Limits(memory=0).over(configured) == {"files": 100}


def test_only_what_is_said_is_compared() -> None:
    held = {"memory": 512_000_000.0, "files": 100}
    assert Limits(memory="512MB").differences(held) == []
    assert Limits(memory="1GB", cpu=5, files=0).differences(held) == [
        "limits memory=512 MB, not 1 GB",
        "limits cpu=none, not 5 s",
        "limits files=100, not none",
    ]


@pytest.mark.parametrize("beyond", [{"memory": "2GB"}, {"memory": 0}])
def test_a_ceiling_is_not_exceeded(beyond: Any) -> None:
    Limits(memory="1GB", cpu=10**6).require_within({"memory": 10**9, "cpu": 0})
    with pytest.raises(InvalidInput, match="this server allows at most 1 GB"):
        Limits(**beyond).require_within({"memory": 10**9})


def test_a_command_line_has_limits_as_pairs() -> None:
    assert parse_limits([]) is None
    assert parse_limits(["memory=512MB", "file-size=1GB"]) == Limits(memory="512MB", file_size="1GB")
    with pytest.raises(InvalidInput, match="--limit memory cannot be 'much'"):
        parse_limits(["memory=much"])
    for wrong in ("memory", "ram=1GB", "=5"):
        with pytest.raises(InvalidInput, match="use NAME=VALUE with one of memory, cpu"):
            parse_limits([wrong])


def test_the_variables_are_read_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_LIMIT_MEMORY", "1GiB")
    monkeypatch.setenv("KERNELBOX_LIMIT_CPU", "10min")
    assert KernelBoxConfig.from_env().limits == {
        "memory": 1024 * MEBIBYTE,
        "cpu": 600,
        "processes": 0,
        "files": 0,
        "file_size": 0,
        "disk": 0,
    }
    monkeypatch.setenv("KERNELBOX_LIMIT_DISK", "some")
    with pytest.raises(InvalidInput, match="KERNELBOX_LIMIT_DISK cannot be 'some'"):
        KernelBoxConfig.from_env()


def test_a_variable_for_a_limit_that_there_is_not_keeps_kernels_from_starting(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_LIMIT_MEM", "512MB")
    with pytest.raises(InvalidInput, match="KERNELBOX_LIMIT_MEM cannot be '512MB': use one of MEMORY, CPU"):
        create("misspelt")


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("memory", 512_000_000, "512 MB"),
        ("memory", 512 * MEBIBYTE, "512 MiB"),
        ("memory", 1536 * MEBIBYTE, "1.5 GiB"),
        ("memory", 519_416_000, "519.4 MB"),
        ("disk", 64_000, "64 kB"),
        ("cpu", 2.0423, "2.042 s"),
        ("cpu", 7200, "7200 s"),
        ("processes", 40, "40"),
        ("files", 0, "none"),
    ],
)
def test_an_amount_is_shown_in_the_units_it_was_given_in(name: str, amount: float, text: str) -> None:
    assert show_amount(name, amount) == text


@given(st.integers(min_value=32_000_000, max_value=2**50))
def test_an_amount_that_is_shown_can_be_read_again_to_four_digits(amount: int) -> None:
    again = read_amount("it", "memory", show_amount("memory", amount))
    assert abs(again - amount) <= amount / 1000


def test_an_excess_is_told_with_the_limit_and_in_its_units() -> None:
    assert describe_excess("memory", 512e6, 519.4e6) == "out of memory (limit 512 MB, peak 519.4 MB)"
    assert describe_excess("memory", 512 * MEBIBYTE, 513.5 * MEBIBYTE).endswith("(limit 512 MiB, peak 513.5 MiB)")
    assert describe_excess("cpu", 2, 2.04) == "out of CPU time (limit 2 s, used 2.04 s)"
    assert describe_excess("processes", 40, 57) == "too many processes (limit 40, had 57)"
    assert describe_excess("disk", 1e9, 1.2e9).endswith("working directory (limit 1 GB, added 1.2 GB)")

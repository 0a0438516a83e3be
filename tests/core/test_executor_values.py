"""Variables as a kernel describes them: its own cells can forge the answer."""

from __future__ import annotations

from typing import Any

import pytest

from kernelbox import CodeExecutionChunk, CodeExecutionResult, KernelBoxError, Variable
from kernelbox.core._executor_values import read_variables

GOOD: dict[str, Any] = {"name": "x" * 256, "type": "t" * 256, "size": 0, "preview": "p" * 256}


def test_variables_are_read_up_to_a_number_that_nobody_has() -> None:
    described = [{**GOOD, "name": f"x{number}", "size": number} for number in range(10_001)]
    read = read_variables("k", {"variables": described})
    assert len(read) == 10_000
    assert read[0] == Variable("x0", "t" * 256, 0, "p" * 256)
    assert read[-1].size == 9_999
    assert read_variables("k", {"variables": []}) == []


FORGED: dict[str, Any] = {
    "no list": {},
    "no variable": ["x"],
    "a name too long": [{**GOOD, "name": "x" * 257}],
    "a type too long": [{**GOOD, "type": "x" * 257}],
    "a preview too long": [{**GOOD, "preview": "x" * 257}],
    "a field more": [{**GOOD, "more": 1}],
    "a field less": [{"name": "x", "type": "int", "size": 1}],
    "less than nothing": [{**GOOD, "size": -1}],
    "no size": [{**GOOD, "size": True}],
    "a fraction": [{**GOOD, "size": 1.5}],
    "one of several": [GOOD, {**GOOD, "name": 5}],
}


@pytest.mark.parametrize("described", FORGED.values(), ids=FORGED)
def test_what_no_kernel_sends_is_refused(described: Any) -> None:
    with pytest.raises(KernelBoxError, match=r"^kernel 'k' did not send a list of variables; a cell has tampered"):
        read_variables("k", {"variables": described})


def test_an_error_in_the_kernel_is_told_and_bounded() -> None:
    with pytest.raises(KernelBoxError, match=r"^kernel 'k' cannot list its variables: no$"):
        read_variables("k", {"evalue": "no"})
    with pytest.raises(KernelBoxError, match=r"cannot list its variables: unknown$"):
        read_variables("k", {})
    with pytest.raises(KernelBoxError) as told:
        read_variables("k", {"evalue": "x" * 5_000})
    assert str(told.value).count("x") == 1_000


VALUES = [CodeExecutionResult(None, []), CodeExecutionChunk("x"), Variable("x", "int", 28, "1")]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_cannot_be_changed_or_added_to(value: object) -> None:
    for name in ("text", "name", "more"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(value, name, "other")
    assert not hasattr(value, "__dict__")


def test_a_result_is_no_cancelled_one_unless_it_says_so() -> None:
    assert CodeExecutionResult("x", []) == CodeExecutionResult("x", [], changed=None, cancelled=False)

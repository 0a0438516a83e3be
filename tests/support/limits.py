"""What the tests of limits share: both ways in which limits are kept, and a kernel in a directory of its own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import DEADLINE

from kernelbox import ExecutionResult, KernelRecord, destroy, execute, get_or_create
from kernelbox.host.process._control_groups import make_groups, remove_groups

_numbers = itertools.count(1)


def has_groups() -> bool:
    """Tells whether this process may make control groups for memory and processes."""
    made = make_groups("0" * 32, {"memory": 10**9, "processes": 100})
    remove_groups(made)
    return len(made) > 0


GROUPS = has_groups()

# Control groups where they may be used, and the keeper's looks everywhere.
WAYS = [
    pytest.param("1", id="groups", marks=pytest.mark.skipif(not GROUPS, reason="no control groups can be made here")),
    pytest.param("0", id="looks"),
]


@contextlib.contextmanager
def limited(cwd: Path, *, sandbox: bool = False, **limits: Any) -> Iterator[KernelRecord]:
    """Opens a kernel with limits and a neighbour without; the neighbour answers in the end."""
    number = next(_numbers)
    neighbour = get_or_create(f"neighbour-{number}")
    execute(neighbour, "kept = 41")
    kernel = get_or_create(f"limited-{number}", cwd=cwd, limits=limits, sandbox=sandbox)
    try:
        yield kernel
        assert execute(neighbour, "kept + 1", timeout=DEADLINE).return_value == "42"
    finally:
        destroy(kernel)
        destroy(neighbour)


def run(kernel: KernelRecord, code: str) -> ExecutionResult:
    return execute(kernel, code, timeout=DEADLINE)


def death(kernel: KernelRecord, code: str) -> str:
    """Runs a cell that its kernel does not survive, now or soon after; returns what the caller is told."""
    result = run(kernel, f"{code}\nimport time\nwhile True: time.sleep(1)")
    assert result.error is not None
    assert (result.state, result.error.ename) == ("lost", "KernelDied"), result.text
    return result.error.evalue


def error(kernel: KernelRecord, code: str) -> str:
    """Runs a cell that fails; returns its error. The kernel goes on."""
    result = run(kernel, code)
    assert result.error is not None
    assert result.state == "kept", result.text
    assert run(kernel, "1 + 1").return_value == "2"
    return f"{result.error.ename}: {result.error.evalue}"

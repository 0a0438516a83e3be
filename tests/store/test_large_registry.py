"""A registry of many kernels follows a moment later: nobody who opens or destroys a kernel waits for it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cells import eventually
from tests.support.store import read_registry, run_python

from kernelbox import KernelRecord, destroy, get_or_create, list_kernels, wipe
from kernelbox.api._configured import kernels
from kernelbox.host.files._lock import locked
from kernelbox.wire._layout import LOCKS

_MANY = 210

_OPEN_AND_END = """
from kernelbox import destroy, get_or_create
for name in ("one", "two", "three"):
    get_or_create(name)
destroy("two")
"""

_OPEN_IN_A_FORK = """
import os
from kernelbox import get_or_create
get_or_create("one")
get_or_create("two")
if os.fork() == 0:
    get_or_create("three")
else:
    os.wait()
"""


@pytest.fixture
def crowded(own_home: Path) -> Path:
    """A home with more kernels than are listed at once; all but one are dead."""
    record, store = KernelRecord.from_dict(get_or_create("first").to_dict()), kernels().store
    for number in range(_MANY):
        name, kernel_id = f"dead-{number}", os.urandom(16).hex()
        dead = replace(record, kernel_id=kernel_id, name=name, session_name=name, pid=None, status="dead", death="gone")
        store.add(dead)
    store.publish_all()
    assert len(read_registry(own_home)) == _MANY + 1
    return own_home


def listed(home: Path) -> set[str]:
    return {entry["name"] for entry in read_registry(home).values() if not entry["name"].startswith("dead-")}


def test_a_kernel_is_opened_and_destroyed_while_the_registry_cannot_be_written(crowded: Path) -> None:
    store = kernels().store
    with store.enter(LOCKS) as locks, locked(locks, "registry", store.secret()):
        get_or_create("one")
        get_or_create("two")
        assert destroy("one")
        assert listed(crowded) == {"first"}
    eventually(lambda: listed(crowded) == {"first", "two"})


@pytest.mark.parametrize(
    ("code", "names"),
    [
        pytest.param(_OPEN_AND_END, {"first", "one", "three"}, id="process"),
        pytest.param(_OPEN_IN_A_FORK, {"first", "one", "two", "three"}, id="fork"),
    ],
)
def test_the_registry_is_complete_when_a_process_has_ended(crowded: Path, code: str, names: set[str]) -> None:
    run_python(code)
    assert listed(crowded) == names


def test_after_a_wipe_the_registry_is_empty_at_once(crowded: Path) -> None:
    get_or_create("one")
    assert len(wipe()) == _MANY + 2
    assert read_registry(crowded) == {}
    assert list_kernels() == []

"""What the wire uses of Python, in a process where cells can put anything in the place of anything."""

from __future__ import annotations

import builtins
import importlib
import pkgutil

import pytest

from kernelbox import wire
from kernelbox.wire._pristine import find_replaced, keep_builtins

# Of the wire, what only hosts use.
_OF_HOSTS = {"_approvals", "_execution", "_layout", "_results", "_transcript"}
MODULES = sorted({module.name for module in pkgutil.iter_modules(wire.__path__)} - _OF_HOSTS - {"_pristine"})


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_kernels_use_has_built_in_names_of_its_own(name: str) -> None:
    own = vars(importlib.import_module(f"kernelbox.wire.{name}"))["__builtins__"]
    assert own is not vars(builtins)
    assert own["len"] is len


def test_a_function_keeps_the_built_in_names_that_there_were_before_a_cell_replaced_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: dict[str, object] = {}
    keep_builtins(names)
    exec("def count(x): return len(x)", names)
    monkeypatch.setattr(builtins, "len", lambda x: -1)
    assert eval("count([1, 2])", names) == 2
    assert find_replaced() == ["len"]


def test_a_built_in_name_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_replaced() == []
    monkeypatch.delattr(builtins, "iter")
    found = find_replaced()
    monkeypatch.undo()
    assert found == ["iter"]

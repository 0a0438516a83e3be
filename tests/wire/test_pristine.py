"""What the wire uses of Python, in a process where cells can put anything in the place of anything."""

from __future__ import annotations

import builtins
import importlib
import pkgutil
import subprocess
import sys

import pytest

from kernelbox import wire

# Of the wire, what only hosts use. Kernels take numbers from some of it.
_OF_HOSTS = {"_execution", "_layout", "_results", "_timeout_ladder", "results"}
MODULES = sorted({module.name for module in pkgutil.iter_modules(wire.__path__)} - _OF_HOSTS - {"_builtins"})


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_kernels_use_has_built_in_names_of_its_own(name: str) -> None:
    own = vars(importlib.import_module(f"kernelbox.wire.{name}"))["__builtins__"]
    assert own is not vars(builtins)
    assert own["len"] is len


def run(code: str) -> str:
    """Runs code in a process of its own: other threads of this one must not meet what it does to the built-in names."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_function_keeps_the_built_in_names_that_there_were_before_a_cell_replaced_them() -> None:
    code = """
import builtins
from kernelbox.wire._builtins import find_replaced, keep_builtins
names = {}
keep_builtins(names)
exec("def count(x): return len(x)", names)
builtins.len = lambda x: -1
print(names["count"]([1, 2]), len([1, 2]), find_replaced())
"""
    assert run(code) == "2 -1 ['len']\n"


def test_a_built_in_name_that_is_gone_is_found() -> None:
    code = """
import builtins
from kernelbox.wire._builtins import find_replaced
before = find_replaced()
del builtins.iter
print(before, find_replaced())
"""
    assert run(code) == "[] ['iter']\n"

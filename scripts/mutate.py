"""Changes a module in one small place at a time, and tells which changes its tests do not notice.

    python scripts/mutate.py src/kernelbox/core/_policy.py tests/executor/test_policy.py [--sample 50 --seed 1]

Each change is tried in a fork of this process, which has pytest loaded: a fast test says its word in a second. Tools
that put switches into the code, such as mutmut, change its depth of recursion and its memory, which our tests look at.
Only for modules that the tests' own process runs: a kernel imports the code as it is.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}

# What tests need not notice: how a value is shown to a debugger.
_SHOWN = ("__repr__",)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what a node could be instead; the node itself is left as it is."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[op, *_]) if type(op) in _COMPARISONS:
            other.ops[0] = _COMPARISONS[type(op)]()
            yield other
        case ast.BoolOp():
            other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
            yield other
        case ast.UnaryOp(op=ast.Not()):
            yield other.operand
        case ast.BinOp() if type(other.op) in _OPERATORS:
            other.op = _OPERATORS[type(other.op)]()
            yield other
        case ast.Constant(value=bool()):
            yield ast.copy_location(ast.Constant(not other.value), node)
        case ast.Constant(value=int()) if isinstance(other.value, int):
            yield ast.copy_location(ast.Constant(other.value + 1), node)
        case ast.Return(value=ast.expr()) if not isinstance(other.value, ast.Constant):
            other.value = ast.copy_location(ast.Constant(None), node)
            yield other
        case ast.If() | ast.IfExp():
            other.test = ast.copy_location(ast.UnaryOp(ast.Not(), other.test), other.test)
            yield other
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Break() | ast.Continue() | ast.Raise():
            yield ast.copy_location(ast.Pass(), node)


def mutants(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Module]]:
    """Yields every change of a module: the node, and the module with another in its place."""
    for parent, field, index, node in list(_places(tree)):
        for other in changes(node):
            _put(parent, field, index, other)
            yield node, copy.deepcopy(tree)
        _put(parent, field, index, node)


def _places(parent: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yields the nodes below one that run when a test does, and where each stands."""
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns"):
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or (isinstance(node, ast.FunctionDef) and node.name in _SHOWN):
                continue
            if isinstance(node, ast.If | ast.Assign) and "TYPE_CHECKING" in ast.unparse(node).partition("\n")[0]:
                continue
            yield parent, field, index, node
            yield from _places(node)


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports other code in the place of one module."""

    def __init__(self, name: str, path: Path, code: types.CodeType) -> None:
        self._name = name
        self._path = path
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(self._code, module.__dict__)


def is_noticed(path: Path, tree: ast.Module, tests: list[str]) -> bool:
    """Runs the tests on a changed module, in a fork; returns whether one failed."""
    pid = os.fork()
    if pid == 0:
        silence = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(silence, fd)
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        sys.meta_path.insert(0, Instead(name, path, compile(ast.fix_missing_locations(tree), str(path), "exec")))
        options = ["-xq", "-Wignore", "-pno:randomly", "-pno:cacheprovider", "-pno:xdist", "--timeout=30"]
        os._exit(pytest.main([*options, *tests]))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--sample", type=int, default=0, help="how many changes to try (all)")
    parser.add_argument("--seed", default="", help="which ones")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # A failing example is enough; nobody reads the smallest.
    hypothesis.settings.register_profile("quick", phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
    hypothesis.settings.load_profile("quick")
    path: Path = options.module.resolve()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if is_noticed(path, tree, options.tests):
        print("the tests fail on the module as it is")
        return 2
    found = list(mutants(tree))
    tried = found
    if 0 < options.sample < len(found):
        tried = random.Random(options.seed).sample(found, options.sample)
    survivors = 0
    for node, changed in tried:
        if not is_noticed(path, changed, options.tests):
            survivors += 1
            what = ast.unparse(node).splitlines()[0][:100]
            print(f"{options.module}:{getattr(node, 'lineno', '?')}: {what} ({type(node).__name__})", flush=True)
    print(f"{options.module}: {len(tried) - survivors} of {len(tried)} changes noticed; there are {len(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

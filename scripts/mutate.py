"""Changes modules in one small place at a time, and tells which changes their tests do not notice.

    python scripts/mutate.py src/kernelbox/wire --tests tests/wire
    python scripts/mutate.py src/kernelbox/core/_options.py --tests tests/core/test_options.py [--sample 50 --seed 1]
    python scripts/mutate.py src/kernelbox/wire/_json.py --tests tests/wire --part 1/3

Each change is tried in a fork of this process, which has pytest loaded, by the tests that enter the changed function,
the quickest first: most are noticed within a second. Tools that put switches into the code, such as mutmut, change its
depth of recursion and its memory, which our tests look at. Only for modules that the tests' own process runs: a kernel
imports the code as it is.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import select
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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

# What tests need not notice: how a value is shown to a debugger, and whether a class whose values nobody compares has
# an equality of its own.
_SHOWN = ("__repr__",)
_CLASS_OPTIONS = ("eq", "repr")

# Examples of a property by which it is seen what functions it enters.
_FEW = 5

# Seconds for all the tests of one change. One that waits for ever is noticed by pytest's own limit; this is for a loop
# that no signal reaches.
_PATIENCE = 300.0


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
            if isinstance(node, ast.keyword) and node.arg in _CLASS_OPTIONS:
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


class Lines:
    """A plugin for pytest that notes which functions of some modules each test enters, by their lines, and its time."""

    def __init__(self, modules: list[Path]) -> None:
        self._modules = {str(path) for path in modules}
        self._test = ""
        self._began = 0.0
        self._entered: set[tuple[str, types.CodeType]] = set()
        self.tests: dict[str, float] = {}
        self.run: dict[str, dict[str, set[int]]] = {path: {} for path in self._modules}

    def start(self) -> None:
        """Begins before pytest does, which imports modules at once."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Has few examples of each property tried, which enter the same functions as many."""
        for item in items:
            test: Any = getattr(item, "obj", None)
            if hypothesis.is_hypothesis_test(test):
                own = test._hypothesis_internal_use_settings
                test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=_FEW)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid
        self._began = time.perf_counter()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.tests[nodeid] = time.perf_counter() - self._began
        self._test = ""

    def _enter(self, frame: types.FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if code.co_filename in self._modules and (self._test, code) not in self._entered:
            self._entered.add((self._test, code))
            lines = self.run[code.co_filename].setdefault(self._test, set())
            lines.update(line for _, _, line in code.co_lines() if line is not None)


class Only:
    """A plugin for pytest that runs some tests, in a given order."""

    def __init__(self, tests: list[str]) -> None:
        self._places = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._places), key=self._place)

    def _place(self, item: pytest.Item) -> int:
        return self._places[item.nodeid]


class Tests:
    """The tests of some modules, each with the functions that it enters."""

    def __init__(self, modules: list[Path], chosen: list[str]) -> None:
        with tempfile.NamedTemporaryFile() as noted:
            lines = Lines(modules)

            def run() -> int:
                lines.start()
                run_pytest(chosen, lines)
                Path(noted.name).write_text(json.dumps([lines.tests, lines.run], default=list), encoding="utf-8")
                return 0

            in_a_fork(run, patience=None)
            self._seconds, self._lines = json.loads(Path(noted.name).read_text(encoding="utf-8"))
        if not self._seconds:
            sys.exit(f"pytest runs no test for {' '.join(chosen)}")

    def of(self, module: Path, node: ast.AST) -> list[str]:
        """Returns the tests that enter the function of a place in a module, the quickest first."""
        place = node.test if isinstance(node, ast.If) else node
        assert isinstance(place, ast.expr | ast.stmt)
        wanted = set(range(place.lineno, (place.end_lineno or place.lineno) + 1))
        run = {test for test, lines in self._lines[str(module)].items() if wanted.intersection(lines)}
        if "" in run:  # while the module is imported
            run = set(self._seconds)
        return sorted(run, key=self._seconds.__getitem__)


def run_pytest(tests: list[str], *plugins: object) -> int:
    # In this process, whose imports are changed, and with nothing that only a reader of its report needs.
    options = ["-q", "-Wignore", "-ppytest_timeout", "-pno:cacheprovider", "--assert=plain", "--timeout=120"]
    return pytest.main([*options, *tests], [*plugins])


def in_a_fork(run: Callable[[], int], patience: float | None = _PATIENCE) -> int:
    """Calls a function in a silent fork of this process; returns what it returns, or not 0 if it comes to no end."""
    pid = os.fork()
    if pid == 0:
        silence = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(silence, fd)
        os._exit(run())
    end = os.pidfd_open(pid)
    if not select.select([end], [], [], patience)[0]:
        signal.pidfd_send_signal(end, signal.SIGKILL)
    os.close(end)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_noticed(path: Path, tree: ast.Module, tests: list[str]) -> bool:
    """Runs the tests on a changed module, in a fork; returns whether one failed."""
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    files = sorted({test.partition("::")[0] for test in tests})

    def run() -> int:
        sys.meta_path.insert(0, Instead(name, path, compile(ast.fix_missing_locations(tree), str(path), "exec")))
        return run_pytest(["-x", *files], Only(tests))

    return in_a_fork(run) != 0


def try_module(path: Path, tests: Tests, options: argparse.Namespace) -> bool:
    """Tries the changes of a module, and prints those that no test notices; False if the tests fail without any."""
    shown = path.relative_to(ROOT)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = list(mutants(tree))
    if not found:
        return True
    entering = sorted({test for node, _ in found for test in tests.of(path, node)})
    if entering and is_noticed(path, tree, entering):
        print(f"{shown}: the tests fail on the module as it is")
        return False
    first, parts = map(int, options.part.split("/"))
    chosen = 0 < options.sample < len(found)
    tried = (random.Random(options.seed).sample(found, options.sample) if chosen else found)[first - 1 :: parts]
    survivors = 0
    for node, changed in tried:
        running = tests.of(path, node)
        if not running or not is_noticed(path, changed, running):
            survivors += 1
            what = ast.unparse(node).splitlines()[0][:100]
            unrun = "" if running else ", which no test runs"
            print(f"{shown}:{getattr(node, 'lineno', '?')}: {what} ({type(node).__name__}{unrun})", flush=True)
    print(f"{shown}: {len(tried) - survivors} of {len(tried)} changes noticed; there are {len(found)}", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="+", type=Path, help="modules, or folders of them")
    parser.add_argument("--tests", nargs="+", required=True, help="what pytest is to run")
    parser.add_argument("--sample", type=int, default=0, help="how many changes of each module to try (all)")
    parser.add_argument("--seed", default="", help="which ones")
    parser.add_argument("--part", default="1/1", metavar="N/M", help="every M-th of them, from the N-th on (all)")
    options = parser.parse_args()
    modules = [file.resolve() for path in options.modules for file in (sorted(path.glob("*.py")) or [path])]
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # A failing example is enough; nobody reads the smallest.
    hypothesis.settings.register_profile("quick", phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
    hypothesis.settings.load_profile("quick")
    tests = Tests(modules, options.tests)
    tried = [try_module(path, tests, options) for path in modules]
    return 0 if all(tried) else 2


if __name__ == "__main__":
    sys.exit(main())

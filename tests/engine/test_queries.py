"""Queries about hostile objects: the answer comes, says which object failed, and the kernel goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import DEADLINE, connected, eventually, run, value

from kernelbox import KernelRecord
from kernelbox.api._configured import kernels
from kernelbox.wire._messages import Query

# What user code may do in a method that a query calls.
_ACTS = {
    "loop": "while True: pass",
    "sleep": "time.sleep(1000)",
    "exit": "raise SystemExit",
    "interrupt": "raise KeyboardInterrupt",
    "print": "print('noise'); return 'x'",
    "swallow": "while True:\n            try: time.sleep(1000)\n            except KeyboardInterrupt: pass",
    "regex": "re.match(r'(a|a)*b', 'a' * 100)",
    "recursion": "return (lambda: self.method())()",  # Python 3.13.0 counts no calls of functions with *arguments
    "wrong type": "return 5",
    "wait for a thread": "threading.Event().wait()",
    "hostile exception": "raise Hostile",
}
_METHODS = ["__repr__", "__len__", "__getattr__", "__dir__", "__sizeof__", "__class__", "__getattribute__"]

_CLASS = """
import re, threading, time
class Hostile(Exception):
    def __str__(self): time.sleep(1000)
    __repr__ = __str__
class Bad:
    def method(self, *_):
        {act}
    {method} = {made}
another = 1
bad = Bad()
other = 2
"""


def ask(kernel: KernelRecord, what: str, **args: object) -> dict[str, Any]:
    answer = kernels().kernel(kernel).ask(what, args, patience=DEADLINE)
    assert answer is not None, "the kernel has not answered"
    return answer


def hostile(act: str, method: str) -> str:
    made = "property(method)" if method == "__class__" else "method"
    return _CLASS.format(act=_ACTS[act], method=method, made=made)


@pytest.mark.parametrize("act", _ACTS)
def test_one_hostile_object_leaves_the_other_variables_listed(act: str, kernel: KernelRecord) -> None:
    run(kernel, hostile(act, "__repr__"))
    listed = {entry["name"]: entry for entry in ask(kernel, "variables")["variables"]}
    assert (listed["another"]["preview"], listed["other"]["preview"]) == ("1", "2")
    assert listed["bad"]["type"] == "Bad"
    preview = listed["bad"]["preview"]
    if act in ("loop", "sleep", "swallow", "regex", "wait for a thread"):
        assert preview == "<repr took too long>"
    elif act != "print":
        assert preview.startswith(("<repr failed: ", "<Bad instance at", "<repr took too long>")), preview
    after = run(kernel, "other")
    assert (after.return_value, after.output, after.stderr) == ("2", "", "")


@pytest.mark.parametrize(("act", "method"), [*(("exit", method) for method in _METHODS), ("swallow", "__class__")])
def test_queries_about_a_hostile_object_end_whatever_method_it_is(act: str, method: str, kernel: KernelRecord) -> None:
    run(kernel, hostile(act, method))
    ask(kernel, "complete", code="bad.", cursor_pos=4)
    ask(kernel, "inspect", code="bad", cursor_pos=2, detail_level=1)
    listed = {entry["name"]: entry for entry in ask(kernel, "variables")["variables"]}
    assert (listed["another"]["preview"], listed["other"]["preview"]) == ("1", "2")
    assert value(kernel, "other") == "2"


def test_many_slow_objects_share_a_limit(kernel: KernelRecord) -> None:
    run(kernel, hostile("sleep", "__repr__") + "for n in range(100): globals()[f'bad{n:03d}'] = Bad()\nzero = 0")
    listed = {entry["name"]: entry for entry in ask(kernel, "variables")["variables"]}
    assert len([name for name in listed if name.startswith("bad")]) == 101
    assert listed["bad"]["preview"] == "<repr took too long>"
    assert listed["zero"]["preview"].startswith("<not looked at")
    assert listed["zero"]["type"] == "int"
    assert value(kernel, "zero") == "0"


def test_a_query_whose_client_has_gone_is_stopped(kernel: KernelRecord, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    code = f"""
import pathlib, time
stopped = False
class Bad:
    def __dir__(self):
        global stopped
        try:
            pathlib.Path({str(begun)!r}).touch()
            time.sleep(1000)
        finally: stopped = True
bad = Bad()
"""
    run(kernel, code)
    with connected(kernel) as connection:
        connection.send(Query("asked", "complete", {"code": "bad.", "cursor_pos": 4}))
        eventually(begun.exists)
    assert value(kernel, "stopped") == "True"

"""What keeps the start of the command line short does the same as the standard library that it replaces."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernelbox.base import _light_stdlib
from kernelbox.cli._command_table import find_command
from kernelbox.cli._parser import UsageError, parse
from kernelbox.cli._short_call import read_short
from kernelbox.cli.terminal._output import lay_out

LINES = [
    line.split(" ")
    for line in (
        *("exec demo 1+1", "run demo 1+1", "exec demo", "exec demo ", "exec demo x='ä'", "run --bash d ls"),
        *("exec --name demo 1", "exec 1 --name demo", "exec --id demo", "exec demo --bash ls", "exec demo ls --bash"),
        *("exec --stream demo 1", "exec demo 1 --json --text", "exec --text demo 1 --full", "exec demo --pretty"),
    )
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_short_line_is_read_as_argparse_reads_it(line: list[str]) -> None:
    command = find_command(line[0])
    assert command is not None
    expected = vars(parse(command, line[1:]))
    found = vars(read_short(line[0], line[1:]))
    assert {**found, "target": None} == {**expected, "target": None}


@pytest.mark.parametrize(
    "line",
    [
        *(["exec"], ["exec", "demo", "1", "2"], ["exec", "--name"], ["exec", "--name", "a", "--id", "b", "1"]),
        *(["exec", "--no-such", "demo", "1"], ["run", "demo", "--stream", "1"], ["exec", "--name", "--bash", "1"]),
    ],
    ids=" ".join,
)
def test_argparse_reads_what_is_wrong(line: list[str]) -> None:
    command = find_command(line[0])
    assert command is not None
    assert read_short(line[0], line[1:]) is None
    with pytest.raises(UsageError):
        parse(command, line[1:])


@pytest.mark.parametrize(
    "line",
    [["exec", "demo", "-"], ["exec", "demo", "--", "-x"], ["exec", "-f", "a.py", "demo"], ["list"], ["run", "-h"]],
)
def test_argparse_reads_what_is_rare(line: list[str]) -> None:
    assert read_short(line[0], line[1:]) is None


@pytest.mark.parametrize("indent", [None, 2])
def test_documents_are_laid_out_as_json_dumps_does(indent: int | None) -> None:
    document = {
        "b": [1, -2.5, 1e300, True, False, None, float("inf"), 'ä\n"\\\ud800😀'],
        "a": {"": [], "empty": {}, "nested": [[{"z": (1, 2), "y": [[]]}]]},
    }
    assert lay_out(document, indent) == json.dumps(document, indent=indent, sort_keys=True)
    assert lay_out({1: "one", 2: "two"}, indent) == json.dumps({1: "one", 2: "two"}, indent=indent, sort_keys=True)


def _ends(make: Callable[[Any], Any], error: BaseException | None, behaviour: str) -> tuple[list[str], str]:
    """Returns what a context manager does that is left by an exception, or by none."""
    seen: list[str] = []

    def steps() -> Iterator[str]:
        try:
            yield "value"
            if behaviour == "twice":
                yield "again"
        except BaseException as exc:
            seen.append(repr(exc))
            if behaviour == "swallow":
                return
            if behaviour == "replace":
                raise KeyError("other") from exc
            if behaviour == "again":
                yield "again"
            raise
        finally:
            seen.append("closed")

    try:
        with make(steps)() as value:
            seen.append(value)
            if error is not None:
                raise error
    except BaseException as exc:  # noqa: BLE001  # whatever it was
        return seen, repr(exc) if behaviour not in ("again", "twice") else type(exc).__name__
    return seen, ""


ENDINGS = [
    (error, behaviour)
    for error in (None, ValueError("x"), StopIteration("x"), RuntimeError("x"), GeneratorExit())
    for behaviour in ("pass", "swallow", "replace", "again", "twice")
    if error is not None or behaviour != "again"
]


@pytest.mark.parametrize(("error", "behaviour"), ENDINGS)
def test_a_context_manager_ends_as_contextlib_has_it(error: BaseException | None, behaviour: str) -> None:
    assert _ends(_light_stdlib.contextmanager, error, behaviour) == _ends(contextlib.contextmanager, error, behaviour)


def test_suppress_passes_over_subclasses_only() -> None:
    with _light_stdlib.suppress(OSError, ValueError):
        raise FileNotFoundError
    with pytest.raises(KeyError), _light_stdlib.suppress(OSError):
        raise KeyError


def test_a_flag_wakes_the_thread_that_waits() -> None:
    flag, woken = _light_stdlib.Flag(), threading.Event()
    assert not flag.wait(0)

    def wait() -> None:
        if flag.wait(30):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    flag.set()
    flag.set()
    assert woken.wait(30)
    thread.join()
    assert flag.wait(0)

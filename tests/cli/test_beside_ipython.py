"""The same keys in our console and in IPython's own terminal, side by side, show the same."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import CTRL_C, Terminal

from kernelbox import get_or_create

IPYTHON = [sys.executable, "-m", "IPython", "--no-banner", "--quick", "--no-confirm-exit"]
LEFT, RIGHT = "\x1b[D", "\x1b[C"


@pytest.fixture(params=["console", "ipython"])
def terminal(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> Iterator[Terminal]:
    if request.param == "console":
        get_or_create("demo")
        terminal = Terminal("demo")
    else:
        terminal = Terminal("", program=IPYTHON, settings={"IPYTHONDIR": str(tmp_path)})
    terminal.wait_for_prompt(1)
    yield terminal
    terminal.child.close(force=True)


def test_input_is_read_from_the_keyboard(terminal: Terminal) -> None:
    terminal.enter("name = input('wh' + 'o? ')")
    terminal.expect(r"who\? ")
    terminal.enter("ann")
    terminal.wait_for_prompt(2)
    terminal.enter("name.upper()")
    terminal.expect("Out.2.: 'ANN'")


def test_a_password_is_read_and_not_shown(terminal: Terminal) -> None:
    terminal.enter("from getpass import getpass; word = getpass()")
    terminal.expect("Password: ")
    terminal.enter("secret")
    assert "secret" not in terminal.expect("2.: ")
    terminal.enter("word[::-1]")
    terminal.expect("terces")


def test_ctrl_c_at_input_interrupts_the_cell(terminal: Terminal) -> None:
    terminal.enter("input('wh' + 'o? ')")
    terminal.expect(r"who\? ")
    if b"IPython" in terminal.child.args:
        time.sleep(1)  # it shows the question before it can be interrupted
    terminal.type(CTRL_C)
    terminal.expect("KeyboardInterrupt")
    terminal.wait_for_prompt(2)


def test_debug_looks_at_the_last_error(terminal: Terminal) -> None:
    terminal.enter("def fail(part): return part / 0")
    terminal.enter()
    terminal.wait_for_prompt(2)
    terminal.enter("fail(42)")
    terminal.expect("ZeroDivisionError")
    terminal.wait_for_prompt(3)
    terminal.enter("%debug")
    terminal.expect("ipdb>")
    terminal.enter("p 'part is', part")
    terminal.expect("'part is', 42")
    terminal.expect("ipdb>")
    terminal.enter("q")
    terminal.wait_for_prompt(4)


def test_a_breakpoint_stops_and_goes_on(terminal: Terminal) -> None:
    terminal.enter("def stop(inner): breakpoint(); return inner + 1")
    terminal.enter()
    terminal.wait_for_prompt(2)
    terminal.enter("stop(41)")
    terminal.expect(r"[pP]db[>)]")
    terminal.enter("p 'inner is', inner")
    terminal.expect("'inner is', 41")
    terminal.expect(r"[pP]db[>)]")
    terminal.enter("c")
    terminal.expect("Out.2.: 42")


def test_enter_runs_a_single_line_from_anywhere_in_it(terminal: Terminal) -> None:
    terminal.type("21 * 2" + LEFT * 3)
    terminal.enter()
    terminal.expect("Out.1.: 42")


def test_an_empty_line_ends_a_block(terminal: Terminal) -> None:
    terminal.enter("for i in range(2):")
    terminal.expect(r"\.\.\.:")
    terminal.enter("print('turn', i)")
    terminal.expect(r"\.\.\.:")
    terminal.enter()
    terminal.expect("turn 1")
    terminal.wait_for_prompt(2)


def test_a_question_mark_shows_the_documentation(terminal: Terminal) -> None:
    terminal.enter("len?")
    terminal.expect("Return the number of items in a container")


def test_the_right_arrow_takes_what_history_suggests(terminal: Terminal) -> None:
    terminal.enter("remembered = 6 * 7")
    terminal.wait_for_prompt(2)
    terminal.type("remem")
    terminal.expect("bered = 6")
    terminal.type(RIGHT)
    terminal.enter("; 'taken'")
    terminal.expect("Out.2.: 'taken'")

"""The console, in a real terminal: what is typed, what is shown, and what the keys do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.support.command_line import CTRL_C, CTRL_D, TAB, Terminal, fail

from kernelbox import execute, get_or_create, status


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    get_or_create("demo")
    terminal = Terminal("demo")
    terminal.wait_for_prompt(1)
    yield terminal
    terminal.child.close(force=True)


def test_cells_run_in_the_kernel_and_their_results_are_shown(terminal: Terminal) -> None:
    terminal.enter("x = 6 * 7")
    terminal.wait_for_prompt(2)
    terminal.enter("x + 58")
    terminal.expect("100")
    terminal.wait_for_prompt(3)
    assert execute("demo", "x").return_value == "42"


def test_an_unfinished_cell_goes_on_in_the_next_line(terminal: Terminal) -> None:
    terminal.enter("def double(n):")
    terminal.expect(r"\.\.\.:")
    terminal.enter("return n * 2")
    terminal.expect(r"\.\.\.:")
    terminal.enter()
    terminal.wait_for_prompt(2)
    terminal.enter("double(2100)")
    terminal.expect("4200")


def test_a_kernel_types_nothing_but_blanks_in_the_place_of_the_person(terminal: Terminal) -> None:
    execute("demo", "get_ipython().check_complete = lambda code: ('incomplete', 'typed = 1')")
    terminal.enter("first = 1")
    terminal.expect(r"\.\.\.:")
    execute("demo", "del get_ipython().check_complete")
    terminal.enter("last = 1")
    terminal.wait_for_prompt(4)
    assert execute("demo", "'typed' in globals(), last").return_value == "(False, 1)"


def test_tab_completes_from_the_live_objects_of_the_kernel(terminal: Terminal) -> None:
    terminal.enter("extraordinary_name = 'found it'")
    terminal.wait_for_prompt(2)
    terminal.type("extraord" + TAB)
    terminal.expect("inary_name")
    terminal.enter()
    terminal.expect("found it'")


def test_an_error_is_shown_and_the_console_goes_on(terminal: Terminal) -> None:
    terminal.enter("1 / 0")
    terminal.expect("ZeroDivisionError")
    terminal.wait_for_prompt(2)


def test_ctrl_c_interrupts_the_cell_and_keeps_the_kernel(terminal: Terminal) -> None:
    terminal.enter("kept = 7")
    terminal.wait_for_prompt(2)
    terminal.enter("print('run' + 'ning', flush=True); import time; time.sleep(1000)")
    terminal.expect("running")
    terminal.type(CTRL_C)
    terminal.expect("interrupted")
    terminal.wait_for_prompt(3)
    assert execute("demo", "kept").return_value == "7"


def test_ctrl_c_at_the_prompt_clears_the_line(terminal: Terminal) -> None:
    terminal.type("1 / 0")
    terminal.expect("0")
    terminal.type(CTRL_C)
    terminal.wait_for_prompt(1)
    terminal.enter("'still ' + 'here'")
    terminal.expect("still here")


def test_ctrl_d_leaves_the_kernel_running_and_says_how_to_end_it(home: Path) -> None:
    terminal = Terminal("a $(b)")
    terminal.wait_for_prompt(1)
    terminal.type(CTRL_D)
    terminal.expect(r"goes on; `kernelbox destroy --name 'a \$\(b\)'` ends it")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0
    assert status("a $(b)").alive


def test_history_is_kept_from_one_console_to_the_next(terminal: Terminal, home: Path) -> None:
    terminal.enter("'remember ' + 'me'")
    terminal.expect("remember me")
    terminal.wait_for_prompt(2)
    terminal.type(CTRL_D)
    terminal.child.expect(pexpect.EOF)
    again = Terminal("demo")
    again.wait_for_prompt(2)
    again.type("\x1b[A")
    again.expect("'remember ' ")
    again.enter()
    again.expect("remember me")
    again.child.close(force=True)
    (home / "console_history").unlink()


def test_a_console_without_a_terminal_says_what_to_use_instead(home: Path) -> None:
    assert "use `kernelbox exec` in scripts" in fail("console", "demo", status=2)

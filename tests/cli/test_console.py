"""The console, in a real terminal: what is typed, what is shown, and what the keys do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.support.cells import Running
from tests.support.command_line import CTRL_C, CTRL_D, KERNELBOX, TAB, Terminal, fail

from kernelbox import (
    branch,
    checkpoint,
    destroy,
    execute,
    get_or_create,
    interrupt,
    promote,
    restart,
    rollback,
    status,
)


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


def test_typed_code_has_the_colors_of_the_terminal(home: Path) -> None:
    terminal = Terminal("demo", settings={"TERM": "xterm-256color", "NO_COLOR": ""})
    terminal.wait_for_prompt(1)
    terminal.type("return")
    terminal.child.expect(r"\x1b\[0;32;1mr")  # bold green, by the terminal's own number
    terminal.child.close(force=True)


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


def test_a_debugger_does_not_stop_inside_print(terminal: Terminal) -> None:
    terminal.enter("def show(part): breakpoint(); print('the', part)")
    terminal.enter()
    terminal.wait_for_prompt(2)
    terminal.enter("show('text')")
    terminal.expect("ipdb>")
    terminal.enter("p 'part is', part")
    terminal.expect("'part is', 'text'")


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
    terminal.expect(r"goes on; `kernelbox destroy 'a \$\(b\)'` ends it")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0
    assert status("a $(b)").alive


def test_without_a_name_the_kernel_is_called_console(home: Path) -> None:
    terminal = Terminal(program=[KERNELBOX, "console"])
    terminal.wait_for_prompt(1)
    terminal.child.close(force=True)
    assert status("console").alive


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


def test_the_shell_of_the_kernel_is_one_word_away_and_keeps_its_state(terminal: Terminal) -> None:
    terminal.enter("%bash cd /; word=hel")
    terminal.wait_for_prompt(1)
    terminal.enter("%bash")
    terminal.expect(r"demo \$ ")
    terminal.enter('echo "${word}lo from $PWD"')
    terminal.expect("hello from /")
    terminal.enter("exit")
    terminal.wait_for_prompt(1)
    terminal.enter("1 + 1")
    terminal.expect("Out.1.: 2")


@pytest.mark.parametrize("end", ["restart", "rollback", "promotion", "death", "destruction"])
def test_the_prompt_says_what_happens_to_the_kernel_elsewhere(terminal: Terminal, end: str) -> None:
    if end == "restart":
        restart("demo")
        terminal.expect("was restarted elsewhere; its variables are lost")
        terminal.wait_for_prompt(1)
    elif end == "rollback":
        checkpoint("demo")
        rollback("demo")
        terminal.expect("was set back to checkpoint 1 elsewhere")
        os.kill(status("demo").pid or 0, signal.SIGKILL)
        terminal.expect("has died: killed by SIGKILL")  # other tests use up memory meanwhile
        terminal.expect("the next cell continues from its last checkpoint")
        terminal.enter("1 + 1")
        terminal.expect("had died: killed by SIGKILL")  # other tests use up memory meanwhile
        terminal.expect("the kernel was restored from checkpoint 1")
    elif end == "promotion":
        branch("demo", "other")
        promote("other")
        terminal.expect("a branch of kernel 'demo' took its place elsewhere")
    elif end == "death":
        os.kill(status("demo").pid or 0, signal.SIGKILL)
        terminal.expect("has died: killed by SIGKILL")  # other tests use up memory meanwhile
        terminal.expect("its variables are lost")
    else:
        destroy("demo")
        terminal.expect("was destroyed elsewhere; the next cell opens a new one")
        terminal.enter("1 + 1")
        terminal.expect("Out.1.: 2")


PICTURE = "from PIL import Image; Image.new('RGB', (9, 9), 'red')"


def test_a_picture_is_a_path_where_the_terminal_shows_none(terminal: Terminal) -> None:
    terminal.enter(PICTURE)
    terminal.expect(r"image 1: ")
    terminal.expect(r"\.png")


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({"TERM": "xterm-kitty"}, "\x1b_Ga=T,f=100,m=0;iVBOR"),
        ({"TERM_PROGRAM": "iTerm.app"}, "\x1b]1337;File=inline=1;size="),
    ],
    ids=["kitty", "iterm2"],
)
def test_a_picture_is_drawn_where_the_terminal_can(home: Path, settings: dict[str, str], begins: str) -> None:
    terminal = Terminal("demo", settings=settings)
    terminal.wait_for_prompt(1)
    terminal.enter(PICTURE)
    terminal.child.expect_exact(begins)
    terminal.wait_for_prompt(2)
    terminal.child.close(force=True)


def test_a_terminal_that_says_it_can_gets_sixels(home: Path) -> None:
    terminal = Terminal("demo")
    terminal.wait_for_prompt(1)
    terminal.enter(PICTURE)
    terminal.child.expect_exact("\x1b[c")
    terminal.type("\x1b[?62;4;22c")
    terminal.child.expect_exact("\x1bPq")
    terminal.child.expect_exact("#0!9~$")
    terminal.wait_for_prompt(2)
    terminal.child.close(force=True)


def test_edit_runs_what_the_editor_has_written(home: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "edited = 6 * 7" >> "$1"\n')
    editor.chmod(0o700)
    terminal = Terminal("demo", settings={"EDITOR": str(editor), "VISUAL": ""})
    terminal.wait_for_prompt(1)
    terminal.enter("first = 1")
    terminal.wait_for_prompt(2)
    terminal.enter("%edit")
    terminal.wait_for_prompt(3)
    assert execute("demo", "first, edited").return_value == "(1, 42)"
    terminal.child.close(force=True)


def test_a_cell_that_waits_for_another_client_says_so(terminal: Terminal) -> None:
    other = Running(status("demo"), "print('on', flush=True)\nimport time\nwhile True: time.sleep(0.01)")
    other.wait_for_output()
    terminal.enter("'after' + 'wards'")
    terminal.expect("waiting for another cell of 'demo'")
    interrupt("demo")
    terminal.expect("afterwards")
    assert other.result().ending == "interrupted"

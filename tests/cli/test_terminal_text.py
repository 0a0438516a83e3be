"""What a cell writes reaches a terminal as text and colours, and as nothing else that a terminal obeys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.command_line import Terminal, kernelbox
from tests.support.strategies import untimed

from kernelbox import get_or_create
from kernelbox.cli.terminal._terminal_text import TerminalText, for_terminal

PASSED = [
    "plain text, größe, 文字　文字, 👩‍👩‍👧, می‌خواهم, \ue0b0, a b\n",
    "50%|█████     |\r60%|██████    |\b\b\t\n",
    "\x1b[31mred\x1b[0m \x1b[1;38;2;255;100;0;48;5;17mboth\x1b[m \x1b[4:3mcurly\x1b[0m",
]

SPELLED_OUT = {
    "\x1b]0;title\x07": r"\x1b]0;title\x07",
    "\x1b]52;c;ZXZpbA==\x1b\\": "\\x1b]52;c;ZXZpbA==\\x1b\\",
    "\x1b[2J\x1b[1;1H\x1b[1A\x1b[K": r"\x1b[2J\x1b[1;1H\x1b[1A\x1b[K",
    "\x1b[6n\x1b[c\x1b[?1049h\x1b[>4;2m\x1b[ m": r"\x1b[6n\x1b[c\x1b[?1049h\x1b[>4;2m\x1b[ m",
    "\x1bP1$r\x1b\\ \x1bc \x1b(0 \x1b#8": "\\x1bP1$r\\x1b\\ \\x1bc \\x1b(0 \\x1b#8",
    "\x1b\x1b[31m\x1b[0m": "\\x1b\x1b[31m\x1b[0m",
    "\x1b[3\x1b[1m\x1b[m": "\\x1b[3\x1b[1m\x1b[m",
    "\x1b[" + "1;" * 100 + "m": "\\x1b[" + "1;" * 100 + "m",
    "\x9b31m \x9d0;x\x9c \x85": r"\x9b31m \x9d0;x\x9c \x85",
    "\x00\x05\x07\x0b\x0c\x0e\x7f": r"\x00\x05\x07\x0b\x0c\x0e\x7f",
    "\u202eabc\u2066\u200f\u061c\u2028": r"\u202eabc\u2066\u200f\u061c\u2028",
}


@pytest.mark.parametrize("text", PASSED)
def test_text_colours_and_progress_bars_pass(text: str) -> None:
    assert for_terminal(text) == text


@pytest.mark.parametrize("text", SPELLED_OUT)
def test_all_else_that_a_terminal_obeys_is_spelled_out(text: str) -> None:
    assert for_terminal(text) == SPELLED_OUT[text]


@pytest.mark.parametrize("text", ["\x1b[31m", "\x1b[0;1m\x1b[8mhidden"])
def test_a_colour_that_is_left_on_ends_with_the_text(text: str) -> None:
    assert for_terminal(text) == f"{text}\x1b[0m"


@untimed
@given(st.lists(st.sampled_from(["\x1b", "[", "3", "1", ";", "m", "]", "\x07", "a", "\n", "\x9b", "\x1b[1m"])))
def test_the_pieces_in_which_text_comes_do_not_matter(pieces: list[str]) -> None:
    stream = TerminalText()
    made = "".join([*map(stream.feed, pieces), stream.end()])
    assert made == for_terminal("".join(pieces))


def test_only_what_may_become_a_colour_is_held_back() -> None:
    stream = TerminalText()
    assert [stream.feed(text) for text in ("a\x1b", "[3", "1mb", "\x1b", "]", "\x1b[" + "1" * 70)] == [
        "a",
        "",
        "\x1b[31mb",
        "",
        r"\x1b]",
        r"\x1b[" + "1" * 70,
    ]


EVIL = r"\x1b]0;evil\x07\u202e\x9b2J"
CELLS = {
    "stdout": f'print("{EVIL}")',
    "stderr": f'import sys; print("{EVIL}", file=sys.stderr)',
    "in pieces": f'import sys\nfor c in "{EVIL}": sys.stdout.write(c); sys.stdout.flush()',
    "value": f'class A:\n  def __repr__(self): return "{EVIL}"\nA()',
    "display": f'display({{"text/plain": "{EVIL}"}}, raw=True)',
    "exception": f'raise ValueError("{EVIL}")',
    "name of an exception": f'raise type("{EVIL}", (Exception,), {{}})',
    "death": f'import os; os.write(1, "{EVIL}".encode()); os._exit(3)',
    "last words": r'import os; os.write(1, b"\x1b[3"); os._exit(3)',
}


@pytest.mark.parametrize("cell", CELLS)
def test_pretty_passes_nothing_on_that_a_terminal_obeys(cell: str, home: Path) -> None:
    done = kernelbox("exec", "--name", "demo", "--pretty", CELLS[cell])
    shown = done.stdout + done.stderr
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown)
    assert r"\x1b" in shown


def test_a_console_passes_colours_on_and_nothing_else_that_a_terminal_obeys(home: Path) -> None:
    get_or_create("demo")
    terminal = Terminal("demo")
    terminal.wait_for_prompt(1)
    terminal.enter(r"print('<\x1b[31mred\x1b[0m \x1b]0;' + 'title\x07>')")
    terminal.child.expect_exact("<\x1b[31mred\x1b[0m \\x1b]0;title\\x07>")
    terminal.wait_for_prompt(2)
    terminal.child.close(force=True)

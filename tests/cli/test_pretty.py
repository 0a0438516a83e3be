"""`exec --pretty` under a limit: the beginning of what a cell shows, and its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.command_line import kernelbox

from kernelbox.cli.terminal._excerpt import Excerpt

OVER = {
    "one text": ("print('a' * 400 + 'b' * 400)", "a" * 50, "b" * 10 + "\n"),
    "many texts": ("for n in range(900): print(n)", "0\n1\n2\n", "898\n899\n"),
    "displays": ("for n in range(200): display(n)", "0\n1\n", "198\n199\n"),
}


@pytest.mark.parametrize("case", OVER)
def test_the_beginning_and_the_end_are_printed_of_what_is_over_the_limit(home: Path, case: str) -> None:
    code, beginning, end = OVER[case]
    done = kernelbox("exec", "--name", "demo", "--pretty", "--output-char-limit", "200", code)
    assert done.stdout.startswith(beginning)
    assert done.stdout.endswith(end)
    assert re.search(r"\[… [\d,]+ characters cut …\]", done.stdout)
    assert len(done.stdout.replace("\n", "")) <= 200
    whole = kernelbox("exec", "--name", "demo", "--pretty", "--output-char-limit", "0", code).stdout
    assert "…" not in whole
    assert len(whole) > 250


def test_what_is_within_the_limit_is_printed_as_it_is_each_on_its_own_stream(home: Path) -> None:
    code = "import sys\nprint('o' * 99)\nprint('e' * 96, file=sys.stderr)\n'v'"
    done = kernelbox("exec", "--name", "demo", "--pretty", "--output-char-limit", "200", code)
    assert (done.stdout, done.stderr) == ("o" * 99 + "\n'v'\n", "e" * 96 + "\n")


def test_a_value_over_the_limit_is_printed_with_its_beginning_and_its_end(home: Path) -> None:
    done = kernelbox("exec", "--name", "demo", "--pretty", "--output-char-limit", "200", "'a' * 300 + 'b' * 300")
    assert done.stdout.startswith("'aaa")
    assert done.stdout.endswith("bbb'\n")
    assert done.stdout.count("…") == 2


@pytest.mark.parametrize("limit", [1, 2, 10, 63, 64, 65, 100, 1000])
@pytest.mark.parametrize("size", [1, 7, 64, 5000])
def test_an_excerpt_is_within_its_limit_and_says_what_is_missing(limit: int, size: int) -> None:
    excerpt, text = Excerpt(limit), "".join(str(number % 10) for number in range(size * 5))
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    now = "".join(excerpt.begin("stdout", piece) for piece in pieces)
    later = "".join(piece for _, piece in excerpt.end())
    assert text.startswith(now)
    if len(text) <= limit:
        assert now + later == text
    else:
        assert len(now + later) <= max(limit, limit // 2 + 32)
        assert "…" in later

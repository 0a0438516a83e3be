"""The tour: nine steps with real kernels, alone and with a person at the keyboard."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.support.command_line import CTRL_C, KERNELBOX, Terminal, kernelbox

TITLES = (
    *("State", "A repaired error", "A second process", "Streaming", "A plot", "An approval", "The sandbox"),
    *("A death", "A rollback"),
)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that the tour makes its own in; all of that must be gone after the tour."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    assert list((tmp_path / "scratch").iterdir()) == []


def test_without_a_person_every_step_shows_its_result_below_its_heading(scratch: Path) -> None:
    done = kernelbox("tour")
    assert (done.status, done.stderr) == (0, "")
    code = [line for line in done.stdout.splitlines() if line.startswith(("  >>> ", "  ... "))]
    assert [line for line in code if len(line) > 80] == []
    shown = re.split(r"^\d/9  ", done.stdout, flags=re.MULTILINE)[1:]
    assert [step.splitlines()[0] for step in shown] == list(TITLES)
    for step, result in zip(
        shown,
        (
            *("sum(rows)\n  14", "NameError: name 'total' is not defined", '"max(rows)"\n  5\n', "5   after 0."),
            *(f"{scratch}/images/", "the person said no", "Read-only file system", "killed by SIGSEGV"),
            "rows\n  [3, 1, 4, 1, 5]",
        ),
        strict=True,
    ):
        assert result in step


def test_the_end_names_a_program_that_can_be_run_from_here(scratch: Path) -> None:
    shown = kernelbox("tour", PATH="/usr/bin:/bin").stdout.rpartition("That was the tour.")[2]
    program = re.search(r"^  (.*) --help", shown, re.MULTILINE)
    assert program is not None
    assert (scratch / program[1]).resolve() == Path(KERNELBOX).resolve()


def test_a_person_goes_on_with_enter_answers_the_approval_and_leaves(scratch: Path) -> None:
    terminal = Terminal("", program=[KERNELBOX, "tour"])
    for title in TITLES[:5]:
        terminal.expect(title)
        terminal.expect("q: leave")
        terminal.enter()
    terminal.expect("echo hello from a shell`[?]")
    terminal.enter("n")
    terminal.expect("the person said no")
    terminal.expect("rm -rf build`[?]")
    terminal.enter("y")
    terminal.expect("q: leave")
    terminal.enter("q")
    terminal.expect("That was the tour")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0


def test_ctrl_c_ends_the_tour_and_its_kernels(scratch: Path) -> None:
    terminal = Terminal("", program=[KERNELBOX, "tour"])
    terminal.expect("q: leave")
    terminal.type(CTRL_C)
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 130

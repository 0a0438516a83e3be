"""The page about the sandbox can be followed, word for word."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.support.command_line import on_screen
from tests.support.sandbox import needs_linux

pytestmark = [needs_linux, pytest.mark.usefixtures("home")]

PAGE = Path(__file__).parents[2] / "docs" / "sandbox.md"


@pytest.mark.slow
def test_the_five_minutes_print_what_the_page_shows(workspace: Path) -> None:
    section = PAGE.read_text().partition("## In five minutes")[2].partition("\n## ")[0]
    block = re.search(r"```console\n(.*?)```", section, re.DOTALL)
    assert block is not None
    steps = block[1].split("$ ")[1:]
    assert len(steps) == 8
    for step in steps:
        command, *shown = step.splitlines()
        said = on_screen(*shlex.split(command)[1:], NO_COLOR="1")[1].splitlines()
        for line in shown:
            pattern = re.escape(line).replace("…", ".*")
            assert any(re.fullmatch(pattern, each) for each in said), (command, said)

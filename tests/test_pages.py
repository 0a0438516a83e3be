"""Every block of the documentation runs as it stands, and prints what the page says."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.support.documentation import DOCS, ROOT, all_pages, blocks

RUNNER = ROOT / "tests" / "support" / "run_blocks.py"

# The comment behind a `print` is what it prints; "…" stands for anything.
_PROMISE = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_python_blocks_of_a_page_run_and_print_what_their_comments_say(
    page: Path, home: Path, tmp_path: Path
) -> None:
    programs = [block.code for block in blocks(page) if block.language == "python" and not block.excuse]
    if not programs:
        return
    done = subprocess.run(
        [sys.executable, RUNNER],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(home),
        check=True,
    )

    for program, ran in zip(programs, json.loads(done.stdout), strict=True):
        assert not ran["failure"], f"{program}\n{ran['failure']}"
        for promised in _PROMISE.findall(program):
            assert re.search(_pattern(promised), ran["printed"]), f"{program}\nprinted {ran['printed']}"


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_print_what_it_shows(page: Path, home: Path, tmp_path: Path) -> None:
    env = environment(home)
    for block in blocks(page):
        if block.language != "console" or block.excuse:
            continue
        for step in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=env, check=False
            )
            assert done.returncode == 0, f"{command}\n{done}"
            for line in filter(None, shown.splitlines()):
                assert re.search(_pattern(line), f"{done.stdout}{done.stderr}"), f"{command}\n{done}"


def test_the_commands_of_other_pages_say_why_they_are_not_run() -> None:
    for page in {*DOCS.rglob("*.md")} - {*all_pages()}:
        assert all(block.excuse for block in blocks(page) if block.language == "console"), page


def environment(home: Path) -> dict[str, str]:
    """Returns an environment whose first programs are those of this one, `kernelbox` among them."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "KERNELBOX_HOME": str(home), "PATH": path}


def _pattern(text: str) -> str:
    return re.escape(text.strip()).replace("…", ".*")


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_files_that_a_page_shows_can_be_read(page: Path) -> None:
    for block in blocks(page):
        match block.language:
            case "yaml":
                assert all(isinstance(document, dict) for document in yaml.safe_load_all(block.code))
            case "toml":
                assert tomllib.loads(block.code)
            case "ini":
                configparser.ConfigParser(interpolation=None).read_string(block.code)

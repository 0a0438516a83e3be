"""The commands that the documents of the service show."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.support.server import DEADLINE, Served

DOCS = Path(__file__).parents[2] / "docs"

# A command, which may go on on the next line, and the beginning of what it prints.
_COMMAND = re.compile(r"^\$ (curl (?:.*\\\n)?.*[^\\\n])\n(?!```)(.*?)(?:…|$)", re.MULTILINE)

COMMANDS = [
    found for name in ("http-api", "http-streaming") for found in _COMMAND.findall((DOCS / f"{name}.md").read_text())
]


@pytest.mark.parametrize(("command", "printed"), COMMANDS)
def test_a_command_of_the_documents_prints_what_they_say(
    served: Served, tmp_path: Path, command: str, printed: str
) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    served.post("/sessions/demo/execute", {"code": "6 * 7"})
    words = shlex.split(command.replace("\\\n", " ").replace("http://127.0.0.1:8080", served.url))
    done = subprocess.run(
        [*words, "--silent"], capture_output=True, text=True, cwd=tmp_path, timeout=DEADLINE, check=True
    )
    assert done.stdout.startswith(printed)


def test_the_documents_show_commands() -> None:
    assert len(COMMANDS) == 5

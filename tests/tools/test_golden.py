"""Packages of real servers, and of one with every kind of schema, compared with what was written before.

`golden/NAME.json` has what a server lists, `golden/NAME.txt` the modules written for it. After a change that is meant,
`python -m tests.tools.test_golden` writes the texts anew; read the difference before you commit it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelbox.tools._modules import build_files
from kernelbox.tools._naming import module_names

GOLDEN = Path(__file__).parent / "golden"
SERVERS = sorted(path.stem for path in GOLDEN.glob("*.json"))


def write(server: str) -> str:
    """Returns the files of a server's package as one text, without the index."""
    listed = json.loads((GOLDEN / f"{server}.json").read_text())
    modules = module_names([tool["name"] for tool in listed["tools"]])
    files = build_files(server, listed["instructions"], listed["tools"], modules)
    return "\n".join(f"# {name}\n{text}" for name, text in files.items() if name != "tools.json")


@pytest.mark.parametrize("server", SERVERS)
def test_the_modules_of_a_server_are_written_as_before(server: str) -> None:
    assert write(server) == (GOLDEN / f"{server}.txt").read_text()


if __name__ == "__main__":
    for name in SERVERS:
        (GOLDEN / f"{name}.txt").write_text(write(name))

"""docs/other-kernels.md says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kernelbox.base._config import VARIABLES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "other-kernels.md").read_text(encoding="utf-8")


def test_the_examples_of_the_document_print_what_their_comments_say() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
        said = [re.escape(comment).replace("…", ".*") for comment in re.findall(r"# (.*)", example)]
        assert any(re.fullmatch(comment, done.stdout.split("\n")[0]) for comment in said), done.stdout


def test_the_settings_that_the_document_names_exist() -> None:
    named = set(re.findall(r"KERNELBOX_\w+", DOCUMENT))
    assert named
    assert named <= {variable for variable, _, _ in VARIABLES}

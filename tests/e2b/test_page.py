"""The page for users of E2B."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.pages import blocks, run_block

from kernelbox import list_kernels

BLOCKS = blocks("integrations/e2b.md")


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_an_example_prints_what_it_says(block: str, home: Path, tmp_path: Path) -> None:
    run_block(block, tmp_path)
    assert list_kernels() == []

"""The recipes for programs without a framework, and for frameworks without an adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cells import eventually
from tests.support.pages import blocks, run_block

from kernelbox import list_kernels

RECIPES = blocks("integrations/recipes.md")


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_a_recipe_runs_as_it_is(recipe: str, home: Path, tmp_path: Path) -> None:
    run_block(recipe, tmp_path)
    eventually(lambda: list_kernels() == [])  # a private kernel ends just after its process
    assert 10 <= len(recipe.strip().splitlines()) <= 30

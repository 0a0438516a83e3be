"""An environment of another interpreter, made once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.homes import outside_of_tmp
from tests.support.pythons import make_environment


@pytest.fixture(scope="session")
def environment() -> Iterator[Path]:
    """Makes an environment that has what kernels need and no kernelbox; sandboxed kernels can see its directory."""
    place = Path(tempfile.mkdtemp(prefix="kb-python-", dir=outside_of_tmp()))
    yield make_environment(place / "env")
    shutil.rmtree(place)

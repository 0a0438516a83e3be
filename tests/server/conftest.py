"""A server for the tests that need no special one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import new_home

from .support import Served, serving

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def service_home() -> Iterator[Path]:
    """Makes a home for servers, whose kernels are destroyed with it."""
    with new_home() as home:
        yield home


@pytest.fixture(scope="session")
def served(key_file: Path, service_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Starts a server on loopback, which needs no token."""
    with serving(tmp_path_factory.mktemp("workspace"), KERNELBOX_HOME=str(service_home)) as server:
        yield server
        server.http.delete("/kernels")


@pytest.fixture(scope="session")
def other(service_home: Path, served: Served) -> Iterator[Served]:
    """Starts a second server on the home of the first."""
    with serving(served.workspace, KERNELBOX_HOME=str(service_home)) as server:
        yield server


@pytest.fixture
def key(served: Served) -> Iterator[str]:
    """Opens a kernel under a name that nobody else uses; returns the name."""
    name = f"test-{next(_numbers)}"
    assert served.post("/kernels", {"name": name}).status_code == 201
    yield name
    served.http.delete(f"/kernels/{name}")

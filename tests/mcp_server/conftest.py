"""A server for the tests that need no special one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.homes import new_home
from tests.support.mcp_server import Served, serving


@pytest.fixture(scope="session")
def served(key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Starts a server with all tools, which asks for approvals."""
    with new_home() as home:
        with serving(tmp_path_factory.mktemp("workspace"), "--toolset", "all", KERNELBOX_HOME=str(home)) as server:
            yield server

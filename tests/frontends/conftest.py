"""A server, and a kernel of it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.front_ends import FrontEnd, attached
from tests.support.server import Served, key, other, served, service_home

__all__ = ["key", "other", "served", "service_home"]


@pytest.fixture
def kernel_id(served: Served) -> Iterator[str]:
    """Opens a kernel as a front end does; returns its id."""
    answer = served.post("/api/kernels", {"name": "python3"})
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    yield found
    served.http.delete(f"/api/kernels/{found}")


@pytest.fixture(params=["v1", "older"])
def front_end(request: pytest.FixtureRequest, served: Served, kernel_id: str) -> Iterator[FrontEnd]:
    """Connects a front end to a fresh kernel, by each form of frames."""
    with attached(served, kernel_id, v1=request.param == "v1") as one:
        yield one

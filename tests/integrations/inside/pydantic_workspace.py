"""Pydantic AI's own conformance suite for workspaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from kernelbox import destroy, list_kernels
from kernelbox.integrations.pydantic_ai import KernelboxWorkspaceBackend


class TestKernelbox(WorkspaceBackendSuite):
    @pytest.fixture(autouse=True)
    def only_named_kernels_are_left(self) -> Iterator[None]:
        yield
        for kernel in list_kernels():
            assert kernel.name.startswith("workspace-")  # the suite has no step that ends these
            destroy(kernel)

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def backend(self, tmp_path: Path) -> KernelboxWorkspaceBackend:
        return KernelboxWorkspaceBackend(str(tmp_path))

    @pytest.fixture
    def fresh_backend(self, tmp_path: Path) -> Callable[[], KernelboxWorkspaceBackend]:
        return lambda: KernelboxWorkspaceBackend(str(tmp_path))

    @pytest.fixture
    def attach_backend(self, tmp_path: Path) -> Callable[..., KernelboxWorkspaceBackend]:
        return lambda ref: KernelboxWorkspaceBackend(str(tmp_path), ref=ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[KernelboxWorkspaceBackend], Awaitable[None]]:
        return KernelboxWorkspaceBackend.destroy

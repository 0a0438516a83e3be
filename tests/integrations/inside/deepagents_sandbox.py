"""LangChain's own standard tests for sandboxes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deepagents.backends.sandbox import BaseSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests

from kernelbox.integrations.deepagents import KernelboxSandbox


class TestKernelbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelboxSandbox]:
        sandbox = KernelboxSandbox(tmp_path_factory.mktemp("work"))
        yield sandbox
        sandbox.close()


def test_the_methods_that_the_suite_disagrees_with_are_those_of_deepagents() -> None:
    assert (KernelboxSandbox.glob, KernelboxSandbox.write) == (BaseSandbox.glob, BaseSandbox.write)

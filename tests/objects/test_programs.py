"""The programs of `examples/` that show the kernel objects, used as their users would."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import httpx2 as httpx
import pytest
from tests.support.bounded import run

from kernelbox import list_kernels

EXAMPLES = Path(__file__).parents[2] / "examples"

# Lines that an agent builder has to write for each.
LONGEST = {"agent_loop": 20, "many_users": 25, "batch": 12, "notebook": 6, "policy": 15}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_twenty_users_of_the_web_service_have_kernels_of_their_own(home: Path) -> None:
    service = load("many_users")

    async def main() -> None:
        transport = httpx.ASGITransport(service.app)
        async with (
            service.lifespan(service.app),
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=100) as client,
        ):

            async def use(user: int) -> str:
                for code in (f"x = {user}", "import time; time.sleep(0.1)"):
                    await client.post(f"/users/{user}/run", params={"code": code})
                answer = await client.post(f"/users/{user}/run", params={"code": "x"})
                return str(answer.json()["text"])

            assert await asyncio.gather(*map(use, range(20))) == [str(user) for user in range(20)]
            failed = await client.post("/users/1/run", params={"code": "1 / 0"})
            assert failed.json()["ok"] is False
            assert "ZeroDivisionError" in failed.json()["text"]

    run(main)
    assert list_kernels() == []


@pytest.mark.parametrize("name", sorted(LONGEST))
def test_a_program_has_as_few_lines_as_it_should(name: str) -> None:
    code = [line for line in (EXAMPLES / f"{name}.py").read_text().splitlines()[1:] if line.strip()]
    assert len(code) <= LONGEST[name]

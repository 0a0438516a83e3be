"""At the default limit of a CodeExecutor its process keeps within the memory that the documentation names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.executor import DEADLINE

# 20,000,000 characters of at most 40 bytes each, as docs/errors-and-timeouts.md says.
BOUND_MIB = 800

CLIENT = """
import asyncio, re
from kernelbox import CodeExecutor

def most_used():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

async def main():
    async with CodeExecutor() as executor:
        await executor.execute("1")
        before = most_used()
        result = await executor.execute("import sys\\nfor _ in range(400): sys.stdout.write('🎉' * 100_000)")
        print(len(result.text), most_used() - before)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.usefixtures("home")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc")
def test_a_cell_that_writes_twice_the_default_limit_keeps_its_client_within_the_documented_memory() -> None:
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, timeout=DEADLINE, check=True)
    characters, grown = map(int, done.stdout.split())
    assert characters == 20_000_000
    assert grown < BOUND_MIB

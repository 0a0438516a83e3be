"""Measures ipybox the way benchmarks/bench_executor.py measures kernelbox; see there for how to run it."""

from __future__ import annotations

import asyncio
import time

from ipybox import CodeExecutor


async def main() -> None:
    began = time.perf_counter()
    async with CodeExecutor() as executor:
        await executor.execute("1+1")
        print(f"start to first result: {time.perf_counter() - began:.2f} s")
        taken = []
        for _ in range(50):
            began = time.perf_counter()
            await executor.execute("1+1")
            taken.append(time.perf_counter() - began)
        print(f"execute, p50: {sorted(taken)[25] * 1000:.1f} ms")
        began = time.perf_counter()
        await executor.reset()
        print(f"reset: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    asyncio.run(main())

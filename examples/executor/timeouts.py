"""Sets the time for approvals and for a cell."""

import asyncio

from kernelbox import CodeExecutor


async def main() -> None:
    # set custom approval timeout, default is 60 seconds
    async with CodeExecutor(approval_timeout=10) as executor:
        # set custom execution timeout, default is 120 seconds
        async for item in executor.stream("...", timeout=10):  # noqa: B007
            ...


if __name__ == "__main__":
    asyncio.run(main())

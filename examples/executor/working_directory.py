"""Shares the working directory with the kernel."""

import asyncio

from kernelbox import CodeExecutor


async def main() -> None:
    async with CodeExecutor() as executor:
        import os

        result = await executor.execute("import os; print(os.getcwd())")
        assert result.text == os.getcwd()


if __name__ == "__main__":
    asyncio.run(main())

"""Runs a line of code and reads what it printed."""

import asyncio

from kernelbox import CodeExecutor


async def main() -> None:
    async with CodeExecutor() as executor:
        result = await executor.execute("print('hello world')")
        assert result.text == "hello world"


if __name__ == "__main__":
    asyncio.run(main())

"""Clears all variables and definitions."""

import asyncio

from kernelbox import CodeExecutor


async def main() -> None:
    async with CodeExecutor() as executor:
        await executor.execute("x = 42")
        result = await executor.execute("print(x)")
        assert result.text == "42"

        await executor.reset()

        code = """
        try:
            print(x)
        except NameError:
            print("x not defined")
        """
        result = await executor.execute(code)
        assert result.text == "x not defined"


if __name__ == "__main__":
    asyncio.run(main())

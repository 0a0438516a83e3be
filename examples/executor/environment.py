"""Gives the kernel environment variables; it inherits none that could be secret."""

import asyncio

from kernelbox import CodeExecutor


async def main() -> None:
    # IPython kernel does not inherit environment variables from parent process
    # Kernel environment must be explicitly set using the kernel_env parameter
    async with CodeExecutor(kernel_env={"TEST_VAR": "test_val"}) as executor:
        result = await executor.execute("import os; print(os.environ['TEST_VAR'])")
        assert result.text == "test_val"


if __name__ == "__main__":
    asyncio.run(main())

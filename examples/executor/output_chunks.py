"""Receives output as it is printed."""

import asyncio

from kernelbox import CodeExecutionChunk, CodeExecutionResult, CodeExecutor

code = """
from time import sleep
print("chunk 1")
sleep(0.5)
print("chunk 2")
"""


async def main() -> None:
    async with CodeExecutor() as executor:
        async for item in executor.stream(code, chunks=True):
            match item:
                case CodeExecutionChunk():
                    assert item.text.strip() in ["chunk 1", "chunk 2"]
                case CodeExecutionResult():
                    assert item.text == "chunk 1\nchunk 2"


if __name__ == "__main__":
    asyncio.run(main())

"""Captures plots as files."""

import asyncio
import tempfile
from pathlib import Path

from kernelbox import CodeExecutor

code = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [1, 4, 9])
plt.show()
"""


async def main() -> None:
    with tempfile.TemporaryDirectory() as images_dir:
        async with CodeExecutor(images_dir=Path(images_dir)) as executor:
            result = await executor.execute(code)
            assert len(result.images) == 1
            assert result.images[0].exists()
            assert result.images[0].suffix == ".png"


if __name__ == "__main__":
    asyncio.run(main())

"""The files of a kernel for code on an event loop; `core/_kernel_data.py` has those for code that blocks."""

from __future__ import annotations

import os

from kernelbox.base._unique_objects import Handle
from kernelbox.core._kernel_data import Files
from kernelbox.shells._asyncio_connection import in_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from typing import IO

    from kernelbox.core._kernel_data import FileInfo
    from kernelbox.core._kernel_handle import KernelHandle


class AsyncFiles(Handle):
    """Reads and writes files of any size, in pieces. Relative paths are those of the kernel's working directory."""

    def __init__(self, find: Callable[[], KernelHandle]) -> None:
        self._files = Files(find)

    async def write(self, path: str | os.PathLike[str], content: bytes | str | IO[bytes] | Iterable[bytes]) -> int:
        """Writes a file and returns its size. Its old content stays until the new one is complete."""
        return await in_thread(self._files.write, path, content)

    async def read(self, path: str | os.PathLike[str]) -> bytes:
        """Returns what is in a file."""
        return await in_thread(self._files.read, path)

    async def stream(self, path: str | os.PathLike[str]) -> AsyncIterator[bytes]:
        """Yields a file in pieces of a few megabytes."""
        pieces = await in_thread(self._files.stream, path)
        while piece := await in_thread(next, pieces, b""):
            yield piece

    async def list(self, path: str | os.PathLike[str] = ".") -> list[FileInfo]:
        """Returns what is in a directory, by name."""
        return await in_thread(self._files.list, path)

    async def info(self, path: str | os.PathLike[str]) -> FileInfo:
        """Returns what is known about a file or directory; raises FileNotFoundError."""
        return await in_thread(self._files.info, path)

    async def exists(self, path: str | os.PathLike[str]) -> bool:
        """Tells whether there is a file or directory."""
        return await in_thread(self._files.exists, path)

    async def make_dir(self, path: str | os.PathLike[str]) -> bool:
        """Makes a directory and those above it; returns whether it is new."""
        return await in_thread(self._files.make_dir, path)

    async def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Moves a file or directory; replaces a file at the new path."""
        await in_thread(self._files.rename, path, new_path)

    async def remove(self, path: str | os.PathLike[str], *, recursive: bool = False) -> None:
        """Removes a file or an empty directory; with `recursive`, also what is in a directory."""
        await in_thread(lambda: self._files.remove(path, recursive=recursive))

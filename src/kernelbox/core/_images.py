"""Images that a cell shows, written to files as they come.

Nothing that a cell shows, and nothing that it does to the directory, raises here or leads a file elsewhere: the
directory's path is fixed before the cell runs, and no link is followed on it from then on.
"""

from __future__ import annotations

import base64
import os
import time

from kernelbox.base._errors import InvalidInput
from kernelbox.host.files._user_files import SEARCHABLE, open_directory, write_new
from kernelbox.wire._messages import Message
from kernelbox.wire._results import OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from kernelbox.host.files._home import Home
    from kernelbox.wire._results import ExecutionResult

_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/svg+xml": ".svg",
    "image/gif": ".gif",
    "image/webp": ".webp",
}

_NAME = "images"

# Files of one execution, and their bytes: all figures of a long report; more would fill a disk that no one looks at.
_MOST_FILES = 500
_MOST_BYTES = 1024 * 1024 * 1024


class ImageFiles:
    """Writes the images of one execution to a directory, under names that never meet: time, a random part, a number.

    A directory by its path is one that `choose_images_dir` has returned, before there was a cell that could put a link
    in its place. `images` in a home must not be a link either. `describe` says why they cannot be written, where the
    directory is not the caller's to know.
    """

    def __init__(self, directory: str | Home, describe: Callable[[Exception], str] | None = None) -> None:
        self.paths: list[str] = []
        self._describe = describe
        self._home = None if isinstance(directory, str) else directory
        self._directory = directory if isinstance(directory, str) else f"{directory.path}/{_NAME}"
        self._stem = ""
        self._size = 0
        self._notice = ""
        self._told = self._limited = False

    @staticmethod
    def has_image(item: OutputItem) -> bool:
        """Tells whether an output shows an image."""
        return bool(item.data) and not _SUFFIXES.keys().isdisjoint(item.data)

    def save(self, item: OutputItem) -> str | None:
        """Writes the image in an output, if there is one that can be read; one file for an output with several types.

        After the first that could not be written no more are, and `take_notice` says why.
        """
        for mime, suffix in _SUFFIXES.items():
            if not self._notice and (raw := _decode(mime, item.data.get(mime))):
                return self._write(raw, suffix)
        return None

    def see(self, event: object) -> None:
        """Writes the image in an event of an execution, if there is one."""
        if isinstance(event, OutputItem) and self.has_image(event):
            self.save(event)

    def save_all(self, steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
        """Passes on what is for users, and writes the images among it."""
        try:
            while True:
                try:
                    event = next(steps)
                except StopIteration as stop:
                    return stop.value
                if isinstance(event, Message):
                    continue  # of interest to front ends only
                self.see(event)
                yield event
                if notice := self.take_notice():
                    yield notice
        finally:
            steps.close()

    def take_notice(self) -> OutputItem | None:
        """Returns, once, what the caller should know about images that were not written."""
        if not self._notice or self._told:
            return None
        self._told = True
        return OutputItem("stream", text=f"{self._notice}\n", name="stderr")

    def conclude(self, result: ExecutionResult, limit: int) -> None:
        """Gives a result its images, and says in it if some were not written, where the limit has room for that."""
        result.images = self.paths
        if self._notice:
            result.truncated |= self._limited
            result.outputs.append(OutputItem("stream", text=f"{self._notice}\n", name="stderr"))
            result.text = _add_line(result.text, self._notice, limit)
            result.stderr = _add_line(result.stderr, f"{self._notice}\n", limit)

    def _write(self, raw: bytes, suffix: str) -> str | None:
        if len(self.paths) == _MOST_FILES or self._size + len(raw) > _MOST_BYTES:
            self._limited = True
            most = f"{_MOST_FILES:,} files or {_MOST_BYTES // 1024**2:,} MiB"
            self._notice = f"[kernelbox] only the first {len(self.paths):,} images were written: {most} are the limit"
            return None
        if not self._stem:
            self._stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(8).hex()}"
        name = f"{self._stem}-{len(self.paths) + 1}{suffix}"
        try:
            self._create(name, raw)
        except OSError as exc:
            self._notice = f"[kernelbox] images could not be written{self._why(exc)}"
            return None
        self._size += len(raw)
        self.paths.append(os.path.join(self._directory, name))
        return self.paths[-1]

    def _why(self, exc: OSError) -> str:
        if self._describe is not None:
            return f": {self._describe(exc)}"
        reason = "it is a link" if os.path.islink(self._directory) else exc.strerror or exc
        return f" to {self._directory!r}: {reason}"

    def _create(self, name: str, raw: bytes) -> None:
        directory = self._open_directory()
        try:
            write_new(name, raw, directory)
        finally:
            os.close(directory)

    def _open_directory(self) -> int:
        if self._home is None:
            parts = filter(None, self._directory.split("/"))
            return open_directory("/", parts, make=True, flags=SEARCHABLE)
        with self._home.make() as home, home.enter(_NAME, make=True) as images:
            return os.dup(images.fd)


def choose_images_dir(directory: object = None) -> str:
    """Returns the path of a directory for images; links on it are followed now, and never again. Raises InvalidInput.

    Where none is given it is `images` in the working directory. That name is not the caller's: a link there may be a
    cell's, and is not followed.
    """
    if directory is None or directory == "":
        return os.path.join(os.path.realpath(_absolute(".")), _NAME)
    return os.path.realpath(_absolute(directory))


def _absolute(directory: object) -> str:
    try:
        path = os.path.abspath(os.fsdecode(directory))  # type: ignore[arg-type]  # a TypeError is what it raises
    except TypeError as exc:
        raise InvalidInput("images_dir", directory, "use a path") from exc
    except OSError as exc:
        raise InvalidInput("images_dir", directory, "the working directory is gone: use an absolute path") from exc
    if "\0" in path:
        raise InvalidInput("images_dir", directory, "a path has no NUL in it")
    return path


def _decode(mime: str, data: object) -> bytes | None:
    """Returns the bytes of an image; None if it is not what its type says."""
    if not isinstance(data, str):
        return None
    if mime == "image/svg+xml":
        return data.encode("utf-8", "backslashreplace")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None


def _add_line(text: str, line: str, limit: int) -> str:
    """Returns text with a line more, if there is room for it."""
    whole = f"{text}\n{line}" if text and not text.endswith("\n") else text + line
    return whole if limit <= 0 or len(whole) <= limit else text

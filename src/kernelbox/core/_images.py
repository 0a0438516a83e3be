"""Images that a cell shows, written to files as they come.

Nothing that a cell shows or does to the directory raises an error here, or redirects a file: the directory's path is
fixed before the cell runs, and links on it are not followed after that.
"""

from __future__ import annotations

import os
import time

from kernelbox.base._errors import InvalidInput
from kernelbox.host.files._user_files import SEARCHABLE, open_directory, write_new
from kernelbox.wire._messages import Message
from kernelbox.wire._results import OutputItem
from kernelbox.wire.results._transcript import read_outputs

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

# Files of one execution, and their bytes: enough for all figures of a long report, and not enough to fill a disk.
_MOST_FILES = 500
_MOST_BYTES = 1024 * 1024 * 1024


class ImageFiles:
    """Writes the images of one execution to a directory, under unique names: time, a random part, a number.

    A path must come from `choose_images_dir`, called before any cell could replace the directory by a link. `images` in
    a home must not be a link either. For callers that must not know the directory, `describe` explains why images
    cannot be written, and `address` is how the text names them.
    """

    def __init__(
        self,
        directory: str | Home,
        describe: Callable[[Exception], str] | None = None,
        address: Callable[[str], str] = str,
    ) -> None:
        self.paths: list[str] = []
        self.seen = False
        """Whether an output had an image."""
        self._describe = describe
        self._address = address
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
        """Writes the image in an output, if there is a valid one; an output with several types becomes one file.

        After the first failure nothing more is written, and `take_notice` says why.
        """
        self.seen = True
        for mime, suffix in _SUFFIXES.items():
            if not self._notice and (raw := _decode(mime, item.data.get(mime))):
                path = self._write(raw, suffix)
                if path is not None and item.picture is not None:
                    item.picture.number, item.picture.path = len(self.paths), self._address(path)
                return path
        return None

    def see(self, event: object) -> None:
        """Writes the image in an event of an execution, if there is one."""
        if isinstance(event, OutputItem) and self.has_image(event):
            self.save(event)

    def save_all(self, steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
        """Passes on the events for users, and writes the images among them."""
        try:
            while True:
                try:
                    event = next(steps)
                except StopIteration as stop:
                    return stop.value
                if isinstance(event, Message):
                    continue  # only for front ends
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
        """Adds the images to a result, and a note about those that were not written if the limit has room for it."""
        result.images = self.paths
        if any(item.picture is not None for item in result.outputs):  # by now each one has its file
            room = limit - len(self._notice) - 1
            result.text = read_outputs(result.outputs, room if self._notice and room > len(self._notice) else limit)
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

    The default is `images` in the working directory. The caller did not choose that name, so a link there may be a
    cell's and is not followed.
    """
    if directory is None or directory == "":
        return os.path.join(os.path.realpath(_absolute(".")), _NAME)
    from kernelbox.base._cell_places import first_planted_link  # most callers name no directory

    path = _absolute(directory)
    planted = first_planted_link(path)
    if planted is None:
        return os.path.realpath(path)
    folder, name = os.path.split(planted)  # it stays a link, and is not followed
    return os.path.normpath(os.path.join(os.path.realpath(folder), name, os.path.relpath(path, planted)))


def _absolute(directory: object) -> str:
    try:
        path = os.path.abspath(os.fsdecode(directory))  # type: ignore[arg-type]  # a TypeError is what it raises
    except TypeError as exc:
        raise InvalidInput("images_dir", directory, "use a path") from exc
    except OSError as exc:
        raise InvalidInput("images_dir", directory, "the working directory is gone: use an absolute path") from exc
    if "\0" in path:
        raise InvalidInput("images_dir", directory, "use a path without NUL")
    return path


def _decode(mime: str, data: object) -> bytes | None:
    """Returns the bytes of an image; None if it is not valid for its type."""
    if not isinstance(data, str):
        return None
    if mime == "image/svg+xml":
        return data.encode("utf-8", "backslashreplace")
    try:
        import base64  # few cells show images

        return base64.b64decode(data, validate=True)
    except ValueError:
        return None


def _add_line(text: str, line: str, limit: int) -> str:
    """Returns text with another line, if there is room for it."""
    whole = f"{text}\n{line}" if text and not text.endswith("\n") else text + line
    return whole if limit <= 0 or len(whole) <= limit else text

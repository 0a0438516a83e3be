"""Images that a cell shows, written to files as they come."""

from __future__ import annotations

import base64
import os
import time

from kernelbox.wire._messages import Message
from kernelbox.wire._results import OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/svg+xml": ".svg",
    "image/gif": ".gif",
    "image/webp": ".webp",
}


class ImageFiles:
    """Writes images to a directory, under names that never meet: time, a random part, a number."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.paths: list[str] = []
        self._directory = os.path.abspath(directory)
        self._stem = ""

    @staticmethod
    def has_image(item: OutputItem) -> bool:
        """Tells whether an output shows an image."""
        return bool(item.data) and not _SUFFIXES.keys().isdisjoint(item.data)

    def save(self, item: OutputItem) -> str | None:
        """Writes the image in an output, if there is one; one file for an output with several types."""
        for mime, suffix in _SUFFIXES.items():
            if isinstance(data := item.data.get(mime), str):
                raw = data.encode() if mime == "image/svg+xml" else base64.b64decode(data)
                return self._write(raw, suffix)
        return None

    def save_all(self, steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
        """Passes on what is for users, and writes the images among it."""
        while True:
            try:
                event = next(steps)
            except StopIteration as stop:
                return stop.value
            if isinstance(event, Message):
                continue  # of interest to front ends only
            if isinstance(event, OutputItem) and self.has_image(event):
                self.save(event)
            yield event

    def _write(self, raw: bytes, suffix: str) -> str:
        if not self._stem:
            os.makedirs(self._directory, exist_ok=True)
            self._stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(8).hex()}"
        path = os.path.join(self._directory, f"{self._stem}-{len(self.paths) + 1}{suffix}")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(fd, "wb") as file:
            file.write(raw)
        self.paths.append(path)
        return path

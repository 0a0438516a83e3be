"""Data into and out of a kernel, as the host moves it: variables, and files as the kernel sees them.

Cells can forge the answers of their kernel. Their content is only returned to the caller, and never unpickled.
"""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass

from kernelbox.base._errors import InvalidInput, KernelBoxError
from kernelbox.base._unique_objects import Handle
from kernelbox.core._arguments import path_text
from kernelbox.data._values_as_bytes import NotTransferable, decode_value, encode_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import IO, Any

    from kernelbox.core._kernel_handle import KernelHandle

# Bytes of one request. The kernel's own pieces have the same size.
_PIECE = 4 * 1024 * 1024

# Seconds that a kernel has to take or send a piece; it does so after the cell that is running.
_PATIENCE = 120.0

# Bytes of one value: a kernel that sends without end must not fill the host's memory.
_LARGEST_VALUE = 16 * 1024**3

# What the system says about a file; the same exception is raised here.
_FILE_ERRORS = {
    kind.__name__: kind
    for kind in (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, OSError, PermissionError)
}


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file in a kernel's view: its name, its size in bytes and when it was changed, in seconds since 1970."""

    name: str
    size: int
    is_dir: bool
    modified: float


def get_value(kernel: KernelHandle, name: str) -> object:
    """Returns the value of a variable; raises KeyError, and KernelBoxError for a value that cannot be transferred."""
    token, received, told = os.urandom(8).hex(), bytearray(), None
    while told is None or len(received) < told["size"]:
        args = {"name": check_variable(name), "token": token, "offset": len(received)}
        content, piece = _move(kernel, "get", args, about=name)
        if told is None:
            told = _check_told(kernel, content)
        if len(piece) != min(_PIECE, told["size"] - len(received)):
            raise _forged(kernel)
        received += piece
    try:
        return decode_value(told["kind"], told["meta"], received)
    except NotTransferable as exc:
        raise KernelBoxError(f"variable {name!r} of kernel {kernel.name!r}: {exc}") from exc
    except Exception as exc:  # forged bytes can fail anywhere in json, numpy and pyarrow
        raise _forged(kernel) from exc


def set_value(kernel: KernelHandle, name: str, value: object) -> None:
    """Sets a variable; raises InvalidInput for a value that cannot be transferred."""
    try:
        encoded = encode_value(value)
    except NotTransferable as exc:
        raise InvalidInput.saying(f"variable {name!r}: {exc}") from exc
    data, size = memoryview(encoded.data), len(encoded.data)
    told = {"name": check_variable(name), "kind": encoded.kind, "meta": encoded.meta, "size": size}
    token, offset = os.urandom(8).hex(), 0
    while True:
        piece = data[offset : offset + _PIECE]
        _move(kernel, "set", {**told, "token": token, "offset": offset}, bytes(piece), about=name)
        offset += len(piece)
        if offset >= size:
            return


class Files(Handle):
    """Reads and writes files of any size, in pieces. Relative paths are those of the kernel's working directory."""

    def __init__(self, find: Callable[[], KernelHandle]) -> None:
        self._find = find

    def write(self, path: str | os.PathLike[str], content: bytes | str | IO[bytes] | Iterable[bytes]) -> int:
        """Writes a file and returns its size. Its old content stays until the new one is complete."""
        return _write_file(self._find(), check_file_path(path), content)

    def read(self, path: str | os.PathLike[str]) -> bytes:
        """Returns what is in a file."""
        return b"".join(self.stream(path))

    def stream(self, path: str | os.PathLike[str]) -> Iterator[bytes]:
        """Yields a file in pieces of a few megabytes."""
        return _read_file(self._find(), check_file_path(path))

    def list(self, path: str | os.PathLike[str] = ".") -> list[FileInfo]:
        """Returns what is in a directory, by name."""
        return _read_infos(*self._do("list_files", path))

    def info(self, path: str | os.PathLike[str]) -> FileInfo:
        """Returns what is known about a file or directory; raises FileNotFoundError."""
        kernel, content = self._do("file_info", path)
        found = _read_infos(kernel, content)
        if len(found) != 1:
            raise _forged(kernel)
        return found[0]

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Tells whether there is a file or directory."""
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def make_dir(self, path: str | os.PathLike[str]) -> bool:
        """Makes a directory and those above it; returns whether it is new."""
        return bool(self._do("make_dir", path)[1].get("made"))

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Moves a file or directory; replaces a file at the new path."""
        self._do("rename_file", path, new_path=check_file_path(new_path))

    def remove(self, path: str | os.PathLike[str], *, recursive: bool = False) -> None:
        """Removes a file or an empty directory; with `recursive`, also what is in a directory."""
        self._do("remove_file", path, recursive=recursive)

    def _do(self, what: str, path: str | os.PathLike[str], **more: object) -> tuple[KernelHandle, dict[str, Any]]:
        """Makes a request about a path; returns the kernel and its answer."""
        kernel, text = self._find(), check_file_path(path)
        return kernel, _move(kernel, what, {"path": text, **more}, about=text)[0]


def _read_file(kernel: KernelHandle, path: str) -> Iterator[bytes]:
    """Yields a file of the kernel's view in pieces."""
    offset = 0
    while piece := _move(kernel, "read_file", {"path": path, "offset": offset}, about=path)[1]:
        yield piece
        offset += len(piece)


def _write_file(kernel: KernelHandle, path: str, data: bytes | str | IO[bytes] | Iterable[bytes]) -> int:
    """Writes a file of the kernel's view; returns its size. Until it is complete its old content stays."""
    told: dict[str, object] = {"path": path, "token": os.urandom(8).hex()}
    offset = 0
    try:
        pieces = _pieces(data)
        piece = next(pieces, b"")
        while True:
            following = next(pieces, None)
            args = {**told, "offset": offset, "complete": following is None}
            _move(kernel, "write_file", args, piece, about=path)
            offset += len(piece)
            if following is None:
                return offset
            piece = following
    except BaseException:
        with contextlib.suppress(KernelBoxError):  # the first failure is raised, not this one
            kernel.ask("drop_file", told)
        raise


def check_variable(name: object) -> str:
    """Returns the name of a variable; raises InvalidInput."""
    import keyword

    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidInput("a variable's name", name, "use a name that Python takes, such as 'df'")
    return name


def check_file_path(path: object) -> str:
    """Returns a path in a kernel's view; raises InvalidInput."""
    return path_text("path", path, "use the path of a file as the kernel sees it")


def _move(
    kernel: KernelHandle, what: str, args: dict[str, Any], payload: bytes = b"", *, about: str
) -> tuple[dict[str, Any], bytes]:
    content, answered = kernel.exchange(what, args, payload, patience=_PATIENCE)
    if content.get("status") == "ok":
        return content, answered
    ename, evalue = str(content.get("ename", "")), f"{content.get('evalue', 'unknown')!s:.1000}"
    if ename == "KeyError" and what == "get":
        raise KeyError(about)
    if ename in _FILE_ERRORS:
        raise _FILE_ERRORS[ename](f"kernel {kernel.name!r}: {evalue}")
    raise KernelBoxError(f"kernel {kernel.name!r}, {about!r}: {ename}: {evalue}")


def _read_infos(kernel: KernelHandle, content: dict[str, Any]) -> list[FileInfo]:
    listed: Any = content.get("files")
    try:
        return [FileInfo(str(name), int(size), bool(is_dir), float(time)) for name, size, is_dir, time in listed]
    except (TypeError, ValueError, OverflowError) as exc:
        raise _forged(kernel) from exc


def _pieces(data: bytes | str | IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    """Yields data in pieces of the right size."""
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        data = io.BytesIO(data)
    if hasattr(data, "read"):
        while piece := data.read(_PIECE):
            if not isinstance(piece, bytes):
                raise InvalidInput("data", piece, "open the file in binary mode")
            yield piece
        return
    for part in data:
        for start in range(0, len(part), _PIECE):
            yield bytes(part[start : start + _PIECE])


def _check_told(kernel: KernelHandle, content: dict[str, Any]) -> dict[str, Any]:
    match content:
        case {"kind": str(), "meta": dict(), "size": int(size)} if 0 <= size <= _LARGEST_VALUE:
            return content
    raise _forged(kernel)


def _forged(kernel: KernelHandle) -> KernelBoxError:
    return KernelBoxError(
        f"kernel {kernel.name!r} sent something that is not a value; a cell has tampered with it: restart it"
    )

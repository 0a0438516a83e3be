"""Data into and out of a kernel, between cells: variables, and files as the kernel sees them.

Each request moves one piece, so that other clients get their turn. A file is written beside its place and renamed when
it is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelbox.data._values_as_bytes import decode_value, encode_value
from kernelbox.guest._stdlib import contextlib, os, stat, time
from kernelbox.wire._builtins import keep_builtins

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from kernelbox.guest.serve._kernel_process import KernelProcess

    T = TypeVar("T")

keep_builtins(globals())

# Bytes of one reply.
_PIECE = 4 * 1024 * 1024

# Seconds after which a value that is half moved is given up: hosts wait for less than this between pieces.
_LEFT_BEHIND = 180.0

# Entries of a directory that are listed.
_MOST_ENTRIES = 10_000

# Seconds for one piece: writing a large table as bytes takes a while.
LONGEST = 60.0


class Transfers:
    """The values of one kernel that are half moved, by the token that their client chose."""

    def __init__(self) -> None:
        self._sending: dict[str, memoryview] = {}
        self._receiving: dict[str, bytearray] = {}
        self._used: dict[str, float] = {}  # when a piece of each was last moved

    def answer(self, kernel: KernelProcess, what: str, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Moves one piece; what is returned as `payload` travels as raw bytes."""
        return {"status": "ok", **_TRANSFERS[what](self, kernel, args, payload)}

    def _get(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        name, token, offset = str(args["name"]), str(args["token"]), int(args["offset"])
        told: dict[str, Any] = {}
        if offset == 0:
            encoded = encode_value(kernel.shell.user_ns[name])
            told = {"kind": encoded.kind, "meta": encoded.meta, "size": len(encoded.data)}
            self._sending[token] = memoryview(bytes(encoded.data))  # a copy: cells of others may run between pieces
        data = self._under_way(self._sending, token)
        piece = data[offset : offset + _PIECE]
        if offset + len(piece) >= len(data):
            del self._sending[token], self._used[token]
        return {**told, "payload": bytes(piece)}

    def _set(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        token, offset, size = str(args["token"]), int(args["offset"]), int(args["size"])
        if offset == 0:
            self._receiving[token] = bytearray()
        data = self._under_way(self._receiving, token)
        data[offset:] = payload
        if len(data) >= size:
            del self._receiving[token], self._used[token]
            kernel.shell.user_ns[str(args["name"])] = decode_value(str(args["kind"]), args["meta"], data)
        return {}

    def _under_way(self, values: dict[str, T], token: str) -> T:
        """Returns a value that is half moved, and drops those that their clients have abandoned."""
        now = time.monotonic()
        for other in [other for other, used in self._used.items() if now - used > _LEFT_BEHIND and other != token]:
            del self._used[other]
            self._sending.pop(other, None)
            self._receiving.pop(other, None)
        if token not in values:
            raise TimeoutError("this was left half moved for too long; begin again")
        self._used[token] = now
        return values[token]

    def _read_file(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        file = os.open(_path(args), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # or a named pipe would block here
        try:
            info = os.fstat(file)
            if stat.S_ISDIR(info.st_mode):
                raise IsADirectoryError(f"{args['path']!r} is a directory")
            if not stat.S_ISREG(info.st_mode):
                raise OSError(f"{args['path']!r} is not a regular file")
            return {"payload": os.pread(file, _PIECE, int(args["offset"]))}
        finally:
            os.close(file)

    def _write_file(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        path, offset = _path(args), int(args["offset"])
        part = f"{path}.part-{args['token']}"
        flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if offset == 0 else 0)
        try:
            file = os.open(part, flags, 0o666)
            try:
                while payload:
                    written = os.pwrite(file, payload, offset)
                    payload, offset = payload[written:], offset + written
            finally:
                os.close(file)
            if args["complete"]:
                with contextlib.suppress(FileNotFoundError):  # a script stays one that can be run
                    os.chmod(part, stat.S_IMODE(os.stat(path).st_mode))
                os.replace(part, path)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from None  # the caller knows of no part
        return {}

    def _drop_file(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{_path(args)}.part-{args['token']}")
        return {}

    def _list_files(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        files = []
        with os.scandir(_path(args)) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                files.append([entry.name, info.st_size, entry.is_dir(follow_symlinks=False), info.st_mtime])
                if len(files) >= _MOST_ENTRIES:
                    break
        return {"files": sorted(files)}

    def _remove_file(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        path = _path(args)
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
        elif args.get("recursive"):
            _remove_tree(path)
        else:
            os.rmdir(path)
        return {}

    def _rename_file(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        os.replace(_path(args), os.path.expanduser(str(args["new_path"])))
        return {}

    def _make_dir(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        path = _path(args)
        exists = os.path.isdir(path)
        os.makedirs(path, exist_ok=True)
        return {"made": not exists}

    def _file_info(self, kernel: KernelProcess, args: dict[str, Any], payload: bytes) -> dict[str, Any]:
        path = _path(args)
        info = os.stat(path)
        name = os.path.basename(os.path.abspath(path))
        return {"files": [[name, info.st_size, stat.S_ISDIR(info.st_mode), info.st_mtime]]}


def _path(args: dict[str, Any]) -> str:
    return os.path.expanduser(str(args["path"]))


def _remove_tree(path: str) -> None:
    with os.scandir(path) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(path)


_TRANSFERS: dict[str, Callable[[Transfers, KernelProcess, dict[str, Any], bytes], dict[str, Any]]] = {
    "get": Transfers._get,
    "set": Transfers._set,
    "read_file": Transfers._read_file,
    "write_file": Transfers._write_file,
    "drop_file": Transfers._drop_file,
    "list_files": Transfers._list_files,
    "remove_file": Transfers._remove_file,
    "rename_file": Transfers._rename_file,
    "make_dir": Transfers._make_dir,
    "file_info": Transfers._file_info,
}

NAMES = frozenset(_TRANSFERS)

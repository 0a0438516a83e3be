"""Where records are kept, for any number of processes at once.

The runtime directory is the truth:

    runtime/<kernel id>/connection.json    the record        runtime/names/<key>    the id behind a name
    runtime/<kernel id>/socket, state, log, death.json       runtime/locks/<key>    held while a name changes

A kernel's directory appears and disappears as a whole, by a rename, so that a crash between any two steps leaves
either a kernel or rubbish that nobody mistakes for one: `<kernel id>.new`, `<kernel id>.gone`.

`registry.json` is the documented view of it: rewritten when a kernel is opened, restarted or destroyed, never for a
cell, and rebuilt when it is lost or damaged. A name becomes a key, never a path.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import warnings

from kernelbox.base._errors import StoreFailed
from kernelbox.host._lock import is_locked, locked
from kernelbox.host._record import KernelRecord
from kernelbox.wire._layout import LOCKS, NAMES, RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_VERSION = 1
_NEW, _GONE = ".new", ".gone"

# A name's bytes in hexadecimal are its key, up to this many; a longer name's key is a hash.
_PLAIN_KEY = 100

# A directory is made or removed in milliseconds; one that is still half there after this was left by a crash.
_RUBBISH_AFTER = 60.0


class Store:
    """Records in the runtime directory, and the registry file that mirrors them (none for the memory backend)."""

    def __init__(self, runtime_dir: str, registry_path: str | None) -> None:
        self.runtime_dir = runtime_dir
        self._registry_path = registry_path
        if os.path.isdir(runtime_dir):
            with _translated(runtime_dir):
                _require_private(runtime_dir)

    def __repr__(self) -> str:
        return f"<Store {self.runtime_dir}>"

    def directory(self, kernel_id: str) -> str:
        """Returns the directory of a kernel."""
        return os.path.join(self.runtime_dir, kernel_id)

    @contextlib.contextmanager
    def locking(self, *names: str) -> Iterator[None]:
        """Lets one at a time open, restart or destroy the kernel of a name."""
        with contextlib.ExitStack() as stack:
            for path in sorted({self._lock_path(name) for name in names}):  # always in one order: no deadlock
                for attempt in range(3):
                    self._prepare()
                    try:
                        stack.enter_context(locked(path))
                        break
                    except FileNotFoundError as exc:  # the directory vanished since
                        if attempt == 2:
                            raise StoreFailed.because(exc, path) from exc
            yield

    def is_changing(self, name: str) -> bool:
        """Tells whether somebody is opening, restarting or destroying the kernel of a name."""
        return is_locked(self._lock_path(name))

    def get(self, kernel_id: str) -> KernelRecord | None:
        """Returns the record of an id."""
        if not is_kernel_id(kernel_id):
            return None
        try:
            record = KernelRecord.from_dict(json.loads(_read(f"{self.runtime_dir}/{kernel_id}/{RECORD}")))
        except (OSError, ValueError, TypeError, RecursionError):
            return None  # there is none, or nothing that could be used as one
        return record if record.kernel_id == kernel_id else None

    def find(self, name: str) -> KernelRecord | None:
        """Returns the record behind a name or session name."""
        try:
            record = self.get(_read(self._index_path(name)))
        except (OSError, UnicodeDecodeError):
            if os.path.isdir(os.path.join(self.runtime_dir, NAMES)):
                return None
            record = next((record for record in self._scan() if name in record.names), None)
        return record if record is not None and name in record.names else None

    def all(self) -> list[KernelRecord]:
        """Returns every record, oldest first."""
        self._repair_registry()
        return self._scan()

    def add(self, record: KernelRecord) -> None:
        """Makes the directory of a new kernel, with its record in it."""
        self._prepare()
        directory = self.directory(record.kernel_id)
        fresh = directory + _NEW
        with _translated(directory):
            try:
                os.mkdir(fresh, 0o700)
                _replace(os.path.join(fresh, RECORD), _dump(record.to_dict()))
                self._index(record)
                os.rename(fresh, directory)
            except BaseException:
                _remove_tree(fresh)
                raise

    def save(self, record: KernelRecord) -> None:
        """Keeps a record that has changed."""
        path = os.path.join(self.directory(record.kernel_id), RECORD)
        with _translated(path):
            _replace(path, _dump(record.to_dict()))

    def publish(self, record: KernelRecord) -> None:
        """Keeps a record that has changed, and shows it in the registry."""
        self.save(record)
        self._write_registry(record)

    def publish_all(self) -> None:
        """Shows in the registry which kernels there are."""
        self._write_registry(None)

    def remove(self, record: KernelRecord, *, publish: bool = True) -> None:
        """Forgets a record and deletes its directory."""
        directory = self.directory(record.kernel_id)
        with _translated(directory), contextlib.suppress(FileNotFoundError):
            os.rename(directory, directory + _GONE)
        for name in record.names:
            path = self._index_path(name)
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if _read(path) == record.kernel_id:
                    os.unlink(path)
        _remove_tree(directory + _GONE)
        if publish:
            self.publish_all()

    def sweep(self) -> None:
        """Deletes what crashes have left: directories half made or half removed, names that lead nowhere."""
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.runtime_dir):
                kernel_id, dot, suffix = entry.name.partition(".")
                if not is_kernel_id(kernel_id) or (not dot and self.get(kernel_id) is not None):
                    continue
                if f".{suffix}" == _GONE or time.time() - entry.stat().st_mtime > _RUBBISH_AFTER:
                    _remove_tree(entry.path)
            for entry in os.scandir(os.path.join(self.runtime_dir, NAMES)):
                if self.get(_read(entry.path)) is None and time.time() - entry.stat().st_mtime > _RUBBISH_AFTER:
                    os.unlink(entry.path)

    def _scan(self) -> list[KernelRecord]:
        records = [record for record in map(self.get, self._ids()) if record is not None]
        return sorted(records, key=lambda record: (record.created_at, record.kernel_id))

    def _ids(self) -> list[str]:
        try:
            return [entry for entry in os.listdir(self.runtime_dir) if is_kernel_id(entry)]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise StoreFailed.because(exc, self.runtime_dir, "read") from exc

    def _index(self, record: KernelRecord) -> None:
        for name in record.names:
            _replace(self._index_path(name), record.kernel_id)

    def _index_path(self, name: str) -> str:
        return os.path.join(self.runtime_dir, NAMES, key_of(name))

    def _lock_path(self, name: str) -> str:
        return os.path.join(self.runtime_dir, LOCKS, key_of(name))

    def _prepare(self) -> None:
        """Makes the directories, whichever are missing."""
        names, locks = (os.path.join(self.runtime_dir, part) for part in (NAMES, LOCKS))
        if os.path.isdir(names) and os.path.isdir(locks):
            return
        with _translated(self.runtime_dir):
            home = os.path.dirname(self.runtime_dir)
            if not os.path.isdir(home):
                os.makedirs(home, 0o700, exist_ok=True)
                _replace(os.path.join(home, ".gitignore"), "*\n")
            os.makedirs(self.runtime_dir, 0o700, exist_ok=True)
            _require_private(self.runtime_dir)
            os.makedirs(locks, 0o700, exist_ok=True)
            os.makedirs(names, 0o700, exist_ok=True)
            for record in self._scan():
                self._index(record)

    # -- registry.json ---------------------------------------------------------------------------------------

    def _write_registry(self, changed: KernelRecord | None) -> None:
        """Brings the view up to date with the truth, of which only `changed` is known to differ from it."""
        if self._registry_path is None:
            return
        path = os.path.realpath(self._registry_path)  # the file may be a link; replacing must not turn it into one
        with _translated(path):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            with locked(path + ".lock"):
                shown = self._read_registry(path)
                kernels = {kernel_id: shown.get(kernel_id) or self._entry(kernel_id) for kernel_id in self._ids()}
                if changed is not None:
                    kernels[changed.kernel_id] = changed.to_dict()
                present = {kernel_id: entry for kernel_id, entry in kernels.items() if entry is not None}
                if shown != present or not os.path.exists(path):  # whoever held the lock before may have done it
                    _replace(path, _dump({"version": _VERSION, "kernels": present}))

    def _entry(self, kernel_id: str) -> dict[str, Any] | None:
        record = self.get(kernel_id)
        return None if record is None else record.to_dict()

    def _read_registry(self, path: str) -> dict[str, Any]:
        """Returns what the registry shows; one that cannot be used is set aside and shows nothing."""
        try:
            return _parse_registry(path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as exc:
            aside = f"{path}.damaged-{os.urandom(4).hex()}"
            os.rename(path, aside)
            warnings.warn(
                f"{path} could not be used ({exc}); it was set aside as {os.path.basename(aside)} and rebuilt from the "
                "runtime directory",
                stacklevel=2,
            )
            return {}

    def _repair_registry(self) -> None:
        """Rebuilds the registry if it is damaged, or lost while there are kernels."""
        if self._registry_path is None:
            return
        try:
            _parse_registry(self._registry_path)
            return
        except FileNotFoundError:
            if not self._ids():
                return
        except (OSError, ValueError, RecursionError):
            pass
        with contextlib.suppress(StoreFailed):  # a disk that cannot be written to is no reason not to list
            self._write_registry(None)


def key_of(name: str) -> str:
    """Returns what a name is called in the file system."""
    raw = name.encode("utf-8", "surrogatepass")
    if len(raw) <= _PLAIN_KEY:
        return "n" + raw.hex()
    import hashlib

    return "h" + hashlib.sha256(raw).hexdigest()


def is_kernel_id(text: str) -> bool:
    return len(text) == 32 and not text.strip("0123456789abcdef")


def _parse_registry(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    version, kernels = (data.get("version"), data.get("kernels")) if isinstance(data, dict) else (None, None)
    if version != _VERSION:
        raise ValueError(f"its version is {version!r}, not {_VERSION}")
    if isinstance(kernels, dict):
        return kernels
    raise ValueError("it lists no kernels")


def _remove_tree(directory: str) -> None:
    """Deletes a directory and what is in it, nothing through a link; what cannot be deleted is left for `sweep`."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    _remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def _read(path: str) -> str:
    """Returns the text of a small file, with fewer steps than `open` takes: a list of kernels reads many."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(fd, 65536)]
        while len(pieces[-1]) == 65536:
            pieces.append(os.read(fd, 65536))
    finally:
        os.close(fd)
    return b"".join(pieces).decode("utf-8")


def _dump(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))


def _replace(path: str, text: str) -> None:
    """Writes a file so that a reader, or a crash, finds the old text or the new, never a part."""
    new = f"{path}.{os.getpid()}-{os.urandom(3).hex()}.new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def _require_private(directory: str) -> None:
    """Refuses a runtime directory that others could put sockets into; closes one of ours that has come open."""
    info = os.stat(directory)
    if info.st_uid != os.getuid():
        raise StoreFailed(f"{directory!r} belongs to another user; set KERNELBOX_HOME to a directory of your own")
    if not info.st_mode & 0o077:
        return
    entries = os.listdir(directory)
    if entries and "names" not in entries and "locks" not in entries:
        raise StoreFailed(
            f"{directory!r} is open to other users and holds other things than kernels; "
            "set KERNELBOX_RUNTIME_DIR to a directory of its own"
        )
    os.chmod(directory, 0o700)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except StoreFailed:
        raise
    except OSError as exc:
        raise StoreFailed.because(exc, path) from exc

"""Where records are kept, for any number of processes at once.

The runtime directory is the truth:

    runtime/<kernel id>/connection.json    the record        runtime/names/<key>    the id behind a name
    runtime/<kernel id>/socket, state, log, death.json       runtime/locks/<key>    held while a name changes

`registry.json` is the documented view of it: rewritten when a kernel is opened or destroyed, never for a cell, and
rebuilt when it is lost or damaged. A name becomes a key, never a path.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings

from kernelbox._errors import StoreFailed
from kernelbox.host._lock import locked
from kernelbox.host._record import KernelRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = "connection.json"
_VERSION = 1

# A name's bytes in hexadecimal are its key, up to this many; a longer name's key is a hash.
_PLAIN_KEY = 100


class Store:
    """Records in the runtime directory, and the registry file that mirrors them (none for the memory backend)."""

    def __init__(self, runtime_dir: str, registry_path: str | None) -> None:
        self.runtime_dir = runtime_dir
        self._registry_path = registry_path
        self._prepared = False

    def __repr__(self) -> str:
        return f"<Store {self.runtime_dir}>"

    def directory(self, kernel_id: str) -> str:
        """Returns the directory of a kernel."""
        return os.path.join(self.runtime_dir, kernel_id)

    @contextlib.contextmanager
    def locking(self, name: str) -> Iterator[None]:
        """Lets one at a time open, restart or destroy the kernel of a name."""
        self._prepare()
        with locked(os.path.join(self.runtime_dir, "locks", key_of(name))):
            yield

    def get(self, kernel_id: str) -> KernelRecord | None:
        """Returns the record of an id."""
        if not is_kernel_id(kernel_id):
            return None
        return _read_record(os.path.join(self.directory(kernel_id), RECORD))

    def find(self, name: str) -> KernelRecord | None:
        """Returns the record behind a name or session name."""
        try:
            with open(os.path.join(self.runtime_dir, "names", key_of(name))) as file:
                return self.get(file.read())
        except OSError:
            return None

    def all(self) -> list[KernelRecord]:
        """Returns every record, oldest first."""
        try:
            ids = [entry for entry in os.listdir(self.runtime_dir) if is_kernel_id(entry)]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise StoreFailed(f"cannot read {self.runtime_dir!r}: {exc.strerror}") from exc
        records = [record for record in map(self.get, ids) if record is not None]
        return sorted(records, key=lambda record: (record.created_at, record.kernel_id))

    def create_directory(self, kernel_id: str) -> str:
        """Makes the directory of a new kernel."""
        self._prepare()
        directory = self.directory(kernel_id)
        os.mkdir(directory, 0o700)
        return directory

    def save(self, record: KernelRecord) -> None:
        """Keeps a record: first the truth, then the names that lead to it, then the view."""
        with _translated(self.runtime_dir):
            _replace(os.path.join(self.directory(record.kernel_id), RECORD), _dump(record.to_dict()))
            for name in {record.name, record.session_name or record.name}:
                _replace(os.path.join(self.runtime_dir, "names", key_of(name)), record.kernel_id)
        self._update_registry(record.kernel_id, record)

    def remove(self, record: KernelRecord) -> None:
        """Forgets a record and deletes its directory."""
        for name in {record.name, record.session_name or record.name}:
            path = os.path.join(self.runtime_dir, "names", key_of(name))
            with contextlib.suppress(OSError):
                with open(path) as file:
                    mine = file.read() == record.kernel_id
                if mine:
                    os.unlink(path)
        remove_tree(self.directory(record.kernel_id))
        self._update_registry(record.kernel_id, None)

    def _prepare(self) -> None:
        if self._prepared and os.path.isdir(self.runtime_dir):
            return
        with _translated(self.runtime_dir):
            parent = os.path.dirname(self.runtime_dir)
            if not os.path.isdir(parent):
                os.makedirs(parent, 0o700)
                _replace(os.path.join(parent, ".gitignore"), "*\n")
            for directory in (
                self.runtime_dir,
                *(os.path.join(self.runtime_dir, x) for x in ("names", "locks")),
            ):
                os.makedirs(directory, 0o700, exist_ok=True)
            _require_private(self.runtime_dir)
        self._prepared = True

    # -- registry.json ---------------------------------------------------------------------------------------

    def _update_registry(self, kernel_id: str, record: KernelRecord | None) -> None:
        path = self._registry_path
        if path is None:
            return
        with _translated(path):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            with locked(path + ".lock"):
                kernels = self._read_registry(path)
                if record is None:
                    kernels.pop(kernel_id, None)
                else:
                    kernels[kernel_id] = record.to_dict()
                _replace(path, _dump({"version": _VERSION, "kernels": kernels}))

    def _read_registry(self, path: str) -> dict[str, object]:
        """Returns the registry's records, rebuilt from the runtime directory if the file cannot be used."""
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            if data["version"] != _VERSION or not isinstance(data["kernels"], dict):
                raise ValueError(f"version {data['version']!r}")
            kernels: dict[str, object] = data["kernels"]
            return kernels
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError, UnicodeDecodeError) as exc:
            aside = f"{path}.damaged-{os.urandom(4).hex()}"
            os.replace(path, aside)
            warnings.warn(
                f"{path} could not be read ({type(exc).__name__}); it was set aside as {os.path.basename(aside)} "
                "and rebuilt from the runtime directory",
                stacklevel=2,
            )
        return {record.kernel_id: record.to_dict() for record in self.all()}


def key_of(name: str) -> str:
    """Returns what a name is called in the file system."""
    raw = name.encode("utf-8", "surrogatepass")
    if len(raw) <= _PLAIN_KEY:
        return "n" + raw.hex()
    import hashlib

    return "h" + hashlib.sha256(raw).hexdigest()


def is_kernel_id(text: str) -> bool:
    return len(text) == 32 and all(character in "0123456789abcdef" for character in text)


def remove_tree(directory: str) -> None:
    """Deletes a kernel's directory: plain files and one level of folders, nothing through a link."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(directory)


def _read_record(path: str) -> KernelRecord | None:
    try:
        with open(path, encoding="utf-8") as file:
            return KernelRecord.from_dict(json.load(file))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return None  # a directory that is being made or removed


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
    """Refuses a runtime directory that others could put sockets into."""
    info = os.stat(directory)
    if info.st_uid != os.getuid():
        raise StoreFailed(f"{directory!r} belongs to another user; set KERNELBOX_HOME to a directory of your own")
    if info.st_mode & 0o077:
        os.chmod(directory, 0o700)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except StoreFailed:
        raise
    except OSError as exc:
        advice = "free some space" if exc.errno == 28 else "set KERNELBOX_HOME to a directory you can write to"
        raise StoreFailed(f"cannot write {exc.filename or path!r}: {exc.strerror}; {advice}") from exc

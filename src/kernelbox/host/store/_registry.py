"""`registry.json`: the documented view of the runtime directory.

It decides only one thing: a live kernel that it lists, but whose directory has gone, is lost.

It is rewritten when a kernel is opened, restarted or destroyed, never for a cell. It is rebuilt when it is lost or
damaged. Inside the home, any other file at its path is set aside. At a path that the user has chosen, only a registry
or an empty file is replaced. Any other file there is an error, and is left as it is.
"""

from __future__ import annotations

import os
import stat
import warnings

from kernelbox.base._errors import StoreFailed
from kernelbox.base._light_stdlib import suppress
from kernelbox.host.files._home import Inside
from kernelbox.host.files._place import Place
from kernelbox.host.store._record import KernelRecord
from kernelbox.host.store._record_files import signed
from kernelbox.wire._json import encode_json
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from kernelbox.host.files._home import Home, HomeRoot

_VERSION = 1

# With more kernels, writing it would take a good part of the time in which a kernel is opened.
_MANY = 200

# Enough for 20,000 kernels, in bytes and in values. Values are bounded too, because two characters of JSON can become
# an object of 64 bytes. Each value is counted by the comma before it or the bracket that it opens.
_LARGEST = 16 * 1024 * 1024
_MOST_SEPARATORS = 600_000


@dataclass(frozen=True, slots=True)
class Listed:
    """A kernel in the registry: its names, and its part of the file."""

    names: frozenset[str]
    text: bytes

    @classmethod
    def of(cls, kernel_id: str, fields: dict[str, Any], entry: bytes) -> Listed:
        names = frozenset(name for key in ("name", "session_name") if isinstance(name := fields.get(key), str))
        return cls(names, b"%b:%b" % (encode_json(kernel_id, ascii_only=True).encode(), entry))


@dataclass(frozen=True, slots=True)
class _Written:
    """What this process wrote last, and a signature to tell whether the file is still the same."""

    signature: tuple[int, ...]
    kernels: dict[str, Listed]
    names: set[str]


class Registry:
    """The registry at a path, which is expected to be inside `home`."""

    def __init__(self, path: str, home: Home) -> None:
        directory, self._name = os.path.split(path)
        self.path = path
        steps = home.steps_to(directory)
        self._is_named = steps is None
        self._root: HomeRoot = _Named(directory) if steps is None else Inside(home, steps)
        self._written: _Written | None = None

    def require_usable(self) -> None:
        """Raises StoreFailed if the path that the user has chosen holds something that must not be replaced."""
        if not self._is_named:
            return
        info = self._stat()
        if info is None:
            return
        if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
            if info.st_size == 0 or self.is_sound():
                return
            wrong = "is not a registry of kernelbox, or it is damaged"
        else:
            wrong = "is a link" if stat.S_ISLNK(info.st_mode) else "is not a regular file of yours"
        raise StoreFailed(
            f"{self.path!r} {wrong}; it was not changed: set KERNELBOX_REGISTRY_PATH to the path of a new file"
        )

    @property
    def is_large(self) -> bool:
        """Whether it takes long to write, by what this process wrote last."""
        return self._written is not None and len(self._written.kernels) > _MANY

    def exists(self) -> bool:
        """Tells whether anything is at the path."""
        return self._stat() is not None

    def is_sound(self) -> bool:
        """Tells whether the registry can be read."""
        try:
            with self._root.open() as place:
                if not self._is_ours(place):
                    self._parse(place)
        except (OSError, ValueError, RecursionError, MemoryError):
            return False
        return True

    def find(self, name: str, secret: Callable[[], bytes]) -> KernelRecord | None:
        """Returns the signed entry for a name in the registry of a home, if there is one."""
        if self._is_named:
            return None
        try:
            with self._root.open() as place:
                if not self._may_list(name, place):
                    return None
                entries = self._parse(place).values()
            shown = [entry for entry in entries if isinstance(entry, dict)]
            found = [entry for entry in shown if name in (entry.get("name"), entry.get("session_name"))]
            sound = [entry for entry in found if _dump_entry(entry) == signed_entry(entry, secret())]
            return KernelRecord.from_dict(sound[0]) if sound else None
        except (OSError, ValueError, RecursionError, MemoryError):
            return None

    def _may_list(self, name: str, place: Place) -> bool:
        """Tells, without parsing, whether the registry may have an entry for a name. Mostly it has none."""
        if self._written is not None and self._is_ours(place):
            return name in self._written.names
        return encode_json(name, ascii_only=True).encode() in place.read(self._name, _LARGEST)

    def update(self, ids: list[str], known: Mapping[str, Listed], entry_of: Callable[[str], Listed | None]) -> None:
        """Lists these kernels, with their entry from `known`, or else the one in the file, or else from `entry_of`."""
        self.require_usable()
        with self._root.make() as place:
            if not self._is_named:
                place.remove_rubbish(of=self._name)
            shown = self._shown(place)
            present = {
                kernel_id: entry
                for kernel_id in ids
                if (entry := known.get(kernel_id) or shown.get(kernel_id) or entry_of(kernel_id)) is not None
            }
            if shown != present or not place.exists(self._name):  # another process may have done it meanwhile
                self._write(place, present, {name for listed in present.values() for name in listed.names})

    def _write(self, place: Place, kernels: dict[str, Listed], names: set[str]) -> None:
        place.replace(self._name, _dump(kernels))
        self._written = _Written(_signature(place.stat(self._name)), kernels, names)

    def _shown(self, place: Place) -> dict[str, Listed]:
        """Returns the registry's entry for each kernel."""
        if self._written is not None and self._is_ours(place):
            return self._written.kernels
        shown = self._read_or_set_aside(place)
        return {
            kernel_id: Listed.of(kernel_id, entry, _dump_entry(entry))
            for kernel_id, entry in shown.items()
            if _is_flat(entry)
        }

    def _is_ours(self, place: Place) -> bool:
        """Tells whether the file is the one that this process wrote last."""
        if self._written is None or not place.exists(self._name):
            return False
        return _signature(place.stat(self._name)) == self._written.signature

    def _read_or_set_aside(self, place: Place) -> dict[str, Any]:
        """Returns the registry's entries. A registry that is not valid is set aside, and has no entries."""
        try:
            return self._parse(place)
        except FileNotFoundError:
            return {}
        except (StoreFailed, PermissionError, ValueError, RecursionError, MemoryError) as exc:  # not: too much is open
            aside = f"{self._name}.damaged-{os.urandom(4).hex()}"
            place.rename(self._name, aside)
            warnings.warn(
                f"{self.path!r} could not be used ({exc}); it was set aside as {aside} and rebuilt from the runtime "
                "directory",
                stacklevel=2,
            )
            return {}

    def _parse(self, place: Place) -> dict[str, Any]:
        text = place.read(self._name, _LARGEST)
        if text.count(b",") + text.count(b"[") + text.count(b"{") > _MOST_SEPARATORS:
            raise ValueError("it has too many values")
        import json  # only where kernels are opened, or not found

        data = json.loads(text.decode())
        version, kernels = (data.get("version"), data.get("kernels")) if isinstance(data, dict) else (None, None)
        if type(version) is not int or version != _VERSION:
            raise ValueError(f"its version is {str(version)[:20]!r}, not {_VERSION}")
        if len(data) > 2 or (self._is_named and isinstance(kernels, dict) and not all(map(_is_entry, kernels.items()))):
            raise ValueError("it holds other things than kernels")
        if isinstance(kernels, dict):
            return kernels
        raise ValueError("it lists no kernels")

    def _stat(self) -> os.stat_result | None:
        try:
            with self._root.open() as place:
                return place.stat(self._name)
        except FileNotFoundError:
            return None


class _Named:
    """A directory that the user has chosen for the registry. Anyone may own it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self) -> Place:
        try:
            return Place.open_any(self._path)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise StoreFailed.because(exc, self._path, "open") from exc

    def make(self) -> Place:
        try:
            with suppress(FileExistsError):  # `open` says what is in the way
                os.makedirs(self._path, 0o700)
        except OSError as exc:
            raise StoreFailed.because(exc, self._path) from exc
        return self.open()


def signed_entry(fields: dict[str, Any], secret: bytes) -> bytes:
    """Returns the registry's entry for a kernel: the fields of its record, and a signature over them."""
    return signed({name: value for name, value in fields.items() if name != "signature"}, secret)


def _is_entry(item: tuple[str, object]) -> bool:
    """Tells whether a key and a value are the id and the record of a kernel, of this version or of 0.1."""
    kernel_id, entry = item
    return isinstance(entry, dict) and entry.get("kernel_id") == kernel_id and "connection_file" in entry


def _is_flat(entry: object) -> bool:
    """Tells whether an entry is nested no deeper than tags. A deeper one is not an entry, and could not be written."""
    if not isinstance(entry, dict):
        return False
    nested = [part for value in entry.values() for part in _parts(value)]
    return not any(isinstance(part, list | dict) for part in nested)


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _signature(info: os.stat_result) -> tuple[int, ...]:
    """Returns values that change when another file replaces this one."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _dump_entry(entry: dict[str, Any]) -> bytes:
    return encode_json(entry, ascii_only=True).encode()


def _dump(kernels: dict[str, Listed]) -> bytes:
    entries = b",".join([listed.text for listed in kernels.values()])
    data = b'{"version":%d,"kernels":{%b}}' % (_VERSION, entries)
    if len(data) > _LARGEST:
        raise StoreFailed(f"the registry would have more than {_LARGEST:,} bytes; destroy some kernels")
    return data

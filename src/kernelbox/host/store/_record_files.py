"""The records in a runtime directory: one in each kernel's own directory, and a copy under each of its names.

The record in the directory counts. A copy leads to it, and replaces it when it is lost. So a kernel whose record was
deleted or damaged is still found, and no second kernel is opened under its name.

Cells can rewrite both files, and hosts send signals to the process that they name. So hosts sign them. A copy with a
wrong signature is ignored. A record with a wrong signature is restored from a copy. If there is no copy, the kernel is
lost, because its process is no longer known: see `mark_rewritten`.
"""

from __future__ import annotations

import warnings
from itertools import chain

from kernelbox.base._errors import StoreFailed
from kernelbox.base._light_stdlib import suppress
from kernelbox.host.files._key import sign
from kernelbox.host.files._place import UNFINISHED
from kernelbox.host.store._record import MAX_CAUSE, MAX_RECORD, KernelRecord, is_rewritten, mark_rewritten
from kernelbox.wire._json import encode_json, load
from kernelbox.wire._layout import NAMES, RECORD, is_kernel_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kernelbox.host.files._place import Place

# Suffixes of directories that are being made or removed. Each appears and disappears by a rename.
NEW, GONE = ".new", ".gone"

# Up to this many bytes, the slug of a name is the name in hexadecimal. For a longer name it is a hash.
_PLAIN_SLUG = 100

# Separates a record from its signature, which covers everything before this.
_SIGNATURE = b',"signature":"'

# A cell can make any number of directories. At most this many kernels are reported as lost, and warned about.
_MOST_REWRITTEN = 100
_MOST_WARNINGS = 10


def slug_of(name: str) -> str:
    """Returns the file name that stands for a name."""
    raw = name.encode("utf-8", "surrogatepass")
    if len(raw) <= _PLAIN_SLUG:
        return "n" + raw.hex()
    import hashlib

    return "h" + hashlib.sha256(raw).hexdigest()


class Records:
    """The records in an open runtime directory, signed with the secret of its home.

    `slugs` is the caller's cache of the slugs of known kernels. The names of a kernel never change.
    """

    __slots__ = ("_runtime", "_secret", "_slugs")

    def __init__(self, runtime: Place, secret: bytes, slugs: dict[str, frozenset[str]]) -> None:
        self._runtime = runtime
        self._secret = secret
        self._slugs = slugs

    def ids(self) -> list[str]:
        return [entry for entry in self._runtime.listdir() if entry in self._slugs or is_kernel_id(entry)]

    def get(self, kernel_id: str) -> KernelRecord | None:
        """Returns the record of an id, or None; warns if there is a file that is not a valid record."""
        record, damage = self._look(kernel_id)
        if not is_kernel_id(kernel_id) or (record is not None and not is_rewritten(record)):
            return record
        for slug, copy in self._copies():
            if copy.kernel_id == kernel_id:
                return self._restore(copy, slug)
        self._warn(kernel_id, damage)
        return record

    def find(self, name: str, *, thorough: bool = True) -> KernelRecord | None:
        """Returns the record for a name or session name. Unless `thorough`, only the file of that name is read."""
        copy = self._read_copy(slug_of(name))
        if copy is not None:
            record, _ = self._look(copy.kernel_id)
            if record is None or is_rewritten(record):
                record = self._restore(copy, slug_of(name))
            if record is not None and name in record.names:
                return record
        if not thorough or self._is_free(name):
            return None
        return next((record for record in self.scan() if name in record.names), None)

    def _is_free(self, name: str) -> bool:
        """Tells whether certainly no kernel has a name, by reading only records that are new.

        Copies say nothing more: a kernel without a directory is gone, and one without a sound record is not certain.
        """
        return self.learn_slugs() and slug_of(name) not in chain.from_iterable(list(self._slugs.values()))

    def namesakes(self, record: KernelRecord) -> list[KernelRecord]:
        """Returns the other records that have a name of this one."""
        self.learn_slugs()
        names = set(map(slug_of, record.names))
        others = [each for each, slugs in list(self._slugs.items()) if each != record.kernel_id and slugs & names]
        return [found for other in others if (found := self.get_sound(other)) is not None]

    def learn_slugs(self) -> bool:
        """Learns the slugs of kernels that were not known; returns whether all are known now."""
        known = self._slugs
        before = set(known)
        entries = set(self._runtime.listdir())
        sound = True
        for kernel_id in filter(is_kernel_id, entries - before):
            record = self.get_sound(kernel_id)
            if record is None:
                sound = False
            else:
                known[kernel_id] = frozenset(map(slug_of, record.names))
        for kernel_id in before - entries:  # not those that another thread has learned since
            known.pop(kernel_id, None)
        return sound

    def scan(self) -> list[KernelRecord]:
        """Returns every record, oldest first; those that were rewritten come last."""
        found: dict[str, KernelRecord] = {}
        rewritten: dict[str, KernelRecord] = {}
        damages: dict[str, str] = {}
        for kernel_id in self.ids():
            record, damages[kernel_id] = self._look(kernel_id)
            if record is not None and not is_rewritten(record):
                found[kernel_id] = record
            elif record is not None and len(rewritten) < _MOST_REWRITTEN:
                rewritten[kernel_id] = record
        leading = {slug_of(name) for record in found.values() for name in record.names}
        for slug, copy in self._copies(besides=leading):
            if copy.kernel_id not in found and (record := self._restore(copy, slug)) is not None:
                found[record.kernel_id] = record
        self._warn_of_all({kernel_id: damage for kernel_id, damage in damages.items() if kernel_id not in found})
        found = {**rewritten, **found}
        return sorted(found.values(), key=lambda record: (is_rewritten(record), record.created_at, record.kernel_id))

    def get_sound(self, kernel_id: str) -> KernelRecord | None:
        """Returns the record in a kernel's directory if its signature is valid; nothing is restored."""
        record, _ = self._look(kernel_id)
        return None if record is None or is_rewritten(record) else record

    def write_first(self, record: KernelRecord, directory: str) -> None:
        """Writes the record of a kernel that has no process yet, and so needs no copies."""
        with self._runtime.enter(directory) as place:
            place.replace(RECORD, self._dump(record))

    def write(self, record: KernelRecord) -> None:
        """Writes a record into the directory of its kernel, and its copies."""
        data = self._dump(record)
        with self._runtime.enter(record.kernel_id) as place:
            place.replace(RECORD, data)
        with self._runtime.enter(NAMES) as names:
            for slug in map(slug_of, record.names):
                try:
                    names.replace(slug, data)
                except IsADirectoryError:
                    names.remove_tree(slug)
                    names.replace(slug, data)

    def write_copies(self) -> None:
        """Writes the copies of every record, because the directory of names was lost."""
        for record in self.scan():
            if not is_rewritten(record):
                self.write(record)

    def forget_names(self, record: KernelRecord) -> None:
        """Removes the copies of a record; a name that leads to another kernel stays."""
        for slug in map(slug_of, record.names):
            copy = self._read_copy(slug)
            if copy is not None and copy.kernel_id == record.kernel_id:
                with suppress(OSError), self._runtime.enter(NAMES) as names:
                    names.remove(slug)

    def leads_nowhere(self, slug: str) -> bool:
        """Tells whether the file of a name is not the copy of an existing record."""
        copy = self._read_copy(slug)
        if copy is None:
            return True
        record, _ = self._look(copy.kernel_id)
        return record is None or slug not in map(slug_of, record.names)

    def _read(self, kernel_id: str) -> KernelRecord:
        """Reads the record in a kernel's directory; raises OSError or ValueError if there is no valid one."""
        if not is_kernel_id(kernel_id):
            raise FileNotFoundError(kernel_id)
        with self._runtime.enter(kernel_id) as place:
            data = place.read(RECORD, MAX_RECORD)
        record = _parse(data)
        if record.kernel_id != kernel_id:
            raise ValueError("it is about another kernel")
        return self._located(record if is_signed(data, self._secret) else mark_rewritten(record))

    def _look(self, kernel_id: str) -> tuple[KernelRecord | None, str]:
        """Returns the record in a kernel's directory, or what is wrong with it."""
        try:
            return self._read(kernel_id), ""
        except (FileNotFoundError, NotADirectoryError):
            return None, ""
        except (StoreFailed, PermissionError, ValueError, RecursionError, MemoryError) as exc:
            return None, str(exc)
        except OSError as exc:  # too many open files, or a failing disk: nothing is known about the kernel
            raise StoreFailed.because(exc, self._runtime.path, "read") from exc

    def _copies(self, *, besides: frozenset[str] | set[str] = frozenset()) -> Iterator[tuple[str, KernelRecord]]:
        """Yields the copies by their slugs, without the slugs in `besides`."""
        for slug in set(self._slugs_taken()) - besides:
            if not slug.endswith(UNFINISHED):
                copy = self._read_copy(slug)
                if copy is not None:
                    yield slug, copy

    def _slugs_taken(self) -> list[str]:
        try:
            with self._runtime.enter(NAMES) as names:
                return names.listdir()
        except (FileNotFoundError, NotADirectoryError, StoreFailed, PermissionError):
            return []

    def _read_copy(self, slug: str) -> KernelRecord | None:
        """Returns the copy in the file of a slug, if it is signed and has a name of this slug."""
        try:
            with self._runtime.enter(NAMES) as names:
                data = names.read(slug, MAX_RECORD)
            copy = _parse(data) if is_signed(data, self._secret) else None
        except (FileNotFoundError, NotADirectoryError, StoreFailed, PermissionError):
            return None
        except (ValueError, RecursionError, MemoryError):
            return None
        except OSError as exc:
            raise StoreFailed.because(exc, self._runtime.path, "read") from exc
        return self._located(copy) if copy is not None and slug in map(slug_of, copy.names) else None

    def _restore(self, copy: KernelRecord, slug: str) -> KernelRecord | None:
        """Restores a lost record from a copy, and returns it.

        Returns None if the kernel is being made or was removed. A removal renames the directory, then deletes the
        names, then the files.
        """
        if copy.pid is None:
            return None
        try:
            with self._runtime.enter(copy.kernel_id) as place:
                place.replace(RECORD, self._dump(copy))
        except (FileNotFoundError, NotADirectoryError):
            if self._runtime.exists(copy.kernel_id + GONE) or self._read_copy(slug) is None:
                return None
        except OSError:
            pass  # the directory cannot be used; the engine decides what that means for the kernel
        return copy

    def _warn_of_all(self, damages: dict[str, str]) -> None:
        damaged = [kernel_id for kernel_id, damage in damages.items() if damage]
        for kernel_id in damaged[:_MOST_WARNINGS]:
            self._warn(kernel_id, damages[kernel_id])
        if (more := len(damaged) - _MOST_WARNINGS) > 0:
            path = self._runtime.path
            warnings.warn(f"{more} more records in {path!r} are ignored; `kernelbox wipe` removes them", stacklevel=1)

    def _warn(self, kernel_id: str, damage: str) -> None:
        if damage:
            path = self._runtime.path_of(f"{kernel_id}/{RECORD}")
            warnings.warn(f"{path!r} is ignored, because it is not a valid record: {damage}", stacklevel=1)

    def _located(self, record: KernelRecord) -> KernelRecord:
        """Corrects the path of a kernel's files, since the home may have been moved."""
        entrance = record.connection_file.rpartition("/")[2]
        record.connection_file = f"{self._runtime.path}/{record.kernel_id}/{entrance}"
        if record.sandbox is not None:
            from kernelbox.base._cell_places import note_places  # few kernels have a sandbox

            note_places(record.writable, [record.python_prefix] if record.python_prefix else [])
        return record

    def _dump(self, record: KernelRecord) -> bytes:
        """Returns the bytes of a record, with causes cut to the length that can be read again."""
        data = record.to_dict()
        for field in ("death", "lost"):
            if data[field] is not None and len(data[field]) > MAX_CAUSE:
                data[field] = data[field][: MAX_CAUSE - 1] + "…"
        dumped = signed(data, self._secret)
        assert len(dumped) <= MAX_RECORD, "the limits of the fields add up to more than the limit of a record"
        return dumped


def signed(fields: dict[str, Any], secret: bytes) -> bytes:
    """Returns the bytes of a record with its signature at the end."""
    text = encode_json(fields, ascii_only=True).encode()[:-1]
    return text + _SIGNATURE + _sign(text, secret) + b'"}'


def is_signed(data: bytes, secret: bytes) -> bool:
    """Tells whether the bytes of a record have a valid signature."""
    text, _, rest = data.rpartition(_SIGNATURE)
    return rest == _sign(text, secret) + b'"}'


def _sign(text: bytes, secret: bytes) -> bytes:
    return sign(text, secret, b"kernelbox record").encode()


def _parse(data: bytes) -> KernelRecord:
    record = KernelRecord.from_dict(load(data))
    if not is_kernel_id(record.kernel_id):
        raise ValueError("its kernel_id is not valid")
    if not record.name:
        raise ValueError("its name is missing")
    return record

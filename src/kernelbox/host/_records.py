"""The records in a runtime directory: one in each kernel's own directory, and a copy of it under each of its names.

The one in the directory counts. A copy leads to it, and stands in for it when it is lost: a kernel whose record was
deleted or damaged is still found, so that no second one is opened under its name. Both are files of the user, which
anything may have rewritten: a copy counts only under a name that it has, and only if no sound record says otherwise.
"""

from __future__ import annotations

import contextlib
import json
import warnings

from kernelbox.base._errors import StoreFailed
from kernelbox.host._place import UNFINISHED
from kernelbox.host._record import MAX_CAUSE, MAX_RECORD, KernelRecord
from kernelbox.wire._layout import NAMES, RECORD, is_kernel_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.host._place import Place

# How the names of directories end that are being made or removed: each appears and disappears by a rename.
NEW, GONE = ".new", ".gone"

# A name's bytes in hexadecimal are its slug, up to this many; a longer name's slug is a hash.
_PLAIN_SLUG = 100


def slug_of(name: str) -> str:
    """Returns what a name is called in the file system."""
    raw = name.encode("utf-8", "surrogatepass")
    if len(raw) <= _PLAIN_SLUG:
        return "n" + raw.hex()
    import hashlib

    return "h" + hashlib.sha256(raw).hexdigest()


def ids(runtime: Place) -> list[str]:
    """Returns the ids that there are directories for."""
    return [entry for entry in runtime.listdir() if is_kernel_id(entry)]


def get(runtime: Place, kernel_id: str) -> KernelRecord | None:
    """Returns the record of an id; None if there is none, with a warning if what is there cannot be used as one."""
    record, damage = _look(runtime, kernel_id)
    if record is not None or not is_kernel_id(kernel_id):
        return record
    for slug, copy in _copies(runtime):
        if copy.kernel_id == kernel_id:
            return _restore(runtime, copy, slug)
    _warn(runtime, kernel_id, damage)
    return None


def find(runtime: Place, name: str, *, thorough: bool = True) -> KernelRecord | None:
    """Returns the record behind a name or session name; if it is not `thorough` only where the name leads."""
    copy = _read_copy(runtime, slug_of(name))
    if copy is not None:
        record, _ = _look(runtime, copy.kernel_id)
        if record is not None and name in record.names:
            return record
    return next((record for record in scan(runtime) if name in record.names), None) if thorough else None


def scan(runtime: Place) -> list[KernelRecord]:
    """Returns every record, oldest first."""
    looks = {kernel_id: _look(runtime, kernel_id) for kernel_id in ids(runtime)}
    found = {kernel_id: record for kernel_id, (record, _) in looks.items() if record is not None}
    leading = {slug_of(name) for record in found.values() for name in record.names}
    for slug, copy in _copies(runtime, besides=leading):
        if copy.kernel_id not in found and (record := _restore(runtime, copy, slug)) is not None:
            found[record.kernel_id] = record
    for kernel_id, (_, damage) in looks.items():
        if kernel_id not in found:
            _warn(runtime, kernel_id, damage)
    return sorted(found.values(), key=lambda record: (record.created_at, record.kernel_id))


def read(runtime: Place, kernel_id: str) -> KernelRecord:
    """Reads the record in a kernel's directory; raises OSError or ValueError if there is none that can be used."""
    if not is_kernel_id(kernel_id):
        raise FileNotFoundError(kernel_id)
    with runtime.enter(kernel_id) as place:
        record = _parse(place.read(RECORD, MAX_RECORD))
    if record.kernel_id != kernel_id:
        raise ValueError("it is about another kernel")
    return _located(record, runtime)


def write(runtime: Place, record: KernelRecord, directory: str) -> None:
    """Writes a record into a directory of the runtime directory, and its copies."""
    data = _dump(record)
    with runtime.enter(directory) as place:
        place.replace(RECORD, data)
    with runtime.enter(NAMES) as names:
        for slug in map(slug_of, record.names):
            try:
                names.replace(slug, data)
            except IsADirectoryError:
                names.remove_tree(slug)
                names.replace(slug, data)


def forget_names(runtime: Place, record: KernelRecord) -> None:
    """Removes the copies of a record; a name that leads to another kernel stays."""
    for slug in map(slug_of, record.names):
        copy = _read_copy(runtime, slug)
        if copy is not None and copy.kernel_id == record.kernel_id:
            with contextlib.suppress(OSError), runtime.enter(NAMES) as names:
                names.remove(slug)


def leads_nowhere(runtime: Place, slug: str) -> bool:
    """Tells whether what is at the place of a name is not the copy of a record that there is."""
    copy = _read_copy(runtime, slug)
    if copy is None:
        return True
    record, _ = _look(runtime, copy.kernel_id)
    return record is None or slug not in map(slug_of, record.names)


def is_usable(runtime: Place, kernel_id: str) -> bool:
    """Tells whether a kernel's directory has a record that can be used."""
    try:
        read(runtime, kernel_id)
    except (OSError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _look(runtime: Place, kernel_id: str) -> tuple[KernelRecord | None, str]:
    """Returns the record in a kernel's directory, or what is wrong with the one that is there."""
    try:
        return read(runtime, kernel_id), ""
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except (StoreFailed, PermissionError, ValueError, RecursionError, MemoryError) as exc:
        return None, str(exc)
    except OSError as exc:  # we have too much open, or the disk fails: nothing is known of the kernel
        raise StoreFailed.because(exc, runtime.path, "read") from exc


def _copies(runtime: Place, *, besides: set[str] | None = None) -> Iterator[tuple[str, KernelRecord]]:
    """Yields the copies under the slugs of names, but for those slugs that are known to lead to their record."""
    try:
        with runtime.enter(NAMES) as names:
            slugs = names.listdir()
    except (FileNotFoundError, NotADirectoryError, StoreFailed, PermissionError):
        return
    for slug in slugs:
        if not slug.endswith(UNFINISHED) and not (besides and slug in besides):
            copy = _read_copy(runtime, slug)
            if copy is not None:
                yield slug, copy


def _read_copy(runtime: Place, slug: str) -> KernelRecord | None:
    """Returns the copy of a record under the slug of a name that it has."""
    try:
        with runtime.enter(NAMES) as names:
            copy = _parse(names.read(slug, MAX_RECORD))
    except (FileNotFoundError, NotADirectoryError, StoreFailed, PermissionError):
        return None
    except (ValueError, RecursionError, MemoryError):
        return None
    except OSError as exc:
        raise StoreFailed.because(exc, runtime.path, "read") from exc
    return _located(copy, runtime) if slug in map(slug_of, copy.names) else None


def _restore(runtime: Place, copy: KernelRecord, slug: str) -> KernelRecord | None:
    """Returns what a copy says of a kernel whose record is lost, and puts it back into the kernel's directory.

    None if there is no kernel to lose: it is being made, or has been removed. Who removes one renames its directory,
    removes its names, and then its files.
    """
    if copy.pid is None:
        return None
    try:
        with runtime.enter(copy.kernel_id) as place:
            place.replace(RECORD, _dump(copy))
    except (FileNotFoundError, NotADirectoryError):
        if runtime.exists(copy.kernel_id + GONE) or _read_copy(runtime, slug) is None:
            return None
    except OSError:
        pass  # the directory cannot be used; what that means for the kernel its engine knows
    return copy


def _warn(runtime: Place, kernel_id: str, damage: str) -> None:
    if damage:
        path = runtime.path_of(f"{kernel_id}/{RECORD}")
        warnings.warn(f"{path!r} is passed over, because it cannot be used as a record: {damage}", stacklevel=1)


def _located(record: KernelRecord, runtime: Place) -> KernelRecord:
    """Says where the files of a kernel are now: the home may have been moved."""
    record.connection_file = f"{runtime.path}/{record.kernel_id}/{record.connection_file.rpartition('/')[2]}"
    return record


def _parse(data: bytes) -> KernelRecord:
    record = KernelRecord.from_dict(json.loads(data.decode()))
    if not is_kernel_id(record.kernel_id):
        raise ValueError("its kernel_id makes no sense")
    if not record.name:
        raise ValueError("its name is missing")
    return record


def _dump(record: KernelRecord) -> bytes:
    """Returns the bytes of a record, in which no cause is longer than one that can be read again."""
    data = record.to_dict()
    for field in ("death", "lost"):
        if data[field] is not None and len(data[field]) > MAX_CAUSE:
            data[field] = data[field][: MAX_CAUSE - 1] + "…"
    dumped = json.dumps(data, separators=(",", ":")).encode()
    assert len(dumped) <= MAX_RECORD, "the bounds of the fields add up to more than a record may have"
    return dumped

"""The store of records, which any number of processes use at once.

The runtime directory is the truth:

    runtime/<kernel id>/connection.json    the record        runtime/names/<slug>   a copy, under each name
    runtime/<kernel id>/socket, state, log, death.json       runtime/locks/<slug>   held while a name changes

A kernel's directory appears and disappears as a whole, by a rename. So a crash between any two steps leaves either a
kernel or rubbish that cannot be mistaken for one: `<kernel id>.new`, `<kernel id>.gone`.

A name becomes a slug, never a path. Every directory is opened relative to its parent's descriptor (`Place`).
"""

from __future__ import annotations

import os
from _weakref import ref  # `weakref` takes longer to import

from kernelbox.base._config import stores
from kernelbox.base._errors import EXHAUSTED, StoreFailed
from kernelbox.base._light_stdlib import contextmanager, suppress
from kernelbox.host.files._home import Home, Inside
from kernelbox.host.files._pinned import Pinned
from kernelbox.host.store._deferral import Deferral
from kernelbox.host.store._kernel_directory import KernelDirectory
from kernelbox.host.store._record_files import GONE, NEW, Records, slug_of
from kernelbox.wire._layout import LOCKS, NAMES, RECORD, is_kernel_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import TypeVar

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.host.files._home import Trusted
    from kernelbox.host.files._place import Place
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.host.store._registry import Listed, Registry

    T = TypeVar("T")

# Held while the registry is rewritten. It is not a slug: those are longer and begin with n or h.
_REGISTRY_LOCK = "registry"

# How often to try again if another process removes the directories meanwhile.
_ATTEMPTS = 3


def open_store(config: KernelBoxConfig) -> Store:
    """Returns the store of a configuration; nothing is opened yet."""
    if config.store_backend == "memory":
        from kernelbox.host.files._scratch import Scratch

        scratch = Scratch()
        return Store(Inside(scratch, ("runtime",)), os.path.join(scratch.path, "runtime"), scratch.path, None)
    home = Home(config.home, config.key_file)
    steps = home.steps_to(config.runtime_dir)

    def registry() -> Registry:
        from kernelbox.host.store._registry import Registry  # a cell in a live kernel does not look at it

        return Registry(config.registry_path, home)

    if steps:
        return Store(Inside(home, steps), config.runtime_dir, config.home, registry)
    root = Home(config.runtime_dir, config.key_file, private=True, setting="KERNELBOX_RUNTIME_DIR")
    return Store(root, config.runtime_dir, config.runtime_dir, registry)


class Store:
    """The records in the runtime directory, and the registry that mirrors them; the memory backend has no registry."""

    def __init__(self, root: Trusted, runtime_dir: str, home: str, registry: Callable[[], Registry] | None) -> None:
        self.runtime_dir = runtime_dir
        self._root = Pinned(root, runtime_dir, home)
        self._make_registry = registry
        self._made_registry: Registry | None = None
        self._slugs: dict[str, frozenset[str]] = {}
        # Entries that the registry does not have yet. The first thread that gets its lock writes all of them.
        self._unlisted: dict[str, Listed] = {}
        self._listing = Deferral(self._list_soon)
        stores.append(ref(self, stores.remove))

    @property
    def _registry(self) -> Registry | None:
        if self._made_registry is None and self._make_registry is not None:
            self._made_registry = self._make_registry()
        return self._made_registry

    def directory(self, kernel_id: str) -> KernelDirectory:
        """Returns the directory of a kernel; nothing is opened yet."""
        return KernelDirectory(self._root, self.runtime_dir, kernel_id)

    def runtime(self) -> Place:
        """Opens the runtime directory; raises FileNotFoundError if there is none, StoreFailed if it is not trusted."""
        return self._root.open()

    def secret(self) -> bytes:
        """Returns the key that hosts sign with."""
        return self._root.secret()

    def enter(self, name: str) -> Place:
        """Opens a directory in the runtime directory; raises as `runtime` does."""
        with self.runtime() as runtime:
            return runtime.enter(name)

    def locking(self, *names: str) -> AbstractContextManager[None]:
        """Holds the locks of names, so that one caller at a time opens, restarts or destroys their kernels."""
        return self._locked(*map(slug_of, names))

    def is_changing(self, name: str) -> bool:
        """Tells whether a process is opening, restarting or destroying the kernel of a name."""
        from kernelbox.host.files._lock import is_locked

        try:
            with self.enter(LOCKS) as locks:
                return is_locked(locks, slug_of(name))
        except FileNotFoundError:
            return False

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, kernel_id: str) -> KernelRecord | None:
        return self._look(lambda records: records.get(kernel_id), None)

    def find(self, name: str, *, thorough: bool = True) -> KernelRecord | None:
        """Returns the record for a name or session name. Unless `thorough`, only the file of that name is read."""
        return self._look(lambda records: records.find(name, thorough=thorough), None)

    def read_new(self) -> None:
        """Reads the records that this process has not read yet."""
        self._look(lambda records: records.learn_slugs(), None)

    def namesakes(self, record: KernelRecord) -> list[KernelRecord]:
        """Returns the other records that have a name of this one: while one takes another's place there are two."""
        return self._look(lambda records: records.namesakes(record), [])

    def find_deleted(self, name: str) -> KernelRecord | None:
        """Returns the registry's record of a kernel of this name if all of the kernel's files were deleted."""
        record = None if self._registry is None else self._registry.find(name, self.secret)
        if record is None or not is_kernel_id(record.kernel_id) or self.get(record.kernel_id) is not None:
            return None
        return record

    def all(self) -> list[KernelRecord]:
        """Returns every record, oldest first; removes directories that a crash left half made or half removed."""
        self._repair_registry()
        try:
            with _translated(self.runtime_dir, "read"), self.runtime() as runtime:
                runtime.remove_rubbish(NEW, GONE)
                with suppress(FileNotFoundError, NotADirectoryError, StoreFailed, PermissionError):
                    with runtime.enter(NAMES) as names:
                        names.remove_rubbish()
                return self._records(runtime).scan()
        except FileNotFoundError:
            return []

    def count(self) -> int:
        """Returns how many kernels there are, by their directories; no record is read."""
        return self._look(lambda records: len(records.ids()), 0)

    def _look(self, look: Callable[[Records], T], missing: T) -> T:
        """Returns what a function finds in the records; `missing` if there is no runtime directory."""
        try:
            with _translated(self.runtime_dir, "read"), self.runtime() as runtime:
                return look(self._records(runtime))
        except FileNotFoundError:
            return missing

    # -- writing ---------------------------------------------------------------------------------------------

    def add(self, record: KernelRecord) -> None:
        """Makes the directory of a new kernel, with its record."""
        if self._registry is not None:
            self._registry.require_usable()
        self._place_new(record, lambda runtime: None)

    def save(self, record: KernelRecord) -> None:
        with _translated(self.directory(record.kernel_id).path_of(RECORD)), self.runtime() as runtime:
            self._records(runtime).write(record)

    def remake(self, record: KernelRecord) -> None:
        """Keeps a record in a new directory, because its own is lost or cannot be used."""
        from kernelbox.host.store._cell_files import carry_over

        self._place_new(record, lambda runtime: self._set_aside(runtime, record.kernel_id))
        with suppress(OSError), self.runtime() as runtime:
            with suppress(OSError), runtime.enter(record.kernel_id + GONE) as gone:
                with runtime.enter(record.kernel_id) as fresh:
                    carry_over(gone, fresh)
            runtime.remove_tree(record.kernel_id + GONE)

    def carry_cells(self, old: KernelRecord, new: KernelRecord) -> None:
        """Copies the log of a kernel's cells to the directory of another."""
        from kernelbox.host.store._cell_files import carry_over

        with suppress(OSError):
            with self.enter(old.kernel_id) as source, self.enter(new.kernel_id) as target:
                carry_over(source, target)

    def _place_new(self, record: KernelRecord, make_room: Callable[[Place], None]) -> None:
        """Makes the directory of a kernel and, when it has its record, makes room for it and gives it its name."""
        fresh = record.kernel_id + NEW
        with _translated(self.directory(record.kernel_id).path), self._make() as runtime:
            try:
                runtime.enter(fresh, make=True).close()
                self._records(runtime).write_first(record, fresh)
                make_room(runtime)
                runtime.rename(fresh, record.kernel_id)
            except BaseException:
                runtime.remove_tree(fresh)
                raise

    def publish(self, record: KernelRecord) -> None:
        """Writes a record that has changed, and updates the registry."""
        self.save(record)
        self.register(record)

    def publish_all(self) -> None:
        """Brings the registry up to date now, however large it is."""
        self.register(None, at_once=True)

    def remove(self, record: KernelRecord, *, publish: bool = True) -> None:
        """Forgets a record and deletes its directory."""
        with _translated(self.directory(record.kernel_id).path), suppress(FileNotFoundError):
            with self.runtime() as runtime:
                self._set_aside(runtime, record.kernel_id)
                self._records(runtime).forget_names(record)
                runtime.remove_tree(record.kernel_id + GONE)
        if publish:
            self.register(None)

    def _set_aside(self, runtime: Place, kernel_id: str) -> None:
        gone = kernel_id + GONE
        if runtime.exists(gone):
            runtime.remove_tree(gone)  # rename(2) replaces no directory that holds anything
        with suppress(FileNotFoundError):
            runtime.rename(kernel_id, gone)

    def sweep(self) -> None:
        """Deletes what crashes left behind: directories half made or half removed, names that lead nowhere, locks."""
        from kernelbox.host.files._lock import remove_left_behind

        with suppress(OSError), self.runtime() as runtime:
            for entry in runtime.listdir():
                kernel_id, dot, suffix = entry.partition(".")
                if not is_kernel_id(kernel_id) or (not dot and self._records(runtime).get_sound(kernel_id)):
                    continue
                # A kernel's directory appears with its record. When the directory goes, the keeper ends the process.
                if not dot or f".{suffix}" == GONE or runtime.is_rubbish(entry):
                    runtime.remove_tree(entry)
            with runtime.enter(NAMES) as names:
                for slug in names.listdir():
                    if self._records(runtime).leads_nowhere(slug) and names.is_rubbish(slug):
                        names.remove_tree(slug)
            with runtime.enter(LOCKS) as locks:
                remove_left_behind(locks, self.secret())

    def _records(self, runtime: Place) -> Records:
        return Records(runtime, self.secret(), self._slugs)

    def _make(self) -> Place:
        """Opens the runtime directory, and makes it and the directories in it where they are missing."""
        runtime = self._root.make()
        try:
            with _translated(self.runtime_dir):
                if not (runtime.exists(NAMES) and runtime.exists(LOCKS)):
                    runtime.enter(LOCKS, make=True).close()
                    runtime.enter(NAMES, make=True).close()
                    self._records(runtime).write_copies()
        except BaseException:
            runtime.close()
            raise
        return runtime

    @contextmanager
    def _locked(self, *lock_names: str) -> Iterator[None]:
        from contextlib import ExitStack  # a cell in a live kernel needs no lock

        from kernelbox.host.files._lock import locked

        with ExitStack() as stack:
            for attempt in range(_ATTEMPTS):
                try:
                    with self._make() as runtime:
                        locks = stack.enter_context(runtime.enter(LOCKS))
                    for name in sorted(set(lock_names)):  # always in one order: no deadlock
                        stack.enter_context(locked(locks, name, self.secret()))
                    break
                except FileNotFoundError as exc:  # a directory has vanished since
                    stack.close()
                    if attempt == _ATTEMPTS - 1:
                        raise StoreFailed.because(exc, self.runtime_dir) from exc
                except OSError as exc:
                    if exc.errno in EXHAUSTED:
                        raise StoreFailed.because(exc, self.runtime_dir, "lock") from exc
                    raise
            yield

    # -- the registry ----------------------------------------------------------------------------------------

    def register(self, changed: KernelRecord | None, *, at_once: bool = False) -> None:
        """Brings the registry up to date; only `changed` is known to differ. A large one follows a moment later."""
        if self._registry is None or not (changed or self._registry.exists() or self.count()):
            return
        entry = None if changed is None else self._shown(changed)
        if changed is not None and entry is not None:
            self._unlisted[changed.kernel_id] = entry
        if self._registry.is_large and not at_once:
            self._listing.ask()
            return
        with _translated(self._registry.path), self._locked(_REGISTRY_LOCK), self.runtime() as runtime:
            if changed is not None and self._unlisted.get(changed.kernel_id) is not entry:
                return  # another thread has written it, or a newer one
            known = dict(self._unlisted)
            ids = self._records(runtime).ids()
            self._registry.update(ids, known, lambda kernel_id: self._entry(runtime, kernel_id))
            for kernel_id in [each for each, written in known.items() if self._unlisted.get(each) is written]:
                del self._unlisted[kernel_id]

    def _list_soon(self) -> None:
        """Brings the registry up to date, unless its home has been removed meanwhile."""
        with suppress(StoreFailed, OSError):  # the next change writes it
            if self._registry is not None and self._registry.exists():
                self.publish_all()

    def _entry(self, runtime: Place, kernel_id: str) -> Listed | None:
        record = self._records(runtime).get_sound(kernel_id)
        return None if record is None else self._shown(record)

    def _shown(self, record: KernelRecord) -> Listed:
        from kernelbox.host.store._registry import Listed, signed_entry

        fields = record.to_dict()
        return Listed.of(record.kernel_id, fields, signed_entry(fields, self.secret()))

    def _repair_registry(self) -> None:
        """Rebuilds the registry if it is damaged, or lost while there are kernels."""
        if self._registry is None:
            return
        self._registry.require_usable()
        if not self._registry.is_sound() and (self._registry.exists() or self.count()):
            with suppress(StoreFailed):  # kernels can be listed without it
                self.publish_all()


@contextmanager
def _translated(path: str, doing: str = "write") -> Iterator[None]:
    try:
        yield
    except StoreFailed:
        raise
    except FileNotFoundError as exc:
        if doing == "read":
            raise
        raise StoreFailed.because(exc, path, doing) from exc
    except OSError as exc:
        raise StoreFailed.because(exc, path, doing) from exc

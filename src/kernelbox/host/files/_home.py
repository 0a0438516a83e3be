"""A directory that is used only if this user's kernelbox made it on this machine.

The default home is `.kernelbox` in the working directory, and a working directory can be a stranger's repository. The
user owns a directory that came with a clone just as one that kernelbox made. So a home carries a seal: a keyed hash
over what cannot be copied with it (the machine, the user, the inode of the directory). The key is kept elsewhere.
Without a valid seal, nothing in the directory is opened, made, renamed, removed or changed.

    missing or empty     → made and sealed before the first write
    has a valid seal     → used; the seal is in two files, and a lost one is restored from the other
    made by 0.1          → moved aside unopened, with a warning; then missing (host/files/_old_home.py)
    a copy of our own    → the same, if it is called `.kernelbox`; its mark shows that the user made it on this machine
    anything else        → StoreFailed
"""

from __future__ import annotations

import os
import time

from kernelbox.base._errors import EXHAUSTED, StoreFailed
from kernelbox.base._light_stdlib import suppress
from kernelbox.host.files._key import is_missing, key_path, read_key, sign
from kernelbox.host.files._known_homes import remember_home
from kernelbox.host.files._old_home import move_copy_aside
from kernelbox.host.files._place import UNFINISHED, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class HomeRoot(Protocol):
        """A way to a directory."""

        def open(self) -> Place:
            """Opens the directory; raises FileNotFoundError if it is missing."""

        def make(self) -> Place:
            """Opens the directory, and makes it if it is missing."""

    class Trusted(HomeRoot, Protocol):
        """A way to a directory that belongs to hosts, and to the secret that they sign their files with."""

        def secret(self) -> bytes:
            """Returns the secret, which no file in the directory reveals."""


SEAL = "seal"

# Holds the seal too, as a comment: `rm -r .kernelbox/*` does not delete it.
_IGNORE = ".gitignore"

# The hash begins with this. A seal with another meaning gets another version.
_VERSION = b"kernelbox home 1"

# A seal is 64 hexadecimal digits and a line end.
_LONGEST_SEAL = 100

# What the mark is a hash of.
_COPY = b"kernelbox home of this user"

# An ignore file has three short lines.
_LONGEST_IGNORE = 300

# A process that makes a home writes its seal in less than this, even on a busy machine.
_SEALING_PATIENCE = 1.0

# How often to try again if another process seals or removes the directory meanwhile.
_ATTEMPTS = 10

# The seals found valid, by key file, device, inode and time of change. A verified home costs one stat per use.
_fitting: set[tuple[str, int, int, int]] = set()

# The paths at which this process has used a home.
_used: set[str] = set()


class Home:
    """A directory with a seal. `setting` is the variable that chooses another one, for the messages of StoreFailed."""

    def __init__(
        self, path: str, key_file: str = "", *, private: bool = False, setting: str = "KERNELBOX_HOME"
    ) -> None:
        self.path = path
        self._key_file = key_file
        self._private = private
        self._setting = setting
        self._patience = _SEALING_PATIENCE

    def steps_to(self, path: str) -> tuple[str, ...] | None:
        """Returns the names that lead from the home to a path, () for the home itself; None if it is elsewhere."""
        if path == self.path:
            return ()
        inside = self.path.rstrip("/") + "/"
        return tuple(path.removeprefix(inside).split("/")) if path.startswith(inside) else None

    def secret(self) -> bytes:
        """Returns the user's key."""
        return read_key(self._key_file).secret

    def open(self) -> Place:
        """Opens the directory; raises FileNotFoundError if it is missing or empty, StoreFailed if it is not trusted."""
        place = self._open()
        try:
            if not self._is_sealed(place):
                raise FileNotFoundError(f"{self.path!r} is empty")
        except BaseException as exc:
            place.close()
            if isinstance(exc, OSError) and exc.errno in EXHAUSTED:
                raise StoreFailed.because(exc, self.path, "read") from exc
            raise
        return place

    def make(self) -> Place:
        """Opens the directory, and makes and seals it if it is missing or empty."""
        try:
            for _ in range(_ATTEMPTS):
                with suppress(FileNotFoundError):
                    return self.open()
                with suppress(FileExistsError):
                    self._make_parent()
                    os.mkdir(self.path, 0o700)
                with suppress(FileNotFoundError), self._open() as place:
                    self._seal(place)
        except StoreFailed:
            raise
        except OSError as exc:
            raise StoreFailed.because(exc, self.path) from exc
        raise StoreFailed(f"{self.path!r} is removed each time it is made; set {self._setting} to another directory")

    def _make_parent(self) -> None:
        """Makes the parent of the home. Raises StoreFailed if the home was there before, and so has been moved."""
        parent = os.path.dirname(self.path)
        if self.path in _used and not os.path.isdir(parent):
            raise StoreFailed(
                f"{parent!r} has been moved or removed, with the kernels in {self.path!r}; start a new process where "
                f"it is now, or set {self._setting} to another directory"
            )
        os.makedirs(parent, exist_ok=True)

    def _open(self) -> Place:
        try:
            return Place.open(self.path, private=self._private, setting=self._setting)
        except (FileNotFoundError, StoreFailed):
            raise
        except OSError as exc:
            raise StoreFailed.because(exc, self.path, "open") from exc

    def _seal(self, place: Place) -> None:
        """Seals an empty directory before anything else is written into it."""
        seal = self._fitting_seal(place)
        if place.add(SEAL, seal):
            place.replace(_IGNORE, _ignoring(seal) + self._mark())
            remember_home(self._key_file, self.path)

    def _is_sealed(self, place: Place) -> bool:
        """Returns True for a valid seal and False for an empty directory; raises StoreFailed for any other."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self._has_our_seal(place)
            except _MovedAside:
                raise
            except FileNotFoundError:
                names = place.listdir()
            if all(self._is_key(name) or self._is_unfinished_seal(place, name) for name in names):
                return False  # it is empty, or other processes are about to seal it
            try:
                return self._has_our_seal(place)  # the seal is written first: a home has it by now
            except FileNotFoundError:
                if self._is_sealed_twice(place):
                    return True
            is_begun = all(self._is_key(name) or _is_unfinished(name) for name in names)
            if not is_begun or time.monotonic() > deadline:
                self._patience = 0.0  # nobody is making it
                from kernelbox.host.files._old_home import move_aside  # few homes are old

                if move_aside(place):
                    raise _MovedAside(f"{self.path!r} has been moved aside")
                raise self._foreign("it has no seal")
            time.sleep(0.01)  # another process writes the seal, or a clone looks as if one did

    def _is_key(self, name: str) -> bool:
        """Tells whether a file is the key, if the user keeps it in this home. It is made before the seal."""
        directory, key = os.path.split(self._key_file)
        is_made = name.startswith(f"{key}.") and name.endswith(UNFINISHED)
        return directory == self.path and (name == key or is_made)

    def _is_unfinished_seal(self, place: Place, name: str) -> bool:
        """Tells whether a file is a valid seal that a process is about to rename, or was when it ended."""
        try:
            return _is_unfinished(name) and place.read(name, _LONGEST_SEAL) == self._fitting_seal(place)
        except FileNotFoundError:
            return True  # it has been renamed
        except OSError:
            return False

    def _is_sealed_twice(self, place: Place) -> bool:
        """Tells whether the other file has the seal, and restores the lost one from it."""
        if is_missing(self._key_file):
            return False  # without a key the seal cannot be valid, and this must not make one
        seal = self._fitting_seal(place)
        try:
            if not place.read(_IGNORE, _LONGEST_IGNORE).startswith(_ignoring(seal)):
                return False
        except (OSError, StoreFailed):
            return False
        with suppress(OSError):  # a read-only disk
            place.replace(SEAL, seal)
        return True

    def _has_our_seal(self, place: Place) -> bool:
        info = place.stat(SEAL)
        identity = (self._key_file, info.st_dev, info.st_ino, info.st_ctime_ns)
        if identity in _fitting:
            _used.add(self.path)
            return True
        if is_missing(self._key_file):
            raise StoreFailed(
                f"{self.path!r} was sealed with a key, but there is no key at {key_path(self._key_file)!r}; nothing "
                f"was made or changed: set KERNELBOX_KEY_FILE to the key of this home, or {self._advice()}"
            )
        try:
            seal = place.read(SEAL, _LONGEST_SEAL)
        except (StoreFailed, PermissionError):
            seal = None
        if seal != self._fitting_seal(place):
            if self._is_sealed_twice(place):
                return True
            if self._is_copy(place) and move_copy_aside(place):
                raise _MovedAside(f"{self.path!r} has been moved aside")
            key = read_key(self._key_file).path
            raise self._foreign(
                f"its seal does not fit the key {key!r}" if seal is not None else "its seal cannot be read"
            )
        _fitting.add(identity)
        _used.add(self.path)
        remember_home(self._key_file, self.path)
        return True

    def _mark(self) -> bytes:
        """Returns the line that tells a copy of our own home from others; it is the same in all our homes.

        It names the machine: on a disk that machines share, kernels may run in what looks like a copy from here.
        """
        return b"# " + sign(b"\0".join([_COPY, _machine_id()]), self.secret()).encode() + b"\n"

    def _is_copy(self, place: Place) -> bool:
        """Tells whether the home was made on this machine with the user's key, and copied or restored since."""
        if os.path.basename(self.path) != ".kernelbox":
            return False  # a directory that the user has chosen is the user's to move
        try:
            return place.read(_IGNORE, _LONGEST_IGNORE).endswith(self._mark())
        except (OSError, StoreFailed):
            return False

    def _fitting_seal(self, place: Place) -> bytes:
        info = os.fstat(place.fd)
        facts = [_VERSION, _machine_id(), b"%d" % os.geteuid(), b"%d" % info.st_ino]
        if os.stat("..", dir_fd=place.fd).st_dev != info.st_dev:
            facts.append(b"%d" % info.st_dev)  # the root of a disk, which has the same inode on other disks
        return sign(b"\0".join(facts), self.secret()).encode() + b"\n"

    def _foreign(self, why: str) -> StoreFailed:
        return StoreFailed(
            f"{self.path!r} was not made by this user's kernelbox on this machine: {why} (it may come from a cloned "
            "repository, a copy, another machine or an older version, or KERNELBOX_KEY_FILE has changed); it was "
            f"neither used nor changed: {self._advice()}"
        )

    def _advice(self) -> str:
        """Says what helps where the home cannot be used. Its name shows whether it can hold other work of the user."""
        is_ours = os.path.basename(self.path) == ".kernelbox"
        rest = "you do not need it" if is_ours else "only kernelbox has used it: the next call makes a new home"
        return f"set {self._setting} to another directory, or remove this one if {rest}"


class _MovedAside(FileNotFoundError):
    """The home was a copy, and is now elsewhere. A new one can be made."""


def _is_unfinished(name: str) -> bool:
    return name.startswith(SEAL) and name.endswith(UNFINISHED)


def _ignoring(seal: bytes) -> bytes:
    """Returns a file that makes git ignore the home, with the seal in it."""
    return b"*\n# " + seal


class Inside:
    """A private directory below a trusted one, whose seal covers both."""

    def __init__(self, root: Trusted, steps: tuple[str, ...]) -> None:
        self._root = root
        self._steps = steps

    def secret(self) -> bytes:
        return self._root.secret()

    def open(self) -> Place:
        return self._descend(self._root.open(), make=False)

    def make(self) -> Place:
        return self._descend(self._root.make(), make=True)

    def _descend(self, place: Place, *, make: bool) -> Place:
        for name in self._steps:
            with place:
                try:
                    inner = place.enter(name, make=make)
                except (FileNotFoundError, StoreFailed):
                    raise
                except OSError as exc:
                    raise StoreFailed.because(exc, place.path_of(name), "write" if make else "open") from exc
            place = inner
        return place


def _machine_id() -> bytes:
    """Returns the id of this machine (machine-id(5)); empty if it has none."""
    try:
        fd = os.open("/etc/machine-id", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 100).strip()
    finally:
        os.close(fd)

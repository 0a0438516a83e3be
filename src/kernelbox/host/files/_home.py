"""A directory that is used only if this user's kernelbox made it on this machine.

The default home is `.kernelbox` in the working directory, and a working directory can be a stranger's repository:
its owner does not tell a directory that came with a clone from one that we made. So a home carries a seal, a keyed
hash over what cannot be copied with it (the machine, the user, the inode of the directory), under a key that is kept
elsewhere. Without a seal that fits, nothing in the directory is opened, made, renamed, removed or changed.

    missing, or empty → made and sealed, when it is to be written to
    sealed by us      → used; the seal is in two files, and one that is lost is put back from the other
    made by 0.1       → moved aside unopened, with a warning; then missing (host/files/_old_home.py)
    anything else     → StoreFailed
"""

from __future__ import annotations

import contextlib
import os
import time

from kernelbox.base._errors import EXHAUSTED, StoreFailed
from kernelbox.host.files._key import is_missing, key_path, read_key
from kernelbox.host.files._place import UNFINISHED, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class HomeRoot(Protocol):
        """What leads to a directory that can be trusted."""

        def open(self) -> Place:
            """Opens the directory; raises FileNotFoundError if it is missing."""

        def make(self) -> Place:
            """Opens the directory, which is made if it is missing."""

    class Trusted(HomeRoot, Protocol):
        """What leads to a directory of hosts' own, and knows the secret by which hosts tell their files from others."""

        def secret(self) -> bytes:
            """Returns what no file in the directory shows."""


SEAL = "seal"

# Has the seal as well, as a comment: `rm -r .kernelbox/*` leaves it.
_IGNORE = ".gitignore"

# What the hash begins with; a seal of another meaning gets another word.
_VERSION = b"kernelbox home 1"

# A seal is 64 hexadecimal digits and a line end.
_LONGEST_SEAL = 100

# A process that makes a home writes its seal in less than this, also on a busy machine.
_SEALING_PATIENCE = 1.0

# Another process may seal the directory, or remove it, between two steps of ours; not again and again.
_ATTEMPTS = 10

# The seals that fit, by what tells a file from every other and from itself before a change: verified once, a home
# costs one stat per use.
_fitting: set[tuple[str, int, int, int]] = set()

# The paths at which this process has found a home of ours.
_used: set[str] = set()


class Home:
    """A directory with a seal. `setting` is what another one can be chosen with, for the sentences of StoreFailed."""

    def __init__(
        self, path: str, key_file: str = "", *, private: bool = False, setting: str = "KERNELBOX_HOME"
    ) -> None:
        self.path = path
        self._key_file = key_file
        self._private = private
        self._setting = setting

    def __repr__(self) -> str:
        return f"<Home {self.path!r}>"

    def steps_to(self, path: str) -> tuple[str, ...] | None:
        """Returns the names that lead from here to a path: none, if it is this one; None, if it is elsewhere."""
        if path == self.path:
            return ()
        inside = self.path.rstrip("/") + "/"
        return tuple(path.removeprefix(inside).split("/")) if path.startswith(inside) else None

    def secret(self) -> bytes:
        """Returns the user's key."""
        return read_key(self._key_file).secret

    def open(self) -> Place:
        """Opens the directory; raises FileNotFoundError if it is missing or still empty, StoreFailed if not ours."""
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
        """Opens the directory, which is made and sealed if it is missing or empty."""
        try:
            for _ in range(_ATTEMPTS):
                with contextlib.suppress(FileNotFoundError):
                    return self.open()
                with contextlib.suppress(FileExistsError):
                    self._make_parent()
                    os.mkdir(self.path, 0o700)
                with contextlib.suppress(FileNotFoundError), self._open() as place:
                    self._seal(place)
        except StoreFailed:
            raise
        except OSError as exc:
            raise StoreFailed.because(exc, self.path) from exc
        raise StoreFailed(f"{self.path!r} is removed as often as it is made; set {self._setting} to another directory")

    def _make_parent(self) -> None:
        """Makes the directory that the home is to be in, unless the home was there before: then it has been moved."""
        parent = os.path.dirname(self.path)
        if self.path in _used and not os.path.isdir(parent):
            raise StoreFailed(
                f"{parent!r} has been moved or removed, and with it the kernels in {self.path!r}; start a new process "
                f"where it is now, or set {self._setting} to another directory"
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
        """Seals an empty directory, before anything else is put into it."""
        seal = self._fitting_seal(place)
        if place.add(SEAL, seal):
            place.replace(_IGNORE, _ignoring(seal))

    def _is_sealed(self, place: Place) -> bool:
        """Tells a directory with our seal from one that is empty; raises StoreFailed for any other."""
        deadline = time.monotonic() + _SEALING_PATIENCE
        while True:
            try:
                return self._has_our_seal(place)
            except FileNotFoundError:
                names = place.listdir()
            if all(self._is_key(name) or self._is_unfinished_seal(place, name) for name in names):
                return False  # it is empty, or other processes are about to seal it
            try:
                return self._has_our_seal(place)  # the seal comes first: if this is a home it is there now
            except FileNotFoundError:
                if self._is_sealed_twice(place):
                    return True
            is_begun = all(self._is_key(name) or _is_unfinished(name) for name in names)
            if not is_begun or time.monotonic() > deadline:
                from kernelbox.host.files._old_home import move_aside  # few homes are old

                if move_aside(place):
                    raise FileNotFoundError(f"{self.path!r} has been moved aside")
                raise self._foreign("it has no seal")
            time.sleep(0.01)  # one that is being written; a clone could bring the same

    def _is_key(self, name: str) -> bool:
        """Tells whether a file is the key, which the user keeps in this home: it is there before the seal is."""
        directory, key = os.path.split(self._key_file)
        is_made = name.startswith(f"{key}.") and name.endswith(UNFINISHED)
        return directory == self.path and (name == key or is_made)

    def _is_unfinished_seal(self, place: Place, name: str) -> bool:
        """Tells whether a file is a seal of ours that a process is about to give its name, or was when it was ended."""
        try:
            return _is_unfinished(name) and place.read(name, _LONGEST_SEAL) == self._fitting_seal(place)
        except FileNotFoundError:
            return True  # it has its name now
        except OSError:
            return False

    def _is_sealed_twice(self, place: Place) -> bool:
        """Tells whether a directory that has lost its seal has it in the other file, and puts it back."""
        if is_missing(self._key_file):
            return False  # it cannot be ours, and no key is made to find that out
        seal = self._fitting_seal(place)
        try:
            if place.read(_IGNORE, len(_ignoring(seal))) != _ignoring(seal):
                return False
        except (OSError, StoreFailed):
            return False
        with contextlib.suppress(OSError):  # a disk that cannot be written to
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
                f"there is no key at {key_path(self._key_file)!r}, and {self.path!r} has been sealed with one; nothing "
                f"was made or changed: set KERNELBOX_KEY_FILE to the key of this home, or {self._setting} to another "
                "directory"
            )
        try:
            seal = place.read(SEAL, _LONGEST_SEAL)
        except (StoreFailed, PermissionError):
            seal = None
        if seal != self._fitting_seal(place):
            if self._is_sealed_twice(place):
                return True
            key = read_key(self._key_file).path
            raise self._foreign(
                f"its seal does not fit the key {key!r}" if seal is not None else "its seal is not a file of ours"
            )
        _fitting.add(identity)
        _used.add(self.path)
        return True

    def _fitting_seal(self, place: Place) -> bytes:
        from _blake2 import blake2b  # hashlib has the same, and takes 5 ms to import, because it loads OpenSSL

        info = os.fstat(place.fd)
        facts = [_VERSION, _machine_id(), b"%d" % os.geteuid(), b"%d" % info.st_ino]
        if os.stat("..", dir_fd=place.fd).st_dev != info.st_dev:
            facts.append(b"%d" % info.st_dev)  # the root of a disk: its inode is the same on every disk of its kind
        seal = blake2b(b"\0".join(facts), key=read_key(self._key_file).secret, digest_size=32)
        return seal.hexdigest().encode() + b"\n"

    def _foreign(self, why: str) -> StoreFailed:
        advice = f"set {self._setting} to another directory"
        if os.path.basename(self.path) == ".kernelbox":  # named for us: no other program's, nor the user's own work
            advice += ", or remove this one if you do not need it"
        return StoreFailed(
            f"{self.path!r} was not made by this user's kernelbox on this machine: {why} (it may come with a cloned "
            "repository, a copy, another machine or an older version, or KERNELBOX_KEY_FILE has changed); it was "
            f"neither used nor changed: {advice}"
        )


def _is_unfinished(name: str) -> bool:
    return name.startswith(SEAL) and name.endswith(UNFINISHED)


def _ignoring(seal: bytes) -> bytes:
    """Returns what makes git pass the home over, and the seal."""
    return b"*\n# " + seal


class Inside:
    """A private directory below one that can be trusted, whose seal is good for both."""

    def __init__(self, root: Trusted, steps: tuple[str, ...]) -> None:
        self._root = root
        self._steps = steps

    def secret(self) -> bytes:
        """Returns the secret of the directory that it is in."""
        return self._root.secret()

    def open(self) -> Place:
        """Opens the directory; raises FileNotFoundError if it is missing."""
        return self._descend(self._root.open(), make=False)

    def make(self) -> Place:
        """Opens the directory, which is made if it is missing."""
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
    """Returns what tells this machine from others (machine-id(5)); nothing, where there is no such file."""
    try:
        fd = os.open("/etc/machine-id", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 100).strip()
    finally:
        os.close(fd)

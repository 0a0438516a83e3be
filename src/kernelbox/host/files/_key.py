"""The user's key, which seals homes and signs files: 32 random bytes in a private file, made at first use."""

from __future__ import annotations

import os
import stat

from kernelbox.base._errors import EXHAUSTED, StoreFailed
from kernelbox.base._light_stdlib import suppress
from kernelbox.host.files._place import Place
from kernelbox.wire._values import dataclass

_LENGTH = 32

_ADVICE = "set KERNELBOX_KEY_FILE to another file"

_BELOW_HOME = ".local/state/kernelbox/key"


@dataclass(frozen=True, slots=True)
class Key:
    """The secret, and where it is kept."""

    path: str
    secret: bytes


def sign(data: bytes, secret: bytes, purpose: bytes = b"") -> str:
    """Returns a keyed hash of data. `purpose` keeps signatures with the same key apart."""
    from _blake2 import blake2b  # hashlib's import takes 5 ms, because it loads OpenSSL

    return blake2b(data, key=secret, digest_size=32, person=purpose).hexdigest()


def read_key(key_file: str) -> Key:
    """Returns the key in a file, or in the default file if `key_file` is empty; makes a missing one."""
    if key_file not in _keys:
        path = key_file or "the key"
        try:
            _keys[key_file] = _read(key_file) if key_file else _read_default()
        except StoreFailed:
            raise
        except OSError as exc:
            if exc.errno in EXHAUSTED:
                raise StoreFailed.because(exc, path, "read") from exc
            raise StoreFailed(
                f"cannot keep the key {path!r}: {exc.strerror}; {_ADVICE}, in a directory of your own"
            ) from exc
    return _keys[key_file]


def is_missing(key_file: str) -> bool:
    """Tells whether there is no key yet. Callers that must not make one ask this before `read_key`."""
    if key_file in _keys:
        return False
    if key_file:
        return not os.path.lexists(key_file)
    return not any(map(os.path.lexists, _own_paths())) and not os.path.lexists(_fallback())


def key_path(key_file: str) -> str:
    """Returns the first path that is searched for the key."""
    return key_file or (_own_paths() or [_fallback()])[0]


_keys: dict[str, Key] = {}


def _read_default() -> Key:
    """Returns the key below the user's home directory or, if that is not possible, in the temporary directory.

    An existing key comes before a new one, because homes have been sealed with it.
    """
    paths = _own_paths()
    for path in paths:
        if os.path.lexists(path):
            return _read(path)
    fallback = _fallback()
    for path in [] if os.path.lexists(fallback) and _is_private(os.path.dirname(fallback)) else paths:
        try:
            return _read(path)
        except StoreFailed:
            raise  # it exists, but cannot be trusted
        except OSError as exc:
            if exc.errno in EXHAUSTED:
                raise
            continue  # the disk is read-only or full, or the directory is not writable
    return _read(fallback)


def _own_paths() -> list[str]:
    return [os.path.join(directory, _BELOW_HOME) for directory in _home_directories()]


def _fallback() -> str:
    import tempfile  # slow to import, and rarely needed

    return os.path.join(tempfile.gettempdir(), f"kernelbox-{os.geteuid()}", "key")


def _home_directories() -> list[str]:
    """Returns the home directories that the user owns.

    The password database comes before $HOME: programs that run agents may change $HOME, and all of them must find the
    same key.
    """
    import pwd

    found = [os.path.expanduser("~")]
    with suppress(KeyError):  # in a container the user may have no entry
        found.insert(0, pwd.getpwuid(os.geteuid()).pw_dir)
    return [path for path in dict.fromkeys(found) if os.path.isabs(path) and _is_ours(path)]


def _is_ours(directory: str) -> bool:
    try:
        return os.stat(directory).st_uid == os.geteuid()
    except OSError:
        return False


def _is_private(directory: str) -> bool:
    """Tells whether only this user can use a directory. In the temporary directory, anyone can make one of any name."""
    try:
        Place.open(directory).close()
    except OSError:
        return False
    return True


def _read(path: str) -> Key:
    """Returns the key in a file, and makes a missing one."""
    directory, name = os.path.split(path)
    with _open(directory) as place:
        if not place.exists(name):
            place.add(name, os.urandom(_LENGTH))  # if another process was faster, its key stays
        mode = stat.S_IMODE(place.stat(name).st_mode)
        try:
            secret = place.read(name, _LENGTH)
        except StoreFailed as exc:
            raise StoreFailed(f"{exc}; {_ADVICE}") from exc
    if len(secret) == _LENGTH and not mode & 0o077:
        return Key(path, secret)
    if mode & 0o077:
        wrong, advice = f"is open to other users (its mode is {mode:o})", f"chmod 600, or {_ADVICE}"
    else:
        wrong, advice = f"has {len(secret)} bytes, not {_LENGTH}", _ADVICE
    raise StoreFailed(f"the key {path!r} {wrong} and is not used; {advice}")


def _open(directory: str) -> Place:
    try:
        try:
            return Place.open(directory, private=False)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(directory), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        return Place.open(directory, private=False)
    except StoreFailed as exc:
        wrong, _, _ = str(exc).rpartition("; ")  # the advice there is about homes
        raise StoreFailed(f"{wrong}, so no key is kept there; {_ADVICE}, in a directory of your own") from exc

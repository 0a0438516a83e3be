"""The user's homes on this machine, beside the user's key: one small file for each, named by its path's hash.

The list is a convenience. A home that cannot be listed still works, and a listed one is trusted only after its own
seal is checked.
"""

from __future__ import annotations

import os

from kernelbox.base._errors import StoreFailed
from kernelbox.base._light_stdlib import suppress
from kernelbox.host.files._key import read_key, sign
from kernelbox.host.files._place import Place

HOMES_FOLDER = "homes"

# Bytes: the longest path that the system takes (PATH_MAX).
_LONGEST_PATH = 4096


def remember_home(key_file: str, path: str) -> None:
    """Adds the path of a home to the list."""
    with suppress(OSError, StoreFailed):
        key = read_key(key_file)
        name = _name(path, key.secret)
        if not os.path.lexists(os.path.join(os.path.dirname(key.path), HOMES_FOLDER, name)):
            with (
                Place.open(os.path.dirname(key.path), private=False) as beside,
                beside.enter(HOMES_FOLDER, make=True) as homes,
            ):
                homes.add(name, os.fsencode(path))


def known_homes(key_file: str) -> list[str]:
    """Returns the paths of the homes that exist, and forgets the others."""
    found = []
    with suppress(FileNotFoundError):
        key = read_key(key_file)
        with Place.open(os.path.dirname(key.path), private=False) as beside, beside.enter(HOMES_FOLDER) as homes:
            for name in homes.listdir():
                try:
                    path = os.fsdecode(homes.read(name, _LONGEST_PATH))
                except (OSError, StoreFailed):
                    continue
                if name == _name(path, key.secret) and os.path.isdir(path):
                    found.append(path)
                else:
                    homes.remove(name)
    return sorted(found)


def _name(path: str, secret: bytes) -> str:
    return sign(os.fsencode(path), secret)[:32]

"""Homes that KernelBox 0.1 made: told by what is in them, and moved aside, so that a new one can take the place.

Nothing in such a directory is trusted, and its kernels are not ours to use: they listen on ports, and their keys have
been readable by others. Only the names of its records are read, for the sentence that says what was left behind.
"""

from __future__ import annotations

import json
import os
import warnings

from kernelbox.base._errors import StoreFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.files._place import Place

_REGISTRY = "registry.json"

# All that 0.1 put into a home, and into a runtime directory of its own beside files named like the one below.
_ENTRIES = frozenset({_REGISTRY, "runtime"})
_RUNTIME_ENTRIES = frozenset({"ipython"})

# Bytes of the registry that are read for the names in it, and how many of them a sentence has.
_LARGEST = 1024 * 1024
_NAMES_SHOWN = 5


def move_aside(place: Place) -> bool:
    """Renames a directory that 0.1 made, and warns; False if it is anything else, or cannot be renamed.

    Two processes may come to it at once. The lock is on the directory itself: the second finds that the path leads
    elsewhere by then, and leaves alone what is there.
    """
    if not _is_old(place):
        return False
    import fcntl

    aside = f"{place.path}-0.1-{os.urandom(4).hex()}"
    try:
        fcntl.flock(place.fd, fcntl.LOCK_EX)
        if not os.path.samestat(os.lstat(place.path), os.fstat(place.fd)):
            return True
        left = _names(place)
        os.rename(place.path, aside)
    except FileNotFoundError:
        return True
    except OSError:  # a mount point, or a parent that is not ours to write to
        return False
    warnings.warn(
        f"{place.path!r} was made by KernelBox 0.1 and has been moved to {aside!r}; its kernels{left} are gone: "
        "end their processes if they still run, and remove that directory when you do not need it",
        stacklevel=2,
    )
    return True


def _is_old(place: Place) -> bool:
    entries = set(place.listdir())
    if _REGISTRY in entries:
        return entries <= _ENTRIES
    # Jupyter's own runtime directory has files of the same names, and must stay where it is.
    return entries >= _RUNTIME_ENTRIES and all(
        name in _RUNTIME_ENTRIES or (name.startswith("kernel-") and name.endswith(".json")) for name in entries
    )


def _names(place: Place) -> str:
    """Returns what the records of the registry are called, as a part of a sentence; nothing, if they cannot be read."""
    try:
        kernels = json.loads(place.read(_REGISTRY, _LARGEST))["kernels"]
        names = sorted({str(record["name"])[:100] for record in kernels.values()})
    except (OSError, StoreFailed, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return ""
    more = [f"and {len(names) - _NAMES_SHOWN:,} more"] if len(names) > _NAMES_SHOWN else []
    return f" ({', '.join([*map(repr, names[:_NAMES_SHOWN]), *more])})" if names else ""

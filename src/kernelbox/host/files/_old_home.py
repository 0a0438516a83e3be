"""Homes that cannot be used and are not a stranger's: moved aside, so that a new home can replace them.

KernelBox 0.1 made some, which are recognized by their entries; others are copies of a home of this version.

Nothing in such a directory is trusted. Its kernels are not used: they listen on ports, and other users could read their
keys. Only the names of its records are read, for the warning that says what was left behind.
"""

from __future__ import annotations

import os
import warnings

from kernelbox.base._errors import StoreFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.files._place import Place

_REGISTRY = "registry.json"

# The entries that 0.1 made in a home, and in a separate runtime directory beside its connection files.
_ENTRIES = frozenset({_REGISTRY, "runtime"})
_RUNTIME_ENTRIES = frozenset({"ipython"})

# The most bytes of the registry to read, and the most names to show.
_LARGEST = 1024 * 1024
_NAMES_SHOWN = 5


def move_aside(place: Place) -> bool:
    """Renames a directory that 0.1 made, and warns; False if it is something else or cannot be renamed."""
    if not _is_old(place):
        return False
    return _move(
        place,
        f"{place.path}-0.1-{os.urandom(4).hex()}",
        "was made by KernelBox 0.1",
        f"its kernels{_names(place)} are gone: end their processes if they still run, and",
    )


def move_copy_aside(place: Place) -> bool:
    """Renames a home that was copied or restored from a backup, and warns; False if it cannot be renamed.

    Its kernels are those of the original, or of the past.
    """
    return _move(
        place,
        f"{place.path}-copy-{os.urandom(4).hex()}",
        "is a copy of another home",
        "no kernel runs in it:",
    )


def _move(place: Place, aside: str, what: str, then: str) -> bool:
    """Two processes may do this at once. They lock the directory itself, so the second sees that the path leads
    elsewhere by then, and does nothing.
    """
    import fcntl

    try:
        fcntl.flock(place.fd, fcntl.LOCK_EX)
        if not os.path.samestat(os.lstat(place.path), os.fstat(place.fd)):
            return True
        os.rename(place.path, aside)
    except FileNotFoundError:
        return True
    except OSError:  # a mount point, or a parent that is not writable
        return False
    warnings.warn(
        f"{place.path!r} {what} and has been moved to {aside!r}; {then} remove that directory when you do not need it",
        stacklevel=2,
    )
    return True


def _is_old(place: Place) -> bool:
    entries = set(place.listdir())
    if _REGISTRY in entries:
        return entries <= _ENTRIES
    # Jupyter's own runtime directory has connection files too, and must stay where it is.
    return entries >= _RUNTIME_ENTRIES and all(
        name in _RUNTIME_ENTRIES or (name.startswith("kernel-") and name.endswith(".json")) for name in entries
    )


def _names(place: Place) -> str:
    """Returns the names in the registry as part of a sentence; empty if they cannot be read."""
    import json  # few homes are old

    try:
        kernels = json.loads(place.read(_REGISTRY, _LARGEST))["kernels"]
        names = sorted({str(record["name"])[:100] for record in kernels.values()})
    except (OSError, StoreFailed, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return ""
    more = [f"and {len(names) - _NAMES_SHOWN:,} more"] if len(names) > _NAMES_SHOWN else []
    return f" ({', '.join([*map(repr, names[:_NAMES_SHOWN]), *more])})" if names else ""

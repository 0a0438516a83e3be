"""The templates of a runtime directory, as seen from outside: which there are, and how to send them away."""

from __future__ import annotations

import contextlib
import os
import stat

from kernelbox.host._lock import locked
from kernelbox.host._place import Place
from kernelbox.host.own._connection import dial

_PREFIX = "template-"

# A template without kernels leaves as soon as it sees that its socket is gone, unless it is still importing.
_LEAVE_PATIENCE = 20.0


def list_templates(runtime_dir: str) -> list[str]:
    """Returns the sockets of the templates."""
    try:
        names = [name for name in os.listdir(runtime_dir) if name.startswith(_PREFIX)]
    except OSError:
        return []
    return sorted(path for path in (os.path.join(runtime_dir, name) for name in names) if _is_socket(path))


def is_answering(path: str) -> bool:
    """Tells whether a template listens at a socket."""
    with contextlib.suppress(OSError), dial(path):
        return True
    return False


def dismiss_templates(runtime_dir: str) -> None:
    """Ends the templates that have no kernels, and removes what they leave; the next opener starts another."""
    for path in list_templates(runtime_dir):
        with contextlib.suppress(OSError), Place.open(runtime_dir) as place:
            with locked(place, os.path.basename(path) + ".lock"):
                _dismiss(path)
        for suffix in (".log", ".lock"):
            with contextlib.suppress(OSError):
                os.unlink(path + suffix)


def _dismiss(path: str) -> None:
    """Takes a template's socket away, wakes it up to see that, and waits for it to be gone."""
    try:
        nudge, watch = dial(path), dial(path)
    except OSError:
        os.unlink(path)  # nobody is behind it
        return
    with nudge, watch:
        os.unlink(path)
        nudge.close()
        watch.settimeout(_LEAVE_PATIENCE)
        watch.recv(1)  # the connection ends with the process


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False

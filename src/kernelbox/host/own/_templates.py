"""The templates of a runtime directory, as seen from outside: which there are, and how to send them away."""

from __future__ import annotations

import contextlib
import stat

from kernelbox.host._lock import locked
from kernelbox.host._sockets import dial
from kernelbox.wire._layout import TEMPLATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host._place import Place

# A template without kernels leaves as soon as it sees that its socket is gone, unless it is still importing.
_LEAVE_PATIENCE = 20.0


def list_templates(runtime: Place) -> list[str]:
    """Returns the names of the templates' sockets."""
    return sorted(name for name in runtime.listdir() if name.startswith(TEMPLATE) and _is_socket(runtime, name))


def is_answering(runtime: Place, name: str) -> bool:
    """Tells whether a template listens at a socket."""
    with contextlib.suppress(OSError), dial(runtime, name):
        return True
    return False


def dismiss_templates(runtime: Place) -> None:
    """Ends the templates that have no kernels, and removes what templates have left; the next opener starts another."""
    for name in list_templates(runtime):
        with contextlib.suppress(OSError), locked(runtime, name + ".lock"):
            _dismiss(runtime, name)
    for name in runtime.listdir():
        if name.startswith(TEMPLATE) and name.endswith((".log", ".lock")):
            with contextlib.suppress(OSError):
                runtime.remove(name)


def _dismiss(runtime: Place, name: str) -> None:
    """Takes a template's socket away, wakes it up to see that, and waits for it to be gone."""
    try:
        nudge, watch = dial(runtime, name), dial(runtime, name)
    except OSError:
        runtime.remove(name)  # no process listens there
        return
    with nudge, watch:
        runtime.remove(name)
        nudge.close()
        watch.settimeout(_LEAVE_PATIENCE)
        watch.recv(1)  # the connection ends with the process


def _is_socket(runtime: Place, name: str) -> bool:
    try:
        return stat.S_ISSOCK(runtime.stat(name).st_mode)
    except OSError:
        return False

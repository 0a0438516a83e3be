"""The memory that checkpoints have for themselves. Their spares share it, so it is measured without these."""

from __future__ import annotations

import contextlib
import socket

from kernelbox.base._errors import CannotCopy
from kernelbox.host.engines.own._keeper_request import call_keeper
from kernelbox.host.files._sockets import send_descriptors
from kernelbox.host.store._checkpoint_files import Checkpoint, read_checkpoints
from kernelbox.usage._processes import anonymous_bytes, private_bytes
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Measure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.host.store._kernel_directory import KernelDirectory

# Seconds until all spares have ended, which takes milliseconds. Then less is found than there is.
_PATIENCE = 5.0


def measure_checkpoints(directory: KernelDirectory, *, limit: int = 0, but: int = 0) -> list[Checkpoint]:
    """Returns the checkpoints of a kernel, oldest first, and the memory that each shares with no other process.

    They are measured only if they may have more than `limit` together: the system looks at each page. `but` is one that
    was made just now, and is not measured.
    """
    found = read_checkpoints(directory)
    old = [each for each in found if each.number != but]
    if not old or sum(anonymous_bytes(each.pid) for each in old) <= limit:
        return found
    with _without_spares(directory, Measure(old[0].kernel_id, but), len(old)):
        used = {each.number: private_bytes(each.pid) for each in old}
    return [Checkpoint(**{**each.to_dict(), "private_bytes": used.get(each.number, 0)}) for each in found]


@contextlib.contextmanager
def _without_spares(directory: KernelDirectory, request: Measure, count: int) -> Iterator[None]:
    """Has so many checkpoints do without their spares until the end of the context, or of this process."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, contextlib.suppress(CannotCopy, OSError), call_keeper(directory, "") as keeper:
            send_descriptors(keeper, encode(request), [theirs.fileno()])
        ours.settimeout(_PATIENCE)
        with contextlib.suppress(TimeoutError):
            while count > 0 and (said := ours.recv(count)):
                count -= len(said)
        yield

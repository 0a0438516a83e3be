"""The exit status of a process that is not a child of this one, if the system reports it."""

from __future__ import annotations

import fcntl
import os
import struct
import time

# PIDFD_GET_INFO of linux/pidfd.h, its argument, and the bit that asks for the exit status (Linux 6.15).
_GET_INFO = 0xC040FF0B
_SIZE = 64
_EXIT = 1 << 3
_STATUS_AT = 60

# The parent reaps it in microseconds; the status is known from then on.
_PATIENCE = 0.1


def read_exit_code(pidfd: int) -> int | None:
    """Returns the exit code of a process that has ended, negative for a signal; None where the system does not say."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        buffer = bytearray(_SIZE)
        struct.pack_into("<Q", buffer, 0, _EXIT)
        try:
            fcntl.ioctl(pidfd, _GET_INFO, buffer)
        except ProcessLookupError:
            pass  # it has not been reaped, or the system is older than the answer
        except OSError:
            return None
        else:
            if struct.unpack_from("<Q", buffer)[0] & _EXIT:
                (status,) = struct.unpack_from("<i", buffer, _STATUS_AT)
                return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None

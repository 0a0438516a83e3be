"""The deputy of a template that runs in srt: it waits outside for srt's end, tells of it, and leaves nothing of it.

    deputy ─→ srt ─→ bwrap ─→ … ─→ template ─fork→ kernels

All that is in srt ends with it, the keeper of the kernels too: of what they died the deputy tells. An srt that is
killed leaves its relay to the proxy running, its sockets in the temporary directory, and in the working directory the
empty files that it has mounted something on: ghosts.

It is a program, started together with srt, for which a kernel waits: it imports next to nothing before srt has ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_PR_SET_CHILD_SUBREAPER = 36


def main(package: str, runtime: int, plan: int, srt: int) -> NoReturn:
    """Waits for srt, a child of ours, and cleans up after it.

    `package` is where to import kernelbox from; then come the descriptors of the runtime directory and of a plan, and
    the number of srt's process. What the host has locked for us stays so as long as one of us has it open.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(runtime, False)
    os.chdir("/")
    reason = _describe(_wait_for(srt))
    print(reason, flush=True)
    sys.path.insert(0, package)
    import json

    from kernelbox.guest.birth._srt_leftovers import clean_up

    with open(plan) as file:
        clean_up(runtime, json.load(file), reason)
    os._exit(0)


def _describe(code: int) -> str:
    if code >= 0:
        return f"srt ended with status {code}"
    return f"srt was killed by {signal.Signals(-code).name}"


def _wait_for(srt: int) -> int:
    """Waits for srt, and for orphans of its that have ended meanwhile; returns its exit status."""
    while True:
        pid, status = os.wait()
        if pid == srt:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

"""The parent of srt: it waits outside for srt's end, reports how its kernels died, and cleans up.

    parent ─→ srt ─→ bwrap ─→ … ─→ template ─fork→ kernels

Everything in srt ends with srt, also the keeper of the kernels, so the parent writes down why they died. An srt that is
killed leaves its relay to the proxy running, its sockets in the temporary directory, and empty files in the working
directory that it had mounted something on.

It is a program of its own that starts together with srt. The first kernel waits for that, so nearly nothing is imported
before srt has ended.
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
    """Waits for srt, which is our child, and cleans up after it.

    `package` is where to import kernelbox from; then come the descriptors of the runtime directory and of a plan, and
    the number of srt's process. What the host has locked for us stays so as long as one of us has it open.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(runtime, False)
    os.chdir("/")
    reason = _describe(_wait_for(srt))
    print(reason, flush=True)
    sys.path.append(package)  # behind the standard library: cells may write beside the package
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
    """Waits for srt, and reaps its orphans meanwhile; returns the exit status of srt."""
    while True:
        pid, status = os.wait()
        if pid == srt:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

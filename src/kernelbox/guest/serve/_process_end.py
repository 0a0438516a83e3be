"""How a kernel's process ends itself: at once, or in good order."""

from __future__ import annotations

import atexit
from typing import NoReturn

from kernelbox.guest._process_tree import kill_descendants
from kernelbox.guest._signal_handlers import set_handler
from kernelbox.guest._stdlib import os, signal
from kernelbox.guest.output._outbox import Outbox
from kernelbox.guest.programs._bash import Bash
from kernelbox.guest.programs._runner_link import RunnerBash
from kernelbox.guest.serve._identity import Identity
from kernelbox.guest.serve._io import IO
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._messages import Farewell

keep_builtins(globals())

_exit = os._exit

# How long a kernel that leaves waits for clients that have not read all of its output.
_LAST_PATIENCE = 0.3


class ProcessEnd:
    """Ends the process of one kernel, and tells its clients why."""

    def __init__(self, identity: Identity, outbox: Outbox, bash: Bash | RunnerBash, io: IO) -> None:
        self._identity = identity
        self._outbox = outbox
        self._bash = bash
        self._io = io

    def die(self, reason: str) -> None:
        """Ends the process at once, because it is of no use any more."""
        try:
            self._identity.say_why(reason)
            for peer in self._io.peers():
                self._outbox.reply(peer, Farewell(reason))
        finally:
            _exit(1)

    def leave_if_abandoned(self) -> None:
        """Ends the process if no client can reach it, and its keeper, which would end it, is gone too."""
        if not self._identity.has_keeper and not self._identity.is_reachable:
            self.die("its directory is gone")

    def leave(self, reason: str, *, tell: bool = True) -> None:
        """Ends the process in good order: clients learn why, unless they know, and exit functions run."""
        set_handler(signal.SIGTERM, signal.SIG_IGN)
        # A signal that came in the middle of sending leaves half a frame, which nothing can follow.
        sending = self._outbox.is_held_here
        try:
            self._identity.say_why(reason)
            for peer in self._io.peers() if tell and not sending else ():
                self._outbox.reply(peer, Farewell(reason))
            self._bash.close()
            atexit._run_exitfuncs()
            if not sending:
                self._io.drain(_LAST_PATIENCE)
            kill_descendants()  # our keeper, which would do it, may be gone
        finally:
            _exit(0)

    def on_terminate(self, signum: int, frame: object) -> None:
        self.leave("killed by SIGTERM", tell=False)  # a host that sends it has written down why

    def exit_at_once(self, status: int) -> NoReturn:
        """Stands in for `os._exit`: a line that has been begun is written first, and what is being sent is sent."""
        for stream in self._outbox.streams:
            stream.push()
        self._outbox.lock.acquire(timeout=_LAST_PATIENCE)  # a thread may have taken text that it has not yet sent
        _exit(status)

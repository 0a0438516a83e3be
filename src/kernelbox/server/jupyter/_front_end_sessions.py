"""The front ends of one kernel by session: connected ones, and ones that may come back."""

from __future__ import annotations

import asyncio
import os
from functools import partial

from kernelbox.server.jupyter._front_end_channels import FrontEndChannels
from kernelbox.server.jupyter._reconnecting import ReconnectingFrontEnd
from kernelbox.server.jupyter._socket_front_end import SocketFrontEnd

# Seconds for which what a front end has missed is kept: a computer may sleep over lunch. So many are expected back to
# one kernel, and to all, the last that have gone: what is kept for each takes up to 16 MiB.
_AWAY = 3600.0
_MOST_AWAY = 8
_MOST_AWAY_IN_ALL = 64

# Characters of a session's id; Jupyter's have 36.
_LONGEST_SESSION = 256


class FrontEndSessions:
    """Attaches front ends to the channels of a kernel, and drops those that will not come back."""

    def __init__(self, channels: FrontEndChannels, expected: dict[tuple[FrontEndSessions, str], None]) -> None:
        """`expected` are the front ends of all kernels that may come back, the first to have gone first."""
        self.channels = channels
        self._expected = expected
        self._front_ends: dict[str, ReconnectingFrontEnd] = {}
        self._away: dict[str, asyncio.TimerHandle] = {}

    @property
    def connected(self) -> int:
        """How many front ends are connected."""
        return sum(front_end.present for front_end in self._front_ends.values())

    async def serve(self, session: str, socket: SocketFrontEnd, *, may_end: bool) -> None:
        """Serves one front end until it goes away; one without a session is not expected back."""
        key = session[:_LONGEST_SESSION] or os.urandom(16).hex()
        front_end = self._find(key)
        take = partial(self.channels.take, front_end, may_end=may_end)
        serving = asyncio.ensure_future(socket.serve(take))
        try:
            await front_end.come(socket)
            await serving
        finally:
            serving.cancel()
            if not front_end.go(socket):
                pass  # its session has another connection by now
            elif session:
                self._expect_back(key)
            else:
                self.channels.detach(self._front_ends.pop(key))

    def close(self) -> None:
        """Drops all of them."""
        for key in list(self._away):
            self.forget(key)

    def _find(self, key: str) -> ReconnectingFrontEnd:
        if key not in self._front_ends:
            self._front_ends[key] = ReconnectingFrontEnd(self.channels.author)
            self.channels.attach(self._front_ends[key])
        elif key in self._away:
            self._away.pop(key).cancel()
            del self._expected[self, key]
        return self._front_ends[key]

    def _expect_back(self, key: str) -> None:
        self._away[key] = asyncio.get_running_loop().call_later(_AWAY, self.forget, key)
        self._expected[self, key] = None
        if len(self._away) > _MOST_AWAY:
            self.forget(next(iter(self._away)))
        if len(self._expected) > _MOST_AWAY_IN_ALL:
            oldest, its_key = next(iter(self._expected))
            oldest.forget(its_key)

    def forget(self, key: str) -> None:
        """Drops a front end that is away."""
        self._away.pop(key).cancel()
        del self._expected[self, key]
        self.channels.detach(self._front_ends.pop(key))

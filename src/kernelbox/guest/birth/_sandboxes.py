"""The sandboxes of a template: those that its maker is asked for, and the requests that wait for them."""

from __future__ import annotations

import itertools
import os
import traceback
from typing import TYPE_CHECKING

from kernelbox.guest._descriptors import close
from kernelbox.guest.birth._specialize import Box
from kernelbox.guest.walls._confine import enter_user_namespace, fork_beside
from kernelbox.guest.walls._maker import GREETING, Made, Maker
from kernelbox.guest.walls._system_calls import Unarmed
from kernelbox.wire._confinement import describe_failure

if TYPE_CHECKING:
    from kernelbox.guest.birth._enclosing_srt import EnclosingSrt
    from kernelbox.guest.birth._keeper import Keeper
    from kernelbox.guest.birth._pending import PendingRequest


class NoSandbox(Exception):
    """Raised when there is no sandbox for a kernel."""


class Sandboxes:
    """Has sandboxes made, and kernels forked into them; in srt, if the template runs in one.

    To make it puts the calling process into a user namespace of its own; raises NoSandbox where that is not allowed.
    """

    def __init__(self, keeper: Keeper, srt: EnclosingSrt | None) -> None:
        self._keeper = keeper
        self._srt = srt
        self._user = os.geteuid()
        self._maker: Maker | None = None
        self._asked: dict[int, PendingRequest] = {}  # by the numbers that the maker knows them by
        self._numbers = itertools.count()
        try:
            enter_user_namespace()
        except Unarmed as exc:
            raise NoSandbox(describe_failure(exc.step, exc.error)) from exc

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def are_awaited(self) -> bool:
        """Whether a request waits for one."""
        return bool(self._asked)

    def start_maker(self) -> None:
        """Starts the maker; to be done before the first kernel is forked, and once."""
        self._maker = Maker()
        self._keeper.of_sandboxes.add(self._maker.pid)

    @property
    def link(self) -> int:
        """What becomes readable when a sandbox has been made, or the maker has ended; -1 without one."""
        return self._maker.link.fileno() if self._maker is not None else -1

    def ask(self, asked: PendingRequest) -> bool:
        """Asks for a sandbox; returns False if there is no maker any more."""
        number = next(self._numbers)
        self._asked[number] = asked
        waits = -1
        try:
            if self._maker is None:
                return False
            asked.lifeline = os.pipe()
            waits, asked.alive = os.pipe()
            os.write(asked.alive, GREETING)
            self._maker.ask(number, asked.confinement, waits, own_network=self._srt is None)
        except OSError:
            traceback.print_exc()
            return False
        finally:
            close(waits)
        return True

    def take(self) -> tuple[PendingRequest, Made] | None:
        """Returns a sandbox that is ready to be forked into, and for whom; None if the maker has ended."""
        made = self._maker.take() if self._maker is not None else None
        if made is None:
            return None
        if made.first:
            self._keeper.of_sandboxes.add(made.first)
        return self._asked.pop(made.number), made

    def fork(self, made: Made) -> int:
        """Forks a process into a sandbox; raises OSError, or NoSandbox if there is none to fork into."""
        if not made.first:
            raise NoSandbox(made.reason)
        try:
            return fork_beside(made.process)
        except Unarmed as exc:
            raise NoSandbox(describe_failure(exc.step, exc.error)) from exc

    def box(self, asked: PendingRequest, made: Made) -> Box:
        """Returns what a child is given of its sandbox."""
        return Box(made.process, made.told, asked.alive, asked.lifeline[0], self._user, self._srt, asked.client)

    def give_up(self, made: Made) -> None:
        """Forgets a sandbox that no kernel was forked into; it ends with the descriptor that keeps it alive."""
        self._keeper.of_sandboxes.discard(made.first)
        close(made.process)

    def dismiss_maker(self) -> None:
        """Has no more sandboxes made."""
        if self._maker is not None:
            self._maker.close()
        self._maker = None

    def leave_waiting(self) -> None:
        """Leaves those who wait without an answer."""
        for asked in self._asked.values():
            asked.client.close()
            asked.close()
        self._asked.clear()

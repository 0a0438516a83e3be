"""How a template forks sandboxed kernels: its maker makes the sandboxes, and requests wait for them.

A template that runs in srt (sandbox-runtime) forks them into sandboxes that share srt's network.
"""

from __future__ import annotations

import itertools
import json
import os
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbox.guest.birth._forker import CannotFork, Forker, ForkerGone, ForkRequest
from kernelbox.guest.birth._specialize import SandboxEntry
from kernelbox.guest.walls import _own_limits as _own_limits  # for the forks: an import in each would take memory
from kernelbox.guest.walls._confine import enter_user_namespace, fork_beside
from kernelbox.guest.walls._sandbox_maker import GREETING, Maker
from kernelbox.guest.walls._system_calls import Unarmed
from kernelbox.wire._layout import KEPT

if TYPE_CHECKING:
    from kernelbox.guest.birth._child_kernel import ChildKernel
    from kernelbox.guest.birth._keeper import Keeper


class SandboxForker(Forker):
    """Asks the maker for sandboxes, and forks kernels into them.

    Creating it moves the calling process into a user namespace of its own. Where that is not allowed, `fault` says why.
    """

    sandboxed = True
    # As of any kernel, and the first process of its sandbox, what keeps that alive, and what shows that we are there.
    files_per_kernel = 7
    own_network = True

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._user = os.geteuid()
        self._maker: Maker | None = None
        self._asked: dict[int, ForkRequest] = {}  # by the numbers that the maker knows them by
        self._numbers = itertools.count()
        self.fault = ""
        try:
            enter_user_namespace()
        except Unarmed as exc:
            self.fault = str(exc)

    def start(self) -> None:
        self._maker = Maker()
        self._keeper.of_sandboxes.add(self._maker.pid)

    def stop(self) -> None:
        if self._maker is not None:
            self._maker.close()
        self._maker = None
        for request in self._asked.values():
            request.opener.close()
            request.given.close_all()
        self._asked.clear()

    @property
    def waiting(self) -> int:
        return len(self._asked)

    @property
    def watched(self) -> tuple[int, ...]:
        return () if self._maker is None else (self._maker.link.fileno(),)

    def ask(self, request: ForkRequest) -> bool:
        number = next(self._numbers)
        self._asked[number] = request
        if self._maker is None:
            raise ForkerGone
        try:
            # One for each kernel: cells can write to it, too. It ends with this process.
            request.given.open_pipe("keeper", "here")
            request.given.open_pipe("waits", "alive")
            os.write(request.given["alive"], GREETING)
            self._maker.ask(number, request.given["confinement"], request.given["waits"], own_network=self.own_network)
            request.given.close("waits")
        except OSError as exc:
            traceback.print_exc()
            raise ForkerGone from exc
        return False

    def take(self) -> ForkRequest:
        made = self._maker.take() if self._maker is not None else None
        if made is None:
            raise ForkerGone
        request = self._asked.pop(made.number)
        request.first, request.fault = made.first, made.reason
        if made.first:
            self._keeper.of_sandboxes.add(made.first)
        request.given.adopt(made.opened)
        return request

    def fork(self, request: ForkRequest) -> int:
        if not request.first:
            raise CannotFork(request.fault)
        try:
            return fork_beside(request.given["first process"])
        except Unarmed as exc:
            raise CannotFork(str(exc)) from exc

    def entry(self, request: ForkRequest) -> SandboxEntry | None:
        return SandboxEntry(self._user)

    def give_up(self, request: ForkRequest) -> None:
        """Forgets a sandbox, which ends with the descriptor that keeps it alive."""
        self._keeper.of_sandboxes.discard(request.first)


# What shells set by themselves; TMPDIR, which srt sets, names a directory that kernels have no use for.
_NOT_FROM_SRT = {"PWD", "OLDPWD", "SHLVL", "_", "TMPDIR"}


class SrtForker(SandboxForker):
    """Forks kernels into sandboxes that share the network of srt: it leads to srt's proxy."""

    own_network = False

    def __init__(self, keeper: Keeper, token: str, given: Sequence[str]) -> None:
        """`token` tells the srt that we run in from others; `given` are the variables that it was started with."""
        super().__init__(keeper)
        self._token = token
        own = {name: value for name, value in os.environ.items() if name not in {*given, *_NOT_FROM_SRT}}
        self._variables = {os.fsencode(name): os.fsencode(value) for name, value in own.items()}  # they name its proxy

    def entry(self, request: ForkRequest) -> SandboxEntry | None:
        return SandboxEntry(self._user, self._variables, request.opener)

    def note(self, kernel: ChildKernel) -> None:
        """Marks the kernel's directory with this srt: when srt ends, its parent reports why the kernel died."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(KEPT, flags, 0o600, dir_fd=kernel.held["directory"]), "w") as file:
            json.dump({"token": self._token, "start_time": kernel.start_time}, file)

"""How a template forks kernels in srt (sandbox-runtime), which it runs in itself."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kernelbox.guest.birth._forker import ForkRequest
from kernelbox.guest.birth._sandbox_forker import SandboxForker
from kernelbox.guest.birth._specialize import SandboxEntry
from kernelbox.wire._layout import KEPT

if TYPE_CHECKING:
    from kernelbox.guest.birth._child_kernel import ChildKernel
    from kernelbox.guest.birth._keeper import Keeper

# What shells set by themselves; TMPDIR, which srt sets, names a directory that kernels have no use for.
_NOT_FROM_SRT = {"PWD", "OLDPWD", "SHLVL", "_", "TMPDIR"}


@dataclass(frozen=True, slots=True)
class EnclosingSrt:
    """What tells this srt from others, and the variables by which programs find its proxy."""

    token: str
    variables: dict[bytes, bytes]

    @classmethod
    def around_us(cls, token: str, given: Sequence[str]) -> Self:
        """Returns the srt that we run in; `given` are the names of the variables that it was started with."""
        own = {name: value for name, value in os.environ.items() if name not in {*given, *_NOT_FROM_SRT}}
        return cls(token, {os.fsencode(name): os.fsencode(value) for name, value in own.items()})


class SrtForker(SandboxForker):
    """Forks kernels into sandboxes that share the network of srt: it leads to srt's proxy."""

    own_network = False

    def __init__(self, keeper: Keeper, srt: EnclosingSrt) -> None:
        super().__init__(keeper)
        self._srt = srt

    def entry(self, request: ForkRequest) -> SandboxEntry | None:
        return SandboxEntry(self._user, self._srt.variables, request.opener)

    def note(self, kernel: ChildKernel) -> None:
        """Marks the kernel's directory with this srt: when srt ends, its parent reports why the kernel died."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(KEPT, flags, 0o600, dir_fd=kernel.held["directory"]), "w") as file:
            json.dump({"token": self._srt.token, "start_time": kernel.start_time}, file)

"""The srt (sandbox-runtime) that a template runs in, as that template sees it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from kernelbox.wire._framing import encode
from kernelbox.wire._layout import KEPT
from kernelbox.wire._messages import Introduced

# What shells set by themselves; TMPDIR, which srt sets, names a directory that kernels have no use for.
_NOT_FROM_SRT = {"PWD", "OLDPWD", "SHLVL", "_", "TMPDIR"}


@dataclass(frozen=True, slots=True)
class EnclosingSrt:
    """What tells this srt from others, and the variables by which programs find its proxy."""

    token: str
    variables: dict[bytes, bytes]

    @classmethod
    def around_us(cls, token: str, given: Sequence[str]) -> Self:
        """Returns the one that we run in; `given` are the names of the variables that it was started with."""
        own = {name: value for name, value in os.environ.items() if name not in {*given, *_NOT_FROM_SRT}}
        return cls(token, {os.fsencode(name): os.fsencode(value) for name, value in own.items()})

    def note(self, directory: int, start_time: int) -> None:
        """Notes in a kernel's directory whose it is: if srt ends, its deputy says of what the kernel died."""
        fd = os.open(KEPT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=directory)
        with open(fd, "w") as file:
            json.dump({"token": self.token, "start_time": start_time}, file)


def introduce(opener: socket.socket, kernel_id: str) -> None:
    """Shows the opener which process this is: by the number that we know it has outside of srt another."""
    with opener:
        opener.sendall(encode(Introduced(kernel_id)))

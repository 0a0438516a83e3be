"""Where a server listens. It imports no server, so that the command line can check an address at once."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kernelbox.base._endpoint import join_address
from kernelbox.base._errors import InvalidInput

LOOPBACK = ("127.0.0.1", "localhost", "::1")

# What an address begins with that is the path of a Unix socket.
_UNIX = "unix:"


@dataclass(frozen=True)
class Binding:
    """An address, whose port 0 lets the system choose one, or the path of a Unix socket."""

    host: str
    port: int
    uds: str | None = None

    @property
    def is_private(self) -> bool:
        """Whether only this machine's users, or this user, can reach it."""
        return self.uds is not None or self.host in LOOPBACK

    def __str__(self) -> str:
        if self.uds is not None:
            return f"{_UNIX}{self.uds}"
        return f"http://{join_address(self.host, self.port)}"


def parse_binding(text: str) -> Binding:
    """Returns what HOST:PORT or unix:PATH means; raises InvalidInput."""
    if text.startswith(_UNIX) and len(text) > len(_UNIX):
        return Binding("", 0, os.path.abspath(os.path.expanduser(text.removeprefix(_UNIX))))
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput("the address", text, "use HOST:PORT, such as 127.0.0.1:8765, or unix:PATH")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare and bare == host):
        raise InvalidInput("the address", text, "use HOST:PORT, such as 127.0.0.1:8765 or [::1]:8765")
    return Binding(bare, int(port))

"""Where a server for HTTP is found. Without the SDK: what to paste into a client is printed at once."""

from __future__ import annotations

from dataclasses import dataclass

from kernelbox.base._addresses import join_address
from kernelbox.base._errors import InvalidInput

PATH = "/mcp"
TOKEN_VARIABLE = "KERNELBOX_MCP_TOKEN"


@dataclass(frozen=True)
class Address:
    """Where to listen; port 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_address(self.host, self.port)


def parse_address(text: str) -> Address:
    """Returns the address that HOST:PORT names; raises InvalidInput."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput("the address", text, "use HOST:PORT, such as 127.0.0.1:8765")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare and bare == host):
        raise InvalidInput("the address", text, "use HOST:PORT, such as 127.0.0.1:8765 or [::1]:8765")
    return Address(bare, int(port))

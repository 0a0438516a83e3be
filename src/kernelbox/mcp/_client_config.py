"""What to paste into an MCP client so that it starts or finds this server, and the address of an HTTP server.

It does without the SDK, so that the command prints at once.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from kernelbox.base._endpoint import join_address
from kernelbox.base._errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Where each client reads it from.
PLACES = {
    "claude-code": "run this command in the project",
    "claude-desktop": "merge this into claude_desktop_config.json (Settings, Developer, Edit Config)",
    "cursor": "merge this into .cursor/mcp.json of the project, or ~/.cursor/mcp.json",
    "vscode": "merge this into .vscode/mcp.json of the project",
}

_NAME = "kernelbox"


def client_config(client: str, command: list[str], address: Address | None) -> str:
    """Returns the text for a client; `command` starts the server, or it listens at an `address`.

    Raises InvalidInput for a client that cannot be sent to an address with a token.
    """
    if client == "claude-desktop" and address is not None:
        raise InvalidInput("--print-config", client, "it reads no addresses from its file; leave out --http")
    url = None if address is None else f"http://{address}{PATH}"
    if client == "claude-code":
        if url is not None:
            header = f"Authorization: Bearer {_token('claude-code')}"
            # Double quotes: the shell fills in the token.
            return f'claude mcp add --transport http {_NAME} {shlex.quote(url)} --header "{header}"'
        return f"claude mcp add {_NAME} -- {shlex.join(command)}"
    described: dict[str, Any] = {"command": command[0], "args": command[1:]}
    if url is not None:
        described = {"url": url, "headers": {"Authorization": f"Bearer {_token(client)}"}}
    if client == "vscode":
        described = {"type": "stdio" if url is None else "http", **described}
    return json.dumps({"servers" if client == "vscode" else "mcpServers": {_NAME: described}}, indent=2)


def _token(client: str) -> str:
    """Returns how a client is told to look a variable up: a token is not written into files."""
    prefix = "env:" if client in ("cursor", "vscode") else ""
    return f"${{{prefix}{TOKEN_VARIABLE}}}"


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

"""What to paste into an MCP client so that it starts or finds this server, and the address of an HTTP server.

It does without the SDK, so that the command prints at once.
"""

from __future__ import annotations

import json
import shlex

from kernelbox.base._errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.server.http._binding import Binding


# Where MCP is served over HTTP, and the variable that holds the token of `kernelbox mcp --http`.
PATH = "/mcp"
TOKEN_VARIABLE = "KERNELBOX_MCP_TOKEN"

# Where each client reads it from.
PLACES = {
    "claude-code": "run this command in the project",
    "claude-desktop": "merge this into claude_desktop_config.json (Settings, Developer, Edit Config)",
    "cursor": "merge this into .cursor/mcp.json of the project, or ~/.cursor/mcp.json",
    "vscode": "merge this into .vscode/mcp.json of the project",
}

_NAME = "kernelbox"


def client_config(client: str, command: list[str], binding: Binding | None) -> str:
    """Returns the text for a client; `command` starts the server, or it listens at a `binding`.

    Raises InvalidInput for a client that cannot be sent to an address with a token.
    """
    if client == "claude-desktop" and binding is not None:
        raise InvalidInput("--print-config", client, "it reads no addresses from its file; leave out --http")
    if binding is not None and binding.uds is not None:
        raise InvalidInput("--print-config", client, "it cannot connect to a Unix socket; use --http HOST:PORT")
    url = None if binding is None else f"{binding}{PATH}"
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
    """Returns how a client's file names a variable: the token itself is not written into files."""
    prefix = "env:" if client in ("cursor", "vscode") else ""
    return f"${{{prefix}{TOKEN_VARIABLE}}}"

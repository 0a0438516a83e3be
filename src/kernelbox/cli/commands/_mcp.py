"""`mcp`: serves kernels to an MCP client, or prints what to paste into one."""

from __future__ import annotations

import os
import sys

from kernelbox.base._config import set_limits
from kernelbox.base._dotenv import read_dotenv
from kernelbox.base._environment import add_variables
from kernelbox.base._errors import InvalidInput
from kernelbox.base._extras import require
from kernelbox.base._limits import parse_limits
from kernelbox.cli.commands._serve import read_shared_options
from kernelbox.host.pythons._allowed_pythons import settled_words
from kernelbox.server.http._binding import parse_binding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from kernelbox.mcp._mcp_options import McpOptions


def run(options: Namespace) -> int:
    """Runs the command."""
    if options.http is not None:
        options.http = parse_binding(options.http)
    set_limits(parse_limits(options.limit))
    if options.print_config:
        return _print_config(options)
    require("mcp")
    chosen = _read_options(options)
    if options.http:
        from kernelbox.server._serving import serve_mcp

        return serve_mcp(chosen, options.http, allowed_hosts=tuple(options.allow_host))
    from kernelbox.mcp._stdio_server import serve_stdio

    return serve_stdio(chosen)


def _read_options(options: Namespace) -> McpOptions:
    from kernelbox.mcp._mcp_options import McpOptions

    shared = read_shared_options(options)
    if shared["pythons"] and "kernels" not in options.toolset:
        raise InvalidInput.saying("--allow-python and --allow-package need --toolset kernels, whose tools open kernels")
    variables, unread = read_dotenv(os.path.join(shared["workspace"], ".env"))
    if unread:
        print(f"kernelbox: warning: .env has no NAME=value in line {', '.join(map(str, unread))}", file=sys.stderr)
    added, refused = add_variables(variables, options.allow_env)
    if added:
        print(f"kernelbox: .env sets {', '.join(added)}", file=sys.stderr)
    if refused:
        advice = "set them outside, or name them with --allow-env"
        print(f"kernelbox: warning: .env may not set {', '.join(refused)}; {advice}", file=sys.stderr)
    return McpOptions(
        **shared,
        toolsets=tuple(options.toolset),
        approve=options.approve,
        require_shell_escape=options.require_shell_escape,
        keep_kernels=options.keep_kernels,
        log_level=options.log_level,
        plain=options.ipybox,
    )


def _print_config(options: Namespace) -> int:
    from kernelbox.mcp._client_config import PLACES, client_config
    from kernelbox.mcp._mcp_options import McpOptions

    # -P: clients start it in the workspace, and a cell could have put there what it would import.
    command = [sys.executable, "-P", "-m", "kernelbox", "mcp", "--workspace", _absolute(options.workspace)]
    timeout, level = options.approval_timeout, options.log_level
    given = {
        "--toolset": [",".join(options.toolset)] if options.toolset != ["ipybox"] else [],
        "--allow-env": options.allow_env,
        "--approve": [options.approve] if options.approve != "ask" else [],
        "--approval-timeout": [f"{timeout:g}"] if timeout != McpOptions.approval_timeout else [],
        "--log-level": [level] if level != McpOptions.log_level else [],
        "--policy": [_absolute(options.policy)] if options.policy else [],
        "--limit": options.limit,
        "--sandbox-config": [_absolute(options.sandbox_config)] if options.sandbox_config else [],
        "--sandbox-level": [options.sandbox_level] if options.sandbox_level else [],
        "--allow-python": [settled_words([word])[word] for word in options.allow_python],
        "--allow-package": options.allow_package,
    }
    command += [word for option, values in given.items() for value in values for word in (option, value)]
    for name in ("ipybox", "require_shell_escape", "keep_kernels", "sandbox"):
        command += [f"--{name.replace('_', '-')}"] if getattr(options, name) else []
    print(client_config(options.print_config, command, options.http))
    print(f"kernelbox: {PLACES[options.print_config]}", file=sys.stderr)
    return 0


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))

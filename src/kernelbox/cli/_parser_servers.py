"""The options of the commands that serve kernels to other programs: `mcp`, `serve` and `jupyter`."""

from __future__ import annotations

import argparse
import re

from kernelbox.base._command_line import LOG_LEVELS, add_flag, add_limit_option, add_sandbox_options, add_seconds, count
from kernelbox.base._endpoint import check_port
from kernelbox.base._errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# What browsers send as `Origin` (RFC 6454), and as `Host`.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:/?#@\s]+)(:\d+)?", re.IGNORECASE)


def add_mcp_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `mcp`."""
    parser.add_argument(
        "--workspace", metavar="DIR", default=".", help="where kernels work; its .env is read (the current directory)"
    )
    parser.add_argument(
        "--allow-env",
        action="append",
        default=[],
        metavar="NAME",
        help="a variable that .env may set besides secrets (…_KEY, …_TOKEN and the like); may be repeated",
    )
    parser.add_argument(
        "--toolset",
        type=_toolsets,
        metavar="SET[,SET]",
        default=["ipybox"],
        help="which tools to offer: ipybox (run a cell, install, reset), kernels (named kernels, jobs, variables), "
        "files, or all (ipybox)",
    )
    add_flag(parser, "--ipybox", "answer as ipybox's server does: results are plain text, with the files of pictures")
    parser.add_argument(
        "--approve",
        choices=["ask", "all", "none"],
        default="ask",
        help="tool calls and shell commands that the policy leaves open: ask the user through the client "
        "(rejected if the client cannot ask), accept all, or accept none (ask)",
    )
    _add_approval_options(parser)
    add_flag(parser, "--require-shell-escape", "let cells start programs only by shell commands that are approved")
    add_flag(
        parser,
        "--keep-kernels",
        "use the kernels of KERNELBOX_HOME: other processes see them, and they stay when the server ends",
    )
    add_limit_option(parser)
    add_sandbox_options(parser, "the kernels")
    _add_allowed_pythons(parser, "clients")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve HTTP there, or at a Unix socket with unix:PATH; the token is KERNELBOX_MCP_TOKEN, or a new one",
    )
    _repeatable(parser, "--allow-host", "HOST[:PORT]", _host, "a host name that clients may use in URLs for --http")
    _add_log_level(parser, "WARNING", "how much is written to stderr")
    parser.add_argument(
        "--print-config",
        choices=["claude-code", "claude-desktop", "cursor", "vscode"],
        help="print what to paste into a client for these options, then exit",
    )


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `serve`."""
    _add_address(parser)
    _add_callers(parser)
    parser.add_argument(
        "--mcp",
        type=_toolsets,
        nargs="?",
        const=["kernels"],
        metavar="SET[,SET]",
        help="also serve MCP at /mcp, with the tools of these sets: ipybox, kernels, files, or all (kernels)",
    )
    _add_approval_options(parser)
    add_limit_option(parser)
    add_sandbox_options(parser, "the kernels")
    _add_allowed_pythons(parser, "callers")
    _add_server_limits(parser)
    add_seconds(
        parser, "--grace", "how long cells may continue after a signal to stop before they are interrupted (5)", 5.0
    )
    _add_log_level(parser, "INFO", "how much is written to stderr")


def _add_address(parser: argparse.ArgumentParser) -> None:
    """Adds where the server listens, and where its kernels work."""
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8080, help="the port; 0 lets the system choose (8080)")
    parser.add_argument("--uds", metavar="PATH", help="listen on a Unix socket instead")
    parser.add_argument(
        "--workspace", metavar="DIR", default=".", help="where kernels work, and whose files are served (.)"
    )


def _add_callers(parser: argparse.ArgumentParser) -> None:
    """Adds who may send requests."""
    parser.add_argument(
        "--tokens", metavar="FILE", help="tokens of several callers, as TOML; each sees only its own kernels"
    )
    add_flag(parser, "--require-token", "refuse to start without a token, instead of making one and printing it")
    _repeatable(parser, "--allow-host", "HOST[:PORT]", _host, "a host name that clients may use in URLs")
    pages = "web pages that may send requests, such as http://localhost:3000"
    _repeatable(parser, "--cors-origin", "ORIGIN", _origin, pages)


def _add_allowed_pythons(parser: argparse.ArgumentParser, who: str) -> None:
    """Adds what others may choose for the kernels that they open."""
    pythons = f"an interpreter, environment or version that {who} may choose for a kernel; none by default"
    _repeatable(parser, "--allow-python", "PYTHON", str, pythons)
    packages = f"a package that {who} may have installed for a kernel, or * for any; none by default"
    _repeatable(parser, "--allow-package", "NAME", str, packages)


def _add_server_limits(parser: argparse.ArgumentParser) -> None:
    """Adds how much the server takes on."""
    for option, default, what in (
        ("--max-kernels", 1000, "open at most this many kernels"),
        ("--max-queue", 64, "cells that may run or wait in one kernel"),
        ("--max-running", 1000, "cells that may run or wait in all kernels"),
    ):
        text = f"{what}, 0 for no limit ({default})"
        parser.add_argument(option, type=count, default=default, metavar="N", help=text)
    parser.add_argument("--max-body", type=_size, default=16, metavar="MIB", help="the largest request (16)")
    parser.add_argument("--max-upload", type=_size, default=1024, metavar="MIB", help="the largest file sent (1024)")


def _add_log_level(parser: argparse.ArgumentParser, default: str, text: str) -> None:
    parser.add_argument("--log-level", choices=LOG_LEVELS, default=default, help=f"{text} ({default})")


def _repeatable(
    parser: argparse.ArgumentParser, option: str, metavar: str, kind: Callable[[str], str], text: str
) -> None:
    parser.add_argument(
        option, type=kind, action="append", default=[], metavar=metavar, help=f"{text}; may be repeated"
    )


def add_jupyter_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `jupyter`."""
    parser.add_argument("action", choices=["install", "remove"])
    parser.add_argument("--name", default="kernelbox", help="what Jupyter calls the kernelspec (kernelbox)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (the default)")
    where.add_argument("--sys-prefix", action="store_true", help="for this Python environment")
    where.add_argument("--prefix", metavar="DIR", help="below a directory")
    parser.add_argument(
        "--kernel", metavar="NAME", help="let all notebooks share the kernel of this name, which outlives them"
    )


def _toolsets(text: str) -> list[str]:
    known = ["ipybox", "kernels", "files"]
    names = known if text == "all" else text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not a set of tools; use {', '.join(known)} or all")
    return names


def _port(text: str) -> int:
    number = count(text)
    try:
        return check_port(number)
    except InvalidInput as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def _size(text: str) -> int:
    value = count(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 would refuse everything: use 1 or more")
    return value


def _origin(text: str) -> str:
    if text != "*" and not _ORIGIN.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an origin: use what browsers send, without a path, such as http://localhost:3000, or *"
        )
    return text


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a host: use a name such as example.org or example.org:8080")
    return text


def _add_approval_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy", metavar="FILE", help="rules for approvals, as TOML or JSON; they decide before anyone is asked"
    )
    add_seconds(parser, "--approval-timeout", "reject requests that are not answered in this time (300)", 300.0)

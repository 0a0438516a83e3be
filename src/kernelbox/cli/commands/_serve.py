"""`serve`: serves kernels over HTTP."""

from __future__ import annotations

import os

from kernelbox.base._config import set_limits
from kernelbox.base._errors import InvalidInput, StartFailed
from kernelbox.base._limits import parse_limits
from kernelbox.core._options import choose_sandbox
from kernelbox.core.approvals._approval_policy import ApprovalPolicy
from kernelbox.core.approvals._policy_file import read_policy
from kernelbox.host.pythons._allowed_pythons import allow_pythons, settled_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from kernelbox.server._service_options import ServiceOptions
    from kernelbox.server.http._callers import Token


def run(options: Namespace) -> int:
    """Runs the command."""
    from kernelbox.server._serving import serve
    from kernelbox.server.http._binding import Binding

    # Before the workspace is entered: a relative path is the caller's.
    uds = None if options.uds is None else os.path.abspath(options.uds)
    set_limits(parse_limits(options.limit))
    chosen = _read_options(options)
    return serve(chosen, Binding(options.host, options.port, uds), grace=options.grace, log_level=options.log_level)


def _read_options(options: Namespace) -> ServiceOptions:
    from kernelbox.mcp._mcp_options import McpOptions
    from kernelbox.server._service_options import MEBIBYTE, ServiceOptions
    from kernelbox.server.http._callers import TOKEN_VARIABLE

    tokens = _read_tokens(options.tokens)
    if options.require_token and not tokens:
        raise StartFailed(f"there is no token; set {TOKEN_VARIABLE}, or name a file with --tokens")
    shared, mcp = read_shared_options(options, tokens=options.tokens), None
    if options.mcp is not None:  # its kernels are those of the home, as everywhere in the service
        mcp = McpOptions(**shared, toolsets=tuple(options.mcp), keep_kernels=True, log_level=options.log_level)
    return ServiceOptions(
        **shared,
        tokens=tokens,
        allowed_hosts=tuple(options.allow_host),
        cors_origins=tuple(options.cors_origin),
        mcp=mcp,
        max_kernels=options.max_kernels,
        max_queue=options.max_queue,
        max_running=options.max_running,
        max_body=options.max_body * MEBIBYTE,
        max_upload=options.max_upload * MEBIBYTE,
    )


def _read_tokens(path: str | None) -> tuple[Token, ...]:
    from kernelbox.server.http._callers import tokens_from_env
    from kernelbox.server.http._token_file import read_tokens

    own = tokens_from_env()
    return own if path is None else (*own, *read_tokens(os.path.expanduser(path)))


def read_shared_options(options: Namespace, *, tokens: str | None = None) -> dict[str, Any]:
    """Returns the options that `serve` and `mcp` share, and makes the workspace the current directory.

    Kernels start there, and their home is there by default. Kernels cannot read the file of `tokens`.
    """
    # Before the workspace is entered: a relative path is the caller's, and code in a kernel can write to the workspace.
    policy = ApprovalPolicy() if options.policy is None else read_policy(os.path.expanduser(options.policy))
    walls = (options.sandbox, options.sandbox_config, options.sandbox_level)
    sandbox = choose_sandbox(*walls, tokens=tokens, policy=options.policy)
    words = settled_words(options.allow_python)
    try:
        os.chdir(os.path.expanduser(options.workspace))
        workspace = os.getcwd()
    except OSError as exc:
        advice = f"use a directory that is there: {exc.strerror}"
        raise InvalidInput("the workspace", options.workspace, advice) from exc
    if words:
        from kernelbox.api._configured import kernels

        kernels().store.read_new()  # an interpreter that cells of sandboxed kernels can write is not run
    pythons = allow_pythons(words, options.allow_package, workspace, sandboxed=sandbox is not None)
    approvals = {"policy": policy, "approval_timeout": options.approval_timeout}
    return {"workspace": workspace, **approvals, "sandbox": sandbox, "pythons": pythons}

"""`serve`: serves kernels over HTTP."""

from __future__ import annotations

import os

from kernelbox.base._config import set_limits
from kernelbox.base._errors import InvalidInput, StartFailed
from kernelbox.base._limits import parse_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.host.pythons._allowed_pythons import AllowedPythons
    from kernelbox.mcp._mcp_options import McpOptions
    from kernelbox.sandbox._sandbox_config import SandboxConfig
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
    from kernelbox.core._options import choose_sandbox
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.approvals._policy_file import read_policy
    from kernelbox.host.pythons._allowed_pythons import settled_words
    from kernelbox.server._service_options import MEBIBYTE, ServiceOptions
    from kernelbox.server.http._callers import TOKEN_VARIABLE

    policy = ApprovalPolicy() if options.policy is None else read_policy(os.path.expanduser(options.policy))
    tokens = _read_tokens(options.tokens)
    files = {"tokens": options.tokens, "policy": options.policy}
    sandbox = choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level, **files)
    if options.require_token and not tokens:
        raise StartFailed(f"there is no token; set {TOKEN_VARIABLE}, or name a file with --tokens")
    words = settled_words(options.allow_python)
    workspace = enter_workspace(options.workspace)
    pythons = read_pythons(words, options, workspace, sandboxed=sandbox is not None)
    return ServiceOptions(
        workspace=workspace,
        tokens=tokens,
        allowed_hosts=tuple(options.allow_host),
        cors_origins=tuple(options.cors_origin),
        policy=policy,
        approval_timeout=options.approval_timeout,
        sandbox=sandbox,
        pythons=pythons,
        mcp=_mcp_options(options, workspace, policy, sandbox, pythons),
        max_kernels=options.max_kernels,
        max_queue=options.max_queue,
        max_running=options.max_running,
        max_body=options.max_body * MEBIBYTE,
        max_upload=options.max_upload * MEBIBYTE,
    )


def _mcp_options(
    options: Namespace,
    workspace: str,
    policy: ApprovalPolicy,
    sandbox: SandboxConfig | None,
    pythons: AllowedPythons,
) -> McpOptions | None:
    """Returns what MCP is served with: the kernels are those of the home, as everywhere in the service."""
    if options.mcp is None:
        return None
    from kernelbox.mcp._mcp_options import McpOptions

    return McpOptions(
        workspace=workspace,
        toolsets=tuple(options.mcp),
        policy=policy,
        approval_timeout=options.approval_timeout,
        keep_kernels=True,
        sandbox=sandbox,
        pythons=pythons,
        log_level=options.log_level,
    )


def read_pythons(words: dict[str, str], options: Namespace, workspace: str, *, sandboxed: bool) -> AllowedPythons:
    """Returns the interpreters and packages that others may choose; the current directory is the workspace."""
    if words:
        from kernelbox.api._configured import kernels

        kernels().store.read_new()  # an interpreter that cells of sandboxed kernels can write is not run
    from kernelbox.host.pythons._allowed_pythons import allow_pythons

    return allow_pythons(words, options.allow_package, workspace, sandboxed=sandboxed)


def _read_tokens(path: str | None) -> tuple[Token, ...]:
    from kernelbox.server.http._callers import tokens_from_env
    from kernelbox.server.http._token_file import read_tokens

    own = tokens_from_env()
    return own if path is None else (*own, *read_tokens(os.path.expanduser(path)))


def enter_workspace(directory: str) -> str:
    """Makes the workspace the current directory: kernels start there, and their home is there by default."""
    try:
        os.chdir(os.path.expanduser(directory))
        return os.getcwd()
    except OSError as exc:
        raise InvalidInput("the workspace", directory, f"use a directory that is there: {exc.strerror}") from exc

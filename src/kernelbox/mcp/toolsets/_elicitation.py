"""Approvals by the person at the client: elicitation, as the negotiated version of the protocol does it.

Up to 2025-11-25 the server sends a request of its own while the tool call waits. From 2026-07-28 on the call returns
what must be asked, and the client calls again with the answers: the cell waits in its kernel meanwhile, and the state
that the client sends back names its job.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import anyio
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequests, InputRequiredResult
from mcp_types.version import is_version_at_least

from kernelbox.base._errors import ApprovalClosed
from kernelbox.base._safe_text import TOO_LONG, show_whole
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.shells._asyncio_cell_job import CellJob

# The first version of the protocol whose calls return what must be asked.
_RETURNS_QUESTIONS = "2026-07-28"

# How often a client comes back with answers in one call: they give up after ten times, and the cell would be lost.
_MOST_ROUNDS = 10

_NO_ELICITATION = (
    "the user cannot be asked: this MCP client does not support elicitation. Allow it by a rule in the server's "
    "--policy FILE, or start the server with --approve all"
)
_TOO_MANY = (
    "this call has come back with answers as often as clients do. Allow what comes often with --policy FILE, have the "
    "answer remembered, or run fewer commands in one cell"
)
_SWITCHED_OFF = "the server was started with --approve none"

Way = Literal["ask in the call", "return the questions", "reject"]

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "remember": {
            "type": "string",
            "title": "Next time",
            "description": "Whether the very same call may run again without asking",
            "enum": ["ask", "cell", "kernel"],
            "default": "ask",
        },
    },
}

_REMEMBER: dict[str, Literal["execution", "session"]] = {"cell": "execution", "kernel": "session"}


def job_of(ctx: Context) -> str | None:
    """Returns the id of the job whose questions a call brings answers to; None if the call is a first one."""
    return None if ctx.request_state is None else ctx.request_state.partition(" ")[0]


def _rounds_of(ctx: Context) -> int:
    """Returns how often a call has come back with answers; the SDK has sealed the state that says so."""
    return 0 if ctx.request_state is None else int(ctx.request_state.partition(" ")[2])


def way_to_ask(ctx: Context) -> Way:
    """Returns how this client can be asked."""
    capabilities = ctx.client_capabilities
    offered = capabilities.elicitation if capabilities is not None else None
    if offered is None or (offered.form is None and offered.url is not None):
        return "reject"
    version = ctx.protocol_version
    if version is None or not is_version_at_least(version, _RETURNS_QUESTIONS):
        return "ask in the call"
    return "return the questions" if _rounds_of(ctx) < _MOST_ROUNDS else "reject"


def can_be_shown(request: ApprovalRequest) -> bool:
    """Returns whether a person can be shown all of what would run."""
    return _show(request) is not None


def questions(ctx: Context, job: CellJob, requests: list[ApprovalRequest]) -> InputRequiredResult:
    """Returns what the client must ask before it calls again."""
    asked: InputRequests = {request.id: ElicitRequest(params=_form(request)) for request in requests}
    return InputRequiredResult(input_requests=asked, request_state=f"{job.id} {_rounds_of(ctx) + 1}")


async def take_answers(ctx: Context, job: CellJob) -> None:
    """Gives a job the answers that came with a second call."""
    for key, given in (ctx.input_responses or {}).items():
        request = job.cell.requests.get(key)
        if request is not None and isinstance(given, ElicitResult):
            await _settle(request, given)


async def ask(ctx: Context, request: ApprovalRequest) -> None:
    """Asks the client for an answer while the call waits, and takes the question back when it is of no use any more."""
    form, given = _form(request), None
    with anyio.CancelScope() as scope:
        request.on_decision(lambda accepted: scope.cancel())
        try:
            given = await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_context.request_id)
        except (MCPError, ValueError) as exc:
            await _reject(request, f"the question could not be put to the client: {exc}")
    if given is not None:
        await _settle(request, given)


async def refuse(ctx: Context, request: ApprovalRequest, *, switched_off: bool) -> None:
    """Rejects a request that the client's user is not asked about."""
    reason = _TOO_MANY if _rounds_of(ctx) else _NO_ELICITATION
    if not can_be_shown(request):
        reason = TOO_LONG
    await _reject(request, _SWITCHED_OFF if switched_off else reason)


async def _reject(request: ApprovalRequest, reason: str) -> None:
    """Rejects a request, unless it has been decided meanwhile."""
    with contextlib.suppress(ApprovalClosed):
        await request.reject(reason)


async def _settle(request: ApprovalRequest, given: ElicitResult) -> None:
    if given.action != "accept":
        await _reject(request, "the user declined" if given.action == "decline" else "the user dismissed the question")
        return
    with contextlib.suppress(ApprovalClosed):
        await request.accept(remember=_REMEMBER.get(str((given.content or {}).get("remember"))))


def _form(request: ApprovalRequest) -> ElicitRequestFormParams:
    shown = _show(request)
    assert shown is not None, "what cannot be shown is not asked"
    call, args = shown
    lines = [f"Code in a kernel wants to call {call}. Allow it?", *(f"{name}: {value}" for name, value in args)]
    return ElicitRequestFormParams(message="\n".join(lines), requested_schema=_SCHEMA)


def _show(request: ApprovalRequest) -> tuple[str, list[tuple[str, str]]] | None:
    return show_whole(request.server_name, request.tool_name, request.tool_args)

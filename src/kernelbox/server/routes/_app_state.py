"""What the routes of one application share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from kernelbox.api._configured import kernels
from kernelbox.base._config import KernelBoxConfig
from kernelbox.base._environment import scrubbed_environment, variables_for_kernels
from kernelbox.core._options import KernelOptions
from kernelbox.host.files._home import Home
from kernelbox.host.files._workspace_files import Workspace
from kernelbox.host.store._job_journal import Journal
from kernelbox.server._service_options import ServiceOptions
from kernelbox.server.http._access import CALLER, folder_of
from kernelbox.server.http._callers import Caller, Scope
from kernelbox.server.http._failures import AFTER_DEATH, RequestRefused, sentence_about
from kernelbox.server.http._logs import FIELDS
from kernelbox.server.http._metrics import Metrics
from kernelbox.server.http._request_limits import check_values
from kernelbox.server.jobs._caller_kernels import CallerKernels
from kernelbox.server.jobs._executions import Executions
from kernelbox.server.jobs._job_service import Jobs
from kernelbox.server.jupyter._front_ends import FrontEnds
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.tools._toolbox import Toolbox


@dataclass(frozen=True)
class AppState:
    """The options, the kernels, and what runs in them."""

    options: ServiceOptions
    kernels: AsyncKernels
    executions: Executions
    metrics: Metrics
    jobs: Jobs
    front_ends: FrontEnds


def require_home() -> None:
    """Raises StoreFailed for a home that was not made by this user; one that is missing is made when it is needed."""
    with contextlib.suppress(FileNotFoundError), kernels().store.runtime():
        pass


def require_sandbox(state: AppState) -> None:
    """Raises what keeps kernels from being confined, where they are to be: better now than at the first request."""
    if state.options.sandbox is None:
        return
    name = f"trial-{os.urandom(4).hex()}"
    trial = KernelOptions(
        cwd=os.path.realpath(state.options.workspace), lifetime="process", sandbox=state.options.sandbox
    )
    try:
        kernels().create(name, trial)
    finally:
        kernels().destroy(name)


def make_state(options: ServiceOptions) -> AppState:
    """Returns what the routes share; nothing is opened before it is used."""
    here = kernels()
    new = KernelOptions(
        cwd=os.path.realpath(options.workspace),
        env=scrubbed_environment(variables_for_kernels()),
        lifetime=options.lifetime,
        sandbox=options.sandbox,
    )
    toolbox = Toolbox(here.config, sandboxed=options.sandbox is not None)
    reached = AsyncKernels(here, new, toolbox, advice=AFTER_DEATH, most=options.max_kernels, describe=sentence_about)
    journal = Journal(home_of(reached.config))
    metrics = Metrics()
    executions = Executions(reached, options, metrics)
    return AppState(
        options=options,
        kernels=reached,
        executions=executions,
        metrics=metrics,
        jobs=Jobs(journal, reached),
        front_ends=FrontEnds(reached, options, executions),
    )


def home_of(config: KernelBoxConfig) -> Home:
    """Returns the directory that servers keep jobs and their token in."""
    return Home(config.home, config.key_file)


def state_of(connection: HTTPConnection) -> AppState:
    """Returns what the routes share, for a request or a WebSocket."""
    state: AppState = connection.app.state.kernelbox
    return state


Need = Scope | Literal["answer"]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def needs(need: Need | None) -> Callable[[Endpoint], Endpoint]:
    """Says what the caller of a route must be allowed to do; None is for routes that tell nothing."""

    def note(endpoint: Endpoint) -> Endpoint:
        endpoint.need = need  # type: ignore[attr-defined]  # read by `require_need`
        return endpoint

    return note


class CheckedRoute(APIRoute):
    """Checks what a caller may do, and the values in a body, before FastAPI reads the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def check_first(request: Request) -> Response:
            require_need(request, self.endpoint)
            if self.body_field is not None:
                check_values(await request.body())
            return await handle(request)

        return check_first


def require_need(connection: HTTPConnection, endpoint: Callable[..., Any]) -> None:
    """Raises RequestRefused if the caller may not use a route; one that does not say what it needs cannot be used."""
    need: Need | None = endpoint.need  # type: ignore[attr-defined]  # see `needs`
    if need is not None:
        require(connection, need)


def require(connection: HTTPConnection, need: Need) -> Caller:
    """Returns who sends a request; raises RequestRefused if that caller may not do this.

    Answering approvals takes a token: a caller that is known by its connection alone may be the cell that asks.
    """
    caller = caller_of(connection)
    scope = "run" if need == "answer" else need
    if scope not in caller.scopes:
        raise RequestRefused(403, "scope_missing", f"this token lacks the scope {scope!r}")
    if need == "answer" and not caller.has_token:
        sentence = (
            "approvals are answered only with a token: send the header `Authorization: Bearer TOKEN`; the token of "
            "this server is in the file `token` of its home"
        )
        raise RequestRefused(401, "token_required", sentence, {"WWW-Authenticate": "Bearer"})
    return caller


def caller_of(connection: HTTPConnection) -> Caller:
    """Returns who sends a request."""
    caller: Caller = connection.scope[CALLER]
    if caller.name:
        connection.scope[FIELDS]["caller"] = caller.name
    return caller


def kernels_of(connection: HTTPConnection) -> CallerKernels:
    """Returns the kernels as the sender of a request sees them."""
    caller = caller_of(connection)
    reached = state_of(connection).kernels
    return CallerKernels(reached.within(caller.name) if caller.name else reached, caller, connection.scope[FIELDS])


def workspace_of(connection: HTTPConnection) -> Workspace:
    """Returns the files that the sender of a request sees: of a caller with a name, those in its own folder."""
    caller, options = caller_of(connection), state_of(connection).options
    return Workspace(folder_of(options.workspace, caller), options.sandbox)

"""What Jupyter's kernel API sends and takes, as its documents have it, and as leniently as Jupyter takes it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.datastructures import MutableHeaders

from kernelbox.server.jupyter._kernel_info import SPEC_NAME
from kernelbox.server.routes._app_state import CheckedRoute
from kernelbox.server.routes._bodies import Few


class JupyterRoute(CheckedRoute):
    """A route that reads every body as JSON, as Jupyter does: many clients send no Content-Type."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            MutableHeaders(scope=request.scope)["Content-Type"] = "application/json"
            return await handle(Request(request.scope, request.receive))

        return handle_json


def _find_native(name: str | None) -> str | None:
    """Returns the name of our own kernel for what Jupyter's clients call the kernel of the server's own Python."""
    return SPEC_NAME if name == "python" else name or None


_SpecName = Annotated[str | None, AfterValidator(_find_native)]


class Lenient(BaseModel):
    """A body of which we use a part: front ends send more."""

    model_config = ConfigDict(extra="ignore")


class KernelRequest(Lenient):
    name: _SpecName = Field(None, description="a kernelspec; without one, and for `python`, our own kernel")
    path: str | None = Field(None, description="of the notebook; not used")
    env: Annotated[dict[str, str], *Few] | None = Field(
        None, description="variables of the kernel, of which those in KERNEL_ are used"
    )


class JupyterKernel(BaseModel):
    id: str
    name: str
    last_activity: str
    execution_state: str
    connections: int


class KernelOfSession(Lenient):
    id: str | None = None
    name: _SpecName = None


class SessionRequest(Lenient):
    path: str = ""
    name: str | None = None
    type: str = "notebook"
    kernel: KernelOfSession = Field(default_factory=KernelOfSession)


class SessionChanges(Lenient):
    path: str | None = None
    name: str | None = None
    type: str | None = None
    kernel: KernelOfSession | None = None


class JupyterSession(BaseModel):
    id: str
    path: str
    name: str
    type: str
    kernel: JupyterKernel


class KernelSpec(BaseModel):
    name: str
    spec: dict[str, Any]
    resources: dict[str, str]


class KernelSpecs(BaseModel):
    default: str
    kernelspecs: dict[str, KernelSpec]


class ApiVersion(BaseModel):
    version: str

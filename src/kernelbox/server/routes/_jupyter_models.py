"""What Jupyter's kernel API sends and takes, as its documents have it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kernelbox.server.routes._models import Few


class Lenient(BaseModel):
    """A body of which we use a part: front ends send more."""

    model_config = ConfigDict(extra="ignore")


class KernelRequest(Lenient):
    name: str | None = Field(None, description="a kernelspec; without one, our own kernel")
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
    name: str | None = None


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

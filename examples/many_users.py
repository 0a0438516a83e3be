"""A web service with a kernel for each user: `uvicorn many_users:app`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from kernelbox import AsyncKernel

kernels: dict[str, AsyncKernel] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await asyncio.gather(*(kernel.stop() for kernel in kernels.values()))


app = FastAPI(lifespan=lifespan)


@app.post("/users/{user}/run")
async def run(user: str, code: str) -> dict[str, object]:
    kernel = kernels.setdefault(user, AsyncKernel(timeout=10))
    result = await kernel.execute(code)
    return {"ok": result.ok, "text": result.text}

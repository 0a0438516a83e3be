"""What the executor's tests share: running a coroutine with a deadline, and reading streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tests.support.bounded import DEADLINE as DEADLINE
from tests.support.bounded import run as run

from kernelbox import ApprovalRequest, CodeExecutionChunk, CodeExecutionResult, CodeExecutor


async def answer_all(
    executor: CodeExecutor, code: str, answer: Callable[[ApprovalRequest], Awaitable[None]], **options: Any
) -> tuple[list[ApprovalRequest], CodeExecutionResult | None]:
    """Streams a cell and answers what it asks; returns the requests and the result."""
    requests, result = [], None
    async for item in executor.stream(code, **options):
        match item:
            case ApprovalRequest():
                requests.append(item)
                await answer(item)
            case CodeExecutionResult():
                result = item
    return requests, result


async def accept(request: ApprovalRequest) -> None:
    await request.accept()


async def reject(request: ApprovalRequest) -> None:
    await request.reject()


async def first_chunk(stream: Any) -> str:
    """Waits for the first text of a stream: from then on the cell is known to run."""
    async for item in stream:
        if isinstance(item, CodeExecutionChunk):
            return item.text
    raise AssertionError("the cell has written nothing")


async def text(executor: CodeExecutor, code: str) -> str | None:
    return (await executor.execute(code, timeout=DEADLINE)).text


async def collect(stream: AsyncIterator[Any], into: list[Any]) -> None:
    """Reads a stream to its end, also one that ends with an exception."""
    async for item in stream:
        into.append(item)  # noqa: PERF401  # what came before an exception is kept

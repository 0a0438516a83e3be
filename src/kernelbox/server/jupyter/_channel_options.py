"""What channels are made with: a front end, access to the kernel, and what decides about requests of cells."""

from __future__ import annotations

import contextlib

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Protocol

    from kernelbox.core._kernel import Kernel
    from kernelbox.core.approvals._policy import ApprovalPolicy
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.server.jupyter._front_end_message import JupyterMessage
    from kernelbox.shells._asyncio_kernels import AsyncKernels
    from kernelbox.wire._results import ExecutionResult

    class FrontEnd(Protocol):
        """One connected front end."""

        async def send(self, message: JupyterMessage) -> None:
            """Sends a message, and waits while the front end is far behind; one that has gone is sent nothing."""
            ...


@contextlib.contextmanager
def take_no_notes(record: KernelRecord, language: str) -> Iterator[Callable[[ExecutionResult], None]]:
    """Notes nothing of a cell."""
    yield lambda result: None


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """The kernel behind the channels: how to find its handle, interrupt it, and end it (True: to start it anew)."""

    find: Callable[[], Awaitable[Kernel]]
    interrupt: Callable[[], Awaitable[object]]
    end: Callable[[bool], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class ChannelRules:
    """What decides the asks of cells: no person can be asked, so what the policy does not allow is rejected."""

    policy: ApprovalPolicy
    kernels: AsyncKernels
    version: str
    # Holds a place for a cell in a kernel, or raises why there is none; the function takes the result.
    noted: Callable[[KernelRecord, str], AbstractContextManager[Callable[[ExecutionResult], None]]] = take_no_notes
    # Returns the sentence about a failure for a front end.
    describe: Callable[[Exception], str] = str

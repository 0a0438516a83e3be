"""What channels are made with: a front end, access to the kernel, and what decides about requests of cells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.core.approvals._approval_policy import ApprovalPolicy
from kernelbox.server.jupyter._front_end_message import JupyterMessage
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.shells._asyncio_workplace import note_nothing
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.shells._asyncio_workplace import Noted


class FrontEnd(Protocol):
    """One connected front end."""

    async def send(self, message: JupyterMessage) -> None:
        """Sends a message, and waits while the front end is far behind; one that has gone is sent nothing."""
        ...


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """The kernel behind the channels: how to find its handle, interrupt it, and end it (True: to start it anew).

    `on_life` is called with False when the kernel has died, and with True when it has been restarted. A front end that
    learns of deaths this way gets no reply to the cell that the kernel died in.
    """

    find: Callable[[], Awaitable[KernelHandle]]
    interrupt: Callable[[], Awaitable[object]]
    end: Callable[[bool], Awaitable[object]]
    on_life: Callable[[bool], object] | None = None


@dataclass(frozen=True, slots=True)
class ChannelRules:
    """What decides the asks of cells: no person can be asked, so what the policy does not allow is rejected."""

    policy: ApprovalPolicy
    kernels: AsyncKernels
    # Holds a place for a cell in a kernel, or raises why there is none; the function takes the result.
    noted: Noted = note_nothing
    # Returns the sentence about a failure for a front end.
    describe: Callable[[Exception], str] = str

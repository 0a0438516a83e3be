"""Jupyter comms (widgets): messages leave through the outbox, so that a front end can be attached to them."""

from __future__ import annotations

from typing import Any

import comm
from comm.base_comm import BaseComm, CommManager

from kernelbox.guest._outbox import Outbox
from kernelbox.wire._messages import Comm
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())


class KernelComm(BaseComm):
    """A comm whose messages go to the client that asked for the running execution."""

    outbox: Outbox

    def publish_msg(
        self,
        msg_type: str,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: list[bytes] | None = None,
        **keys: Any,
    ) -> None:
        content = {"comm_id": self.comm_id, "data": data or {}, "metadata": metadata or {}, **keys}
        self.outbox.send(Comm(self.outbox.execution_id, msg_type, content))


def install(outbox: Outbox) -> CommManager:
    """Makes `comm.create_comm` and `comm.get_comm_manager` use this kernel's outbox."""
    manager = CommManager()
    KernelComm.outbox = outbox
    comm.create_comm = KernelComm
    comm.get_comm_manager = lambda: manager
    return manager

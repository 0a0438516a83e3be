"""Jupyter comms (widgets): what they send leaves through the outbox, what front ends send to them runs as a cell."""

from __future__ import annotations

import json
from typing import Any

import comm
from comm.base_comm import BaseComm, CommManager

from kernelbox.guest.output._outbox import Outbox
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._messages import Comm, Execute

keep_builtins(globals())

_load = json.loads


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
        plain = [bytes(memoryview(buffer)) for buffer in buffers or ()]
        self.outbox.send(Comm(self.outbox.execution_id, msg_type, content, plain))


class Comms(CommManager):
    """The comms of a kernel, by their ids, and what is called for those that a front end opens."""

    def take(self, request: Execute) -> None:
        """Gives a front end's message to the comm that it names. Errors of the comm's own code are logged."""
        message = {**_load(request.code), "buffers": [memoryview(buffer) for buffer in request.buffers]}
        content = message["content"]
        if message["msg_type"] != "comm_open":
            if content["comm_id"] in self.comms:  # or it has been closed meanwhile
                handle = self.comm_msg if message["msg_type"] == "comm_msg" else self.comm_close
                handle(None, "", message)  # type: ignore[arg-type]  # of ipykernel's, which no handler uses
        elif content["target_name"] in self.targets:
            self.comm_open(None, "", message)  # type: ignore[arg-type]  # as above
        else:  # its library has not been imported: front ends try, and take the answer
            unwanted = KernelComm(target_name=content["target_name"], comm_id=content["comm_id"], primary=False)
            self.register_comm(unwanted)
            unwanted.close()

    def describe(self, target_name: str) -> dict[str, dict[str, str]]:
        """Returns the open comms, those of one target if it is named."""
        known = {comm_id: str(each.target_name) for comm_id, each in list(self.comms.items())}
        return {
            comm_id: {"target_name": name} for comm_id, name in known.items() if not target_name or name == target_name
        }


def install(outbox: Outbox) -> Comms:
    """Makes `comm.create_comm` and `comm.get_comm_manager` use this kernel's outbox."""
    manager = Comms()
    KernelComm.outbox = outbox
    comm.create_comm = KernelComm
    comm.get_comm_manager = lambda: manager
    return manager

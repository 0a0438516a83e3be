"""What a Jupyter kernel publishes about requests that are not this client's, and between cells, as our own messages."""

from __future__ import annotations

from kernelbox.host.jupyter._cell import Cell, execution_count_of
from kernelbox.host.jupyter._message import KernelMessage
from kernelbox.wire._messages import Begun, Execute, Message, Started
from kernelbox.wire._schema import COMM_KINDS, MAX_TOLD_CODE

# What means something without a cell: threads, and widgets that they move.
_BETWEEN = ("stream", "display_data", "update_display_data", "clear_output", *COMM_KINDS)


class Onlooker:
    """Follows the cells of other clients, which a kernel runs one at a time."""

    def __init__(self) -> None:
        self._cell: Cell | None = None

    def __repr__(self) -> str:
        return f"<Onlooker of {self._cell!r}>"

    def take(self, message: KernelMessage) -> list[Message]:
        """Takes what the kernel published about anything but this client's own requests."""
        if message.kind == "execute_input" and message.parent:
            code = message.text("code")[:MAX_TOLD_CODE]
            self._cell = Cell(Execute(message.parent, code))
            count = execution_count_of(message) or 0
            return [Begun(message.parent, code, "python", count, False, message.parent)]
        cell = self._cell
        if cell is not None and message.parent == cell.id:
            told = cell.take_published(message)
            if message.kind == "status" and message.text("execution_state") == "idle":
                self._cell = None
                status = "error" if cell.failed else "ok"
                told += cell.take_reply(KernelMessage("execute_reply", cell.id, {"status": status}))
            return [each for each in told if not isinstance(each, Started)]
        return Cell(Execute("", "")).take_published(message) if message.kind in _BETWEEN else []

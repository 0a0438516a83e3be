"""A request that a kernel copies itself: it runs between cells, and its answer comes when all copies are made."""

from __future__ import annotations

import os
import select
import time

from kernelbox.base._errors import CannotCopy, KernelBusy, StoreFailed
from kernelbox.wire._messages import Copy, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from kernelbox.core._kernels import Kernels
    from kernelbox.host.engines._interface import Fostering
    from kernelbox.host.store._record import KernelRecord


class CopyRequest:
    """What a kernel has been asked to copy, and its answer. `with` closes the connection if there is none."""

    def __init__(self, kernels: Kernels, record: KernelRecord, request: Copy, patience: float) -> None:
        request.id = os.urandom(8).hex()
        self._record, self._request = record, request
        self._handle = kernels.kernel(record)
        self._deadline = time.monotonic() + patience
        self._count: int | None = None
        try:
            self._connection = self._handle.connect()
        except StoreFailed:  # not the kernel's fault: too many files are open here
            raise
        except OSError as exc:
            raise self._handle.died(self._handle.cause()) from exc
        self._connection.send(request)

    def __repr__(self) -> str:
        return f"<CopyRequest to {self._record.name!r}{'' if self._count is None else ', answered'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._count is None:
            self._connection.close()

    def wait_for(self, fostering: Fostering) -> None:
        """Waits for the keeper's word on one copy. If the kernel answers first, raises why there is none."""
        poller = select.poll()
        for number in (fostering.fileno(), self._connection.fileno()):
            poller.register(number, select.POLLIN)
        if self._count is None and fostering.fileno() not in dict(poller.poll(self._left * 1000)):
            self.finish()

    def finish(self) -> int:
        """Waits until all copies are made; returns the number of the last cell that they have seen."""
        while self._count is None and not self._connection.ended and self._left > 0:
            for message in self._connection.receive(self._left):
                if isinstance(message, Reply) and message.id == self._request.id:
                    self._handle.release(self._connection)
                    self._count = -1
                    self._count = _read_answer(self._record, message.content)
        if self._count is not None:
            return self._count
        raise self._handle.died(self._handle.cause()) if self._connection.ended else KernelBusy(self._record.name)

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


def _read_answer(record: KernelRecord, told: dict[str, object]) -> int:
    match told:
        case {"status": "ok", "execution_count": int(count)} if count >= 0:
            return count
        case {"status": "refused", "reasons": [*reasons]}:
            raise CannotCopy(record.name, [str(reason) for reason in reasons])
    raise CannotCopy(record.name, [str(told.get("reason") or told.get("evalue") or "the copy could not be made")])

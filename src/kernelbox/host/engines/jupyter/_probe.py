"""A question to a Jupyter kernel. Its answer shows that the kernel has served all earlier requests.

The kernel serves the requests of its shell channel in order, and publishes in order too. So when it has replied to a
`kernel_info_request`, no earlier request is still running. And when a publication about that request has arrived, so
have all earlier publications. Either half can be lost. An interrupt between two requests can cost the reply. A new or
slow subscription can miss the publication. Then the question is sent again.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage


class Probe:
    """Collects the answers to one question, which may have been sent several times."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._replied = False
        self._heard = False
        self._idle = False

    @property
    def times_sent(self) -> int:
        return len(self._ids)

    @property
    def complete(self) -> bool:
        """Whether the kernel has served all earlier requests, and everything that it published by then has arrived."""
        return self._replied and self._heard

    @property
    def half_lost(self) -> bool:
        """Whether the kernel has served the question, but one half of its answer is missing."""
        return (self._replied or self._idle) and not self.complete

    def sent(self, request_id: str) -> None:
        """Notes that the question was sent, for the first time or again."""
        self._ids.add(request_id)

    def take_published(self, message: KernelMessage) -> bool:
        """Takes a publication; returns whether it is about this question."""
        if message.parent not in self._ids:
            return False
        self._heard = True
        self._idle |= message.kind == "status" and message.text("execution_state") == "idle"
        return True

    def take_reply(self, message: KernelMessage) -> bool:
        """Takes a reply; returns whether it answers this question."""
        if message.parent not in self._ids:
            return False
        self._replied = True
        return True

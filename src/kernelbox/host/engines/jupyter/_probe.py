"""A question to a Jupyter kernel whose answer shows that it has served all that was sent before.

The kernel serves the requests of its shell channel in their order, and publishes in one order too. So when it has
replied to a `kernel_info_request` no earlier request runs any more; and when something that it published about that
request has been heard, nothing published before is still to come. Either half can be lost: a reply to an interrupt that
strikes between two requests, a publication to a client whose subscription the kernel has not taken note of yet, or who
was too slow. Then the question is put again.
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

    def __repr__(self) -> str:
        answers = (" replied" if self._replied else "") + (" heard" if self._heard else "")
        return f"<Probe sent {self.times_sent} times{answers}>"

    @property
    def times_sent(self) -> int:
        return len(self._ids)

    @property
    def complete(self) -> bool:
        """Whether the kernel has served all that was sent before, and all that it published by then has been heard."""
        return self._replied and self._heard

    @property
    def half_lost(self) -> bool:
        """Whether the kernel has served the question and one half of its answer is missing."""
        return (self._replied or self._idle) and not self.complete

    def sent(self, request_id: str) -> None:
        """Notes that the question was sent, for the first time or again."""
        self._ids.add(request_id)

    def take_published(self, message: KernelMessage) -> bool:
        """Takes what the kernel published; returns whether it is about this question."""
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

"""A front end that may lose its connection and come back: messages are kept for it meanwhile, within limits."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from kernelbox.server.jupyter._front_end_message import Author, JupyterMessage
from kernelbox.server.jupyter._websocket_codec import CodecV1


class Present(Protocol):
    """A front end as long as it is connected."""

    closed: bool

    @property
    def unread(self) -> list[JupyterMessage]:
        """What has not been sent."""
        ...

    async def send(self, message: JupyterMessage) -> None: ...

    def replace(self) -> None:
        """Ends the connection, because there is another."""
        ...


# Bytes of messages that are kept for a front end that is away, and what each counts besides its own.
_MOST_KEPT = 16 * 1024 * 1024
_EACH = 500

# When there is no more room, the oldest of these are dropped first: a cell without its reply would never end.
_OUTPUTS = ("stream", "display_data", "update_display_data", "execute_result", "clear_output", "comm_msg")

_codec = CodecV1()


class ReconnectingFrontEnd:
    """Passes messages to the current connection, or keeps them for the next one."""

    def __init__(self, author: Author) -> None:
        self._present: Present | None = None
        self._coming: Present | None = None
        self._kept = MissedMessages(author)

    def __repr__(self) -> str:
        return f"<ReconnectingFrontEnd {'present' if self._present else f'away, {self._kept!r}'}>"

    @property
    def present(self) -> bool:
        return self._present is not None or self._coming is not None

    async def send(self, message: JupyterMessage) -> None:
        if self._present is not None and not self._present.closed:
            await self._present.send(message)
        else:
            self._kept.add(message)

    async def come(self, front_end: Present) -> None:
        """Takes a new connection in the place of any other; it first gets what was kept."""
        for other in (self._present, self._coming):
            if other is not None:
                other.replace()
                self.go(other)
        self._coming = front_end
        while not front_end.closed and (message := self._kept.take_first()) is not None:
            await front_end.send(message)  # from now on it is among what that has not sent, until it has
            if self._coming is not front_end:
                return  # another has come meanwhile
        self._present, self._coming = front_end, None

    def go(self, front_end: Present) -> bool:
        """Notes that a connection has ended, and keeps what it had not sent; False if there is another by now."""
        if front_end not in (self._present, self._coming):
            return False
        self._present = self._coming = None
        self._kept.put_first(front_end.unread)
        return True


class MissedMessages:
    """Messages in order; if there are too many, the oldest outputs are dropped, and a message says so."""

    def __init__(self, author: Author) -> None:
        self._author = author
        self._messages: deque[tuple[JupyterMessage, int]] = deque()
        self._size = 0
        self._dropped: list[JupyterMessage] = []  # the first of them, to say so where it was
        self._dropped_count = self._dropped_size = 0

    def __repr__(self) -> str:
        return f"{len(self._messages)} messages kept, {self._dropped_count} dropped"

    def add(self, message: JupyterMessage) -> None:
        size = len(_codec.encode(message)) + _EACH
        self._messages.append((message, size))
        self._size += size
        if self._size > _MOST_KEPT:
            self._make_room()

    def put_first(self, messages: list[JupyterMessage]) -> None:
        """Puts messages that were kept before, or would have been, in front of the others."""
        later = self._messages
        self._messages, self._size = deque(), 0
        for message in [*messages, *(message for message, _ in later)]:
            self.add(message)

    def take_first(self) -> JupyterMessage | None:
        """Takes out the next message to send; if messages were dropped, first one that says so."""
        if self._dropped:
            return self._take_dropped()
        if not self._messages:
            return None
        message, size = self._messages.popleft()
        self._size -= size
        return message

    def _take_dropped(self) -> JupyterMessage:
        what = f"{self._dropped_count:,} messages ({self._dropped_size:,} bytes)"
        text = f"[kernelbox] {what} that came while this front end was away were dropped\n"
        parent = self._dropped[0].parent
        self._dropped.clear()
        self._dropped_count = self._dropped_size = 0
        return self._author.write("iopub", "stream", {"name": "stderr", "text": text}, parent)

    def _make_room(self) -> None:
        """Drops the oldest outputs, and if that is not enough the oldest of all, until a quarter is free."""
        for kinds in (_OUTPUTS, None):
            rest: deque[tuple[JupyterMessage, int]] = deque()
            for message, size in self._messages:
                if self._size > _MOST_KEPT * 3 // 4 and (kinds is None or message.kind in kinds):
                    self._size -= size
                    self._dropped_count += 1
                    self._dropped_size += size - _EACH
                    if not self._dropped:
                        self._dropped.append(message)
                else:
                    rest.append((message, size))
            self._messages = rest

"""Output that no front end here has asked for: cells of other clients, and output between cells.

A cell of another client is shown as Jupyter shows one of another front end: busy, `execute_input`, its outputs, idle.
What threads and tasks write, show and send between cells has the last cell for its parent, where front ends show it.
"""

from __future__ import annotations

from kernelbox.server.jupyter._exchange import Exchange
from kernelbox.server.jupyter._front_end_message import PROTOCOL_VERSION, Author, JupyterMessage
from kernelbox.wire._messages import Begun, Clear, Comm, Display, Done, Output, Started
from kernelbox.wire._results import ErrorInfo

News = Begun | Output | Display | Clear | Comm | Done

# Whose request the cell of another client is said to be.
_SESSION = "kernelbox"

# Cells whose tasks may still write; output of an older cell counts as the last one's.
_MOST_CELLS = 1_000


class OtherClients:
    """Follows the cells of other clients, one at a time."""

    def __init__(self, author: Author) -> None:
        self._author = author
        self._running: tuple[str, Exchange] | None = None  # the cell of another client, by its id
        self._last = Exchange(author, JupyterMessage("shell", {}))
        self._cells: dict[str, Exchange] = {}  # by the ids of their executions

    def follow_up(self, execution_id: str, request: JupyterMessage) -> None:
        """Notes which cell runs, for what comes after it, and for the tasks that it makes."""
        # Without its content, which may be long.
        exchange = Exchange(self._author, JupyterMessage("shell", request.header))
        if request.kind == "execute_request":
            self._last = exchange
        self._cells[execution_id] = exchange
        if len(self._cells) > _MOST_CELLS:
            del self._cells[next(iter(self._cells))]

    def tell(self, news: News) -> list[JupyterMessage]:
        """Returns the broadcasts for a message that belongs to no request of a front end."""
        match news:
            case Begun():
                exchange = Exchange(self._author, _request(news))
                told = [*self.lose(), exchange.begin()]
                self._running = (news.id, exchange)
                self.follow_up(news.id, exchange.request)
                return [*told, *exchange.broadcast(Started(news.id, news.execution_count))]
            case Done():
                return self._end(news)
            case Output() | Display() | Clear() | Comm():
                return self._exchange_of(news.id).broadcast(news)

    def lose(self) -> list[JupyterMessage]:
        """Returns the broadcasts that end the running cell when nothing more will come from it."""
        running, self._running = self._running, None
        return [] if running is None else [running[1].end()]

    def _end(self, done: Done) -> list[JupyterMessage]:
        if self._running is None or self._running[0] != done.id:
            return []
        exchange = self._running[1]
        failed = exchange.fail(ErrorInfo(done.ename, done.evalue, done.traceback)) if done.status == "error" else []
        return [*failed, *self.lose()]

    def _exchange_of(self, execution_id: str) -> Exchange:
        if self._running is not None and self._running[0] == execution_id:
            return self._running[1]
        return self._cells.get(execution_id, self._last)


def _request(begun: Begun) -> JupyterMessage:
    """Returns the request of a cell as a front end would have sent it."""
    header = {
        "msg_id": begun.parent or begun.id,
        "msg_type": "comm_msg" if begun.language == "comm" else "execute_request",
        "session": _SESSION,
        "username": _SESSION,
        "version": PROTOCOL_VERSION,
    }
    code = f"%%bash\n{begun.code}" if begun.language == "bash" else begun.code
    return JupyterMessage("shell", header, content={"code": code, "silent": begun.silent})

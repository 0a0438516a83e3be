"""HTTP towards a tool server: its answers are bounded before the SDK reads them, and its refusals are kept in mind."""

from __future__ import annotations

import httpx2

from kernelbox.tools._bounds import LARGEST_MESSAGE, UNREADABLE, check_message, mend_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kernelbox.tools._bounds import Words

# Seconds for a request to be taken; how long a tool may run is the cell's affair.
HTTP_PATIENCE = 30.0

# Seconds in which a server may answer that a session has ended. It need not, and nothing waits for it but our own end.
_FAREWELL = 2.0

_EVENTS = "text/event-stream"

# How a server says that it has no stream of its own, as the protocol lets it.
_NO_STREAM = 405


class Elsewhere(httpx2.RequestError):
    """Raised when a server sends us to another: headers, which may be secrets, are for this one."""


def open_client(url: str, headers: dict[str, str], words: Words) -> httpx2.AsyncClient:
    """Returns a client for one server, which reads no more of an answer than can be used.

    Refusals are added to the server's `words`.
    """
    origin = _origin(httpx2.URL(url))

    async def stay(request: httpx2.Request) -> None:
        if _origin(request.url) != origin:
            raise Elsewhere(f"it leads to {request.url.copy_with(userinfo=b'', query=None)}, which is not followed")

    async def bound(response: httpx2.Response) -> None:
        if not response.is_error:
            words.clear()  # what it refused before is of no account
        elif response.request.method != "GET" or response.status_code != _NO_STREAM:
            words.add_once(f"HTTP {response.status_code} {response.reason_phrase}")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream, response.headers)

    return httpx2.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(HTTP_PATIENCE, read=None),
        event_hooks={"request": [stay, _bound_farewell], "response": [bound]},
    )


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _bound_farewell(request: httpx2.Request) -> None:
    if request.method == "DELETE":
        request.extensions["timeout"] = httpx2.Timeout(_FAREWELL).as_dict()


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, in pieces that are whole and have been checked: the events of a stream, or all of it.

    What is wrong is raised as the SDK expects it, so that it becomes the error of the request.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, headers: httpx2.Headers) -> None:
        self._stream = stream
        self._packed = headers.get("content-encoding", "identity") != "identity"
        self._events = headers.get("content-type", "").startswith(_EVENTS)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        if self._packed:
            raise self._error("it is compressed, which was not asked for")
        body = bytearray()
        async for data in self._stream:
            searched = max(0, len(body) - 3)
            body += data
            if self._events and (end := _end_of_events(body, searched)):
                yield self._checked(body[:end])
                del body[:end]
            if len(body) > LARGEST_MESSAGE:
                raise self._error(f"it has more than {LARGEST_MESSAGE:,} bytes")
        yield self._checked(body)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _checked(self, body: bytearray) -> bytes:
        try:
            check_message(body)
        except ValueError as exc:
            raise self._error(f"it has {exc}") from exc
        return bytes(mend_message(body))

    def _error(self, why: str) -> Exception:
        sentence = f"{UNREADABLE}: {why}"
        return httpx2.SSEError(sentence) if self._events else httpx2.StreamError(sentence)


def _end_of_events(body: bytearray, start: int) -> int:
    """Returns where the last whole event ends, 0 if there is none; an empty line ends one."""
    ends = [at + len(ending) for ending in (b"\n\n", b"\n\r\n", b"\r\r") if (at := body.rfind(ending, start)) >= 0]
    return max(ends, default=0)

"""Tool servers at an address: a client whose answers are bounded, and the older transport by server-sent events.

Answers are bounded before the SDK reads them. The SDK has a transport for events too. This one also takes events of
many megabytes, and reports what could not be posted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from kernelbox.base._errors import ToolServerFailed
from kernelbox.tools._bounds import LARGEST_MESSAGE, UNREADABLE, Listener, Words, check_message, mend_message
from kernelbox.tools._server_messages import Incoming, failed, read_message

# Seconds for a server to accept a request. The cell decides how long a tool may run.
_PATIENCE = 30.0

# Seconds for a server to confirm that a session has ended. It need not, and only closing waits for it.
_FAREWELL = 2.0

_EVENTS = "text/event-stream"

# A server that offers no stream of its own answers with this, as the protocol allows.
_NO_STREAM = 405

# Characters of the address that messages are posted to.
_LONGEST_ADDRESS = 10_000

_JSON = {"Content-Type": "application/json"}


class Elsewhere(httpx2.RequestError):
    """Raised when a server redirects to another host: the headers may be secrets, and are for this one only."""


def open_client(url: str, headers: dict[str, str], words: Words) -> httpx2.AsyncClient:
    """Returns a client for one server. It limits the size of answers, and adds HTTP errors to the server's `words`."""
    origin = _origin(httpx2.URL(url))

    async def stay(request: httpx2.Request) -> None:
        if _origin(request.url) != origin:
            raise Elsewhere(f"it leads to {request.url.copy_with(userinfo=b'', query=None)}, which is not followed")

    async def bound(response: httpx2.Response) -> None:
        if not response.is_error:
            words.clear()  # earlier errors no longer matter
        elif response.request.method != "GET" or response.status_code != _NO_STREAM:
            words.add_once(f"HTTP {response.status_code} {response.reason_phrase}")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream, response.headers)

    return httpx2.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(_PATIENCE, read=None),
        event_hooks={"request": [stay, _bound_farewell], "response": [bound]},
    )


@asynccontextmanager
async def connect_events(
    server: str, url: str, client: httpx2.AsyncClient, listener: Listener
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]], None]:
    """Follows a server's events and yields the two streams that a session uses."""
    async with client.sse(url, max_event_size=LARGEST_MESSAGE, follow_redirects=True) as source:
        source.response.raise_for_status()
        events = aiter(source)
        address = urljoin(str(source.response.url), await _read_address(server, events))
        incoming_in, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, outgoing_out = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(_read(events, incoming_in, listener)),
            asyncio.create_task(_post(client, address, outgoing_out, incoming_in.clone())),
        ]
        try:
            yield incoming, outgoing
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (incoming, incoming_in, outgoing, outgoing_out):
                stream.close()


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _bound_farewell(request: httpx2.Request) -> None:
    if request.method == "DELETE":
        request.extensions["timeout"] = httpx2.Timeout(_FAREWELL).as_dict()


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer in checked parts: one or more whole events of a stream, or the whole body.

    Errors are raised as the SDK expects them, so that they become the error of the request.
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
    """Returns where the last complete event ends, 0 without one; an empty line ends an event."""
    ends = [at + len(ending) for ending in (b"\n\n", b"\n\r\n", b"\r\r") if (at := body.rfind(ending, start)) >= 0]
    return max(ends, default=0)


async def _read_address(server: str, events: AsyncIterator[httpx2.ServerSentEvent]) -> str:
    """Returns the address to post messages to, which a server sends first."""
    async for event in events:
        if event.event == "endpoint" and len(event.data) <= _LONGEST_ADDRESS:
            return event.data
    raise ToolServerFailed(server, "it did not say where messages are to be posted")


async def _read(
    events: AsyncIterator[httpx2.ServerSentEvent], incoming: MemoryObjectSendStream[Incoming], listener: Listener
) -> None:
    """Passes messages on until the stream ends."""
    try:
        async for event in events:
            if event.event == "message" and event.data:
                message = read_message(event.data.encode("utf-8", "replace"), listener.words)
                if message is not None:
                    await _pass_on(message, incoming)
    except httpx2.HTTPError as exc:
        listener.words.add_once(str(exc))
    finally:
        listener.on_end()
        incoming.close()


async def _post(
    client: httpx2.AsyncClient,
    address: str,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[Incoming],
) -> None:
    """Posts messages one by one; a request that cannot be posted is answered with an error."""
    with incoming:
        async for sent in outgoing:
            body = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                answer = await client.post(
                    address, content=body, headers=_JSON, timeout=_PATIENCE, follow_redirects=True
                )
                wrong = "" if answer.is_success else f"it answered with HTTP {answer.status_code}"
            except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
                wrong = f"the message could not be posted: {str(exc) or type(exc).__name__}"
            if wrong and isinstance(sent.message, JSONRPCRequest):
                await _pass_on(failed(sent.message.id, wrong), incoming)


async def _pass_on(message: SessionMessage, incoming: MemoryObjectSendStream[Incoming]) -> None:
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        await incoming.send(message)

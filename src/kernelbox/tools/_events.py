"""A tool server at an address of the older kind: its messages come as one stream of events, and ours are posted.

The SDK has such a transport too. This one also takes events of many megabytes, and tells of what could not be posted.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import anyio
import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from kernelbox.base._errors import ToolServerFailed
from kernelbox.tools._bounds import LARGEST_MESSAGE
from kernelbox.tools._http import HTTP_PATIENCE
from kernelbox.tools._messages import Incoming, failed, read_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from kernelbox.tools._bounds import Listener

# Characters of the address that messages are posted to.
_LONGEST_ADDRESS = 10_000

_JSON = {"Content-Type": "application/json"}


@asynccontextmanager
async def connect_events(
    server: str, url: str, client: httpx2.AsyncClient, listener: Listener
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]], None]:
    """Follows a server's events and gives the two streams that a session uses."""
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


async def _read_address(server: str, events: AsyncIterator[httpx2.ServerSentEvent]) -> str:
    """Returns where messages are to be posted, which a server says first."""
    async for event in events:
        if event.event == "endpoint" and len(event.data) <= _LONGEST_ADDRESS:
            return event.data
    raise ToolServerFailed(server, "it did not say where messages are to be posted")


async def _read(
    events: AsyncIterator[httpx2.ServerSentEvent], incoming: MemoryObjectSendStream[Incoming], listener: Listener
) -> None:
    """Passes messages on until the server sends no more."""
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
    """Posts messages, one after the other; a request that cannot be posted is answered with what is wrong."""
    with incoming:
        async for sent in outgoing:
            body = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                answer = await client.post(
                    address, content=body, headers=_JSON, timeout=HTTP_PATIENCE, follow_redirects=True
                )
                wrong = "" if answer.is_success else f"it answered with HTTP {answer.status_code}"
            except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
                wrong = f"the message could not be posted: {str(exc) or type(exc).__name__}"
            if wrong and isinstance(sent.message, JSONRPCRequest):
                await _pass_on(failed(sent.message.id, wrong), incoming)


async def _pass_on(message: SessionMessage, incoming: MemoryObjectSendStream[Incoming]) -> None:
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        await incoming.send(message)

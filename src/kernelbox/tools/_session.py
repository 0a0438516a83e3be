"""Sessions with tool servers, and the thread that they live in: an event loop of its own, shared by both APIs."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack

from kernelbox.base._errors import KernelBoxError, ToolServerFailed
from kernelbox.base._extras import require
from kernelbox.base._safe_text import show
from kernelbox.core._executor_values import ToolEvent
from kernelbox.host.process._loop_thread import LoopThread
from kernelbox.tools._bounds import LONGEST_NOTICE, Listener, Words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future
    from typing import Any, TypeVar

    from mcp import Client
    from mcp_types import CallToolResult, Tool

    from kernelbox.tools._servers import ServerParameters

    OnEvent = Callable[[ToolEvent], None]
    T = TypeVar("T")

# Seconds for a server to answer a simple request after a call was cancelled or failed. Without an answer the session is
# replaced: the server may hang, or have been restarted at its address.
_PROBE = 3.0

# Pages, tools and characters of a list of tools. No honest server has so many, and a dishonest one must not keep us
# busy or fill our memory.
_PAGES = 1_000
_MOST_TOOLS = 10_000
_LONGEST_LIST = 64_000_000


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Runs a coroutine in the thread of the sessions; cancelling the future cancels it."""
    return _thread.submit(work)


_thread = LoopThread("kernelbox-tools")


class Session:
    """One connection to a server: opened at first use, shared by all calls, closed by the task that opened it.

    It is used only in the thread of the sessions.
    """

    def __init__(self, server: str, parameters: ServerParameters, *, connect_timeout: float | None) -> None:
        self.server = server
        self.parameters = parameters
        self._connect_timeout = connect_timeout
        self._running: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Client] | None = None
        self._closing = asyncio.Event()
        self._words = Words()
        self.calls: dict[asyncio.Task[Any], tuple[OnEvent, str]] = {}  # running calls: who hears of them, and the tool
        self._suspect = False
        self._listed = frozenset[str]()
        self._listing: asyncio.Task[list[Tool]] | None = None
        self.ended = False

    async def open(self) -> Client:
        """Returns the connected client, which all callers share. Raises ToolServerFailed and MissingExtra."""
        if self._opened is None:
            require("mcp")
            self._opened = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._opened))
        return await asyncio.shield(self._opened)

    async def call(self, tool: str, args: dict[str, Any], on_event: OnEvent) -> bytes:
        """Calls a tool; returns its result as the protocol writes it, which only the guest reads.

        Raises KernelBoxError with what the server says is wrong, or what is wrong with the server.
        """
        client = await self.open()
        from kernelbox.tools._sdk_client import describe

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            said = (message or "")[:LONGEST_NOTICE]
            on_event(ToolEvent("progress", self.server, tool, said, progress, total))

        call = asyncio.current_task()
        assert call is not None
        self.calls[call] = (on_event, tool)
        try:
            if tool not in self._listed:
                await self._look_for(tool)
            result = await client.call_tool(tool, args, progress_callback=on_progress)
            return _encode(result)
        except ToolServerFailed:
            raise
        except Exception as exc:
            self._doubt()
            raise KernelBoxError(f"{self.server}.{tool}: {describe(exc, self._words)}") from exc
        except BaseException:
            self._doubt()
            raise
        finally:
            del self.calls[call]

    async def _look_for(self, tool: str) -> None:
        """Lists the tools, once for all calls that wait for it; raises ToolServerFailed if this one is missing.

        A server may have changed since its package was generated. Over HTTP the list also says which arguments are
        sent as headers.
        """
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self.list_tools())
            self._listing.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._listing)
        if tool not in self._listed:
            raise ToolServerFailed(
                self.server, f"it has no tool {show(tool)} now; generate its package again: `kernelbox tools refresh`"
            )

    def _doubt(self) -> None:
        """Makes the next call wait until the server has answered a simple request and listed its tools again."""
        self._suspect = True
        self._forget_list()

    def _forget_list(self) -> None:
        self._listed = frozenset()

    async def is_usable(self) -> bool:
        """Tells whether another call can be sent. After a cancelled or failed one, the server must answer first."""
        if any(call.cancelling() for call in self.calls):  # it was asked to end, and has not ended yet
            self._doubt()
        if self._suspect and not self.ended and self._opened is not None:
            try:
                async with asyncio.timeout(_PROBE):
                    await (await self.open()).list_tools(cache_mode="bypass")
                self._suspect = False
            except Exception:  # noqa: BLE001  # no other call is sent, whatever the failure; running ones may go on
                return False
        return not self.ended

    async def list_tools(self) -> list[Tool]:
        """Returns all tools, from all pages; raises ToolServerFailed."""
        client = await self.open()
        try:
            async with asyncio.timeout(self._connect_timeout):
                tools = await self._list_pages(client)
        except Exception as exc:
            from kernelbox.tools._sdk_client import describe

            self._doubt()
            if isinstance(exc, ToolServerFailed):
                raise
            if isinstance(exc, TimeoutError):
                raise ToolServerFailed(self.server, f"it did not list its tools {self._in_time}") from None
            raise ToolServerFailed(self.server, f"its tools cannot be listed: {describe(exc, self._words)}") from exc
        self._listed = frozenset(tool.name for tool in tools)
        return tools

    @property
    def _in_time(self) -> str:
        return "in time" if self._connect_timeout is None else f"within {self._connect_timeout:g} s"

    async def _list_pages(self, client: Client) -> list[Tool]:
        tools: list[Tool] = []
        cursor, size = None, 0
        for _ in range(_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            tools += page.tools
            size += len(page.model_dump_json())
            if len(tools) > _MOST_TOOLS or size > _LONGEST_LIST:
                much = f"{_MOST_TOOLS:,} tools, or {_LONGEST_LIST:,} characters"
                raise ToolServerFailed(self.server, f"its list of tools has more than {much}")
            cursor = page.next_cursor
            if not cursor:
                return tools
        raise ToolServerFailed(self.server, f"its list of tools has more than {_PAGES:,} pages")

    async def close(self) -> None:
        """Ends the session and the server's process, if it has one; returns when both have ended."""
        self.ended = True
        self._closing.set()
        if self._running is not None:
            if self._opened is not None and not self._opened.done():
                self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self, opened: asyncio.Future[Client]) -> None:
        """Opens the session, waits and closes it, all in one task, as the SDK requires."""
        from kernelbox.tools._sdk_client import connecting, describe

        listener = Listener(self._on_end, self._on_log, self._forget_list, self._words)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._connect_timeout):
                    client = await connecting(stack, self.server, self.parameters, listener)
                opened.set_result(client)
                await self._closing.wait()
        except TimeoutError:
            silence = f"it did not answer {self._in_time} (connect_timeout)"
            self._fail(opened, self._words.after(silence))
        except ToolServerFailed as exc:
            self._fail(opened, exc)
        except asyncio.CancelledError:
            self._fail(opened, "the session was closed")
        except BaseException as exc:  # noqa: BLE001  # a transport may raise anything, also groups
            self._fail(opened, describe(exc, self._words))
        finally:
            self.ended = True

    def _fail(self, opened: asyncio.Future[Client], why: str | ToolServerFailed) -> None:
        self.ended = True
        if not opened.done():
            opened.set_exception(why if isinstance(why, ToolServerFailed) else ToolServerFailed(self.server, why))
            with contextlib.suppress(BaseException):
                opened.exception()  # a waiting caller gets it; without one, asyncio must not warn

    def _on_end(self) -> None:
        self.ended = True
        self._closing.set()

    def _on_log(self, level: str, text: str) -> None:
        """Reports a line to every waiting caller once: the protocol does not say which call it is about."""
        told: dict[OnEvent, list[str]] = {}
        for on_event, tool in self.calls.values():
            told.setdefault(on_event, []).append(tool)
        for on_event, tools in told.items():
            on_event(ToolEvent("log", self.server, tools[0] if len(tools) == 1 else "", text, level=level))


def _encode(result: CallToolResult) -> bytes:
    sent = {"content", "structured_content", "is_error"}
    return result.model_dump_json(by_alias=True, include=sent, exclude_unset=True).encode()

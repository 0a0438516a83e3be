"""The tool servers that an executor, or this process, can use, and its sessions with them."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
from collections.abc import Mapping

from kernelbox.base._errors import InvalidInput, KernelBoxError
from kernelbox.base._extras import require
from kernelbox.base._safe_text import show
from kernelbox.base._unique_objects import Handle
from kernelbox.host.process._forks import forget_in_forks
from kernelbox.tools._naming import check_server_name
from kernelbox.tools._servers import Servers, read_parameters
from kernelbox.tools._session import Session, submit
from kernelbox.wire._framing import MAX_FRAME
from kernelbox.wire._messages import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.tools._servers import ServerParameters
    from kernelbox.tools._session import OnEvent
    from kernelbox.wire._messages import Ask

CONNECT_TIMEOUT = 30.0

# Bytes that an answer needs in its frame beside the result.
_HEADER_ROOM = 4096

# Seconds that closing may take: servers get a few to end by themselves.
_CLOSE_PATIENCE = 25.0


class Toolbox(Handle):
    """Calls tools of servers. Any thread may use a toolbox; its sessions live in their own."""

    def __init__(
        self,
        config: KernelBoxConfig,
        servers: Mapping[str, object] | None = None,
        *,
        connect_timeout: float | None = CONNECT_TIMEOUT,
        sandboxed: bool = False,
    ) -> None:
        """`servers` are this toolbox's own, by name; the user's servers of this home can be used too. If kernels are
        `sandboxed`, servers do not import files that cells may have written."""
        self._own = _read_servers({} if servers is None else servers)
        if self._own:
            require("mcp")
        self._config = config
        self._servers: Servers | None = None
        self._connect_timeout = connect_timeout
        self._sandboxed = sandboxed
        self.forget()

    def submit(self, ask: Ask, on_event: OnEvent) -> Future[Answer]:
        """Makes an accepted call; the answer is the tool's result or an error. Cancelling it cancels the call."""
        return submit(self._answer(ask, on_event))

    def close(self) -> Future[None] | None:
        """Ends all sessions and the servers that were started for them; returns None without any.

        The next call opens new ones.
        """
        return submit(self._close()) if self._sessions or self._closing else None

    def forget(self) -> None:
        """Starts without sessions. After a fork, those of the parent process belong to the parent."""
        self._sessions: dict[str, Session] = {}
        self._closing: dict[Session, asyncio.Task[None]] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        forget_in_forks(self)

    async def _answer(self, ask: Ask, on_event: OnEvent) -> Answer:
        try:
            session = await self._find_session(ask.server_name)
            payload = await session.call(ask.tool_name, ask.tool_args, on_event)
            if len(payload) > MAX_FRAME - _HEADER_ROOM:
                payload = _encode_failure(
                    f"{ask.tool_name} answered with {len(payload):,} bytes, more than the {MAX_FRAME:,} that a kernel "
                    "takes; ask it for less"
                )
        except KernelBoxError as exc:
            payload = _encode_failure(str(exc))
        except Exception as exc:  # noqa: BLE001  # a bad answer must fail only this call
            payload = _encode_failure(f"{ask.server_name}.{ask.tool_name}: {type(exc).__name__}: {exc!s:.1000}")
        return Answer(ask.id, ask.ask, True, payload=payload)

    async def _find_session(self, server: str) -> Session:
        if server not in self._opening:
            self._find(server)  # raises for a name that a cell has made up; nothing is kept of it
        async with self._opening.setdefault(server, asyncio.Lock()):
            parameters = self._find(server)
            if self._sandboxed:
                parameters = parameters.beside_a_sandbox()
            session = self._sessions.get(server)
            if session is not None and (session.parameters != parameters or not await session.is_usable()):
                self._retire(session)
                session = None
            if session is None:
                session = Session(server, parameters, connect_timeout=self._connect_timeout)
                self._sessions[server] = session
        return session

    def _find(self, server: str) -> ServerParameters:
        if server in self._own:
            return self._own[server]
        if self._servers is None:
            self._servers = Servers(self._config)
        found = self._servers.find(server)
        if found is None:
            raise KernelBoxError(
                f"there is no server {show(server)} here; add it with generate_mcp_sources, `kernelbox tools add` or "
                "CodeExecutor(mcp_servers=)"
            )
        return found

    def _retire(self, session: Session) -> None:
        """Closes a session after its last call has ended; it is not used again."""
        self._sessions.pop(session.server, None)

        async def close() -> None:
            while session.calls and not session.ended:  # noqa: ASYNC110  # rare, and no call waits for it
                await asyncio.sleep(0.1)
            await session.close()

        self._closing[session] = asyncio.create_task(close())
        self._closing[session].add_done_callback(lambda task: self._closing.pop(session, None))

    async def _close(self) -> None:
        sessions, self._sessions = [*self._sessions.values(), *self._closing], {}
        closing = list(self._closing.values())
        await asyncio.gather(*(session.close() for session in sessions), *closing, return_exceptions=True)


def _encode_failure(sentence: str) -> bytes:
    """Returns a call that came to no result, in the form of one."""
    return json.dumps({"content": [{"type": "text", "text": sentence}], "isError": True}).encode()


def _read_servers(servers: object) -> dict[str, ServerParameters]:
    if not isinstance(servers, Mapping):
        raise InvalidInput("mcp_servers", servers, 'use a dict of names to parameters: {"time": {"command": …}}')
    return {check_server_name(name): read_parameters(name, value) for name, value in servers.items()}


_shared: dict[KernelBoxConfig, Toolbox] = {}


def shared_toolbox(config: KernelBoxConfig) -> Toolbox:
    """Returns the toolbox that all calls of the synchronous API share; it is closed at exit."""
    if config not in _shared:
        if not _shared:
            atexit.register(close_shared)
        _shared[config] = Toolbox(config)
    return _shared[config]


def close_shared() -> None:
    """Ends all sessions of the synchronous API."""
    closing = [toolbox.close() for toolbox in _shared.values()]
    for future in filter(None, closing):
        with contextlib.suppress(TimeoutError):
            future.result(_CLOSE_PATIENCE)


def describe_server(parameters: ServerParameters) -> str:
    """Returns a server on one line, for people, without the values of its variables and headers."""
    if parameters.transport == "stdio":
        return json.dumps([parameters.command, *parameters.args], ensure_ascii=False)
    return f"{parameters.url} ({parameters.transport})"

"""A client's connection to one kernel of a gateway: HTTP opens and ends it, a WebSocket runs code."""

from __future__ import annotations

import asyncio
import contextlib

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from kernelbox.base._extras import require
from kernelbox.server.jupyter._front_end_message import BadMessage
from kernelbox.server.jupyter._websocket_codec import V1, CodecV1

TYPE_CHECKING = False
if TYPE_CHECKING:
    import httpx2

    from kernelbox.server.jupyter._front_end_message import JupyterMessage

# Seconds. A kernel is opened in milliseconds; a machine under load takes longer.
_PATIENCE = 60.0

# What a gateway answers to requests that are of no use to repeat.
_FINAL = (400, 401, 403, 404, 405, 421, 422)


class Unreachable(Exception):
    """Raised when a gateway does not answer, or not as it should; `final` if trying again is of no use."""

    def __init__(self, sentence: str, *, final: bool = False) -> None:
        super().__init__(sentence)
        self.final = final


class GatewayLink:
    """One kernel that this client has opened, and the connection to its channels."""

    def __init__(self, http: httpx2.AsyncClient, kernel_id: str, ping_interval: float) -> None:
        self.kernel_id = kernel_id
        self._http = http
        self._ping_interval = ping_interval
        self._socket: ClientConnection | None = None
        self._codec = CodecV1()
        self._is_closed = False

    @classmethod
    async def open(cls, url: str, token: str | None, ping_interval: float) -> GatewayLink:
        """Opens a kernel and connects to it; raises Unreachable, and MissingExtra."""
        require("jupyter")
        import httpx2

        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=_PATIENCE, trust_env=False)
        link = None
        try:
            answer = await _request(http, "POST", "/api/kernels", {"name": "python3"})
            link = cls(http, answer.json()["id"], ping_interval)
            await link.reconnect()
        except BaseException:
            await asyncio.shield(link.close() if link is not None else http.aclose())
            raise
        return link

    async def reconnect(self) -> None:
        """Connects to the kernel's channels, anew if the connection was lost; raises Unreachable."""
        url = str(self._http.base_url.join(f"/api/kernels/{self.kernel_id}/channels")).replace("http", "ws", 1)
        headers = {name: value for name, value in self._http.headers.items() if name.lower() == "authorization"}
        try:
            self._socket = await connect(
                url,
                subprotocols=[Subprotocol(V1)],
                additional_headers=headers,
                max_size=None,  # results are complete
                ping_interval=self._ping_interval,
                ping_timeout=_PATIENCE,
                open_timeout=_PATIENCE,
                proxy=None,
            )
        except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as exc:
            raise Unreachable(f"its channels cannot be reached: {exc}") from exc

    @property
    def connected(self) -> bool:
        return self._socket is not None and self._socket.close_code is None

    async def send(self, message: JupyterMessage) -> None:
        """Sends a message; one that cannot be sent any more is noticed by `receive`."""
        assert self._socket is not None
        with contextlib.suppress(ConnectionClosed):
            await self._socket.send(self._codec.encode(message))

    async def receive(self) -> JupyterMessage:
        """Waits for a message; raises Unreachable when the connection has ended."""
        assert self._socket is not None
        try:
            return self._codec.decode(await self._socket.recv())
        except (ConnectionClosed, BadMessage) as exc:
            raise Unreachable(f"the connection to the gateway has ended: {exc}") from exc

    async def is_alive(self) -> bool:
        """Returns whether the gateway still has the kernel, and it lives."""
        try:
            answer = await self._request("GET")
        except Unreachable:
            return False
        return bool(answer.json()["execution_state"] != "dead")

    async def interrupt(self) -> None:
        await self._request("POST", "/interrupt")

    async def restart(self) -> None:
        await self._request("POST", "/restart")

    async def _request(self, method: str, what: str = "") -> httpx2.Response:
        if self._is_closed:
            raise Unreachable("the client has disconnected, which ends the kernel")
        return await _request(self._http, method, f"/api/kernels/{self.kernel_id}{what}")

    async def close(self) -> None:
        """Ends the kernel, if the gateway still answers, and closes the connection."""
        self._is_closed = True
        try:
            if self._socket is not None:
                await self._socket.close()
            with contextlib.suppress(Unreachable):
                await _request(self._http, "DELETE", f"/api/kernels/{self.kernel_id}")
        finally:
            await self._http.aclose()


async def _request(
    http: httpx2.AsyncClient, method: str, path: str, body: dict[str, str] | None = None
) -> httpx2.Response:
    import httpx2

    try:
        answer = await http.request(method, path, json=body)
    except httpx2.ConnectError as exc:
        raise Unreachable("nothing answers there; start a gateway, or see to its host and port") from exc
    except httpx2.HTTPError as exc:
        raise Unreachable(str(exc) or type(exc).__name__) from exc
    if answer.is_error:
        said = f"it answered {answer.status_code}: {answer.text[:500]}"
        raise Unreachable(said, final=answer.status_code in _FINAL)
    return answer

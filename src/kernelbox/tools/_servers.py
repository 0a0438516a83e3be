"""The tool servers that this user's applications know: how each is reached, and the private file that says so.

Kernels name a server; only the host knows how it is reached. The file is kept beside the key, by home. It begins with a
keyed hash, so a file that was put there or changed by a program without the key is refused. `${VARIABLES}` stay
unfilled in it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping

from kernelbox.base._environment import tool_variable
from kernelbox.base._errors import InvalidInput, StoreFailed, ToolServerFailed
from kernelbox.host.files._home import Home
from kernelbox.host.files._key import is_missing, read_key
from kernelbox.host.files._lock import locked
from kernelbox.host.store._servers_file import LARGEST, SERVERS_FILE, open_beside_key
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.host.files._place import Place

    Transport = Literal["stdio", "streamable_http", "sse"]

_LOCK = "servers.lock"

_FOR_URLS = {"url", "headers", "type", "transport"}

_VARIABLE = re.compile(r"\$\{([^}]*)\}")

_FORMS = 'use {"command": …, "args": […], "env": {…}, "cwd": …} or {"url": …, "headers": {…}, "type": …}'

# Names for the transports, ours and those in the configurations of other programs.
_TRANSPORTS: dict[object, Transport] = {
    "stdio": "stdio",
    "streamable_http": "streamable_http",
    "streamable-http": "streamable_http",
    "http": "streamable_http",
    "sse": "sse",
}


# Keeps Python from importing modules from its working directory or from beside its script.
_SAFE_PATH = "PYTHONSAFEPATH"


@dataclass(frozen=True, slots=True)
class ServerParameters:
    """One server: a command to start, or an address. Texts may have `${NAME}` in them."""

    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the form that `read_parameters` reads."""
        if self.transport == "stdio":
            found: dict[str, Any] = {"command": self.command, "args": list(self.args), "env": dict(self.env)}
            return {**found, "cwd": self.cwd} if self.cwd else found
        return {"url": self.url, "headers": dict(self.headers), "type": self.transport}

    def beside_a_sandbox(self) -> ServerParameters:
        """Returns parameters for use beside a sandbox: Python then imports nothing from the working directory, where
        cells may have written files."""
        if self.cwd or not {"-m", "-c"} & {*self.args}:
            return self
        env = ((_SAFE_PATH, "1"), *(pair for pair in self.env if pair[0] != _SAFE_PATH))
        return ServerParameters(self.transport, self.command, self.args, env)

    def filled(self, server: str) -> ServerParameters:
        """Returns the parameters with the values of the host's variables; raises ToolServerFailed for a missing one."""

        def fill(text: str) -> str:
            return _VARIABLE.sub(lambda match: _value(server, match[1]), text)

        return ServerParameters(
            self.transport,
            fill(self.command),
            tuple(map(fill, self.args)),
            tuple((name, fill(value)) for name, value in self.env),
            fill(self.cwd),
            fill(self.url),
            tuple((name, fill(value)) for name, value in self.headers),
        )


def read_parameters(server: str, value: object) -> ServerParameters:
    """Returns what an application passed for a server; raises InvalidInput."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"the parameters of server {server!r}", value, _FORMS)
    allowed = {"command", "args", "env", "cwd", "type", "transport"} if "command" in value else _FOR_URLS
    named = value.get("type", value.get("transport"))
    if ("command" in value) == ("url" in value):
        wrong = "have both a command and a url" if "url" in value else "have neither a command nor a url"
        raise InvalidInput.saying(f"the parameters of server {server!r} {wrong}{_also(value, allowed)}: {_FORMS}")
    if not value.keys() <= allowed:
        kind = "a command" if "command" in value else "a url"
        raise InvalidInput.saying(f"the parameters of server {server!r} have {kind}{_also(value, allowed)}: {_FORMS}")
    if named is not None and named not in _TRANSPORTS:
        raise InvalidInput(f"the type of server {server!r}", named, 'use "stdio", "streamable_http" or "sse"')
    if "command" in value:
        if named is not None and _TRANSPORTS[named] != "stdio":
            raise InvalidInput(f"the type of server {server!r}", named, "a server with a command has type stdio")
        return _read_command(server, value)
    return _read_url(server, value, None if named is None else _TRANSPORTS[named])


class Servers:
    """The servers of one home, each with the directory that its package was written to."""

    def __init__(self, config: KernelBoxConfig) -> None:
        self._config = config
        self._home = config.home
        self._seen: tuple[object, dict[str, Any]] = (None, {})

    def find(self, name: str) -> ServerParameters | None:
        """Returns how a server is reached, None if it is not known."""
        entry = self.all().get(name)
        return None if entry is None else read_parameters(name, entry["parameters"])

    def all(self) -> dict[str, Any]:
        """Returns the servers by name: their parameters, and the root of their packages."""
        if is_missing(self._config.key_file):
            return {}  # without the key there can be no sealed file
        with open_beside_key(self._config) as place:
            try:
                info = place.stat(SERVERS_FILE)
            except FileNotFoundError:
                return {}
            stamp = (info.st_ino, info.st_mtime_ns, info.st_size)
            if self._seen[0] != stamp:
                self._seen = (stamp, self._read(place))
        return dict(self._seen[1].get(self._home, {}))

    def put(self, name: str, parameters: ServerParameters, root: str) -> None:
        """Remembers a server, in place of one with the same name."""
        self._change(lambda servers: servers.update({name: {"parameters": parameters.to_dict(), "root": root}}))

    def remove(self, name: str) -> None:
        """Forgets a server."""
        self._change(lambda servers: servers.pop(name, None))

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        if is_missing(self._config.key_file):
            with contextlib.suppress(FileNotFoundError):
                Home(
                    self._home, self._config.key_file
                ).open().close()  # refuses a home that was sealed with another key
        with open_beside_key(self._config) as place, locked(place, _LOCK, self._secret()):
            homes = {}
            with contextlib.suppress(FileNotFoundError):
                homes = self._read(place)
            servers = homes.setdefault(self._home, {})
            change(servers)
            if not servers:
                del homes[self._home]
            body = json.dumps(homes, indent=1).encode()
            place.replace(SERVERS_FILE, self._seal(body) + b"\n" + body)

    def _read(self, place: Place) -> dict[str, Any]:
        seal, _, body = place.read(SERVERS_FILE, LARGEST).partition(b"\n")
        if seal != self._seal(body):
            path = place.path_of(SERVERS_FILE)
            raise StoreFailed(
                f"{path!r} was not written by this user's kernelbox, or its key has changed; it was not used. Remove "
                "it, and add your tool servers again"
            )
        homes: dict[str, Any] = json.loads(body)
        return homes

    def _secret(self) -> bytes:
        return read_key(self._config.key_file).secret

    def _seal(self, body: bytes) -> bytes:
        from hashlib import blake2b

        return blake2b(body, key=self._secret(), person=b"servers").hexdigest().encode()


def _also(value: Mapping[Any, Any], allowed: set[str]) -> str:
    """Names unknown parameters, without their values, which may be secrets."""
    unknown = sorted(repr(name) for name in value if name not in allowed | {"command", "url"})
    return f", and {', '.join(unknown)}, which cannot be used" if unknown else ""


def _read_command(server: str, value: Mapping[Any, Any]) -> ServerParameters:
    args = value.get("args") or []
    if not isinstance(args, list | tuple):
        raise InvalidInput(f"the args of server {server!r}", args, "use a list of strings")
    cwd = value.get("cwd")
    return ServerParameters(
        "stdio",
        command=_text(server, "command", value["command"]),
        args=tuple(_text(server, "args", arg, empty=True) for arg in args),
        env=_pairs(server, "env", value.get("env")),
        cwd="" if cwd is None else _text(server, "cwd", str(cwd)),
    )


def _read_url(server: str, value: Mapping[Any, Any], transport: Transport | None) -> ServerParameters:
    url = _text(server, "url", value["url"])
    if transport == "stdio" or not url.startswith(("http://", "https://", "${")):
        raise InvalidInput(f"the url of server {server!r}", url, "use one that begins with http:// or https://")
    if transport is None:
        transport = "sse" if re.search(r"/sse/?($|[?#])", url) else "streamable_http"
    return ServerParameters(transport, url=url, headers=_pairs(server, "headers", value.get("headers")))


def _pairs(server: str, what: str, value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise InvalidInput(f"the {what} of server {server!r}", value, "use a mapping of strings to strings")
    return tuple((_text(server, what, name), _text(server, what, item, empty=True)) for name, item in value.items())


def _text(server: str, what: str, value: object, *, empty: bool = False) -> str:
    if not isinstance(value, str) or "\0" in value or not (value or empty):
        raise InvalidInput(f"the {what} of server {server!r}", value, "use strings")
    return str(value)


def _value(server: str, name: str) -> str:
    value = tool_variable(name)
    if value is None:
        raise ToolServerFailed(server, f"its parameters name the variable ${{{name}}}, which is not set here; set it")
    return value

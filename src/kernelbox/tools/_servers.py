"""What this user's applications know of tool servers: a private file beside the key, by home.

Kernels name a server; how it is reached only the host knows. The file has a keyed hash at its beginning, so that one
that was put there, or changed, by a program without the key is refused. Variables stay unfilled in it.
"""

from __future__ import annotations

import contextlib
import json

from kernelbox.base._errors import StoreFailed
from kernelbox.host.files._home import Home
from kernelbox.host.files._key import is_missing, read_key
from kernelbox.host.files._lock import locked
from kernelbox.host.store._servers_file import LARGEST, SERVERS_FILE, open_beside_key
from kernelbox.tools._parameters import read_parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.host.files._place import Place
    from kernelbox.tools._parameters import ServerParameters

_LOCK = "servers.lock"


class Servers:
    """The servers of one home, each with the directory that its package was written to."""

    def __init__(self, config: KernelBoxConfig) -> None:
        self._config = config
        self._home = config.home
        self._seen: tuple[object, dict[str, Any]] = (None, {})

    def __repr__(self) -> str:
        return f"<Servers of {self._home!r}>"

    def find(self, name: str) -> ServerParameters | None:
        """Returns how a server is reached, None if it is not known."""
        entry = self.all().get(name)
        return None if entry is None else read_parameters(name, entry["parameters"])

    def all(self) -> dict[str, Any]:
        """Returns the servers by name: their parameters, and the root of their packages."""
        if is_missing(self._config.key_file):
            return {}  # the file is sealed with it: there can be none
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
                Home(self._home, self._config.key_file).open().close()  # refuses one that has been sealed with another
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

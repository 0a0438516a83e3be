"""Who may send requests: no web page of another site, and over the network only clients with a token.

The application cannot know how its server was bound, so each connection is judged by itself: one that a process of the
user's made over loopback or a Unix socket is the user's own, unless tokens were given. Of a Unix socket only our own
server tells (server/http/_protocol.py); other programs make theirs for every account.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from kernelbox.base._errors import LimitReached
from kernelbox.server.http._callers import TOKEN_VARIABLE, Caller, Token, find_caller
from kernelbox.server.http._connection_owner import can_tell, is_users_own
from kernelbox.server.http._failures import RequestRefused, answer_to, failure
from kernelbox.server.http._headers import all_of, first_of
from kernelbox.server.http._protocol import CONNECTION

# Where a request carries its caller.
CALLER = "kernelbox.caller"

# The user, who needs no token on a connection of their own, and a client without a token, on open paths.
_USER, _STRANGER = Caller(), Caller(scopes=frozenset())

_ADVICE = "send the header `Authorization: Bearer TOKEN` with a token of this server"


class NoWebPages:
    """Rejects what a web page of another site makes a browser send, also when its host name leads to this machine."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = None
        if not self._is_our_name(scope):
            sentence = "this server does not have the name in the header `Host`; --allow-host lets it answer to more"
            refusal = failure(421, "wrong_host", sentence)
        elif not self._is_our_page(scope):
            sentence = "requests from web pages of another origin are refused; --cors-origin lets one send them"
            refusal = failure(403, "wrong_origin", sentence)
        await (refusal or self._app)(scope, receive, send)

    def _is_our_name(self, scope: Scope) -> bool:
        """Returns whether a request is meant for this server, where a browser on this machine could be misled."""
        if not _is_loopback(scope):
            return True
        named = all_of(scope, b"host")
        if len(named) != 1:
            return False
        host = named[0].lower()
        return _is_loopback_host(host) or host in self._hosts or _hostname(host) in self._hosts

    def _is_our_page(self, scope: Scope) -> bool:
        origin = first_of(scope, b"origin").lower()
        if origin in self._origins or (origin and "*" in self._origins):
            return True
        if origin:
            _, between, host = origin.partition("://")
            return len(all_of(scope, b"origin")) == 1 and bool(between) and host == first_of(scope, b"host").lower()
        if first_of(scope, b"sec-fetch-site", "none") in ("none", "same-origin"):
            return True
        mode, destination = first_of(scope, b"sec-fetch-mode"), first_of(scope, b"sec-fetch-dest")
        return (mode, destination) == ("navigate", "document")


class TokenRequired:
    """Finds the caller of a request, and answers 401 if a token is needed and missing."""

    def __init__(self, app: ASGIApp, *, tokens: tuple[Token, ...], open_paths: re.Pattern[str] | None = None) -> None:
        """`open_paths` matches the paths that need no token."""
        self._app = app
        self._tokens = tokens
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            is_open = self._open_paths is not None and self._open_paths.fullmatch(scope["path"]) is not None
            try:
                caller = self._find_caller(scope)
            except LimitReached as exc:
                if not is_open:
                    await answer_to(exc)(scope, receive, send)
                    return
                caller = None
            if caller is None and not is_open:
                advice = _ADVICE if self._tokens else f"set {TOKEN_VARIABLE} for the server, and {_ADVICE}"
                if not self._tokens and (_is_loopback(scope) or _is_unix(scope)):
                    advice = f"this connection was not made by a process of the user who runs the server: {advice}"
                refusal = failure(401, "token_required", advice, {"WWW-Authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
            scope[CALLER] = caller or _STRANGER
        await self._app(scope, receive, send)

    def _find_caller(self, scope: Scope) -> Caller | None:
        secret = _take_secret(scope)
        if not self._tokens:
            return _USER if _is_local(scope) else None
        return None if secret is None else find_caller(self._tokens, secret)


def folder_of(workspace: str, caller: Caller) -> str:
    """Returns where the files of a caller are: with a name, in a folder of the workspace, made if it is missing.

    Raises RequestRefused if a cell has put a link in its place.
    """
    if not caller.name:
        return workspace
    folder = os.path.join(workspace, caller.name)
    os.makedirs(folder, exist_ok=True)
    if os.path.islink(folder):
        raise RequestRefused(409, "folder_replaced", "the folder of this caller has been replaced by a link")
    return folder


def _take_secret(scope: Scope) -> str | None:
    """Returns the token of a request. One in the URL, for browsers, is taken out of it: URLs are logged."""
    in_url: list[str] = []
    if scope["query_string"]:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        in_url = [value for name, value in query if name == "token"]
        if in_url:
            scope["query_string"] = urlencode([pair for pair in query if pair[0] != "token"]).encode("ascii")
    given = all_of(scope, b"authorization")
    if not given:
        return in_url[0] if len(in_url) == 1 else None
    scheme, _, secret = given[0].strip().partition(" ")
    return secret.strip() if len(given) == 1 and scheme.lower() in ("bearer", "token") else None


def _is_local(scope: Scope) -> bool:
    """Returns whether a connection is known to be the user's own: other accounts of the machine can connect too."""
    known: dict[str, bool] = scope.get(CONNECTION, {})
    if "is_own" not in known:
        known["is_own"] = _is_loopback(scope) and (not can_tell() or _is_made_by_user(scope))
    return known["is_own"]


def _is_made_by_user(scope: Scope) -> bool:
    (our_host, our_port), (their_host, their_port) = scope["server"], scope.get("client") or ("", 0)
    ours, theirs = _parse_address(_without_zone(our_host)), _parse_address(_without_zone(their_host))
    return ours is not None and theirs is not None and is_users_own((theirs, their_port), (ours, our_port))


def _is_loopback(scope: Scope) -> bool:
    return not _is_unix(scope) and _is_loopback_address(_without_zone(scope["server"][0]))


@lru_cache(maxsize=256)
def _is_loopback_address(text: str) -> bool:
    address = _parse_address(text)
    return address is not None and address.is_loopback


@lru_cache(maxsize=256)
def _is_loopback_host(host: str) -> bool:
    """Returns whether a `Host`, in small letters, is a name of this machine that only its own programs use."""
    name = _hostname(host)
    return name == "localhost" or _is_loopback_address(name)


def _is_unix(scope: Scope) -> bool:
    server = scope.get("server")
    return server is None or server[1] is None


def _without_zone(address: str) -> str:
    return address.partition("%")[0]


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


# A name or an address and, behind it, a port: no browser sends anything else (RFC 9110, 7.2).
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:/@\[\]]*))(?::\d*)?", re.ASCII)


def _hostname(host: str) -> str:
    """Returns a host name without its port; "" for anything that is not one."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1] or found[2]

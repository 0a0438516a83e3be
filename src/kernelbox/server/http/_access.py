"""Who may send requests: no web page of another site, and over the network only clients with a token.

The application cannot know how its server was bound, so each connection is judged by itself: one that a process of the
user's made over loopback or a Unix socket is the user's own, unless tokens were given. Our own server finds that out
when it accepts a connection (server/http/_protocol.py). Under uvicorn's own classes its transport is asked; under a
server that shows no transport, nobody is the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from kernelbox.base._errors import LimitReached
from kernelbox.server.http._callers import TOKEN_VARIABLE, Caller, Token, find_caller
from kernelbox.server.http._connection_owner import made_by_user, parse_address
from kernelbox.server.http._failures import RequestRefused, answer_to, failure, too_much_open
from kernelbox.server.http._headers import all_of, first_of
from kernelbox.server.http._protocol import CONNECTION
from kernelbox.server.http._token_file import OwnToken

# Where a request carries its caller.
CALLER = "kernelbox.caller"

# The user, who needs no token on a connection of their own, and a client without a token, on open paths.
_USER, _STRANGER = Caller(has_token=False), Caller(scopes=frozenset(), has_token=False)

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

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: tuple[Token, ...],
        own: OwnToken | None = None,
        open_paths: re.Pattern[str] | None = None,
    ) -> None:
        """`own` is the server's token where the user needs none; `open_paths` matches the paths that need none."""
        self._app = app
        self._tokens = tokens
        self._own = own
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            is_open = self._open_paths is not None and self._open_paths.fullmatch(scope["path"]) is not None
            try:
                caller = self._find_caller(scope, receive)
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

    def _find_caller(self, scope: Scope, receive: Receive) -> Caller | None:
        secret = _take_secret(scope)
        tokens = self._tokens or (() if self._own is None else self._own.tokens)
        found = None if secret is None else find_caller(tokens, secret)
        if found is None and not self._tokens and _is_users_own(scope, receive):
            return _USER
        return found


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


def _is_users_own(scope: Scope, receive: Receive) -> bool:
    """Returns whether a connection is the user's own: other accounts of the machine can connect too.

    Raises LimitReached if too much is open here to find out.
    """
    known: bool | None
    if CONNECTION in scope:
        known = scope[CONNECTION]
    else:  # another server than ours: what uvicorn's classes receive with belongs to an object that has the transport
        known = made_by_user(getattr(getattr(receive, "__self__", None), "transport", None))
    if known is None:
        raise too_much_open()
    return known


def _is_loopback(scope: Scope) -> bool:
    return not _is_unix(scope) and _is_loopback_address(scope["server"][0].partition("%")[0])


@lru_cache(maxsize=256)
def _is_loopback_address(text: str) -> bool:
    try:
        return parse_address(text).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def _is_loopback_host(host: str) -> bool:
    """Returns whether a `Host`, in small letters, is a name of this machine that only its own programs use."""
    name = _hostname(host)
    return name == "localhost" or _is_loopback_address(name)


def _is_unix(scope: Scope) -> bool:
    server = scope.get("server")
    return server is None or server[1] is None


# A name or an address and, behind it, a port: no browser sends anything else (RFC 9110, 7.2).
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:/@\[\]]*))(?::\d*)?", re.ASCII)


def _hostname(host: str) -> str:
    """Returns a host name without its port; "" for anything that is not one."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1] or found[2]

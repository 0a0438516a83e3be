"""Tokens in files that only their owner can read: those of several callers, and one that a server makes for itself.

[[token]]
name = "alice"                       # sees the kernels whose names begin with "alice:"; without a name, all
secret = "…"                         # or sha256 = "…", its digest in hexadecimal digits
scopes = ["read", "run", "manage"]   # the default
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from typing import Any

from kernelbox.base._errors import InvalidInput, StoreFailed
from kernelbox.host.files._home import Home
from kernelbox.server.http._callers import SCOPES, Caller, Token

_FIELDS = {"name", "secret", "sha256", "scopes"}

# A name is the beginning of kernels' names, and a directory's.
_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)

# Bytes: thousands of tokens.
_LARGEST = 1024 * 1024


# The file of a server's own token, in the home, and bytes that are read of it.
_OWN = "token"
_LONGEST_OWN = 1_000


class OwnToken:
    """The token of the servers of a home that were given none; its file is made when the first of them starts.

    The user's own programs need it only to answer approvals. Sandboxed cells cannot see the file.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self.tokens: tuple[Token, ...] = ()

    def __repr__(self) -> str:
        return f"<OwnToken in {self._home.path!r}>"

    def make(self) -> None:
        """Reads the token, which is made first if it is missing; raises StoreFailed."""
        if self.tokens:
            return
        with self._home.make() as place:
            try:
                place.add(_OWN, f"{os.urandom(24).hex()}\n".encode())
                secret = place.read(_OWN, _LONGEST_OWN).decode().strip()
            except (OSError, ValueError) as exc:
                raise StoreFailed(f"the token in {place.path_of(_OWN)!r} cannot be used: {exc}; remove it") from exc
        self.tokens = (Token.of(secret, name=f"the token in {place.path_of(_OWN)}"),)


def read_tokens(path: str) -> tuple[Token, ...]:
    """Returns the tokens in a file; raises InvalidInput, which shows no secret."""
    try:
        with open(path, "rb") as file:
            info, text = os.fstat(file.fileno()), file.read(_LARGEST + 1)
    except OSError as exc:
        raise InvalidInput("the tokens", path, exc.strerror or "it cannot be read") from exc
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise InvalidInput("the tokens", path, "others can read the file; chmod 600 it")
    if info.st_uid not in (0, os.geteuid()):
        raise InvalidInput("the tokens", path, f"the file belongs to another user (uid {info.st_uid})")
    if len(text) > _LARGEST:
        raise InvalidInput("the tokens", path, f"it has more than {_LARGEST:,} bytes")
    try:
        data = tomllib.loads(text.decode())
    except (ValueError, RecursionError):
        raise InvalidInput("the tokens", path, "it is not TOML") from None  # its sentence may show a secret
    entries = data.get("token")
    if set(data) != {"token"} or not isinstance(entries, list) or not entries:
        raise InvalidInput("the tokens", path, "write one [[token]] for each, and nothing else")
    return tuple(_read(entry, f"token {number} in {path}") for number, entry in enumerate(entries, start=1))


def _read(entry: Any, what: str) -> Token:
    if not isinstance(entry, dict) or not entry.keys() <= _FIELDS:
        raise InvalidInput.saying(f"{what} can have {', '.join(sorted(_FIELDS))} and nothing else")
    name, scopes = entry.get("name", ""), entry.get("scopes", sorted(SCOPES))
    if not isinstance(name, str) or (name and not _NAME.fullmatch(name)):
        raise InvalidInput.saying(f"the name of {what} is not valid: use letters, digits, '_' and '-', at most 64")
    if not isinstance(scopes, list) or not SCOPES.issuperset(scopes):
        raise InvalidInput.saying(f"the scopes of {what} can be {', '.join(sorted(SCOPES))}")
    caller = Caller(name, frozenset(scopes))
    match entry:
        case {"secret": str(secret), **rest} if "sha256" not in rest:
            return Token.of(secret, caller, f"the secret of {what}")
        case {"sha256": str(digits), **rest} if "secret" not in rest and len(digits) == 64:
            try:
                return Token(bytes.fromhex(digits), caller)
            except ValueError:
                pass
    raise InvalidInput.saying(f"{what} needs a secret, or its sha256 as 64 hexadecimal digits, and not both")

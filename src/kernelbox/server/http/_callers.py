"""Callers and their tokens: what each may do, and which kernels it sees."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Literal, get_args

from kernelbox.base._endpoint import check_token
from kernelbox.base._environment import host_variable

Scope = Literal["read", "run", "manage"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))

# The variable that holds the token of a server.
TOKEN_VARIABLE = "KERNELBOX_TOKEN"

# What separates a caller's name from the names of its kernels.
_BETWEEN = ":"


@dataclass(frozen=True)
class Caller:
    """Who sends a request. One with a name sees only the kernels whose names begin with it; one without sees all.

    `read` lets it look at kernels, jobs and files, `run` run code and write files, `manage` open and end kernels. A
    caller without a token is known by its connection alone. It cannot answer approvals: it may be the code that asks.
    """

    name: str = ""
    scopes: frozenset[Scope] = SCOPES
    has_token: bool = True

    @property
    def prefix(self) -> str:
        """What the names of its kernels begin with in the home."""
        return f"{self.name}{_BETWEEN}" if self.name else ""


@dataclass(frozen=True)
class Token:
    """A secret and its caller; only a digest of the secret is kept."""

    digest: bytes
    caller: Caller = Caller()

    @classmethod
    def of(cls, secret: str, caller: Caller | None = None, name: str = "a token") -> Token:
        """Makes one; raises InvalidInput, with the name, for a secret that can be guessed or cannot be sent."""
        return cls(_digest(check_token(secret, name)), caller or Caller())


def tokens_from_env() -> tuple[Token, ...]:
    """Returns the token that the environment has for a server, if any."""
    token = host_variable(TOKEN_VARIABLE)
    return (Token.of(token, name=TOKEN_VARIABLE),) if token else ()


def find_caller(tokens: tuple[Token, ...], secret: str) -> Caller | None:
    """Returns the caller of a secret; every token is compared, so that the time reveals nothing."""
    found, given = None, _digest(secret)
    for token in tokens:
        if hmac.compare_digest(token.digest, given):
            found = token.caller
    return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()

"""Tokens of servers: what one must be like."""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput

# Characters. Shorter ones can be guessed.
_SHORTEST = 16


def check_token(token: str) -> str:
    """Returns a token; raises InvalidInput for one that can be guessed or cannot be sent in a header."""
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInput.saying(
            f"a token needs {_SHORTEST} or more letters, digits or signs of ASCII, without blanks; "
            "`openssl rand -hex 24` makes a good one"
        )
    return token

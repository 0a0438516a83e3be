"""What a token must be that opens a server of ours: long enough not to be guessed, and fit for a header of HTTP."""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput

# Shorter ones can be guessed.
_SHORTEST = 16


def check_token(secret: str, name: str = "a token") -> str:
    """Returns a token; raises InvalidInput for one that can be guessed or cannot be sent in a header."""
    if len(secret) < _SHORTEST or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InvalidInput.saying(
            f"{name} needs {_SHORTEST} or more letters, digits or signs of ASCII, without blanks; "
            "`openssl rand -hex 24` makes a good one"
        )
    return secret

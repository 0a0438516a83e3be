"""The application's function `approve`: what is accepted, what its answers mean, and the reasons given without one.

The decision itself is made in `_approval_gate.py`.

Every call of the API loads this module; requests themselves are loaded when a cell asks for something.
"""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    F = TypeVar("F")

# Why a call is rejected where no one can be asked.
NO_APPROVE = "there is no one to ask: pass approve=, or on the command line --approve all or --approve ask"
NOT_ALLOWED = "the policy does not allow it, and no approve= was passed that could be asked"


def check_approve(approve: F) -> F:
    """Returns a function that takes requests, or None; raises InvalidInput."""
    if approve is not None and not callable(approve):
        raise InvalidInput("approve", approve, "use a function, which is called with each request")
    return approve


def reason_for(verdict: object) -> str | None:
    """Returns why a call is rejected, by the return value of the application's function."""
    if verdict is False or isinstance(verdict, str):
        return verdict or None
    return f"the function passed as approve= returned a {type(verdict).__name__}; only True accepts"

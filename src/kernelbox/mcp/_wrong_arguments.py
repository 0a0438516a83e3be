"""What is said of arguments that a tool does not take: a sentence for each, in place of the library's text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernelbox.base._shown import show

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# Characters of a wrong value that are shown.
_LONGEST_SHOWN = 60

# What is wanted, by the kinds of errors that the arguments of our tools can have.
_WANTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number from {ge:g} on",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number up to {le:g}",
}


def describe(errors: Iterable[ErrorDetails], known: Iterable[str]) -> str:
    """Returns what is wrong with arguments, each once; `known` are the names that they may have."""
    return "; ".join(dict.fromkeys(_describe(error, known) for error in errors))


def _describe(error: ErrorDetails, known: Iterable[str]) -> str:
    name = str(error["loc"][0]) if error["loc"] else "the arguments"
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"there is no argument {name!r}; use {', '.join(known) or 'none'}"
    wanted = _WANTED.get(error["type"])
    if wanted is None:
        return f"{name} cannot be {show(error['input'], _LONGEST_SHOWN)}: {error['msg']}"
    return f"{name} is {show(error['input'], _LONGEST_SHOWN)}; use {wanted.format(**error.get('ctx', {}))}"

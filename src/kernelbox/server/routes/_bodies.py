"""What all requests and answers share: how bodies are read, what a failure looks like, what any route may answer."""

from __future__ import annotations

import difflib
import re
from typing import Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

# The most entries of an object or a list in a request: an error may name each that does not fit.
_MOST_ENTRIES = 1_000


def _require_few(value: object) -> object:
    """Refuses what has too many entries before any of them is looked at: a body can have millions."""
    if isinstance(value, dict | list) and len(value) > _MOST_ENTRIES:
        raise PydanticCustomError("too_long", f"use at most {_MOST_ENTRIES:,} entries")
    return value


# Says of an object or a list that it has few entries.
Few = (Field(max_length=_MOST_ENTRIES), BeforeValidator(_require_few))


def _take_whole(value: object) -> object:
    """Returns a number without a fraction as a whole one: JSON has one kind of number, and 5.0 is an integer there."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_take_whole)


class Body(BaseModel):
    """The body of a request. Values are not converted, such as `true` to 1, and unknown fields are rejected."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, value: object) -> object:
        return _require_few(value)


# The names of fields that ask for protection, which must not be ignored silently.
_PROTECTING = (
    "allow|approv|block|confine|cpu|deny|disk|forbid|guard|isolat|kill|limit|max_|memory|network|permission|policy|quota"
    "|read_?only|restrict|safe|sandbox|secur|shell_escape|time_?out|trust|ttl"
)
_PROTECTS = re.compile(_PROTECTING)


def _describe_names(schema: dict[str, Any]) -> None:
    """Says in the schema which unknown fields are rejected."""
    schema.pop("additionalProperties", None)
    schema["propertyNames"] = {"anyOf": [{"enum": sorted(schema["properties"])}, {"not": {"pattern": _PROTECTING}}]}


class OldBody(Body):
    """The body of a request that KernelBox 0.1 took too. It ignored unknown fields, and programs send some.

    Those that ask for protection are rejected, because the caller would rely on it. So are misspelled ones.
    """

    model_config = ConfigDict(json_schema_extra=_describe_names)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_is_harmless(cls, value: object) -> object:
        _require_few(value)
        if not isinstance(value, dict) or value.keys() <= cls.model_fields.keys():
            return value
        return {name: field for name, field in value.items() if name in cls.model_fields or not cls._is_harmless(name)}

    @classmethod
    def _is_harmless(cls, name: str) -> bool:
        return not _PROTECTS.search(name) and not difflib.get_close_matches(name[:100], cls.model_fields, 1, 0.8)


class Failure(BaseModel):
    """A request that failed: a sentence for people, and a code for programs."""

    detail: str = Field(examples=["there is no kernel 'demo'"])
    code: str = Field(examples=["kernel_not_found"])


class InvalidField(BaseModel):
    """What does not fit the schema."""

    loc: list[str | int] = Field(examples=[["body", "code"]])
    msg: str = Field(examples=["Field required"])
    type: str = Field(examples=["missing"])


class InvalidRequest(BaseModel):
    """A request that does not fit the schema, or has a value that cannot be used."""

    detail: str | list[InvalidField]
    code: Literal["invalid_request"]


Responses = dict[int | str, dict[str, Any]]

NOT_FOUND: Responses = {404: {"model": Failure, "description": "not found"}}
CONFLICT: Responses = {409: {"model": Failure, "description": "it conflicts with the current state"}}
QUEUE_FULL: Responses = {429: {"model": Failure, "description": "too many cells wait in the kernel; see Retry-After"}}
FULL: Responses = {503: {"model": Failure, "description": "the server is at a limit, or is stopping; see Retry-After"}}

# The headers of what others have made: a browser runs no script in it.
HARMLESS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}

# What every route may answer.
COMMON: Responses = {
    400: {"model": Failure, "description": "the request is malformed"},
    401: {"model": Failure, "description": "the token is missing or unknown"},
    403: {"model": Failure, "description": "the token, or the web page that sends it, may not do this"},
    413: {"model": Failure, "description": "the request is too large"},
    421: {"model": Failure, "description": "the request is meant for another host"},
    422: {"model": InvalidRequest, "description": "the request does not fit the schema"},
    500: {"model": Failure, "description": "the server failed"},
}

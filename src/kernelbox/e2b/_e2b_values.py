"""What E2B's code interpreter returns and raises, with its names and fields.

SandboxException
├── TimeoutException                  a cell or a command took too long
│   └── SandboxNotRunningException    the sandbox was killed, or its time is over
├── InvalidArgumentException
├── NotFoundException
│   ├── FileNotFoundException
│   └── SandboxNotFoundException
├── CommandExitException              a command's exit code is not 0
└── NoCounterpart (AttributeError)    something that only E2B's cloud can do
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# The fields of a result, by the MIME types that they hold.
_FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
}


class SandboxException(Exception):
    """Raised when a sandbox cannot do what it was asked for."""


class TimeoutException(SandboxException):
    """Raised when a cell or a command took too long; the variables stay."""


class SandboxNotRunningException(TimeoutException):
    """Raised for a sandbox that was killed, or whose time is over."""

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(
            f"sandbox {sandbox_id!r} was killed or reached its timeout; create another one, with a longer 'timeout'"
        )


class InvalidArgumentException(SandboxException):
    """Raised for an argument that cannot be used."""


class NotFoundException(SandboxException):
    """Raised when something is not there."""


class FileNotFoundException(NotFoundException):
    """Raised when there is no such file or directory in the sandbox."""


class SandboxNotFoundException(NotFoundException):
    """Raised when there is no sandbox with an id."""

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"there is no sandbox {sandbox_id!r} in this directory's kernels; `kernelbox list` shows them")


class NoCounterpart(SandboxException, AttributeError):
    """Raised for what E2B's cloud can do and a local kernel cannot."""


@dataclass(frozen=True, slots=True)
class OutputMessage:
    """A piece of output, as callbacks get it."""

    line: str
    timestamp: int = field(default_factory=time.time_ns)
    error: bool = False

    def __str__(self) -> str:
        return self.line


@dataclass(frozen=True, slots=True)
class ExecutionError:
    """What a cell raised."""

    name: str
    value: str
    traceback: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class Logs:
    """What a cell wrote, in pieces."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, repr=False, slots=True)
class Result:
    """Something that a cell showed, in one or more formats; pictures are in base64."""

    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: str | None = None
    jpeg: str | None = None
    pdf: str | None = None
    latex: str | None = None
    json: Any = None
    javascript: str | None = None
    data: None = None
    chart: None = None
    is_main_result: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any], *, is_main_result: bool) -> Result:
        """Reads a MIME bundle. E2B shows the text of a string without its quotes."""
        fields = {_FIELDS[mime]: value for mime, value in data.items() if mime in _FIELDS}
        text = fields.get("text")
        if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] == "'":
            fields["text"] = text[1:-1]
        extra = {mime: value for mime, value in data.items() if mime not in _FIELDS}
        return cls(**fields, is_main_result=is_main_result, extra=extra)

    def formats(self) -> list[str]:
        """Returns the names of the formats that it has."""
        return [name for name in _FIELDS.values() if getattr(self, name)] + list(self.extra)

    def __getitem__(self, name: str) -> Any:
        return self.extra[name] if name in self.extra else getattr(self, name)

    def __repr__(self) -> str:
        return f"Result({self.text or 'Formats: ' + ', '.join(self.formats())})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Shows the result in a notebook."""
        return {mime: value for mime, name in _FIELDS.items() if (value := getattr(self, name))}


@dataclass(slots=True)
class Execution:
    """The outcome of a cell."""

    results: list[Result] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    execution_count: int | None = None

    @property
    def text(self) -> str | None:
        """The text of the last expression."""
        return next((result.text for result in self.results if result.is_main_result), None)

    def to_json(self) -> str:
        shown = [{name: result[name] for name in ("text", *result.formats())} for result in self.results]
        error = self.error.to_json() if self.error else None
        return json.dumps({"results": shown, "logs": self.logs.to_json(), "error": error})


@dataclass(frozen=True, slots=True)
class Context:
    """A context: a kernel of the sandbox, with its own variables."""

    id: str
    language: str
    cwd: str


@dataclass
class CommandResult:
    """The outcome of a command."""

    stderr: str
    stdout: str
    exit_code: int
    error: str | None = None


@dataclass
class CommandExitException(SandboxException, CommandResult):
    """Raised when the exit code of a command is not 0; has the fields of its result."""

    def __str__(self) -> str:
        return f"Command exited with code {self.exit_code} and error:\n{self.stderr}"


class FileType(Enum):
    """What a path leads to."""

    FILE = "file"
    DIR = "dir"


@dataclass(frozen=True, slots=True)
class WriteInfo:
    """A file that was written."""

    name: str
    type: FileType
    path: str


@dataclass(frozen=True, slots=True)
class EntryInfo(WriteInfo):
    """A file or directory."""

    size: int
    modified_time: datetime


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A running sandbox."""

    sandbox_id: str
    metadata: dict[str, str]
    started_at: datetime
    end_at: datetime
    template_id: str = "code-interpreter-v1"
    state: str = "running"

"""The result of an execution and its parts, as plain values."""

from __future__ import annotations

from kernelbox.wire._values import dataclass, field
from kernelbox.wire.results._readable import Readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from kernelbox.wire.results._readable import WholeText

    Status = Literal["success", "error", "timeout", "max_attempts_exceeded"]
    OutputKind = Literal["stream", "display_data", "execute_result", "update_display_data", "clear_output", "error"]


@dataclass(slots=True)
class ErrorInfo:
    """An exception raised by a cell, or the reason why it did not finish."""

    ename: str
    evalue: str
    traceback: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {**_fields(self), "traceback": list(self.traceback)}

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> ErrorInfo:
        """Reads the content of Jupyter's `error` message, in which any field may be missing."""
        ename, evalue = (str(content.get(name, "")) for name in ("ename", "evalue"))
        return cls(ename, evalue, list(content.get("traceback", ())))


# The pictures that are written to files; of an output with several the first counts.
IMAGE_TYPES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif", "image/webp")


@dataclass(slots=True)
class Picture:
    """A picture that a cell showed: its number among the files of the execution and its path, once it is written."""

    number: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"[image {self.number}: {self.path}]" if self.number else "[image]"


@dataclass(slots=True)
class OutputItem:
    """One thing a cell wrote or showed, in the order it did."""

    kind: OutputKind
    text: str | None = None
    name: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    picture: Picture | None = None

    @property
    def image_data(self) -> tuple[str, str] | None:
        """The MIME type of the picture in it and its bytes in base64, an SVG's source as it is; None if it has none."""
        found = ((mime, self.data.get(mime)) for mime in IMAGE_TYPES) if self.data else ()
        return next(((mime, data) for mime, data in found if isinstance(data, str) and data), None)

    @property
    def readable(self) -> str:
        """The text for a person or a model.

        For an error that is the traceback, for anything else `text`. If `text` only says that there is an object, it is
        the source of its Markdown, LaTeX or JSON. A picture is named with its file.
        """
        if self.kind == "error":
            return "\n".join(self.data.get("traceback", ())) or self.text or ""
        text = self.text or ""
        if self.picture is not None:
            if _is_name_of_object(text):
                return str(self.picture)
            return f"{text}\n{self.picture}" if self.picture.number else text
        return (_source(self.data) if _says_nothing(text) else "") or text

    def to_dict(self) -> dict[str, Any]:
        fields = _fields(self)
        del fields["display_id"], fields["picture"]
        return fields


def _says_nothing(text: str) -> bool:
    """Tells whether a text is empty, or like that of `object.__repr__` and IPython's own displays."""
    return not text or (
        text.startswith("<") and "\n" not in text and (text.endswith(" object>") or " object at 0x" in text)
    )


def _is_name_of_object(text: str) -> bool:
    """Tells whether a text only names the object behind a picture, such as `<Figure size 640x480 with 1 Axes>`."""
    return not text or (text.startswith("<") and text.endswith(">") and "\n" not in text)


def _source(data: dict[str, Any]) -> str:
    for mime in ("text/markdown", "text/latex"):
        if isinstance(source := data.get(mime), str) and source:
            return source
    return _show_json(data["application/json"]) if "application/json" in data else ""


def _show_json(value: object) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)  # escaped, because not every file takes the text


@dataclass(slots=True)
class AttemptSnapshot:
    """One attempt of `execute_with_retry`."""

    attempt: int
    code: str
    status: Status
    output: str = ""
    stderr: str = ""
    error: ErrorInfo | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**_fields(self), "error": self.error.to_dict() if self.error else None}


@dataclass(repr=False, slots=True)
class ExecutionResult(Readable):
    """The end of an execution: what the cell did, and what happened to the kernel.

    `text` is everything a model should read, in order. `value` is the last expression if it is JSON, None if not;
    `return_value` is its text. `exit_code` is that of a bash cell. `state` says whether the kernel's variables were
    kept, lost, or rolled back to a checkpoint, and `ending` how the execution ended: finished, interrupted, restarted,
    died, rolled back or never ran. `opened` says whether this call opened the kernel. If the kernel was set back to a
    checkpoint, `restored_from` is its number, and `lost_executions` are the executions since. `kept` is where `more`
    finds what was cut, and `home` the directory that keeps the kernel: neither is in `to_dict()`.
    """

    status: Status
    output: str = ""
    stderr: str = ""
    error: ErrorInfo | None = None
    return_value: str | None = None
    execution_count: int | None = None
    duration_ms: int = 0
    outputs: list[OutputItem] = field(default_factory=list)
    attempts: list[AttemptSnapshot] = field(default_factory=list)
    truncated: bool = False
    text: str = ""
    images: list[str] = field(default_factory=list)
    state: Literal["kept", "lost", "rolled back"] = "kept"
    ending: Literal["finished", "interrupted", "restarted", "died", "rolled back", "never ran"] = "finished"
    changed: dict[str, list[str]] | None = None
    value: Any = None
    exit_code: int | None = None
    kernel_id: str = ""
    name: str = ""
    opened: bool = False
    execution_id: str = ""
    restored_from: int | None = None
    lost_executions: list[int] = field(default_factory=list)
    kept: WholeText | None = None
    home: str = ""

    def snapshot(self, attempt: int, code: str) -> AttemptSnapshot:
        """Returns what this result adds to the history of a retry."""
        return AttemptSnapshot(attempt, code, self.status, self.output, self.stderr, self.error)

    def to_dict(self) -> dict[str, Any]:
        fields = _fields(self)
        del fields["kept"], fields["home"]  # a caller of the HTTP service learns no paths
        if self.changed is None:
            del fields["changed"]
        if self.restored_from is None:
            del fields["restored_from"], fields["lost_executions"]
        return {
            **fields,
            "ok": self.ok,
            "error": self.error.to_dict() if self.error else None,
            "outputs": [item.to_dict() for item in self.outputs],
            "attempts": [attempt.to_dict() for attempt in self.attempts],
            "images": list(self.images),
        }


def _fields(value: ErrorInfo | OutputItem | AttemptSnapshot | ExecutionResult) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__match_args__}


@dataclass(frozen=True, slots=True)
class SetBack:
    """The checkpoint that a kernel continues from: its number, and the executions since, which are undone.

    `asked_for` says that a client asked for this; otherwise the kernel's process had died.
    """

    checkpoint: int
    lost: list[int]
    asked_for: bool = False

    def __str__(self) -> str:
        verb = "rolled back to" if self.asked_for else "restored from"
        told = f"the kernel was {verb} checkpoint {self.checkpoint}"
        if not self.lost:
            return f"{told}; no finished execution was lost"
        first, last = self.lost[0], self.lost[-1]
        return (
            f"{told}; execution {first} is lost" if first == last else f"{told}; executions {first} to {last} are lost"
        )

    def note_in(self, result: ExecutionResult) -> None:
        """Notes it in the result of a cell that the kernel did not finish."""
        result.state, result.restored_from, result.lost_executions = "rolled back", self.checkpoint, list(self.lost)

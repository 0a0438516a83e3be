"""What an execution leaves behind: the result and its parts, as plain values."""

from __future__ import annotations

from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    Status = Literal["success", "error", "timeout", "max_attempts_exceeded"]
    OutputKind = Literal["stream", "display_data", "execute_result", "update_display_data", "clear_output", "error"]


@dataclass(slots=True)
class ErrorInfo:
    """An exception raised by a cell, or the reason for which it did not finish."""

    ename: str
    evalue: str
    traceback: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"ename": self.ename, "evalue": self.evalue, "traceback": list(self.traceback)}

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> ErrorInfo:
        """Reads the content of Jupyter's `error` message, in which anything may be missing."""
        ename, evalue = (str(content.get(name, "")) for name in ("ename", "evalue"))
        return cls(ename, evalue, list(content.get("traceback", ())))


@dataclass(slots=True)
class OutputItem:
    """One thing a cell wrote or showed, in the order it did."""

    kind: OutputKind
    text: str | None = None
    name: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None

    @property
    def readable(self) -> str:
        """What a person or a model reads of it.

        That is the traceback of an error, and of anything else the text; where that only says that there is an object,
        the source of its Markdown, LaTeX or JSON.
        """
        if self.kind == "error":
            return "\n".join(self.data.get("traceback", ())) or self.text or ""
        text = self.text or ""
        return (_source(self.data) if _says_nothing(text) else "") or text

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "text": self.text,
            "name": self.name,
            "data": self.data,
            "metadata": self.metadata,
        }


def _says_nothing(text: str) -> bool:
    """Tells whether a text is empty, or what `object.__repr__` and IPython's own displays have."""
    return not text or (
        text.startswith("<") and "\n" not in text and (text.endswith(" object>") or " object at 0x" in text)
    )


def _source(data: dict[str, Any]) -> str:
    for mime in ("text/markdown", "text/latex"):
        if isinstance(source := data.get(mime), str) and source:
            return source
    return _show_json(data["application/json"]) if "application/json" in data else ""


def _show_json(value: object) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)  # with escapes for what no file takes


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
        return {
            "attempt": self.attempt,
            "code": self.code,
            "status": self.status,
            "output": self.output,
            "stderr": self.stderr,
            "error": self.error.to_dict() if self.error else None,
        }


@dataclass(slots=True)
class ExecutionResult:
    """The end of an execution: what the cell did, and what became of the kernel.

    `text` is everything a model should read, in order. `state` says whether the kernel's variables were kept or
    lost, and `ending` how the execution ended: finished, interrupted, restarted, died or never ran.
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
    state: Literal["kept", "lost"] = "kept"
    ending: Literal["finished", "interrupted", "restarted", "died", "never ran"] = "finished"
    changed: dict[str, list[str]] | None = None

    @property
    def ok(self) -> bool:
        return self.status == "success"

    def snapshot(self, attempt: int, code: str) -> AttemptSnapshot:
        """Returns what this result adds to the history of a retry."""
        return AttemptSnapshot(attempt, code, self.status, self.output, self.stderr, self.error)

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "output": self.output,
            "stderr": self.stderr,
            "error": self.error.to_dict() if self.error else None,
            "return_value": self.return_value,
            "execution_count": self.execution_count,
            "duration_ms": self.duration_ms,
            "outputs": [item.to_dict() for item in self.outputs],
            "attempts": [attempt.to_dict() for attempt in self.attempts],
            "truncated": self.truncated,
            "text": self.text,
            "images": list(self.images),
            "state": self.state,
            "ending": self.ending,
            **({"changed": self.changed} if self.changed is not None else {}),
        }

"""One request of a front end and all that follows from it, as a pure machine: our messages in, Jupyter's out.

    execute_request ▶ status busy · execute_input · stream, display_data, … · error · execute_reply · status idle

Everything that follows has the request for its parent. The reply goes to the front end that asked, on the channel that
it asked on; the rest goes to all, on iopub.
"""

from __future__ import annotations

import base64
import json
from typing import Any, TypeVar

from kernelbox.server.jupyter._front_end_message import Author, Channel, JupyterMessage
from kernelbox.wire._messages import Clear, Comm, Display, Execute, Output, Started
from kernelbox.wire._results import ErrorInfo, ExecutionResult
from kernelbox.wire._schema import MAX_PARENT

T = TypeVar("T", bool, int, str)

# What a `history_request` may say besides its kind and `raw`.
_HISTORY = ("session", "start", "stop", "n", "pattern", "unique", "output")

# In the metadata of the reply to a cell whose kernel died: why it did. What a cell raises can have any name.
DIED = "kernelbox.died"

# In the metadata of the reply to a cell whose kernel was set back to a checkpoint, dead or alive: the ending of the
# cell, the number of the checkpoint, and the executions since.
SET_BACK = "kernelbox.set_back"

# In the metadata of an `execute_request`: the directory that the cell starts in and returns to.
RESTORE_CWD = "kernelbox.restore_cwd"


class Exchange:
    """Writes what one request leads to."""

    def __init__(self, author: Author, request: JupyterMessage) -> None:
        self.request = request
        self._author = author
        self._count: int | None = None
        self._started = ""

    @property
    def silent(self) -> bool:
        return _field(self.request.content, "silent", False)

    def begin(self) -> JupyterMessage:
        self._started = self._author.clock()
        return self._author.status("busy", self.request.header)

    def end(self) -> JupyterMessage:
        return self._author.status("idle", self.request.header)

    def broadcast(self, message: Started | Output | Display | Clear | Comm) -> list[JupyterMessage]:
        """Returns the broadcasts for a message of the kernel about the request."""
        match message:
            case Started():
                self._count = message.execution_count
                if self._count == 0:
                    return []  # from a Jupyter kernel, which sends its number later
                if self.request.kind != "execute_request" or self.silent:
                    return []
                code = _field(self.request.content, "code", "")
                return [self._tell("execute_input", {"code": code, "execution_count": self._count})]
            case Output():
                return [self._tell("stream", {"name": message.name, "text": message.text})]
            case Clear():
                return [self._tell("clear_output", {"wait": message.wait})]
            case Comm():
                return [self._tell_comm(message)]
            case Display(kind="error"):
                text = message.data.get("text/plain", "")
                names = {name: str(message.metadata.get(name, "")) for name in ("ename", "evalue")}
                return [self._tell("error", {**names, "traceback": str(text).split("\n")})]
            case Display():
                return [self._tell(message.kind, self._show(message))]

    def fail(self, error: ErrorInfo) -> list[JupyterMessage]:
        """Returns the broadcast about the error that ended a cell; an error without a traceback was already shown."""
        return [self._tell("error", error.to_dict())] if error.traceback else []

    def reply(self, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> JupyterMessage:
        """Returns the reply to the request."""
        channel: Channel = "control" if self.request.channel == "control" else "shell"
        kind = f"{self.request.kind.removesuffix('_request')}_reply"
        said = {"started": self._started, **(metadata or {})} if self._started else metadata
        return self._author.write(channel, kind, content, self.request.header, metadata=said)

    def reply_to_cell(
        self, result: ExecutionResult, expressions: dict[str, Any], payload: list[dict[str, Any]]
    ) -> JupyterMessage:
        """Returns the reply to an `execute_request` that has ended; its metadata say what became of the kernel.

        A cell that ended its kernel by `exit` did not fail.
        """
        count = self._count if result.execution_count is None else result.execution_count
        metadata: dict[str, Any] = {}
        if result.restored_from is not None:
            metadata = {SET_BACK: [result.ending, result.restored_from, result.lost_executions]}
        elif result.error is not None and result.ending == "died":
            metadata = {DIED: result.error.evalue}
        if result.error is not None and not asks_to_exit(payload):
            content = {"status": "error", **result.error.to_dict(), "execution_count": count}
            return self.reply({**content, "payload": payload, "user_expressions": {}}, metadata)
        content = {"status": "ok", "execution_count": count, "payload": payload, "user_expressions": expressions}
        return self.reply(content, metadata)

    def ask_for_input(self, prompt: str, *, password: bool) -> JupyterMessage:
        """Returns the question that a cell puts to the person at the front end."""
        content = {"prompt": prompt, "password": password}
        return self._author.write("stdin", "input_request", content, self.request.header)

    def _tell(self, kind: str, content: dict[str, Any]) -> JupyterMessage:
        return self._author.write("iopub", kind, content, self.request.header)

    def _tell_comm(self, message: Comm) -> JupyterMessage:
        content = {name: value for name, value in message.content.items() if name != "metadata"}
        metadata = message.content.get("metadata")
        return self._author.write(
            "iopub",
            message.msg_type,
            content,
            self.request.header,
            metadata=metadata if isinstance(metadata, dict) else {},
            buffers=tuple(message.buffers),
        )

    def _show(self, message: Display) -> dict[str, Any]:
        blobs = {mime: base64.b64encode(blob).decode("ascii") for mime, blob in message.blobs.items()}
        content: dict[str, Any] = {"data": {**message.data, **blobs}, "metadata": message.metadata}
        if message.kind == "execute_result":
            content["execution_count"] = self._count if message.execution_count is None else message.execution_count
        content["transient"] = {"display_id": message.display_id} if message.display_id else {}
        return content


def asks_to_exit(payload: list[dict[str, Any]]) -> bool:
    """Tells whether a cell has asked its kernel to end, as IPython's `exit` does."""
    return any(part.get("source") == "ask_exit" and not part.get("keepkernel") for part in payload)


def failure(ename: str, evalue: str) -> dict[str, Any]:
    """Returns the content of a reply that only says why the request failed."""
    return {"status": "error", "ename": ename, "evalue": evalue, "traceback": [f"{ename}: {evalue}"]}


def read_cell(request: JupyterMessage, execution_id: str, *, approve_shell: bool = False) -> Execute:
    """Returns the message that runs the cell of an `execute_request`; raises ValueError for one without code."""
    content = request.content
    if not isinstance(content.get("code"), str):
        raise ValueError("execute_request.code must be text")  # noqa: TRY004  # of a message, not of an argument
    silent = _field(content, "silent", False)
    return Execute(
        execution_id,
        content["code"],
        silent=silent,
        store_history=_field(content, "store_history", True) and not silent,
        allow_stdin=_field(content, "allow_stdin", True),
        payloads=True,
        approve_shell=approve_shell,
        restore_cwd=_field(request.metadata, RESTORE_CWD, ""),
        parent=request.id[:MAX_PARENT],
    )


def read_comm(request: JupyterMessage, execution_id: str, *, approve_shell: bool = False) -> Execute:
    """Returns what passes a front end's message on to its comm; raises ValueError for one that names no comm."""
    names = ("comm_id", "target_name") if request.kind == "comm_open" else ("comm_id",)
    if not all(isinstance(request.content.get(name), str) for name in names):
        raise ValueError(f"{request.kind} must have {' and '.join(names)}")
    message = {
        "header": request.header,
        "parent_header": request.parent,
        "metadata": request.metadata,
        "msg_type": request.kind,
        "msg_id": request.id,
        "content": {"data": {}, **request.content},
    }
    return Execute(
        execution_id,
        json.dumps(message),
        "comm",
        store_history=False,
        approve_shell=approve_shell,
        parent=request.id[:MAX_PARENT],
        buffers=list(request.buffers),
    )


def read_query(request: JupyterMessage) -> tuple[str, dict[str, Any]]:
    """Returns the query that answers a request, and its arguments; raises ValueError if no query does."""
    content = request.content
    match request.kind:
        case "complete_request" | "inspect_request":
            code = _field(content, "code", "")
            cursor = _field(content, "cursor_pos", len(code))
            args = {"code": code, "cursor_pos": len(code) if cursor < 0 else min(cursor, len(code))}
            if request.kind == "complete_request":
                return "complete", args
            return "inspect", {**args, "detail_level": _field(content, "detail_level", 0)}
        case "is_complete_request":
            return "is_complete", {"code": _field(content, "code", "")}
        case "history_request":
            args = {name: content.get(name) for name in _HISTORY}
            kind = content.get("hist_access_type", "tail")
            return "history", {**args, "raw": _field(content, "raw", True), "hist_access_type": kind}
        case "comm_info_request":
            return "comms", {"target_name": _field(content, "target_name", "")}
    raise ValueError(f"there is no {request.kind!r:.100} here")


def read_expressions(request: JupyterMessage) -> dict[str, str]:
    """Returns what an `execute_request` wants to have evaluated after its cell."""
    asked = request.content.get("user_expressions")
    return {name: text for name, text in asked.items() if isinstance(text, str)} if isinstance(asked, dict) else {}


def stops_on_error(request: JupyterMessage) -> bool:
    """Returns whether the cells that wait behind this one are not to be run if it fails."""
    return _field(request.content, "stop_on_error", True)


def _field(content: dict[str, Any], name: str, default: T) -> T:
    """Returns a field of a message; the default if it is missing, or of another type."""
    value = content.get(name)
    return value if type(value) is type(default) else default

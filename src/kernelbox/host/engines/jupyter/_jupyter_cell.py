"""One execution on a Jupyter kernel: translates the messages of its two channels into ours. No sockets, no clock.

A cell has ended when both the reply (shell) and `idle` (iopub) have arrived. They race each other, and only `idle`
comes after everything that the cell wrote.
"""

from __future__ import annotations

import re

from kernelbox.host.engines.jupyter._actions import SendRequest
from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
from kernelbox.wire._bundle import build_display
from kernelbox.wire._json import load
from kernelbox.wire._messages import Begun, Clear, Comm, Display, Done, Execute, Message, Output, Payload, Started
from kernelbox.wire._output_limit import bound, value_limit
from kernelbox.wire._schema import COMM_KINDS, MAX_ERROR, MAX_LINES, MAX_TOLD_CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# ECMA-48: colours and cursor movements.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")

_LONGEST_NAME = 1_000

# The exit status at the end of an error: no shell has more than three digits.
_STATUS = re.compile(r"(?<!\d)(-?\d{1,3})\.?$")

# Kernel languages that can run a cell of `language="bash"` unchanged.
_SHELLS = ("bash", "sh", "shell")


class JupyterCell:
    """Collects a Jupyter kernel's messages about one request."""

    def __init__(self, request: Execute) -> None:
        self.request = request
        self.submitted = False
        self.begun = False
        self.running = False
        self.interrupted = False
        self.done = False
        self._reply: KernelMessage | None = None
        self._error: KernelMessage | None = None
        self._idle = False
        self._cut = False
        self._comm = _read_comm(request) if request.language == "comm" else {}

    def __repr__(self) -> str:
        return (
            f"<JupyterCell {self.request.id} {'done' if self.done else 'submitted' if self.submitted else 'waiting'}>"
        )

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def replied(self) -> bool:
        return self._reply is not None

    @property
    def failed(self) -> bool:
        """Whether the kernel has published an error."""
        return self._error is not None

    @property
    def is_comm(self) -> bool:
        """Whether it is a message to a comm, which the kernel does not reply to."""
        return self.request.language == "comm"

    @property
    def served(self) -> bool:
        """Whether at least one channel says that the cell is over."""
        return self._reply is not None or self._idle

    def submit(self, kernel_language: str, *, stdin: bool) -> SendRequest:
        """Returns the request for the cell; `stdin` allows it to ask for input."""
        self.submitted = True
        if not self.is_comm:
            return SendRequest("shell", "execute_request", self.content(kernel_language, stdin=stdin), self.id)
        content, metadata = self._comm.get("content"), self._comm.get("metadata")
        return SendRequest(
            "shell",
            str(self._comm.get("msg_type")),
            content if isinstance(content, dict) else {},
            self.id,
            metadata=metadata if isinstance(metadata, dict) else {},
            buffers=tuple(self.request.buffers),
        )

    def content(self, kernel_language: str, *, stdin: bool = False) -> dict[str, Any]:
        """Returns the content of the execute_request. A failing cell must not abort those behind it."""
        code = self.request.code
        if self.request.language == "bash" and kernel_language == "python":
            code = f"%%bash\n{code}"
        return {
            "code": code,
            "silent": self.request.silent,
            "store_history": self.request.store_history and not self.request.silent,
            "user_expressions": {},
            "allow_stdin": stdin and self.request.allow_stdin,
            "stop_on_error": False,
        }

    def refuse(self, kernel_language: str) -> Done | None:
        """Returns the end of a cell that a Jupyter kernel cannot run as intended; then nothing is sent."""
        request = self.request
        if request.language == "bash" and kernel_language not in ("python", *_SHELLS):
            return self._refusal(
                f"this kernel runs {kernel_language or 'its own language'} and has no bash cells; use language='bash' "
                "on a Python or bash kernel"
            )
        if self.is_comm and not self._comm:
            return self._refusal("this is not a message to a comm")
        if request.approve_shell or request.shell_escape_only:
            return self._refusal("shell commands can be held for approval only in kernelbox's own kernels")
        if request.restore_cwd:
            return self._refusal("a working directory can be restored only in kernelbox's own kernels")
        return None

    def take_output(self, name: str, text: str) -> list[Message]:
        return [Output(self.id, name if name == "stderr" else "stdout", text)]

    def take_loss(self, messages: int, size: int) -> list[Message]:
        """Notes that publications were dropped; the result says so."""
        self._cut = True
        what = f"{messages:,} messages of the kernel ({size:,} bytes) were left out"
        return self.take_output("stderr", f"[{what}: they came faster than they were read]\n")

    def take_published(self, message: KernelMessage) -> list[Message]:
        """Takes a publication about the cell (iopub)."""
        self.begun = True
        self._cut |= message.unread
        match message.kind:
            case "status" if message.content.get("execution_state") == "idle":
                self._idle = True
                if self.is_comm:
                    self._reply = KernelMessage("", self.id, {"status": "ok"})
                return self._finish()
            case "status":
                self.running |= self.request.silent or self.is_comm  # no execute_input will follow
            case "execute_input":
                self.running = True
                return [Started(self.id, execution_count_of(message) or 0)]
            case "stream":
                return self.take_output(message.text("name"), message.text("text"))
            case "display_data" | "execute_result" | "update_display_data" if not message.unread:
                return [self._show_message(message)]
            case "clear_output":
                return [Clear(self.id, bool(message.content.get("wait")))]
            case "error":
                self._error = message
            case "comm_open" | "comm_msg" | "comm_close" if not message.unread:
                content = {**message.content, "metadata": message.metadata} if message.metadata else message.content
                return [Comm(self.id, message.kind, content, list(message.buffers))]
        return []

    def take_reply(self, message: KernelMessage) -> list[Message]:
        self._cut |= message.unread
        self._reply = message
        return self._finish()

    def give_up(self) -> list[Message]:
        """Ends the cell without its reply or its `idle`, which were lost, perhaps together with output."""
        if self._reply is None:
            # An interrupt outside the user's code costs the reply.
            status = "ok" if self.is_comm and not self.interrupted else "abort"
            self._reply = KernelMessage("execute_reply", self.id, {"status": status})
        self._idle = True
        return self._finish(cut=True)

    @property
    def asks_to_exit(self) -> bool:
        """Whether the cell asked its kernel to end, as IPython's `exit()` does."""
        return any(part.get("source") == "ask_exit" and not part.get("keepkernel") for part in self._payload())

    def _finish(self, *, cut: bool = False) -> list[Message]:
        if self._reply is None or not self._idle or self.done:
            return []
        self.done = True
        messages: list[Message]
        if self.request.payloads:
            messages = [Payload(self.id, part) for part in self._payload()]
        else:
            pages = [part["data"] for part in self._payload() if isinstance(part.get("data"), dict)]
            messages = [self._show("display_data", data, {}) for data in pages]
        if self.asks_to_exit:
            return messages  # the cell ends when the kernel ends
        done = Done(self.id, "ok", execution_count_of(self._reply), interrupted=self.interrupted, cut=cut or self._cut)
        status = self._reply.text("status")
        if status.startswith("abort") and not (self.running or self.interrupted):
            done.status = "aborted"
        elif status.startswith("abort"):
            self._fail(done, "KeyboardInterrupt", "", ["KeyboardInterrupt: the kernel stopped the cell"])
        elif status == "error":
            self._describe_error(done, self._error or self._reply)
        elif self._error is not None:
            messages += self.take_output("stderr", "\n".join(_lines(self._error)) + "\n")
        if self.request.language == "bash" and done.status != "aborted":
            done.exit_code = _exit_code(done)
        return [*messages, done]

    def _describe_error(self, done: Done, error: KernelMessage) -> None:
        ename = _plain(error.text("ename")) or "Error"
        evalue = _plain(error.text("evalue"))
        self._fail(done, ename, evalue, _lines(error) or [f"{ename}: {evalue}"])

    def _fail(self, done: Done, ename: str, evalue: str, lines: list[str]) -> None:
        limit = min(self.request.text_limit or MAX_ERROR, MAX_ERROR)
        whole = "\n".join(lines)
        text, value = bound(whole, limit), bound(evalue, min(value_limit(limit), MAX_ERROR))
        done.status, done.ename, done.evalue = "error", ename[:_LONGEST_NAME], value
        done.traceback = text.split("\n", MAX_LINES)
        done.interrupted |= ename == "KeyboardInterrupt"  # perhaps by another client
        done.cut |= len(text) < len(whole) or len(value) < len(evalue)

    def _show_message(self, message: KernelMessage) -> Message:
        display_id = message.dict("transient").get("display_id") or ""
        data, metadata = message.dict("data"), message.dict("metadata")
        return self._show(
            message.kind, data, metadata, display_id=display_id, execution_count=execution_count_of(message)
        )

    def _show(self, kind: str, data: dict[str, Any], metadata: dict[str, Any], **options: Any) -> Message:
        try:
            return build_display(self.id, kind, data, metadata, text_limit=self.request.text_limit, **options)
        except ValueError as exc:
            return Display(self.id, kind, {"text/plain": f"[a display could not be shown: {exc}]"}, {}, cut=True)

    def _payload(self) -> list[dict[str, Any]]:
        payload = self._reply.content.get("payload") if self._reply else None
        return [part for part in payload if isinstance(part, dict)] if isinstance(payload, list) else []

    def _refusal(self, reason: str) -> Done:
        return Done(self.id, "error", None, "NotSupported", reason, [f"NotSupported: {reason}"])


def _exit_code(done: Done) -> int | None:
    """Returns the exit status of a bash cell, which the error of `%%bash` and of a bash kernel ends with."""
    if done.status == "ok":
        return 0
    found = _STATUS.search(done.evalue)
    return int(found[1]) if found else None


def execution_count_of(message: KernelMessage) -> int | None:
    """Returns the cell's number in a message."""
    count = message.content.get("execution_count")
    return count if type(count) is int else None


def _read_comm(request: Execute) -> dict[str, Any]:
    """Parses the code of a request as a front end's message to a comm; empty if it is not one."""
    try:
        message = load(request.code.encode("utf-8", "surrogatepass"))
    except ValueError:
        return {}
    return message if isinstance(message, dict) and message.get("msg_type") in COMM_KINDS else {}


def _lines(error: KernelMessage) -> list[str]:
    traceback = error.content.get("traceback")
    parts = [part for part in traceback if isinstance(part, str)] if isinstance(traceback, list) else []
    return _plain("\n".join(parts)).split("\n") if parts else []


def _plain(text: str) -> str:
    return _ANSI.sub("", text)


# Messages that can come between cells, from threads and the widgets that they change.
_BETWEEN = ("stream", "display_data", "update_display_data", "clear_output", *COMM_KINDS)


class Onlooker:
    """Follows the cells of other clients, which a kernel runs one at a time."""

    def __init__(self) -> None:
        self._cell: JupyterCell | None = None

    def take(self, message: KernelMessage) -> list[Message]:
        """Takes a publication that is not about this client's own requests."""
        if message.kind == "execute_input" and message.parent:
            code = message.text("code")[:MAX_TOLD_CODE]
            self._cell = JupyterCell(Execute(message.parent, code))
            count = execution_count_of(message) or 0
            return [Begun(message.parent, code, "python", count, False, message.parent)]
        cell = self._cell
        if cell is not None and message.parent == cell.id:
            told = cell.take_published(message)
            if message.kind == "status" and message.text("execution_state") == "idle":
                self._cell = None
                status = "error" if cell.failed else "ok"
                told += cell.take_reply(KernelMessage("execute_reply", cell.id, {"status": status}))
            return [each for each in told if not isinstance(each, Started)]
        return JupyterCell(Execute("", "")).take_published(message) if message.kind in _BETWEEN else []

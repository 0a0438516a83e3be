"""Runs cells in a plain ipykernel, and reduces outputs to a form that two kernels can be compared in.

What the common form leaves out, and why:

- The order of stdout against stderr between two displays. ipykernel keeps one buffer for each stream and
  empties them one after the other, so there the order is lost before we can see it.
- How text is cut into stream messages, colours, `\\r\\n` against `\\n`: the same text on a screen.
- Addresses, durations, ids, the working directory and the file name of a cell's code: new in each run.
- Traceback frames of libraries, and a frame that repeats: ours shows the user's, and few of a recursion.
- What `clear_output` has cleared and `update_display` has replaced: a screen shows the rest.
- Whether help is shown in a pager or printed: ipykernel's page counts as printed at the end of the cell.
"""

from __future__ import annotations

import base64
import hashlib
import json
import queue
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_event_loop

from .corpus import Cell

START_S = 120.0  # a cold interpreter on a loaded two-core machine, many times over
CELL_S = 60.0  # the slowest cell takes 2 s: the first import of a plotting library
QUIET_S = 0.4  # twice ipykernel's flush interval; it gives no sign that its descriptor reader is done


@dataclass(frozen=True)
class Output:
    """One thing a cell has put on the screen, from either kernel."""

    kind: str
    text: str = ""
    name: str = ""
    data: Mapping[str, object] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)
    display_id: str = ""


@dataclass(frozen=True)
class Observation:
    """What one cell did, in the common form."""

    status: str
    count: int | None
    error: str
    outputs: tuple[Output, ...]

    def stream(self, name: str) -> str:
        """Everything the cell wrote to one stream."""
        return "".join(output.text for output in self.outputs if output.name == name)

    @property
    def value(self) -> str | None:
        """The text of the last expression."""
        shown = [output.data.get("text/plain") for output in self.outputs if output.kind == "execute_result"]
        return str(shown[-1]) if shown and shown[-1] is not None else None

    def __str__(self) -> str:
        lines = [f"{self.status} [{self.count}] {self.error}".rstrip()]
        for output in self.outputs:
            lines.append(" ".join(filter(None, (f"<{output.kind}>", output.name, output.display_id))))
            lines += output.text.split("\n") if output.text else []
            lines += [f"  {mime}: {_shown(value)}" for mime, value in sorted(output.data.items())]
            lines += [f"  metadata {key}: {_shown(value)}" for key, value in sorted(output.metadata.items())]
        return "\n".join(lines)


def observe_ipykernel(cells: Iterable[Cell], cwd: Path, env: Mapping[str, str]) -> list[Observation]:
    """Runs the cells in one fresh ipykernel; may be called in any thread."""
    with _ipykernel(cwd, env) as client:
        return [_run(client, cell, cwd) for cell in cells]


def observe(outputs: Iterable[Output], cwd: Path, *, count: int | None, error: tuple[str, str] | None) -> Observation:
    """Reduces what a cell did to the common form."""
    shown = tuple(_normalised(output, cwd) for output in _merged(_on_screen(outputs)))
    failure = mask(": ".join(error), cwd) if error else ""
    return Observation("error" if error else "success", count, failure, shown)


def mask(text: str, cwd: Path) -> str:
    """Replaces what is new in each run by placeholders."""
    text = text.replace(str(cwd), "<cwd>")
    for pattern, placeholder in _MASKS:
        text = pattern.sub(placeholder, text)
    return text


@contextmanager
def _ipykernel(cwd: Path, env: Mapping[str, str]) -> Iterator[BlockingKernelClient]:
    manager = KernelManager()
    # ipykernel copies what it captures to its own stdout and stderr as well.
    manager.start_kernel(cwd=str(cwd), env=dict(env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        client: BlockingKernelClient = manager.client()
        client.start_channels()
        try:
            # Not wait_for_ready, which polls for half a second: this message says that we are subscribed.
            while client.get_iopub_msg(timeout=START_S)["msg_type"] != "iopub_welcome":
                pass
            yield client
        finally:
            client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)
        ensure_event_loop().close()  # jupyter_client has made one for this thread, and would leave it open


def _run(client: BlockingKernelClient, cell: Cell, cwd: Path) -> Observation:
    # stop_on_error would let ipykernel abort the next request when it comes soon after a failure.
    parent = client.execute(cell.code, allow_stdin=False, stop_on_error=False)
    outputs = list(_until_idle(client, parent))
    reply = _reply(client, parent)
    if cell.late:
        outputs += _stragglers(client, parent)
    outputs += [_from_payload(payload) for payload in reply.get("payload", [])]
    error = (str(reply["ename"]), str(reply["evalue"])) if reply["status"] == "error" else None
    return observe(outputs, cwd, count=reply.get("execution_count"), error=error)


def _until_idle(client: BlockingKernelClient, parent: str) -> Iterator[Output]:
    while True:
        message = client.get_iopub_msg(timeout=CELL_S)
        if message["parent_header"].get("msg_id") != parent:
            continue
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return
        yield from _from_message(message)


def _reply(client: BlockingKernelClient, parent: str) -> dict[str, Any]:
    while True:
        message = client.get_shell_msg(timeout=CELL_S)
        if message["parent_header"].get("msg_id") == parent:
            content: dict[str, Any] = message["content"]
            assert content["status"] in ("ok", "error"), content
            return content


def _stragglers(client: BlockingKernelClient, parent: str) -> Iterator[Output]:
    while True:
        try:
            message = client.get_iopub_msg(timeout=QUIET_S)
        except queue.Empty:
            return
        if message["parent_header"].get("msg_id") == parent:
            yield from _from_message(message)


def _from_message(message: Mapping[str, Any]) -> Iterator[Output]:
    content = message["content"]
    match message["msg_type"]:
        case "stream":
            yield Output("stream", text=content["text"], name=content["name"])
        case "display_data" | "execute_result" | "update_display_data" as kind:
            display_id = content.get("transient", {}).get("display_id", "")
            yield Output(kind, data=content["data"], metadata=content["metadata"], display_id=display_id)
        case "error":
            yield Output("error", text="\n".join(content["traceback"]))
        case "clear_output":
            yield Output("clear_output", data={"wait": content["wait"]})
        case "status" | "execute_input" | "comm_open" | "comm_msg" | "comm_close":
            pass
        case other:
            raise AssertionError(f"an unknown message: {other}")


def _from_payload(payload: Mapping[str, Any]) -> Output:
    match payload["source"]:
        case "page":
            return Output("stream", name="stdout", text=str(payload["data"]["text/plain"]) + "\n")
        case source:
            return Output(str(source), text=str(payload.get("text", "")))


def _on_screen(outputs: Iterable[Output]) -> list[Output]:
    """Applies what clears and replaces earlier outputs."""
    shown: list[Output] = []
    waiting = False
    for output in outputs:
        if output.kind == "clear_output" and output.data["wait"]:
            waiting = True
            continue
        if output.kind == "clear_output" or waiting:
            shown, waiting = [], False
        places = [place for place, older in enumerate(shown) if older.display_id == output.display_id != ""]
        if output.kind == "update_display_data" and places:
            for place in places:
                shown[place] = replace(shown[place], data=output.data, metadata=output.metadata)
        elif output.kind != "clear_output":
            shown.append(output)
    return shown


def _merged(outputs: Iterable[Output]) -> Iterator[Output]:
    """Joins the text of each stream between two displays, stdout first."""
    pending = {"stdout": "", "stderr": ""}
    for output in (*outputs, None):
        if output is not None and output.kind == "stream":
            pending[output.name] += output.text
            continue
        for name, text in pending.items():
            if text:
                yield Output("stream", text=text, name=name)
            pending[name] = ""
        if output is not None:
            yield output


def _normalised(output: Output, cwd: Path) -> Output:
    text = mask(output.text, cwd)
    return Output(
        output.kind,
        _user_lines(text) if output.kind == "error" else text,
        output.name,
        {mime: _normalised_value(mime, value, cwd) for mime, value in output.data.items()},
        {key: _normalised_value("", value, cwd) for key, value in output.metadata.items()},
        _RANDOM_ID.sub("<id>", output.display_id),
    )


def _normalised_value(mime: str, value: object, cwd: Path) -> object:
    match value:
        case str() if mime.startswith("image/") and mime != "image/svg+xml":
            return _image(value)
        case str():
            return mask(value, cwd)
        case list():
            return [_normalised_value("", part, cwd) for part in value]
        case dict():
            return {key: _normalised_value("", part, cwd) for key, part in value.items()}
        case _:
            return value


def _image(encoded: str) -> str:
    content = base64.b64decode(encoded)
    return f"{len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}"


def _user_lines(traceback: str) -> str:
    """Keeps the places in the user's code, the joints of chained exceptions, and the message at the end."""
    lines = traceback.rstrip("\n").split("\n")
    kept: list[str] = []
    users = False
    for line in lines:
        if line.lstrip().startswith("Cell In["):
            users = True
            kept.append(line.strip())
        elif line.startswith("File "):
            users = "<cwd>" in line
            kept += [line] * users
        elif line in _JOINTS or (users and _ARROW.match(line)):
            kept.append(line)
        if kept[-2:] == kept[-4:-2]:
            del kept[-2:]
    last_blank = max((number for number, line in enumerate(lines) if not line.strip()), default=-1)
    message = [line for line in lines[last_blank + 1 :] if not _ABOVE_MESSAGE.match(line) and line[:6] != "Hint: "]
    return "\n".join([*kept, *(_CARETS.sub(r"\1^", line) for line in message)])


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


_RANDOM_ID = re.compile(r"[0-9a-f]{16,}")
_ARROW = re.compile(r"-*> \d+ ")
_ABOVE_MESSAGE = re.compile(r"-{75}$|.*Traceback \(most recent call last\)$|\s*Cell In\[|File |-*> \d+ ")
_CARETS = re.compile(r"^( *)\^+$")  # IPython points with one caret, ours underlines
_JOINTS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_MASKS = tuple(
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        (r"\x1b\[[0-9;]*[A-Za-z]", ""),
        (r"\r\n", "\n"),
        # A cell's code is in a file that never existed, which each kernel names in its own way.
        (r"(?<![\w./-])/[\w./-]*/(?:ipykernel_\d+|kernelbox[\w.-]*)/\d+\.py", "<cell>"),
        (r"(?:<cwd>/)?<ipython-input-[\w-]+>", "<cell>"),
        (r'Cell In\[\d+\](?=:\d+: |")', "<cell>"),
        (r"\((?:\d+\.py|Cell In\[\d+\]), line", "(<cell>, line"),
        (r"\(pid=\d+\)", "(pid=<pid>)"),
        (r"0x[0-9a-f]{6,}", "0x<address>"),
        (r"\b[0-9a-f]{32}\b", "<id>"),
        (r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "<id>"),
        (r"\bT_[0-9a-f]{5}", "T_<id>"),
        (r"\b\d+(?:\.\d+)?(?:e[+-]\d+)? ?(?:ns|[uµμ]s|ms|s)\b", "<time>"),
        (r"\d+(?:\.\d+)?(?=it/s)", "<rate>"),
    )
)

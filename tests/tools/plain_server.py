"""A tool server without the SDK, which starts at once and misbehaves on demand: `plain_server.py [TOOLS.json]`.

It speaks the older generation of the protocol. A tool does what its name says; a file given on the command line has
the list of tools, its pages, what a tool returns as `structuredContent`, a file that gets a line for each list, one
that has the next list never come, and whether requests are served one after the other.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

SPEC: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else {}
PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c63f8cfc0f01f00050001ff56c72f0d0000000049454e44ae426082"
    )
).decode()

lock = threading.Lock()
cancelled: dict[object, threading.Event] = {}
replies: dict[object, Any] = {}
replied = threading.Condition()


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        sys.stdout.buffer.flush()


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


@dataclass(frozen=True)
class Call:
    """One call of a tool; `marks` is the directory for files that show what it does."""

    number: object
    name: str
    args: dict[str, Any]
    meta: dict[str, Any]

    @property
    def marks(self) -> Path:
        return Path(self.args.get("marks", "/nonexistent"))


class Refused(Exception):
    """Raised for a request that is answered with an error of the protocol: its code, and words."""


def structured(call: Call) -> dict[str, Any]:
    return {**text("structured"), "structuredContent": SPEC["structured"][call.name]}


def echo(call: Call) -> dict[str, Any]:
    return text(json.dumps(call.args, sort_keys=True))


def pid(call: Call) -> dict[str, Any]:
    return text(str(os.getpid()))


def environment(call: Call) -> dict[str, Any]:
    return text(os.environ.get(call.args["name"], "(not set)"))


def fail(call: Call) -> dict[str, Any]:
    return {**text(call.args["words"]), "isError": True}


def crash(call: Call) -> NoReturn:
    os.write(2, call.args.get("words", "").encode())
    os._exit(3)


def wait(call: Call) -> dict[str, Any]:
    (call.marks / "begun").touch()
    if cancelled[call.number].wait(call.args.get("seconds", 3600)):
        (call.marks / "cancelled").touch()
    return text("waited")


def meet(call: Call) -> dict[str, Any]:
    (call.marks / call.args["name"]).touch()
    while not all((call.marks / other).exists() for other in call.args["others"]):
        time.sleep(0.005)
    return text(f"{call.args['name']} met")


def hang(call: Call) -> dict[str, Any]:
    if not (call.marks / "hung").exists():
        lock.acquire()  # nothing is ever answered again
        (call.marks / "hung").touch()
        threading.Event().wait()
    return text("fine")


def large(call: Call) -> dict[str, Any]:
    return text("x" * call.args["size"])


def noisy(call: Call) -> dict[str, Any]:
    with lock:
        os.write(1, b"this is no message\n{\n[1, 2]\n\xff\xfe\n\n")
    for _ in range(50):
        os.write(2, b"complaint " * 10_000 + b"\n")
    return text("still here")


def leave(call: Call) -> dict[str, Any]:
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True, stdin=subprocess.DEVNULL)
    (call.marks / "child").write_text(str(child.pid))
    (call.marks / "server").write_text(str(os.getpid()))
    return text("left a child")


def report(call: Call) -> dict[str, Any]:
    token = call.meta.get("progressToken")
    for step in (1, 2):
        said = f"step {step}{'!' * call.args.get('size', 0)}"
        params = {"progressToken": token, "progress": call.args.get("progress", step), "total": 2, "message": said}
        send({"method": "notifications/progress", "params": params})
    send({"method": "notifications/message", "params": {"level": "info", "data": "a line"}})
    return text("reported")


def ask(call: Call) -> dict[str, Any]:
    """Asks the client for something; returns what it said."""
    params: dict[str, Any] = {"messages": [], "maxTokens": 1}
    if call.args["method"] == "elicitation/create":
        params = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
    send({"id": "from-server", "method": call.args["method"], "params": params})
    with replied:
        replied.wait_for(lambda: "from-server" in replies)
    return text(json.dumps(replies.pop("from-server")))


def picture(call: Call) -> dict[str, Any]:
    return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}


def torn(call: Call) -> dict[str, Any]:
    return {"content": [{"type": "image", "data": call.args["data"], "mimeType": "image/png\n\x1b[31m"}]}


def mixed(call: Call) -> dict[str, Any]:
    memo = {"uri": "memo://1", "mimeType": "text/plain", "text": "a memo"}
    blob = {"uri": "memo://2", "blob": PIXEL}
    return {
        "content": [
            {"type": "text", "text": "words"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "resource", "resource": memo},
            {"type": "resource", "resource": blob},
            {"type": "resource_link", "uri": "memo://3", "name": "three"},
        ]
    }


def values(call: Call) -> dict[str, Any]:
    return {**text("many"), "structuredContent": {"values": [[]] * call.args["count"]}}


def change(call: Call) -> dict[str, Any]:
    TOOLS[:] = [tool for tool in TOOLS if tool["name"] != call.args["without"]]
    send({"method": "notifications/tools/list_changed"})
    return text("changed")


def note(call: Call) -> dict[str, Any]:
    with open(call.marks / "noted", "a") as file:
        file.write(json.dumps(call.args["value"]) + "\n")
    return text("noted")


def half(call: Call) -> dict[str, Any]:
    return text("cut \ud83d, whole \U0001f600, written \\ud83d")


def broken(call: Call) -> dict[str, Any]:
    return {"content": "not a list"}


def refuse(call: Call) -> NoReturn:
    raise Refused(-32000, "no" + "!" * call.args["size"])


WORKS: dict[str, Callable[[Call], dict[str, Any]]] = {
    work.__name__: work
    for work in (
        echo,
        pid,
        environment,
        fail,
        crash,
        wait,
        meet,
        hang,
        large,
        noisy,
        leave,
        report,
        ask,
        picture,
        mixed,
        broken,
        refuse,
        values,
        torn,
        note,
        change,
        half,
    )
}
ANYTHING = {"type": "object", "additionalProperties": True}
TOOLS = SPEC.get("tools") or [{"name": name, "description": f"Does {name}.", "inputSchema": ANYTHING} for name in WORKS]


def respond(message: dict[str, Any]) -> None:
    params = message.get("params") or {}
    try:
        send({"id": message["id"], "result": result_of(message["id"], message["method"], params)})
    except Refused as refused:
        code, words = refused.args
        send({"id": message["id"], "error": {"code": code, "message": words}})


def result_of(number: object, method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": {"name": "plain", "version": "1"},
                "instructions": SPEC.get("instructions", "A plain server."),
            }
        case "tools/list":
            return page_of_tools(int(params.get("cursor") or 0))
        case "tools/call":
            call = Call(number, params["name"], params.get("arguments") or {}, params.get("_meta") or {})
            work = structured if call.name in SPEC.get("structured", {}) else WORKS.get(call.name, echo)
            return work(call)
    raise Refused(-32601, f"no method {method}")


def page_of_tools(start: int) -> dict[str, Any]:
    if "lists" in SPEC:
        with open(SPEC["lists"], "a") as file:
            file.write("listed\n")
    if "hangs" in SPEC and Path(SPEC["hangs"]).exists():
        Path(SPEC["hangs"]).unlink()
        lock.acquire()  # nothing is ever answered again
        threading.Event().wait()
    size = SPEC.get("page", 1000)
    page: dict[str, Any] = {"tools": TOOLS[start : start + size]}
    if start + size < len(TOOLS):
        page["nextCursor"] = str(start + size)
    return page


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            number = message["params"]["requestId"]
            if number in cancelled:
                cancelled[number].set()
        elif "method" not in message:
            with replied:
                replies[message["id"]] = message.get("error") or message.get("result")
                replied.notify_all()
        elif "id" in message:
            cancelled[message["id"]] = threading.Event()
            if SPEC.get("serial"):
                respond(message)
            else:
                threading.Thread(target=respond, args=(message,), daemon=True).start()
    os._exit(0)  # threads may wait for ever


if __name__ == "__main__":
    main()

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
from pathlib import Path
from typing import Any

SPEC: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else {}
ANYTHING = {"type": "object", "additionalProperties": True}
TOOLS = SPEC.get("tools") or [
    {"name": name, "description": f"Does {name}.", "inputSchema": ANYTHING}
    for name in (
        "echo",
        "pid",
        "environment",
        "fail",
        "crash",
        "wait",
        "meet",
        "hang",
        "large",
        "noisy",
        "leave",
        "report",
        "ask",
        "picture",
        "mixed",
        "broken",
        "refuse",
        "values",
        "torn",
        "note",
        "change",
        "half",
    )
]
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


def call(number: object, name: str, args: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    marks = Path(args.get("marks", "/nonexistent"))
    if name in SPEC.get("structured", {}):
        return {**text("structured"), "structuredContent": SPEC["structured"][name]}
    match name:
        case "pid":
            return text(str(os.getpid()))
        case "environment":
            return text(os.environ.get(args["name"], "(not set)"))
        case "fail":
            return {**text(args["words"]), "isError": True}
        case "crash":
            os.write(2, args.get("words", "").encode())
            os._exit(3)
        case "wait":
            (marks / "begun").touch()
            if cancelled[number].wait(args.get("seconds", 3600)):
                (marks / "cancelled").touch()
            return text("waited")
        case "meet":
            (marks / args["name"]).touch()
            while not all((marks / other).exists() for other in args["others"]):
                time.sleep(0.005)
            return text(f"{args['name']} met")
        case "hang":
            if not (marks / "hung").exists():
                lock.acquire()  # nothing is ever answered again
                (marks / "hung").touch()
                threading.Event().wait()
            return text("fine")
        case "large":
            return text("x" * args["size"])
        case "noisy":
            with lock:
                os.write(1, b"this is no message\n{\n[1, 2]\n\xff\xfe\n\n")
            for _ in range(50):
                os.write(2, b"complaint " * 10_000 + b"\n")
            return text("still here")
        case "leave":
            child = subprocess.Popen(["sleep", "3600"], start_new_session=True, stdin=subprocess.DEVNULL)
            (marks / "child").write_text(str(child.pid))
            (marks / "server").write_text(str(os.getpid()))
            return text("left a child")
        case "report":
            token = meta.get("progressToken")
            for step in (1, 2):
                said = f"step {step}{'!' * args.get('size', 0)}"
                params = {"progressToken": token, "progress": args.get("progress", step), "total": 2, "message": said}
                send({"method": "notifications/progress", "params": params})
            send({"method": "notifications/message", "params": {"level": "info", "data": "a line"}})
            return text("reported")
        case "ask":
            return text(ask(args["method"]))
        case "picture":
            return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
        case "torn":
            return {"content": [{"type": "image", "data": args["data"], "mimeType": "image/png\n\x1b[31m"}]}
        case "mixed":
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
        case "values":
            return {**text("many"), "structuredContent": {"values": [[]] * args["count"]}}
        case "change":
            TOOLS[:] = [tool for tool in TOOLS if tool["name"] != args["without"]]
            send({"method": "notifications/tools/list_changed"})
            return text("changed")
        case "note":
            with open(marks / "noted", "a") as file:
                file.write(json.dumps(args["value"]) + "\n")
            return text("noted")
        case "half":
            return text("cut \ud83d, whole \U0001f600, written \\ud83d")
        case "broken":
            return {"content": "not a list"}
    return text(json.dumps(args, sort_keys=True))


def ask(method: str) -> str:
    """Asks the client for something; returns what it said."""
    params: dict[str, Any] = {"messages": [], "maxTokens": 1}
    if method == "elicitation/create":
        params = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
    send({"id": "from-server", "method": method, "params": params})
    with replied:
        replied.wait_for(lambda: "from-server" in replies)
    return json.dumps(replies.pop("from-server"))


def respond(message: dict[str, Any]) -> None:
    number, params = message["id"], message.get("params") or {}
    match message["method"]:
        case "initialize":
            send(
                {
                    "id": number,
                    "result": {
                        "protocolVersion": params["protocolVersion"],
                        "capabilities": {"tools": {}, "logging": {}},
                        "serverInfo": {"name": "plain", "version": "1"},
                        "instructions": SPEC.get("instructions", "A plain server."),
                    },
                }
            )
        case "tools/list":
            if "lists" in SPEC:
                with open(SPEC["lists"], "a") as file:
                    file.write("listed\n")
            if "hangs" in SPEC and Path(SPEC["hangs"]).exists():
                Path(SPEC["hangs"]).unlink()
                lock.acquire()  # nothing is ever answered again
                threading.Event().wait()
            size = SPEC.get("page", 1000)
            start = int(params.get("cursor") or 0)
            page: dict[str, Any] = {"tools": TOOLS[start : start + size]}
            if start + size < len(TOOLS):
                page["nextCursor"] = str(start + size)
            send({"id": number, "result": page})
        case "tools/call" if params["name"] == "refuse":
            size = params["arguments"]["size"]
            send({"id": number, "error": {"code": -32000, "message": "no" + "!" * size}})
        case "tools/call":
            result = call(number, params["name"], params.get("arguments") or {}, params.get("_meta") or {})
            send({"id": number, "result": result})
        case method:
            send({"id": number, "error": {"code": -32601, "message": f"no method {method}"}})


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

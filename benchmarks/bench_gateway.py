"""Jupyter's protocol over a WebSocket: one client against our server, and against jupyter_server with ipykernel."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from benchmarks._measure import Row, interleaved, percentile, show
from kernelbox.server.jupyter._front_end_message import JupyterMessage
from kernelbox.server.jupyter._websocket_codec import V1, CodecV1

_ROUNDS, _BATCH = 10, 50
_PATIENCE = 120.0


def rows() -> Iterator[Row]:
    with _server(_ours) as ours, _server(_theirs) as theirs, _front_end(ours) as one, _front_end(theirs) as other:
        for _ in range(_BATCH):
            one(), other()
        taken = interleaved({"ours": one, "theirs": other}, rounds=_ROUNDS, batch=_BATCH)
    ratio = percentile(taken["theirs"], 50) / percentile(taken["ours"], 50)
    reference = f"jupyter_server with ipykernel {show(taken['theirs'])}"
    what = "`1+1` over Jupyter's WebSocket, to the reply and idle"
    yield Row(what, show(taken["ours"]), reference, f"{ratio:.1f} × faster", "> 1 ×", ratio > 1)


def _ours(port: int) -> list[str]:
    return [sys.executable, "-m", "kernelbox", "serve", "--port", str(port), "--log-level", "ERROR"]


def _theirs(port: int) -> list[str]:
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token="]
    return [sys.executable, "-m", "jupyter_server", *options, "--ServerApp.disable_check_xsrf=True"]


@contextlib.contextmanager
def _server(command: Callable[[int], list[str]]) -> Iterator[str]:
    """Runs a server; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command(port), cwd=folder, env=os.environ.copy(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}/api")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            urllib.request.urlopen(url, timeout=_PATIENCE).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def _front_end(address: str) -> Iterator[Callable[[], None]]:
    """Opens a kernel and connects to it; yields what runs a cell in it."""
    request = urllib.request.Request(f"http://{address}/api/kernels", b'{"name": "python3"}', method="POST")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        kernel_id = json.load(answer)["id"]
    url = f"ws://{address}/api/kernels/{kernel_id}/channels"
    with connect(url, subprotocols=[Subprotocol(V1)], open_timeout=_PATIENCE, proxy=None) as connection:
        yield lambda: _run_cell(connection)
    ended = urllib.request.Request(f"http://{address}/api/kernels/{kernel_id}", method="DELETE")
    urllib.request.urlopen(ended, timeout=_PATIENCE).close()


def _run_cell(connection: ClientConnection) -> None:
    codec, key = CodecV1(), os.urandom(8).hex()
    header = {
        "msg_id": key,
        "msg_type": "execute_request",
        "session": "b",
        "username": "",
        "version": "5.3",
        "date": "",
    }
    content = {"code": "1+1", "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    connection.send(codec.encode(JupyterMessage("shell", header, content=content)))
    replied = idle = shown = False
    while not (replied and idle):
        frame = connection.recv(_PATIENCE)
        message = codec.decode(frame)
        if message.parent.get("msg_id") == key:
            replied |= message.kind == "execute_reply"
            shown |= message.kind == "execute_result"
            idle |= message.kind == "status" and message.content["execution_state"] == "idle"
    assert shown

"""The HTTP service, with the load from this process: against the synchronous API, and KernelBox 0.1.2's own service.

That one is measured if KERNELBOX_PEER_PYTHON is an interpreter that has `kernelbox==0.1.2`, ipykernel and uvicorn.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import kernelbox
from benchmarks._measure import Row, interleaved, percentile, show, times

_CONNECTIONS = 32
_EACH = 50


def rows() -> Iterator[Row]:
    """Yields the latency of one connection, the throughput of many, and when the first byte of a stream arrives."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(_our_server())
        peer = stack.enter_context(_peer_server())
        yield from _one_connection(ours, peer)
        yield from _many_connections(ours, peer)
        yield _first_byte(ours)


def _one_connection(ours: str, peer: str | None) -> Iterator[Row]:
    client, kernel = Client(ours, "http"), kernelbox.get_or_create("sync")
    actions = {"sync": lambda: kernelbox.execute(kernel, "1+1"), "http": lambda: client.execute("1+1")}
    taken = interleaved(actions, rounds=20, batch=25)  # type: ignore[arg-type]  # what they return is of no interest
    ratio = percentile(taken["http"], 50) / percentile(taken["sync"], 50)
    what = "`POST …/execute` of `1+1`, one kept-alive connection"
    yield Row(what, show(taken["http"]), f"sync API {show(taken['sync'])}", f"{ratio:.2f} ×", "≤ 4 ×", ratio <= 4)
    if peer is not None:
        other = Client(peer, "http")
        slower = times(lambda: other.execute("1+1"), 50)
        ratio = percentile(slower, 50) / percentile(taken["http"], 50)
        yield Row(what, show(taken["http"]), f"KernelBox 0.1.2 {show(slower)}", f"{ratio:.1f} ×", "≥ 5 ×", ratio >= 5)


def _many_connections(ours: str, peer: str | None) -> Iterator[Row]:
    api = _throughput(lambda number: _sync_load(f"load-{number}"))
    http_rate = _throughput(lambda number: _http_load(ours, f"load-{number}"))
    what = f"executions per second, {_CONNECTIONS} connections over {_CONNECTIONS} kernels"
    ratio = http_rate / api
    yield Row(what, f"{http_rate:,.0f}", f"Python API {api:,.0f}", f"{ratio:.0%}", "≥ 60 %", ratio >= 0.6)
    if peer is not None:
        slower = _throughput(lambda number: _http_load(peer, f"load-{number % 4}", count=5))
        ratio = http_rate / slower
        yield Row(what, f"{http_rate:,.0f}", f"KernelBox 0.1.2 {slower:,.0f}", f"{ratio:.1f} ×", "≥ 10 ×", ratio >= 10)


def _first_byte(ours: str) -> Row:
    client = Client(ours, "stream")
    taken = sorted(client.first_byte() for _ in range(50))
    reached = percentile(taken, 50) <= 0.010
    return Row("first byte of a stream after it was printed", show(taken), "", "", "≤ 10 ms", reached)


class Client:
    """One kept-alive connection, and a kernel."""

    def __init__(self, address: str, kernel: str) -> None:
        host, port = address.split(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=120)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._kernel = kernel
        self._post(f"/sessions/{kernel}", {})
        self.execute("1+1")

    def execute(self, code: str) -> dict[str, object]:
        """Runs code; returns the result."""
        result: dict[str, object] = json.loads(self._post(f"/kernels/{self._kernel}/execute", {"code": code}))
        assert result["status"] == "success", result
        return result

    def first_byte(self) -> float:
        """Returns how many seconds after it was printed a time arrives."""
        code = "import time; print(time.time(), flush=True); time.sleep(0.05)"
        self._send(f"/kernels/{self._kernel}/stream", {"code": code})
        answer = self._connection.getresponse()
        taken = 0.0
        while line := answer.readline():
            if line.startswith(b"data: ") and b'"kind":"stream"' in line and not taken:
                taken = time.time() - float(json.loads(line[6:])["text"])
        return taken

    def _post(self, path: str, body: object) -> bytes:
        self._send(path, body)
        return self._connection.getresponse().read()

    def _send(self, path: str, body: object) -> None:
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})


def _throughput(load: object) -> float:
    assert callable(load)
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        prepared = list(pool.map(load, range(_CONNECTIONS)))
        began = time.perf_counter()
        count = sum(pool.map(lambda run: run(), prepared))
        return count / (time.perf_counter() - began)


def _sync_load(name: str) -> object:
    kernel = kernelbox.get_or_create(name)

    def run() -> int:
        for _ in range(_EACH):
            assert kernelbox.execute(kernel, "1+1").ok
        return _EACH

    return run


def _http_load(address: str, name: str, count: int = _EACH) -> object:
    client = Client(address, name)

    def run() -> int:
        for _ in range(count):
            client.execute("1+1")
        return count

    return run


@contextlib.contextmanager
def _our_server() -> Iterator[str]:
    command = [sys.executable, "-m", "kernelbox", "serve", "--port", "0", "--log-level", "WARNING"]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*command, "--workspace", folder], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            try:
                yield json.loads(process.stdout.readline())["url"].removeprefix("http://")
            finally:
                process.terminate()
                process.wait(60)


@contextlib.contextmanager
def _peer_server() -> Iterator[str | None]:
    python = os.environ.get("KERNELBOX_PEER_PYTHON")
    if python is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KERNELBOX_", "PYTHON"))}
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-m", "uvicorn", "kernelbox.server.app:app", "--port", str(port), "--log-level", "warning"]
        process = subprocess.Popen(command, cwd=folder, env={**environment, "KERNELBOX_HOME": folder})
        try:
            _wait_for(port, process)
            yield f"127.0.0.1:{port}"
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            connection.request("DELETE", "/kernels")
            connection.getresponse().read()
        finally:
            process.terminate()
            process.wait(60)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError("KernelBox 0.1.2 does not start")

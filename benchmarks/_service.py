"""What the benchmarks of the HTTP service share: servers as processes, and a client that costs little itself."""

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
from dataclasses import dataclass

_TIMEOUT = 120


@dataclass(frozen=True)
class Server:
    """A server that listens at an address."""

    address: str
    process: subprocess.Popen[str] | subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """Returns the time that the server's process has worked."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Returns the bytes of memory that are the server's own."""
        with open(f"/proc/{self.process.pid}/smaps_rollup", encoding="utf-8") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Private_"))


class Client:
    """One kept-alive connection, for a kernel; requests are written as bytes, since the load must not be the limit."""

    def __init__(self, server: Server, kernel: str = "") -> None:
        host, port = server.address.split(":")
        self._host = host
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._kernel = kernel
        if kernel:
            self.send("POST", f"/sessions/{kernel}", {})
            self.execute("1+1")

    def close(self) -> None:
        self._socket.close()

    def execute(self, code: str) -> dict[str, object]:
        """Runs code; returns the result."""
        result: dict[str, object] = json.loads(self.send("POST", f"/kernels/{self._kernel}/execute", {"code": code}))
        assert result["status"] == "success", result
        return result

    def send(self, method: str, path: str, body: object = None, headers: str = "") -> bytes:
        """Sends a request; returns the body of its answer."""
        self.begin(method, path, body, headers)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._receive()
        head, _, rest = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(rest) < length:
            rest += self._receive()
        return rest

    def begin(self, method: str, path: str, body: object = None, headers: str = "") -> None:
        """Sends a request, whose answer is left to be read."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json{headers}"
        self._socket.sendall(f"{head}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)

    def follow(self, method: str, path: str, body: object = None) -> Iterator[dict[str, object]]:
        """Yields the events of a stream as they arrive."""
        self.begin(method, path, body)
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def first_byte(self) -> float:
        """Returns how many seconds after it was printed a time arrives."""
        taken = 0.0
        code = "import time; print(time.time(), flush=True); time.sleep(0.05)"
        for event in self.follow("POST", f"/kernels/{self._kernel}/stream", {"code": code}):
            if event.get("kind") == "stream" and not taken:
                taken = time.time() - float(str(event["text"]))
        return taken

    def _receive(self) -> bytes:
        piece = self._socket.recv(1 << 20)
        assert piece, "the server has closed the connection"
        return piece


@contextlib.contextmanager
def our_server() -> Iterator[Server]:
    """Runs our service on a workspace of its own."""
    command = [sys.executable, "-m", "kernelbox", "serve", "--port", "0", "--log-level", "WARNING"]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*command, "--workspace", folder], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            try:
                yield Server(json.loads(process.stdout.readline())["url"].removeprefix("http://"), process)
            finally:
                process.terminate()
                process.wait(60)


@contextlib.contextmanager
def peer_server() -> Iterator[Server | None]:
    """Runs KernelBox 0.1.2's own service, if there is an interpreter that has it."""
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
            yield Server(f"127.0.0.1:{port}", process)
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

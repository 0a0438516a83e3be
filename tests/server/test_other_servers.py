"""The application as other programs serve it, by the commands of the documentation, at another port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest
from tests.support.homes import new_home
from tests.support.server import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@contextlib.contextmanager
def served_by(*command: str) -> Iterator[httpx2.Client]:
    """Runs a command at a free port, in the folder of the project; ends it, and all that it has started."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [port if word == "8080" else word for word in command]
    with new_home() as home:
        env = {**os.environ, "KERNELBOX_HOME": str(home)}
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen(
            [str(BIN / words[0]), *words[1:]], cwd=ROOT, env=env, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE, trust_env=False) as client:
                wait_for(client, process)
                yield client
                client.delete("/kernels")
        finally:
            started = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE)
            psutil.wait_procs(started, timeout=DEADLINE)


def wait_for(client: httpx2.Client, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(httpx2.TransportError):
            client.get("/health")
            return
    raise AssertionError(f"it has ended with status {process.returncode}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["uvicorn kernelbox.server.app:app --port 8080 --reload", "fastapi dev --port 8080"],
)
def test_the_commands_of_the_documentation_serve_the_application(command: str) -> None:
    with served_by(*command.split()) as client:
        assert "swagger-ui" in client.get("/docs").text
        assert "redoc" in client.get("/redoc").text
        assert "/kernels/{key}/execute" in client.get("/openapi.json").json()["paths"]
        result = client.post("/sessions/demo/execute", json={"code": "2 ** 10"}).json()
        assert (result["status"], result["return_value"]) == ("success", "1024")

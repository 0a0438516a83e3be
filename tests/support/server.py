"""What the tests of the HTTP service share: servers as processes, and clients with deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.bounded import DEADLINE as DEADLINE
from tests.support.homes import new_home

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Served:
    """A server that listens, and a client for it that sends no token of its own accord.

    `token` is the one that it made, which answers to approvals need.
    """

    url: str
    token: str
    workspace: Path
    process: subprocess.Popen[str]
    http: httpx2.Client

    @property
    def proof(self) -> dict[str, str]:
        """The header with the token."""
        return {"Authorization": f"Bearer {self.token}"}

    def post(self, path: str, body: object = None, **headers: str) -> httpx2.Response:
        return self.http.post(path, json=body, headers=headers)

    def execute(self, key: str, code: str, **fields: Any) -> dict[str, Any]:
        """Runs code in a kernel that there is; returns the result."""
        answer = self.post(f"/kernels/{key}/execute", {"code": code, **fields})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result


@contextlib.contextmanager
def serving(workspace: Path, *words: str, port: str = "0", **env: str) -> Iterator[Served]:
    """Starts a server and ends it; LOG in the environment is the file that its log goes to."""
    command = [sys.executable, "-m", "kernelbox", "serve", "--port", port, "--workspace", str(workspace), *words]
    with contextlib.ExitStack() as files:
        stderr = files.enter_context(open(env["LOG"], "w", encoding="utf-8")) if "LOG" in env else None
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **env},
        )
    assert process.stdout is not None
    with process.stdout:
        try:
            said = json.loads(process.stdout.readline())
            with httpx2.Client(base_url=said["url"], timeout=DEADLINE, trust_env=False) as client:
                own = Path({**os.environ, **env}.get("KERNELBOX_HOME", workspace / ".kernelbox")) / "token"
                token = said.get("token") or (own.read_text().strip() if own.exists() else "")
                yield Served(said["url"], token, workspace, process, client)
        finally:
            process.terminate()
            process.wait(DEADLINE)


# One pixel, as a PNG in base64.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def events_of(
    served: Served, job_id: str, after: int = 0, *, headers: dict[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Follows a job; yields its events with their numbers and types."""
    with served.http.stream("GET", f"/jobs/{job_id}/events?after={after}", headers=headers) as answer:
        assert answer.status_code == 200
        yield from read_events(answer)


def read_events(answer: httpx2.Response) -> Iterator[dict[str, Any]]:
    """Reads server-sent events."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield {"seq": int(fields["id"]), "type": fields["event"], **json.loads(fields["data"])}
            fields = {}


def operations(served: Served) -> Iterator[tuple[str, str]]:
    """Yields every method and path of the schema."""
    for path, methods in served.http.get("/openapi.json").json()["paths"].items():
        yield from ((method.upper(), path) for method in methods)


def fill(path: str, /, **values: str) -> str:
    """Returns a path with its parameters; those that are not given are of no importance."""
    for name in ("key", "name", "job_id", "request_id", "path", "kernel_id", "session_id", "file"):
        path = path.replace(f"{{{name}}}", values.get(name, "x"))
    return path


async def steps_during(work: Awaitable[object]) -> int:
    """Returns how often another task was served while this was done."""
    steps = 0

    async def be_served() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(be_served())
    await work
    other.cancel()
    return steps


@pytest.fixture(scope="session")
def service_home() -> Iterator[Path]:
    """Makes a home for servers, whose kernels are destroyed with it."""
    with new_home() as home:
        yield home


@pytest.fixture(scope="session")
def served(key_file: Path, service_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Starts a server on loopback, which needs no token."""
    with serving(tmp_path_factory.mktemp("workspace"), KERNELBOX_HOME=str(service_home)) as server:
        yield server
        server.http.delete("/kernels")


@pytest.fixture(scope="session")
def other(service_home: Path, served: Served) -> Iterator[Served]:
    """Starts a second server on the home of the first."""
    with serving(served.workspace, KERNELBOX_HOME=str(service_home)) as server:
        yield server


@pytest.fixture
def key(served: Served) -> Iterator[str]:
    """Opens a kernel under a name that nobody else uses; returns the name."""
    name = f"test-{next(_numbers)}"
    assert served.post("/kernels", {"name": name}).status_code == 201
    yield name
    served.http.delete(f"/kernels/{name}")

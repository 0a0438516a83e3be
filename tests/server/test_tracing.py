"""Spans, as a collector gets them over OTLP/HTTP."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, serving

SECRET = "a-secret-that-no-span-has"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """A collector: keeps what it is sent."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: list[bytes] = []

    def spans(self) -> list[dict[str, Any]]:
        """Returns the spans that have come, each with its attributes as a dict."""
        found = []
        for body in self.bodies:
            request = ExportTraceServiceRequest.FromString(body)
            for span in (
                span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans
            ):
                attributes = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
                ids = {"id": span.span_id.hex(), "parent": span.parent_span_id.hex(), "trace": span.trace_id.hex()}
                found.append({"name": span.name, **ids, "failed": span.status.code == 2, **attributes})
        return found

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans() if span["name"] == name]


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Runs a collector in this process."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            assert self.path == "/v1/traces"
            collector.bodies.append(gzip.decompress(body) if packed else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def traced(collector: Collector, workspace: Path) -> Iterator[Served]:
    """Runs a server that sends its spans to a collector; all have come when it has ended."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "KERNELBOX_TOKEN": SECRET}
    with new_home() as home, serving(workspace, KERNELBOX_HOME=str(home), **env) as served:
        served.http.headers["Authorization"] = f"Bearer {SECRET}"
        yield served
        served.http.delete("/kernels")


@pytest.mark.slow
def test_a_request_and_its_cell_are_spans_of_the_callers_trace(tmp_path: Path, key_file: Path) -> None:
    with collecting() as collector:
        with traced(collector, tmp_path) as served:
            served.post(
                "/sessions/k/execute", {"code": "a_secret_of_the_code = 1"}, traceparent=f"00-{TRACE}-{PARENT}-01"
            )
            kernel_id = served.http.get("/kernels/k").json()["kernel"]["kernel_id"]
        (request,) = collector.named("POST /sessions/{name}/execute")
        (cell,) = collector.named("kernelbox.cell")
    assert (request["trace"], request["parent"]) == (TRACE, PARENT)
    assert (cell["trace"], cell["parent"]) == (TRACE, request["id"])
    assert (request["http.response.status_code"], request["url.path"]) == (200, "/sessions/k/execute")
    assert (cell["kernelbox.kernel.id"], cell["kernelbox.kernel.name"]) == (kernel_id, "k")
    assert (cell["kernelbox.status"], cell["kernelbox.ending"], cell["failed"]) == ("success", "finished", False)
    assert not [body for body in collector.bodies if b"a_secret_of_the_code" in body or SECRET.encode() in body]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "cause"), [("1 / 0", "exception"), ("while True: pass", "timeout"), ("import os; os._exit(1)", "death")]
)
def test_the_span_of_a_cell_that_fails_says_why(tmp_path: Path, key_file: Path, code: str, cause: str) -> None:
    with collecting() as collector:
        with traced(collector, tmp_path) as served:
            served.post("/sessions/k/execute", {"code": code, "timeout": 1})
        (cell,) = collector.named("kernelbox.cell")
    assert (cell["error.type"], cell["failed"]) == (cause, True)


@pytest.mark.slow
def test_the_cells_of_jobs_and_retries_have_spans_too(tmp_path: Path, key_file: Path) -> None:
    with collecting() as collector:
        with traced(collector, tmp_path) as served:
            served.post("/sessions/k", None)
            job = served.post("/kernels/k/jobs", {"code": "1"}).json()["id"]
            with served.http.stream("GET", f"/jobs/{job}/events") as answer:
                answer.read()
            served.post("/kernels/k/execute/retry", {"code": "1 / 0", "max_attempts": 3})
        (begun,) = collector.named("POST /kernels/{key}/jobs")
        (retried,) = collector.named("POST /kernels/{key}/execute/retry")
        parents = [cell["parent"] for cell in collector.named("kernelbox.cell")]
    assert parents == [begun["id"], *[retried["id"]] * 3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["token", "%74oken", "tok%65n"])
def test_a_token_in_the_url_and_probes_leave_no_span(tmp_path: Path, key_file: Path, name: str) -> None:
    with collecting() as collector:
        with traced(collector, tmp_path) as served:
            asked = httpx2.get(f"{served.url}/kernels?{name}={SECRET}", timeout=DEADLINE)
            assert asked.status_code == 200
            for path in ("/health", "/ready", "/metrics"):
                assert served.http.get(path).status_code == 200
            assert served.http.get("/kernels?refresh=true").status_code == 200
        assert [span.get("url.query") for span in collector.named("GET /kernels")] == ["refresh=true"]
        assert len(collector.spans()) == 2  # with that of the last, DELETE
    assert not [body for body in collector.bodies if SECRET.encode() in body]


def test_without_a_collector_the_sdk_is_not_imported(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        env = {**os.environ, "KERNELBOX_HOME": str(home), "PYTHONPROFILEIMPORTTIME": "1"}
        command = [sys.executable, "-m", "kernelbox", "serve", "--port", "0", "--workspace", str(tmp_path)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, env=env, **pipes) as process:  # type: ignore[call-overload]
            assert "url" in process.stdout.readline()
            process.terminate()
            _, imported = process.communicate(timeout=DEADLINE)
    assert "opentelemetry.trace" in imported
    assert "opentelemetry.sdk" not in imported
    assert "opentelemetry.exporter" not in imported


@pytest.mark.slow
def test_a_collector_that_is_away_keeps_nobody_from_running_code(tmp_path: Path, key_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        away = Collector(f"http://127.0.0.1:{probe.getsockname()[1]}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        with traced(away, tmp_path) as served:
            assert served.post("/sessions/k/execute", {"code": "1"}).json()["status"] == "success"

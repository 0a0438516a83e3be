"""Clients that nobody here wrote against our server: the official inspector and the official conformance suite."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from scripts import mcp_servers
from tests.support.homes import new_home
from tests.support.mcp_server import DEADLINE, Served, command, serving

from .proxy import passing_on

# They are installed from the network.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# What a client can ask of any server. The other scenarios call tools, prompts and resources of a server for tests.
SCENARIOS = {
    "2025-11-25": (
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "tools-call-error",
        "server-sse-multiple-streams",
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
    ),
    "2026-07-28": (
        "tools-list",
        "tools-call-error",
        "server-sse-multiple-streams",
        "resources-list",
        "sep-2164-resource-not-found",
        "prompts-list",
        "dns-rebinding-protection",
        "caching",
        "http-header-validation",
        "input-required-result-unsupported-methods",
    ),
}

# What of `server-stateless` wants a tool for tests.
NOT_OURS = {"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400"}


@pytest.fixture(scope="module")
def open_door(key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Starts a server behind a proxy that brings the token, and gives its address: the suite cannot bring one."""
    workspace = tmp_path_factory.mktemp("workspace")
    with new_home() as home, passing_on() as proxy:
        address = f"127.0.0.1:{proxy.server_port}"
        hosts = [f"--allow-host={host}:{proxy.server_port}" for host in ("127.0.0.1", "localhost")]
        with serving(workspace, "--toolset", "all", *hosts, KERNELBOX_HOME=str(home)) as served:
            target = urlsplit(served.url)
            proxy.target, proxy.token = (target.hostname or "", target.port or 0), served.token
            yield f"http://{address}/mcp"


@pytest.mark.parametrize(
    ("version", "scenario"), [(version, name) for version, names in SCENARIOS.items() for name in names]
)
def test_the_conformance_suite_finds_no_fault(open_door: str, tmp_path: Path, version: str, scenario: str) -> None:
    checks = conform(open_door, tmp_path, version, scenario)
    assert [check for check in checks if check["status"] not in ("SUCCESS", "INFO", "SKIPPED")] == []
    assert any(check["status"] == "SUCCESS" for check in checks)


def test_the_conformance_suite_finds_no_fault_in_requests_without_a_session(open_door: str, tmp_path: Path) -> None:
    checks = conform(open_door, tmp_path, "2026-07-28", "server-stateless")
    assert {check["id"] for check in checks if check["status"] == "FAILURE"} == NOT_OURS


def test_the_inspector_lists_and_calls_the_tools_over_stdio(tmp_path: Path, own_home: Path) -> None:
    settings = [f"-e{name}={value}" for name, value in os.environ.items() if name.startswith(("KERNELBOX_", "PYTHON"))]
    target = [*settings, "--", *command(tmp_path)]
    listed = inspect("--method", "tools/list", "--strict", *target)
    assert "execute_ipython_cell" in [tool["name"] for tool in listed["tools"]]
    words = ["--method", "tools/call", "--tool-name", "execute_ipython_cell", "--tool-arg", "code=6 * 7"]
    assert inspect(*words, *target)["content"] == [{"type": "text", "text": "42"}]


def test_the_inspector_calls_tools_and_reads_templates_over_http(served: Served) -> None:
    target = [served.url, "--transport", "http", "--header", f"Authorization: Bearer {served.token}"]
    listed = inspect(*target, "--method", "tools/list", "--strict")
    assert {"execute", "list_files"} <= {tool["name"] for tool in listed["tools"]}
    words = ["--method", "tools/call", "--tool-name", "execute", "--tool-arg", "code=6 * 7", "kernel=inspected"]
    assert inspect(*target, *words)["content"] == [{"type": "text", "text": "42"}]
    templates = inspect(*target, "--method", "resources/templates/list")["resourceTemplates"]
    assert "kernelbox://outputs/{output_id}{?start,end}" in [template["uriTemplate"] for template in templates]


def conform(url: str, folder: Path, version: str, scenario: str) -> list[dict[str, Any]]:
    """Runs a scenario of the conformance suite and returns what it checked."""
    words = ["server", "--url", url, "--scenario", scenario, "--spec-version", version, "--output-dir", str(folder)]
    done = run_program("conformance", *words, "--timeout", str(int(DEADLINE * 1000)))
    files = list(folder.rglob("checks.json"))
    assert len(files) == 1, done.stdout + done.stderr
    checks: list[dict[str, Any]] = json.loads(files[0].read_text())
    return checks


def inspect(*words: str) -> Any:
    """Runs the inspector and returns the answer that it prints."""
    done = run_program("mcp-inspector", "--cli", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_program(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = mcp_servers.install(name)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [program, *words],
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE,
        check=False,
        env={**os.environ, "PATH": path},
    )

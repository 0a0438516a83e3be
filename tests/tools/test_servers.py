"""What the host knows of servers: parameters as they are passed, and the file that they are kept in."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.executor import run, text
from tests.support.tools import PLAIN, cell, executing, failure, generate

from kernelbox import InvalidInput, KernelBoxConfig, StoreFailed
from kernelbox.tools._schemas import make_safe
from kernelbox.tools._servers import Servers, read_parameters
from kernelbox.tools._toolbox import Toolbox
from kernelbox.wire._messages import Ask


@pytest.fixture
def config(tmp_path: Path) -> KernelBoxConfig:
    (tmp_path / "state").mkdir(mode=0o700)
    return KernelBoxConfig(home=str(tmp_path / "home"), key_file=str(tmp_path / "state/key"))


@pytest.mark.parametrize(
    ("params", "transport"),
    [
        ({"command": "x"}, "stdio"),
        ({"command": "x", "args": ["-a", ""], "env": {"A": ""}, "cwd": "/tmp", "type": "stdio"}, "stdio"),
        ({"url": "http://x/mcp"}, "streamable_http"),
        ({"url": "https://x/sse"}, "sse"),
        ({"url": "https://x/sse?a=b", "headers": {"A": "${B}"}}, "sse"),
        ({"url": "https://x/sse", "type": "streamable_http"}, "streamable_http"),
        ({"url": "${URL}", "type": "http"}, "streamable_http"),
    ],
)
def test_parameters_say_which_transport_is_meant_and_survive_being_kept(
    config: KernelBoxConfig, params: dict[str, Any], transport: str
) -> None:
    read = read_parameters("x", params)
    assert read.transport == transport
    Servers(config).put("x", read, "/root")
    assert Servers(config).find("x") == read


@pytest.mark.parametrize(
    "params",
    [
        {},
        None,
        "npx server",
        {"command": ""},
        {"command": "a", "url": "http://x"},
        {"command": ["a"]},
        {"command": "a", "args": "b"},
        {"command": "a", "args": [1]},
        {"command": "a", "env": {"A": 1}},
        {"command": "a", "env": []},
        {"command": "a\0b"},
        {"command": "a", "headers": {}},
        {"command": "a", "type": "sse"},
        {"url": "ftp://x"},
        {"url": "file:///etc/passwd"},
        {"url": "http://x", "type": "websocket"},
        {"url": "http://x", "env": {}},
    ],
)
def test_parameters_that_make_no_sense_are_refused(params: Any) -> None:
    with pytest.raises(InvalidInput):
        read_parameters("x", params)


def test_servers_are_kept_for_their_home_in_a_private_file(config: KernelBoxConfig, tmp_path: Path) -> None:
    servers = Servers(config)
    assert servers.all() == {}
    servers.put("a", read_parameters("a", {"command": "x", "env": {"K": "${K}"}}), "/r")
    servers.put("b", read_parameters("b", {"url": "http://x"}), "/r")
    servers.remove("a")
    other = KernelBoxConfig(home=str(tmp_path / "other"), key_file=config.key_file)
    assert list(Servers(config).all()) == ["b"]
    assert Servers(other).all() == {}
    file = tmp_path / "state/servers.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"{}", b"x\n{}", b"\xff\xfe"])
def test_a_file_that_we_did_not_write_is_refused(config: KernelBoxConfig, tmp_path: Path, damage: bytes) -> None:
    Servers(config).put("a", read_parameters("a", {"command": "x"}), "/r")
    file = tmp_path / "state/servers.json"
    file.write_bytes(damage)
    with pytest.raises(StoreFailed, match="was not written by this user's kernelbox"):
        Servers(config).find("a")


def test_one_changed_letter_is_noticed(config: KernelBoxConfig, tmp_path: Path) -> None:
    Servers(config).put("a", read_parameters("a", {"command": "x"}), "/r")
    file = tmp_path / "state/servers.json"
    file.write_bytes(file.read_bytes().replace(b'"x"', b'"y"'))
    with pytest.raises(StoreFailed):
        Servers(config).find("a")


def test_a_server_added_in_another_process_is_known_here(project: Path) -> None:
    """The fixture generated the package; its parameters are found by a process that never saw them."""

    async def scenario() -> str | None:
        async with executing(project) as executor:
            return await text(executor, cell("echo", a=1))

    assert run(scenario) == '{"a": 1}'


def test_neither_the_package_nor_the_command_line_imports_the_sdk(tmp_path: Path) -> None:
    code = (
        "import sys, kernelbox, kernelbox.cli.commands._exec\nfrom kernelbox import CodeExecutor, execute\n"
        "CodeExecutor()\nprint([name for name in ('mcp', 'mcp_types', 'pydantic', 'httpx2') if name in sys.modules])"
    )
    env = {**os.environ, "KERNELBOX_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "[]\n"


def test_a_safe_schema_keeps_what_describes_values_and_nothing_else() -> None:
    schema = {
        "$schema": "http://x",
        "$id": "http://y",
        "title": "T",
        "type": "object",
        "x-anything": {"a": 1},
        "properties": {"a": {"type": "string", "format": "uri", "title": "A", "examples": ["b"]}},
        "required": ["a", "b"],
    }
    assert make_safe(schema) == {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert make_safe({"$ref": "#"}) != {}
    assert make_safe("no schema") == {}


def test_a_call_fails_with_a_sentence_where_the_directory_of_the_key_has_gone(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(tmp_path / "private/key"))
    generate(tmp_path, PLAIN)

    async def scenario() -> str:
        async with executing(tmp_path) as executor:
            (tmp_path / "private").rename(tmp_path / "moved")
            try:
                return await failure(executor, cell("echo"))
            finally:
                (tmp_path / "moved").rename(tmp_path / "private")

    assert "plain.echo: FileNotFoundError: " in run(scenario)


def test_nothing_is_kept_of_servers_that_a_cell_makes_up(home: Path) -> None:
    toolbox = Toolbox(KernelBoxConfig.from_env())
    for number in range(3):
        ask = Ask("cell", number, f"made up {number}", "tool", {})
        assert b"there is no server" in toolbox.submit(ask, lambda event: None).result(60).payload
    assert toolbox._opening == {}
    assert toolbox.close() is None


def test_a_server_that_a_cell_makes_up_is_named_escaped_and_shortened(home: Path) -> None:
    ask = Ask("cell", 1, "hub\x1b" + "x" * 1_000_000, "tool", {})
    payload = Toolbox(KernelBoxConfig.from_env()).submit(ask, lambda event: None).result(60).payload
    told = json.loads(payload)["content"][0]["text"]
    assert "there is no server 'hub\\x1bxxx" in told
    assert len(told) < 3000


def test_without_the_sdk_one_sentence_says_what_to_install(home: Path, tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
sys.modules["mcp"] = None  # as if it were not installed
from kernelbox import MissingExtra, generate_mcp_sources
try:
    asyncio.run(generate_mcp_sources("x", {{"command": "true"}}, {str(tmp_path)!r}))
except MissingExtra as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    said, _, command = done.stdout.partition(": ")
    assert said == "the MCP server and tools in code need more packages (mcp is missing)"
    assert sys.executable in command
    assert command.endswith(" 'kernelbox[mcp]'\n")


def test_a_server_is_started_by_the_python_on_the_callers_path(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\ntouch {tmp_path}/used\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert "pid" in generate(tmp_path, {**PLAIN, "command": "python"})
    assert (tmp_path / "used").exists()

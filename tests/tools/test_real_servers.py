"""Servers that nobody here wrote: their tools are generated, all of them, and some are called."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts import mcp_servers
from tests.support.cells import eventually
from tests.support.executor import run, text
from tests.support.tools import executing, generate

from kernelbox import ToolEvent

# They are installed from the network, and some start slowly.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def call(root: Path, code: str) -> str:
    async def scenario() -> str | None:
        async with executing(root) as executor:
            return await text(executor, code)

    return run(scenario) or ""


def start(root: Path, name: str, package: str, *args: str) -> list[str]:
    """Installs a server, generates its package and imports every module of it in a kernel."""
    modules = generate(root, {"command": str(mcp_servers.install(name)), "args": list(args)}, package)
    lines = [f"from mcptools.{package}.{module} import Params, run, run_async" for module in modules]
    assert call(root, "\n".join([*lines, "print('imported')"])) == "imported"
    return modules


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    """Serves a page on this machine."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/index.html").write_text("<html><body><h1>Neural topic models</h1></body></html>")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()
        thread.join()


def test_the_time_server_converts_a_time(home: Path, tmp_path: Path) -> None:
    assert "convert_time" in start(tmp_path, "mcp-server-time", "time")
    code = """
from mcptools.time.convert_time import Params, run
print(run(Params(source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")))
"""
    assert "T21:00:00+09:00" in call(tmp_path, code)


def test_the_git_server_adds_and_commits_a_file_and_shows_its_log(home: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        subprocess.run(["git", "-C", str(repository), "config", name, value], check=True)
    (repository / "new file").write_text("x")
    assert "git_status" in start(tmp_path, "mcp-server-git", "git")
    message = 'Add it\'s "file"'
    code = f"""
from mcptools.git import git_add, git_commit, git_log, git_status
where = {str(repository)!r}
print(git_status.run(git_status.Params(repo_path=where)))
git_add.run(git_add.Params(repo_path=where, files=["new file"]))
git_commit.run(git_commit.Params(repo_path=where, message={message!r}))
print(git_log.run(git_log.Params(repo_path=where, max_count=1)))
"""
    told = call(tmp_path, code)
    assert "new file" in told
    assert "Add it's" in told
    log = subprocess.run(["git", "-C", str(repository), "log", "--format=%an %s"], capture_output=True, check=True)
    assert log.stdout.decode() == f"Ada {message}\n"


def test_the_fetch_server_reads_a_page(home: Path, tmp_path: Path, page: str) -> None:
    assert start(tmp_path, "mcp-server-fetch", "fetch", "--allow-private-ips", "--ignore-robots-txt") == ["fetch"]
    code = f"from mcptools.fetch.fetch import Params, run\nprint(run(Params(url={page!r})))"
    assert "Neural topic models" in call(tmp_path, code)


def test_the_filesystem_server_writes_and_reads_a_file(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "write_file" in start(tmp_path, "mcp-server-filesystem", "files", str(folder))
    code = f"""
from mcptools.files import read_text_file, write_file
path = {str(folder / "a.txt")!r}
write_file.run(write_file.Params(path=path, content="hello"))
print(read_text_file.run(read_text_file.Params(path=path)).content)
"""
    assert call(tmp_path, code) == "hello"
    assert (folder / "a.txt").read_text() == "hello"


def test_the_memory_server_keeps_an_entity(home: Path, tmp_path: Path) -> None:
    assert "create_entities" in start(tmp_path, "mcp-server-memory", "memory")
    code = """
from mcptools.memory import create_entities, read_graph
entity = {"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
create_entities.run(create_entities.Params(entities=[entity]))
print(read_graph.run(read_graph.Params()).entities[-1].name)
"""
    assert call(tmp_path, code) == "Ada"


def test_the_everything_server_returns_text_numbers_pictures_and_structures(home: Path, tmp_path: Path) -> None:
    modules = start(tmp_path, "mcp-server-everything", "everything")
    assert {"echo", "get_sum", "get_structured_content"} <= set(modules)
    code = """
from mcptools.everything import echo, get_structured_content, get_sum, get_tiny_image
print(echo.run(echo.Params(message="hi")))
print(get_sum.run(get_sum.Params(a=2, b=3)))
print([type(part).__name__ for part in get_tiny_image.run(get_tiny_image.Params())])
print(type(get_structured_content.run(get_structured_content.Params(location="Chicago")).temperature).__name__)
"""
    told = call(tmp_path, code).splitlines()
    assert "hi" in told[0]
    assert "5" in told[1]
    assert "Media" in told[-2]
    assert told[-1] in ("int", "float")


def test_the_everything_server_tells_how_far_it_is(home: Path, tmp_path: Path) -> None:
    start(tmp_path, "mcp-server-everything", "everything")
    code = """
from mcptools.everything.trigger_long_running_operation import Params, run
print(run(Params(duration=1, steps=3)))
"""

    async def scenario() -> list[Any]:
        async with executing(tmp_path, approve_tool_calls=False) as executor:
            return [item async for item in executor.stream(code, chunks=True)]

    items = run(scenario)
    steps = [item.progress for item in items if isinstance(item, ToolEvent) and item.kind == "progress"]
    assert steps == [1, 2, 3]
    assert "completed" in items[-1].text


@pytest.mark.parametrize(("transport", "path"), [("sse", "sse"), ("streamableHttp", "mcp")])
def test_the_everything_server_is_called_at_an_address(home: Path, tmp_path: Path, transport: str, path: str) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
from mcptools.everything import get_structured_content, get_sum, get_tiny_image
print([type(part).__name__ for part in get_tiny_image.run(get_tiny_image.Params())][-3:])
print(get_structured_content.run(get_structured_content.Params(location="Chicago")).temperature > 0)
with ThreadPoolExecutor(4) as pool:
    print(len(list(pool.map(lambda n: get_sum.run(get_sum.Params(a=n, b=1)), range(20)))))
"""
    with listening("mcp-server-everything", transport) as port:
        generate(tmp_path, {"url": f"http://127.0.0.1:{port}/{path}"}, "everything")
        told = call(tmp_path, code).splitlines()
    assert told[-3:] == ["['str', 'Media', 'str']", "True", "20"]


@contextlib.contextmanager
def listening(name: str, transport: str) -> Iterator[int]:
    """Runs a server that listens at a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([mcp_servers.install(name), transport], env={**os.environ, "PORT": str(port)})
    try:
        eventually(lambda: is_taken(port))
        yield port
    finally:
        process.terminate()
        process.wait()


def is_taken(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False

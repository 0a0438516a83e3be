"""`install_package`: into the environment that kernels run in, by uv or by pip; a failure is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from tests.support.cells import eventually, wait_for_end
from tests.support.mcp_server import GENERATIONS, begin_call, command, failure, http_client, run, send, serving, text

from .test_stdio import connected

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("installer", ["uv", pytest.param("pip", marks=pytest.mark.slow)])
def test_a_package_is_installed_where_the_kernel_runs(tmp_path: Path, own_home: Path, installer: str) -> None:
    python = make_environment(tmp_path / "environment", with_pip=installer == "pip")
    wheel = make_wheel(tmp_path)
    (tmp_path / "uv.toml").write_text("what a stranger's workspace says")
    (tmp_path / "pip.py").write_text("raise SystemExit('code of the workspace')")

    async def scenario() -> None:
        async with client_of(python, tmp_path, installer) as client:
            assert "ModuleNotFoundError" in await failure(client, "execute_ipython_cell", code="import tiny_package")
            assert "tiny" in await text(client, "install_package", package_name=f"./{wheel.relative_to(tmp_path)}")
            code = "import tiny_package; print(tiny_package.__file__)"
            shown = await text(client, "execute_ipython_cell", code=code)
            assert shown.startswith(str(tmp_path / "environment"))
            said = await failure(client, "install_package", package_name=str(tmp_path / "missing-1.0-py3-none-any.whl"))
            assert "was not installed" in said
            for wrong in ("--upgrade", "-r/etc/passwd", "", " ", "a\nb"):
                assert "pip requirement" in await failure(client, "install_package", package_name=wrong)

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["cancelled", "terminated", "killed"])
def test_an_installer_ends_with_its_call_and_with_the_server(tmp_path: Path, own_home: Path, end: str) -> None:
    pid = tmp_path / "pid"
    path = fake_uv(tmp_path, hanging(pid))
    server = subprocess.Popen(
        command(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, "PATH": path}
    )
    assert server.stdin is not None
    with server.stdin:
        send(server.stdin, *begin_call("install_package", package_name="x"))
        eventually(lambda: pid.exists() and pid.read_text())
        if end == "cancelled":
            send(server.stdin, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
        else:
            (server.terminate if end == "terminated" else server.kill)()
        wait_for_end(int(pid.read_text()))
    server.wait()


@pytest.mark.slow
@pytest.mark.parametrize("mode", GENERATIONS)
def test_an_installer_ends_with_the_client_of_its_http_request_and_holds_no_other(
    tmp_path: Path, own_home: Path, mode: str
) -> None:
    pid, once = tmp_path / "pid", tmp_path / "once"
    path = fake_uv(tmp_path, f"[ -e {once} ] && exit 0\ntouch {once}\n{hanging(pid)}")
    with serving(tmp_path, PATH=path) as served:
        client = subprocess.Popen([sys.executable, "-c", CLIENT, served.url, served.token, mode])
        eventually(lambda: pid.exists() and pid.read_text())
        client.kill()
        client.wait()
        wait_for_end(int(pid.read_text()))

        async def scenario() -> None:
            async with http_client(served, mode) as other:
                assert await text(other, "install_package", package_name="x") == "x is installed."

        run(scenario)


CLIENT = """
import asyncio, sys, httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
url, token, mode = sys.argv[1:]

async def main():
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=600) as connection:
        async with Client(streamable_http_client(url, http_client=connection), mode=mode) as client:
            await client.call_tool("install_package", {"package_name": "x"})

asyncio.run(main())
"""


@pytest.mark.slow
def test_of_what_an_installer_says_the_end_is_kept(tmp_path: Path, own_home: Path) -> None:
    path = fake_uv(tmp_path, "head -c 200000000 /dev/zero | tr '\\0' x\necho\necho the reason\nexit 3\n")
    with connected(tmp_path, PATH=path) as raw:
        before = raw.most_memory
        raw.send({**begin_call("install_package", package_name="x")[2], "id": 3})
        answer = raw.read()["result"]
        assert raw.most_memory - before < 50_000
    [said] = answer["content"]
    assert said["text"].startswith("x was not installed: the installer ended with 3.\n…xxxx")
    assert said["text"].endswith("x\nthe reason")
    assert len(said["text"]) < 5_000


def fake_uv(folder: Path, script: str) -> str:
    """Makes a program that is found in the place of uv; returns the PATH that it is first on."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "uv").write_text(f"#!/bin/sh\n{script}")
    (programs / "uv").chmod(0o755)
    return f"{programs}{os.pathsep}{os.environ['PATH']}"


def hanging(pid: Path) -> str:
    """Returns a script that tells its process, and does not end."""
    return f"echo $$ > {pid}.new\nmv {pid}.new {pid}\nsleep 1000\n"


def test_without_an_installer_it_is_told_what_to_do(tmp_path: Path, own_home: Path) -> None:
    python = make_environment(tmp_path / "environment", with_pip=False)

    async def scenario() -> None:
        async with client_of(python, tmp_path, "none") as client:
            assert "put uv on PATH" in await failure(client, "install_package", package_name="x")

    run(scenario)


def client_of(python: Path, workspace: Path, installer: str) -> Client:
    """Starts a server with an interpreter of its own, and with this installer in reach."""
    programs = workspace / "programs"
    programs.mkdir()
    if installer == "uv":
        (programs / "uv").symlink_to(find_uv())
    env = {name: value for name, value in os.environ.items() if name.startswith("KERNELBOX_")}
    offline = {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1", "UV_CACHE_DIR": str(workspace / "cache")}
    arguments = ["-m", "kernelbox", "mcp", "--workspace", str(workspace)]
    parameters = StdioServerParameters(
        command=str(python), args=arguments, env={**env, **offline, "PATH": str(programs)}
    )
    return Client(parameters)


def find_uv() -> str:
    """Returns a real uv: the one on PATH, or the one that the bootstrap has installed."""
    found = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".bootstrap" / "bin"))
    assert found is not None, "run scripts/bootstrap.py first"
    return os.path.realpath(found)


def make_environment(path: Path, *, with_pip: bool) -> Path:
    """Makes an environment that finds what this one has, and in which packages can be installed."""
    options = [] if with_pip else ["--without-pip"]
    subprocess.run([sys.executable, "-m", "venv", *options, str(path)], check=True)
    packages = next(path.glob("lib/python*/site-packages"))
    # What the tests run with; pip is not among it.
    (packages / "tests.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    return path / "bin" / "python"


def make_wheel(folder: Path) -> Path:
    """Makes a package that needs no network."""
    wheel, info = folder / "tiny_package-1.0-py3-none-any.whl", "tiny_package-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_package.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel

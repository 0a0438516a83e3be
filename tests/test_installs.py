"""What users install: the default alone, with the lowest versions, and beside other packages."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What all faces of the default install do, in one program.
PROGRAM = """
import asyncio, sys
from kernelbox import CodeExecutor, Limits, destroy, execute, get_or_create, stream

assert execute("plain", "x = 20; x + 1").return_value == "21"
assert execute("plain", "echo hello", language="bash").output == "hello\\n"
assert [item.text for item in stream("plain", "print('streamed')")][0] == "streamed\\n"
confined = get_or_create("confined", sandbox=True)
assert "Read-only" in execute(confined, "open('/etc/x', 'w')").text

async def main():
    async with CodeExecutor(approve_shell_cmds=True) as executor:
        async for item in executor.stream("!echo approved"):
            if hasattr(item, "accept"):
                await item.accept()
        assert item.text == "approved", item

asyncio.run(main())
destroy("plain"), destroy("confined")
print("all of it works")
"""

# What needs an extra, the extra, and the words of the sentence.
WITHOUT_EXTRAS = {
    "asyncio.run(kernelbox.generate_mcp_sources('x', {'command': 'true'}, '.'))": "mcp",
    "kernelbox.CodeExecutor(mcp_servers={'x': {'command': 'true'}})": "mcp",
    "kernelbox.get_or_create('r', kernel_type='ir')": "jupyter",
    "asyncio.run(kernelbox.gateway.KernelClient().connect())": "jupyter",
}


@pytest.fixture(scope="module")
def default_install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Makes an environment with the default install alone, from a wheel, and returns its directory of programs."""
    place = tmp_path_factory.mktemp("default")
    uv("build", "--quiet", "--wheel", "--out-dir", str(place), str(ROOT))
    uv("venv", "--quiet", "--python", sys.executable, str(place / "venv"))
    uv("pip", "install", "--quiet", "--python", str(place / "venv"), str(next(place.glob("*.whl"))))
    yield place / "venv" / "bin"
    shutil.rmtree(place)


def test_the_bootstrap_trusts_what_the_system_trusts_unless_it_has_no_certificates(tmp_path: Path) -> None:
    program = "import bootstrap; print(bootstrap.certificate_settings())"
    known = tmp_path / "authority.pem"
    known.touch()

    def trusts(file: Path, folder: Path) -> dict[str, str]:
        env = {"PYTHONPATH": str(ROOT / "scripts"), "SSL_CERT_FILE": str(file), "SSL_CERT_DIR": str(folder)}
        command = [sys.executable, "-B", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
        settings: dict[str, str] = ast.literal_eval(done.stdout)
        return settings

    uv_trusts = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    assert trusts(known, tmp_path / "none") == {**uv_trusts, "PIP_CERT": str(known)}
    assert trusts(tmp_path / "none", tmp_path) == {**uv_trusts, "PIP_CERT": str(tmp_path)}
    assert trusts(tmp_path / "none", tmp_path / "none") == (uv_trusts if sys.platform == "darwin" else {})


def test_make_takes_a_newer_python_beside_one_that_is_too_old(tmp_path: Path) -> None:
    too_old = tmp_path / "python3"
    too_old.write_text("#!/bin/sh\nexit 1\n")
    too_old.chmod(0o755)
    newer = tmp_path / "python3.12"
    newer.symlink_to(sys.executable)

    done = subprocess.run(
        [shutil.which("make") or "make", "--dry-run", "bootstrap"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
        check=True,
    )

    assert done.stdout.split() == ["python3.12", "scripts/bootstrap.py"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_default_install_works_with_the_lowest_versions_that_it_allows() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/lowest_versions.py", "default"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestDefaultInstall:
    def test_it_has_at_most_45_packages(self, default_install: Path) -> None:
        listed = json.loads(uv("pip", "list", "--format", "json", "--python", str(default_install / "python")))
        assert 20 < len(listed) <= 45

    def test_it_has_the_python_apis_and_the_sandbox(self, default_install: Path, home: Path, tmp_path: Path) -> None:
        done = run([default_install / "python", "-c", PROGRAM], home, tmp_path)
        assert (done.stdout, done.stderr) == ("all of it works\n", "")

    def test_it_has_the_command_line(self, default_install: Path, home: Path, tmp_path: Path) -> None:
        done = run([default_install / "kernelbox", "exec", "--name", "typed", "6 * 7"], home, tmp_path)
        assert json.loads(done.stdout)["return_value"] == "42"
        wiped = run([default_install / "kernelbox", "wipe"], home, tmp_path)
        assert wiped.returncode == 0, wiped.stderr

    def test_it_has_the_http_service(self, default_install: Path, home: Path, tmp_path: Path) -> None:
        command = [str(default_install / "kernelbox"), "serve", "--port", "0", "--log-level", "ERROR"]
        environment = {**os.environ, "KERNELBOX_HOME": str(home)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as server:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            body = json.dumps({"code": "6 * 7"})
            curl = ["curl", "--silent", "--fail", "--max-time", "100"]
            json_type = ["--header", "Content-Type: application/json"]
            executed = run([*curl, *json_type, "--data", body, f"{url}/sessions/served/execute"], home, tmp_path)
            pages = [run([*curl, f"{url}/{page}"], home, tmp_path) for page in ("docs", "redoc", "openapi.json")]
            specs = run([*curl, f"{url}/api/kernelspecs"], home, tmp_path)
            wiped = run([*curl, "--request", "DELETE", f"{url}/kernels"], home, tmp_path)
            server.terminate()
        assert json.loads(executed.stdout)["return_value"] == "42"
        assert all(page.returncode == 0 for page in pages)
        assert "python3" in json.loads(specs.stdout)["kernelspecs"]
        assert wiped.returncode == 0

    @pytest.mark.parametrize(("code", "extra"), WITHOUT_EXTRAS.items(), ids=range(len(WITHOUT_EXTRAS)))
    def test_what_needs_an_extra_says_so(
        self, default_install: Path, home: Path, tmp_path: Path, code: str, extra: str
    ) -> None:
        program = f"import asyncio, kernelbox, kernelbox.gateway\ntry: {code}\nexcept ImportError as exc: print(exc)"
        done = run([default_install / "python", "-c", program], home, tmp_path)
        assert done.stdout.endswith(f" 'kernelbox[{extra}]'\n"), done.stderr
        assert done.stdout.count("\n") == 1

    @pytest.mark.parametrize(
        ("words", "extra"),
        [
            (["mcp"], "mcp"),
            (["mcp", "--http", "127.0.0.1:0"], "mcp"),
            (["serve", "--port", "0", "--mcp"], "mcp"),
            (["tools", "add", "x", "--", "true"], "mcp"),
            (["jupyter", "install"], "jupyter"),
            (["create", "--name", "r", "--kernel-type", "ir"], "jupyter"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else value,
    )
    def test_a_command_that_needs_an_extra_says_so(
        self, default_install: Path, home: Path, tmp_path: Path, words: list[str], extra: str
    ) -> None:
        done = run([default_install / "kernelbox", *words], home, tmp_path)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].endswith(f" 'kernelbox[{extra}]'")

    def test_doctor_shows_what_is_installed(self, default_install: Path, home: Path, tmp_path: Path) -> None:
        done = run([default_install / "kernelbox", "doctor"], home, tmp_path)
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        for extra in ("mcp", "jupyter", "otel"):
            assert checks[f"kernelbox[{extra}]"]["found"].startswith("not installed: ")
            fix = checks[f"kernelbox[{extra}]"]["fix"]  # the environment has no pip
            assert fix.startswith("uv pip install --python ") or " -m ensurepip && " in fix
            assert str(default_install / "python") in fix
        assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_framework_is_downgraded() -> None:
    done = beside_frameworks()
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("alone") >= 15


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_requirement_that_downgrades_a_framework_is_noticed() -> None:
    done = beside_frameworks("--with", "mcp>=2", "crewai")
    assert done.returncode == 1
    assert done.stdout.endswith("DOWNGRADED\n")


def beside_frameworks(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "beside_frameworks.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(command: list[str | Path], home: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KERNELBOX_HOME": str(home)}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env=environment, timeout=300, check=False
    )


def uv(*words: str) -> str:
    """Runs uv: the one on PATH, or the one that the bootstrap has installed."""
    found = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".bootstrap" / "bin"))
    assert found is not None, "run scripts/bootstrap.py first"
    return subprocess.run([found, *words], capture_output=True, text=True, check=True).stdout

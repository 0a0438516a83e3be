"""The image itself: built by buildah, step by step, in a plain Debian, and run on its read-only root by bubblewrap."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-for-the-container"
USER = "10001"

# Seconds. Far beyond what anything here takes, so that reaching it means a hang and not a busy machine.
DEADLINE = 100.0

# A request from inside the container's network: method, path, body and token come as arguments.
CLIENT = """
import sys, urllib.error, urllib.request
method, path, body, token = sys.argv[1:]
headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
request = urllib.request.Request("http://127.0.0.1:8080" + path, body.encode() or None, headers, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as exc:
    answer = exc
print(answer.status)
print(answer.read().decode())
"""

# Cells: what the system says of the process; how many processes have ended and are still there.
READ_STATUS = r"""
import os
lines = open("/proc/self/status").read().splitlines()
said = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
"""
COUNT_DEAD = """
import glob
def count_dead():
    return sum(") Z " in open(path).read() for path in glob.glob("/proc/[0-9]*/stat"))
"""


@dataclass(frozen=True)
class Image:
    """An image, mounted at `root`, and what it says of itself.

    The image with the data stack, mounted at `data`, was built after it, as the log says.
    """

    root: str
    config: dict[str, Any]
    data: str
    log: str

    @property
    def command(self) -> list[str]:
        return [*self.config["Entrypoint"], *self.config["Cmd"]]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Builds the image from the Dockerfile, on a Debian that is made here instead of fetched from a registry."""
    if os.getuid() != 0:
        give_up("an image can be built here only by root")
    for program in ("buildah", "mmdebstrap", "bwrap"):
        if shutil.which(program) is None:
            give_up(f"{program} is not installed; `make slow` installs it")
    folder = Path(tempfile.mkdtemp(prefix="kbi-"))
    store = [f"--root={folder}/store", f"--runroot={folder}/run", "--storage-driver=overlay"]

    def buildah(*words: str) -> str:
        return run("buildah", *store, *words).stdout.strip()

    try:
        run("mmdebstrap", "--quiet", "--variant=minbase", "trixie", f"{folder}/base.tar")
        base = buildah("from", "scratch")
        buildah("add", "--quiet", base, f"{folder}/base.tar", "/")
        buildah("commit", "--quiet", "--rm", base, "docker.io/library/debian:trixie-slim")
        options = ["--pull-never", "--isolation=chroot", "--layers", "--format=docker", "--network=host"]
        options += certificates()
        for name in ("kernelbox", "data"):
            log = buildah("build", *options, f"--target={name}", f"--tag={name}", str(ROOT))
        config = json.loads(buildah("inspect", "--type=image", "kernelbox"))["Docker"]["config"]
        root, data = (buildah("mount", buildah("from", "--pull-never", name)) for name in ("kernelbox", "data"))
        yield Image(root, config, data, log)
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            buildah("umount", "--all")
        shutil.rmtree(folder, ignore_errors=True)


def give_up(reason: str) -> NoReturn:
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


def certificates() -> list[str]:
    """Returns options that let the build trust what this machine trusts: it may stand behind a proxy."""
    private = [path.read_text() for path in sorted(Path("/usr/local/share/ca-certificates").rglob("*.crt"))]
    index = os.environ.get("PIP_INDEX_URL")
    return [f"--build-arg=CERTIFICATE={''.join(private)}", *([f"--build-arg=PIP_INDEX_URL={index}"] if index else [])]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout[-2000:]} {done.stderr[-4000:]}")
    return done


def confined(image: Image, workspace: Path, *, information: int | None = None) -> list[str]:
    """Returns the command that runs the image as the compose file says, as far as that can be without Docker."""
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["kernelbox"]
    assert service["read_only"]
    mounts = ["--ro-bind", "/mnt", "/", "--proc", "/proc", "--dev", "/dev", "--bind", str(workspace), "/workspace"]
    for entry in service["tmpfs"]:
        path, _, options = entry.partition(":")
        mode = dict(option.split("=") for option in options.split(","))["mode"]
        mounts += ["--perms", mode, "--tmpfs", path]
    variables = [word for each in image.config["Env"] for word in ("--setenv", *each.split("=", 1))]
    bwrap = [
        *["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"],
        *[*mounts, *variables, "--chdir", image.config["WorkingDir"]],
        *(["--info-fd", str(information)] if information is not None else []),
    ]
    user, group = service["user"].split(":")
    as_user = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs", "--"]
    # The mount is seen by this process alone, and is gone with it; the image's own path is root's.
    script = 'mount --bind "$0" /mnt && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, image.root, *as_user, *bwrap]


@dataclass(frozen=True)
class Container:
    """A running image; `pid` is that of its first process, as we see it."""

    pid: int
    process: subprocess.Popen[str]

    def ask(self, method: str, path: str, body: object = None, token: str = TOKEN) -> tuple[int, Any]:
        """Sends a request from inside, where the only network is."""
        text = "" if body is None else json.dumps(body)
        enter = ["nsenter", "--net", f"--target={self.pid}", sys.executable, "-c", CLIENT]
        status, _, answer = run(*enter, method, path, text, token).stdout.partition("\n")
        return int(status), json.loads(answer)

    def output_of(self, code: str, language: str = "python") -> Any:
        return self.ask("POST", "/sessions/k/execute", {"code": code, "language": language})[1]["output"]

    def execute(self, code: str) -> Any:
        status, result = self.ask("POST", "/sessions/k/execute", {"code": code})
        assert (status, result["status"]) == (200, "success"), result
        return result["return_value"]


@pytest.fixture
def workspace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="kbw-"))
    folder.chmod(0o755)
    (folder / "files").mkdir()
    os.chown(folder / "files", int(USER), int(USER))
    yield folder / "files"
    shutil.rmtree(folder)


@contextlib.contextmanager
def running(image: Image, workspace: Path) -> Iterator[Container]:
    """Runs the image's own command, and waits until it listens."""
    reader, writer = os.pipe()
    command = [*confined(image, workspace, information=writer), "--setenv", "KERNELBOX_TOKEN", TOKEN, *image.command]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[writer]
    ) as process:
        os.close(writer)
        with open(reader, encoding="utf-8") as told:
            information = json.load(told)
        assert process.stdout is not None
        try:
            assert "url" in json.loads(process.stdout.readline())
            yield Container(information["child-pid"], process)
        finally:
            process.kill()


def test_code_runs_as_the_user_on_a_read_only_root_without_capabilities(image: Image, workspace: Path) -> None:
    with running(image, workspace) as container:
        assert container.ask("GET", "/health", token="")[0] == 200
        assert container.ask("GET", "/kernels", token="")[0] == 401
        assert container.ask("GET", "/kernels", token="wrong")[0] == 401
        container.execute(READ_STATUS)
        assert container.execute("os.getuid(), os.getgid()") == f"({USER}, {USER})"
        for name, value in (("CapEff", "0" * 16), ("CapBnd", "0" * 16), ("NoNewPrivs", "1")):
            assert container.execute(f"said[{name!r}]") == repr(value)
        for path in ("/x", "/etc/x", "/opt/kernelbox/x", "/usr/bin/x", "/home/x"):
            code = f"try:\n    open({path!r}, 'w')\nexcept OSError as exc:\n    print(exc.strerror)"
            assert container.output_of(code) == "Read-only file system\n"
        for path in ("/tmp/x", "/workspace/x", "/home/kernelbox/x"):
            assert container.execute(f"open({path!r}, 'w').write('text')") == "4"
        assert container.output_of("whoami", "bash") == "kernelbox\n"
        assert container.execute("open('/proc/1/comm').read()") == "'tini\\n'"
    assert (workspace / "x").read_text() == "text"


def test_the_health_check_of_the_image_tells_whether_the_service_answers(image: Image, workspace: Path) -> None:
    kind, *check = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    with running(image, workspace) as container:
        enter = [
            "nsenter",
            "--user",
            "--mount",
            "--net",
            "--pid",
            "--preserve-credentials",
            f"--target={container.pid}",
        ]
        path = dict(each.split("=", 1) for each in image.config["Env"])["PATH"]
        inside = [*enter, "env", f"PATH={path}", *check]
        assert subprocess.run(inside, capture_output=True, timeout=DEADLINE, check=False).returncode == 0
        elsewhere = [word.replace(":8080", ":8081") for word in inside]
        assert subprocess.run(elsewhere, capture_output=True, timeout=DEADLINE, check=False).returncode != 0


def test_a_container_without_a_token_does_not_start(image: Image, workspace: Path) -> None:
    command = [*confined(image, workspace), *image.command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert "set KERNELBOX_TOKEN" in json.loads(done.stdout)["error"]


def test_pip_installs_in_the_workspace_what_the_next_cell_imports(image: Image, workspace: Path) -> None:
    with zipfile.ZipFile(workspace / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "size = 1\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    with running(image, workspace) as container:
        container.execute("%pip install --quiet --no-index /workspace/tiny-1.0-py3-none-any.whl")
        assert container.execute("import tiny; tiny.size") == "1"
        assert container.execute("tiny.__file__") == "'/workspace/.packages/tiny.py'"


def test_the_data_stack_is_a_target_that_takes_the_rest_from_the_cache(image: Image) -> None:
    (packages,) = Path(image.data).glob("opt/kernelbox/lib/python3*/site-packages")
    assert {"kernelbox", "numpy", "pandas", "matplotlib", "plotly"} <= {path.name for path in packages.iterdir()}
    assert image.log.count("Using cache") > 10


def test_a_container_that_is_stopped_ends_in_good_order_and_leaves_no_dead_process_meanwhile(
    image: Image, workspace: Path
) -> None:
    with running(image, workspace) as container:
        container.execute("import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 0.01 & sleep 0.01 &']).wait()")
        assert container.ask("DELETE", "/kernels")[0] == 200
        container.execute(COUNT_DEAD)
        while container.execute("count_dead()") != "0":
            pass
        os.kill(container.pid, signal.SIGTERM)
        _, log = container.process.communicate(timeout=DEADLINE)
        assert container.process.returncode == 0
    assert "stopping: kernels stay" in log
    assert TOKEN not in log

"""Kernels in srt: its proxy lets them reach what is allowed, they end with it, and nothing is left of either."""

from __future__ import annotations

import asyncio
import contextlib
import ensurepip
import http.server
import json
import os
import shutil
import signal
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.attacks import PROLOGUE
from tests.support.cells import DEADLINE, Running, eventually, is_running, parent_of, run, value, wait_for_end
from tests.support.command_line import kernelbox, succeed
from tests.support.executor import run as run_async
from tests.support.mcp_server import call, stdio_client, text_of
from tests.support.pythons import make_environment
from tests.support.sandbox import namespace, needs_linux
from tests.support.server import serving as serving_kernels

from kernelbox import CodeExecutor, KernelRecord, StartFailed, destroy, execute, get_or_create, restart, wipe
from kernelbox.base._environment import scrubbed_environment
from kernelbox.gateway import KernelClient, KernelGateway
from kernelbox.host.engines.own._sandboxed import find_gap, find_gap_around

pytestmark = needs_linux

IN_SRT = "import os; print(os.environ['SANDBOX_RUNTIME'])"

# Not the address that NO_PROXY names: what is at that one is asked for past the proxy.
ADDRESS = "127.0.0.2"


class Answers(http.server.SimpleHTTPRequestHandler):
    """Serves a directory without a word."""

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[int]:
    """Serves a directory on loopback; gives the port."""
    server = http.server.ThreadingHTTPServer(
        (ADDRESS, 0), lambda *arguments: Answers(*arguments, directory=str(directory))
    )
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Makes a directory to serve."""
    path = tmp_path / "site"
    path.mkdir()
    (path / "hello").write_text("hello")
    return path


def allowing(*domains: str, denied: tuple[str, ...] = ()) -> dict[str, object]:
    return {
        "network": {"allowedDomains": list(domains), "deniedDomains": list(denied)},
        "filesystem": {"denyRead": [".env"], "allowWrite": ["."], "denyWrite": []},
    }


def fetch(port: int, address: str = ADDRESS) -> str:
    return f"import urllib.request; urllib.request.urlopen('http://{address}:{port}/hello', timeout=20).read()"


def srt_of(kernel: KernelRecord) -> int:
    """Returns the process that is srt, above the template of a kernel."""
    pid = kernel.pid or 0
    while b"--settings" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:4]:
        pid = parent_of(pid)
    return pid


def place_of(kernel: KernelRecord) -> Path:
    """Returns the directory that srt keeps its sockets in, which is named by each of its programs that uses one."""
    arguments = Path(f"/proc/{srt_of(kernel)}/cmdline").read_bytes().split(b"\0")
    return Path(os.fsdecode(arguments[arguments.index(b"--settings") + 1])).parent


def is_named(place: Path) -> bool:
    """Tells whether a process has the name of a directory among its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(place) in path.read_bytes():
                return True
    return False


# -- what is allowed ---------------------------------------------------------------------------------------------


def test_a_kernel_has_the_sandbox_of_srt_and_the_native_one_in_it(box: KernelRecord) -> None:
    assert box.sandbox == "srt"
    assert find_gap(box.pid or 0) == ""
    assert find_gap_around(box.pid or 0) == ""
    template = parent_of(box.pid or 0)
    assert namespace(box.pid, "net") == namespace(template, "net") != namespace(os.getpid(), "net")
    assert namespace(box.pid, "ipc") != namespace(os.getpid(), "ipc")
    for kind in ("user", "mnt", "pid"):
        assert len({namespace(pid, kind) for pid in (box.pid, template, os.getpid())}) == 3, kind


def test_a_kernel_of_another_interpreter_is_in_srt(home: Path, workspace: Path) -> None:
    environment = make_environment(workspace.parent / "environment")
    kernel = get_or_create("other", cwd=workspace, sandbox=allowing(), sandbox_level="srt", python=environment)
    assert kernel.sandbox == "srt"
    assert find_gap(kernel.pid or 0) == ""
    assert value(kernel, "__import__('sys').prefix").strip("'") == str(environment)
    assert not execute(kernel, f"open({str(environment / 'planted')!r}, 'w')").ok


def test_neither_srt_nor_what_runs_in_it_gets_a_directory_of_ours_by_descriptor(box: KernelRecord) -> None:
    """The template opens what it is sent; all else would pass on to what it starts."""
    pid, seen = parent_of(box.pid or 0), 0
    allowed = {str(Path(box.connection_file).parent), str(Path(box.connection_file).parents[1])}
    while b"_srt_parent.py" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        for fd in Path(f"/proc/{pid}/fd").iterdir() if os.access(f"/proc/{pid}/fd", os.R_OK) else ():
            seen += 1
            assert not fd.is_dir() or os.readlink(fd) in allowed, os.readlink(fd)
        allowed, pid = set(), parent_of(pid)
    assert seen > 10


def test_it_reads_all_but_dotenv_and_writes_to_its_directory_only(home: Path, workspace: Path) -> None:
    (workspace / ".env").write_text("secret")
    box = get_or_create("reader", sandbox=True, sandbox_level="srt")
    assert "Permission" in execute(box, "open('.env').read()").text
    assert "Read-only" in execute(box, "open('/var/lib/x', 'w')").text
    run(box, "open('mine', 'w').write('x')")
    assert (workspace / "mine").read_text() == "x"
    assert "root" in value(box, "open('/etc/passwd').read()")


def test_an_allowed_address_answers_and_all_others_are_refused(home: Path, workspace: Path, site: Path) -> None:
    with serving(site) as port, serving(site) as other:
        box = get_or_create("net", sandbox=allowing(f"{ADDRESS}:{port}"), sandbox_level="srt")
        assert value(box, fetch(port)) == "b'hello'"
        assert "403" in execute(box, fetch(other), timeout=DEADLINE).text
        assert "403" in execute(box, fetch(port, "127.0.0.3"), timeout=DEADLINE).text
        past_the_proxy = f"import socket; socket.create_connection(('{ADDRESS}', {port}), 5)"
        assert "ConnectionRefusedError" in execute(box, past_the_proxy).text


def test_a_denied_domain_stays_denied_where_it_is_allowed_too(home: Path, workspace: Path, site: Path) -> None:
    with serving(site) as port:
        rules = allowing(f"{ADDRESS}:{port}", denied=(ADDRESS,))
        box = get_or_create("net", sandbox=rules, sandbox_level="srt")
        assert "403" in execute(box, fetch(port), timeout=DEADLINE).text


@pytest.mark.parametrize(
    "attempt",
    ["tunnels('127.0.0.2', port)", "gets('127.0.0.2', port)", "socks(1, bytes([127, 0, 0, 2]), port)"],
)
def test_the_attacks_on_the_proxy_get_through_it_where_that_is_allowed(
    home: Path, workspace: Path, site: Path, attempt: str
) -> None:
    """Else that they fail where it is not would prove nothing."""
    with socket.create_server((ADDRESS, 0)) as server:
        port = server.getsockname()[1]
        box = get_or_create("net", sandbox=allowing(f"{ADDRESS}:{port}"), sandbox_level="srt")
        answers = threading.Thread(target=answer_once, args=(server,))
        answers.start()
        assert value(box, f"{PROLOGUE}\nport = {port}\n{attempt}") == "True"
        answers.join()


def answer_once(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.recv(4096)
        client.sendall(b"heard")


def test_there_is_no_network_by_default(box: KernelRecord, site: Path) -> None:
    with serving(site) as port:
        assert "403" in execute(box, fetch(port), timeout=DEADLINE).text
        assert "gaierror" in execute(box, "import socket; socket.getaddrinfo('example.org', 80)").text


PIP = next(iter(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")), None)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(PIP, marks=pytest.mark.skipif(PIP is None, reason="this Python brings no pip"), id="pip"),
        pytest.param(None, marks=pytest.mark.skipif(shutil.which("uv") is None, reason="uses uv"), id="uv"),
    ],
)
def test_a_package_is_installed_from_an_index_that_is_allowed(
    home: Path, workspace: Path, site: Path, path: Path | None
) -> None:
    folder = site / "simple" / "kernelbox-sample"
    folder.mkdir(parents=True)
    name = "kernelbox_sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        info = "kernelbox_sample-1.0.dist-info"
        wheel.writestr("kernelbox_sample.py", "answer = 42\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: kernelbox-sample\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{name}">{name}</a>')
    with serving(site) as port:
        env = scrubbed_environment({} if path is None else {"PYTHONPATH": str(path)})
        box = get_or_create("pip", sandbox=allowing(f"{ADDRESS}:{port}"), sandbox_level="srt", env=env)
        index = f"--index-url http://{ADDRESS}:{port}/simple --trusted-host {ADDRESS}"
        run(box, f"%pip install --quiet {index} kernelbox-sample")
        assert value(box, "import kernelbox_sample; kernelbox_sample.answer") == "42"
        assert "42" in run(box, f"!{sys.executable} -c 'import kernelbox_sample as k; print(k.answer)'").text


def test_a_start_up_file_that_is_not_there_cannot_be_planted(box: KernelRecord) -> None:
    result = execute(box, "open('.bashrc', 'w').write('evil')")
    assert result.error is not None


# -- one srt for all kernels of a policy -----------------------------------------------------------------------------


def test_kernels_of_one_policy_share_an_srt_and_others_do_not(own_home: Path, workspace: Path) -> None:
    one = get_or_create("one", sandbox=True, sandbox_level="srt")
    two = get_or_create("two", sandbox=True, sandbox_level="srt")
    other = get_or_create("other", sandbox={"filesystem": {"allowWrite": []}}, sandbox_level="srt")
    assert srt_of(one) == srt_of(two) != srt_of(other)
    assert namespace(one.pid, "mnt") != namespace(two.pid, "mnt")
    assert "Read-only" in execute(other, "open('x', 'w')").text


def test_kernels_of_one_policy_do_not_see_each_other_s_processes_or_private_files(
    own_home: Path, workspace: Path
) -> None:
    one = get_or_create("one", sandbox=True, sandbox_level="srt")
    two = get_or_create("two", sandbox=True, sandbox_level="srt")
    for folder in ("/tmp", "/var/tmp", "/run", "/dev/shm"):
        run(one, f"open('{folder}/secret', 'w').write('secret')")
        assert value(two, f"import os; os.path.exists('{folder}/secret')") == "False"
    assert value(two, "[n for n in os.listdir('/proc') if n.isdigit()]") == "['1', '2']"


def test_other_kernels_of_the_home_are_not_in_srt(box: KernelRecord) -> None:
    plain, native = get_or_create("plain"), get_or_create("native", sandbox=True)
    assert (plain.sandbox, native.sandbox) == (None, "native")
    assert namespace(parent_of(native.pid or 0), "net") == namespace(os.getpid(), "net")


# -- the end ---------------------------------------------------------------------------------------------------------


def test_an_srt_that_is_killed_ends_its_kernels_and_leaves_nothing(own_home: Path, workspace: Path) -> None:
    (workspace / ".profile").write_text("mine")
    (workspace / ".idea").mkdir()
    box = get_or_create("box", sandbox=True, sandbox_level="srt")
    srt, parent, place = srt_of(box), parent_of(srt_of(box)), place_of(box)
    assert is_named(place)
    running = Running(box, "import time\nprint('begun', flush=True)\ntime.sleep(60)").wait_for_output()
    os.kill(srt, signal.SIGKILL)
    error = running.result().error
    assert error is not None
    assert "srt was killed by SIGKILL" in error.evalue
    wait_for_end(parent)
    assert not place.exists()
    assert not is_named(place)
    assert sorted(path.name for path in workspace.iterdir()) == [".idea", ".profile"]
    assert value(get_or_create("box"), "1 + 1") == "2"


def test_a_template_that_is_killed_ends_its_kernels_with_a_cause(own_home: Path, workspace: Path) -> None:
    box = get_or_create("box", sandbox=True, sandbox_level="srt")
    parent = parent_of(srt_of(box))
    os.kill(parent_of(box.pid or 0), signal.SIGKILL)
    wait_for_end(box.pid or 0)
    assert "srt ended" in execute("box", "1 + 1").text
    wait_for_end(parent)


def test_a_parent_of_srt_that_is_killed_takes_srt_and_its_kernels_with_it(own_home: Path, workspace: Path) -> None:
    box = get_or_create("box", sandbox=True, sandbox_level="srt")
    srt, place = srt_of(box), place_of(box)
    os.kill(parent_of(srt), signal.SIGKILL)
    wait_for_end(srt)
    wait_for_end(box.pid or 0)
    eventually(lambda: list(workspace.iterdir()) == [])
    assert value(get_or_create("again", sandbox=True, sandbox_level="srt"), "1 + 1") == "2"
    wipe()  # the parent of the second srt removes what the first has left
    assert not place.exists()


def test_nothing_is_left_when_the_template_has_left(own_home: Path, workspace: Path) -> None:
    box = get_or_create("box", sandbox=True, sandbox_level="srt")
    srt, parent, place = srt_of(box), parent_of(srt_of(box)), place_of(box)
    run(box, "open('mine', 'w').close()")
    assert destroy(box)
    wipe()
    assert not is_running(srt)
    assert not is_running(parent)
    assert not place.exists()
    assert not is_named(place)
    assert [path.name for path in workspace.iterdir()] == ["mine"]


def test_an_idle_template_leaves_by_itself(own_home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_TEMPLATE_IDLE_TIMEOUT", "0.1")
    box = get_or_create("box", sandbox=True, sandbox_level="srt")
    parent = parent_of(srt_of(box))
    destroy(box)
    wait_for_end(parent)
    assert list(workspace.iterdir()) == []


def test_a_restarted_kernel_is_in_srt_again(box: KernelRecord) -> None:
    again = restart(box)
    assert (again.sandbox, srt_of(again)) == ("srt", srt_of(again))
    assert value(again, "1 + 1") == "2"


# -- faces -----------------------------------------------------------------------------------------------------------


def test_an_executor_s_kernel_is_in_srt_also_after_a_reset(home: Path, workspace: Path, site: Path) -> None:
    with serving(site) as port:
        rules = workspace.parent / "rules.json"
        rules.write_text(json.dumps(allowing(f"{ADDRESS}:{port}")))

        async def scenario() -> None:
            async with CodeExecutor(sandbox=True, sandbox_config=rules, sandbox_level="srt") as executor:
                for _ in range(2):
                    result = await executor.execute(f"{fetch(port).replace('; ', '; print(')})")
                    assert result.text == "b'hello'"
                    await executor.reset()

        run_async(scenario)


def test_a_guarded_kernel_in_srt_starts_what_was_approved_and_nothing_else(home: Path, workspace: Path) -> None:
    find = (  # past Python's own guard
        "import ctypes; libc = ctypes.CDLL(None); libc.dlsym.restype = ctypes.c_void_p\n"
        "system = libc.dlsym(None, b'system')\n"
    )

    async def scenario() -> list[str | None]:
        guarded = CodeExecutor(approve_shell_cmds=True, require_shell_escape=True, sandbox=True, sandbox_level="srt")
        async with guarded as executor:
            said = [
                await executor.execute("!echo approved"),
                await executor.execute("x=5", language="bash"),
                await executor.execute("echo $x", language="bash"),
                await executor.execute(f"{find}print(ctypes.CFUNCTYPE(ctypes.c_int)(system)(b'touch planted'))"),
            ]
        return [result.text for result in said]

    *approved, status = run_async(scenario)
    assert approved == ["approved", None, "5"]
    assert status != "0"
    assert not (workspace / "planted").exists()


def test_the_command_line_opens_kernels_in_srt(home: Path, workspace: Path) -> None:
    asked = ("--sandbox", "--sandbox-level", "srt")
    assert succeed("create", "--name", "made", *asked)["sandbox"] == "srt"
    assert succeed("exec", "--name", "made", *asked, "6 * 7")["return_value"] == "42"
    other = kernelbox("exec", "--name", "made", "--sandbox", "1")
    assert "a sandbox with another level" in other.stdout


def test_a_gateway_s_kernels_are_in_srt(home: Path, workspace: Path) -> None:
    async def scenario() -> None:
        async with (
            KernelGateway(host="127.0.0.1", port=0, sandbox=True, sandbox_level="srt") as gateway,
            KernelClient(host="127.0.0.1", port=gateway.port) as client,
        ):
            assert (await client.execute(IN_SRT)).text == "1"

    asyncio.run(scenario())


def test_the_http_service_s_kernels_are_in_srt(home: Path, workspace: Path) -> None:
    with serving_kernels(workspace, "--sandbox", "--sandbox-level", "srt") as served:
        assert served.post("/kernels", {"name": "boxed"}).json()["sandbox"] == "srt"


def test_the_mcp_server_s_kernels_are_in_srt(home: Path, workspace: Path) -> None:
    async def scenario() -> None:
        async with stdio_client(workspace, "--sandbox", "--sandbox-level", "srt") as client:
            assert "1" in text_of(await call(client, "execute_ipython_cell", code=IN_SRT))

    asyncio.run(scenario())


def test_unix_sockets_can_be_allowed_and_reach_none_of_srt_s(home: Path, workspace: Path) -> None:
    rules = {"network": {"allowAllUnixSockets": True}, "filesystem": {"allowWrite": ["."]}}
    box = get_or_create("unix", sandbox=rules, sandbox_level="srt")
    run(box, "import socket; s = socket.socket(socket.AF_UNIX); s.bind('here')")
    assert value(box, "import os; [name for name in os.listdir('/tmp') if 'srt' in name]") == "[]"


def test_doctor_says_that_srt_can_be_used(home: Path, workspace: Path) -> None:
    found = {check["name"]: check for check in succeed("doctor")["checks"]}
    assert found["sandbox in srt"]["verdict"] == "ok"
    assert found["sandbox in srt"]["found"].startswith("srt 0.")


# -- where it cannot be used -----------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a directory that stands before all others on PATH."""
    path = tmp_path / "programs"
    path.mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join((str(path), os.environ["PATH"])))
    return path


def put(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


def refused(home: Path) -> str:
    """Tries to open a kernel in srt; another is not harmed. Returns the sentence."""
    plain = get_or_create("plain", sandbox=True)
    with pytest.raises(StartFailed) as failure:
        get_or_create("box", sandbox=True, sandbox_level="srt")
    assert value(plain, "1 + 1") == "2"
    return str(failure.value)


def test_what_is_not_installed_is_named_with_how_to_get_it(
    home: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for name in ("bash", "node", "rg", "setpriv"):
        put(few, name, "exit 1")
    monkeypatch.setenv("PATH", str(few))
    sentence = refused(home)
    assert "needs srt, bubblewrap, socat" in sentence
    assert "apt-get install bubblewrap socat" in sentence
    assert "npm install -g @anthropic-ai/sandbox-runtime" in sentence


def test_programs_that_cells_can_write_are_not_used(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would run outside of the sandbox at the next start."""
    for name in ("srt", "node", "bwrap", "socat", "rg", "sh", "bash"):
        put(workspace, name, f"touch {workspace}/ran")
    monkeypatch.setenv("PATH", os.pathsep.join((str(workspace), ".", "", os.environ["PATH"])))
    assert value(get_or_create("box", sandbox=True, sandbox_level="srt"), "1 + 1") == "2"
    assert not (workspace / "ran").exists()
    rules = {"filesystem": {"allowWrite": ["."]}, "ripgrep": {"command": "./rg"}}
    with pytest.raises(StartFailed, match="would run outside"):
        get_or_create("other", sandbox=rules, sandbox_level="srt")


def test_one_that_is_too_old_is_refused(home: Path, workspace: Path, programs: Path) -> None:
    put(programs, "srt", "echo 0.0.12")
    assert "srt 0.0.12" in refused(home)


def test_one_that_does_not_run_is_refused(home: Path, workspace: Path, programs: Path) -> None:
    put(programs, "srt", "echo cannot find module; exit 1")
    assert "cannot find module" in refused(home)


def test_one_that_ends_at_once_is_refused_with_what_it_said(home: Path, workspace: Path, programs: Path) -> None:
    put(programs, "srt", '[ "$1" = --version ] && echo 1.0.0 && exit; echo it is Tuesday; exit 3')
    sentence = refused(home)
    assert "it is Tuesday" in sentence
    assert "srt ended with status 3" in sentence


def test_one_that_does_not_confine_is_found_out(home: Path, workspace: Path, programs: Path) -> None:
    """The host looks at the process, whatever srt and the template say."""
    put(
        programs,
        "srt",
        '[ "$1" = --version ] && echo 1.0.0 && exit; while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    )
    assert "its sandbox is not in force" in refused(home)


def test_a_bubblewrap_that_may_not_make_namespaces_is_told_with_advice(
    home: Path, workspace: Path, programs: Path
) -> None:
    put(programs, "bwrap", "echo bwrap: No permissions to create new namespace >&2; exit 1")
    sentence = refused(home)
    assert "No permissions to create new namespace" in sentence
    assert "namespaces" in sentence.rpartition("namespace\n")[2]


def test_what_srt_refuses_of_the_configuration_is_told(home: Path, workspace: Path) -> None:
    with pytest.raises(StartFailed, match="Invalid domain pattern"):
        get_or_create("box", sandbox=allowing("*.com"), sandbox_level="srt")

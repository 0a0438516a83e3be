"""Living in a sandbox: what code does in a notebook works, and two kernels do not get at each other."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, run, value
from tests.support.executor import accept, answer_all
from tests.support.executor import run as run_async
from tests.support.sandbox import LEVEL, needs_linux
from tests.support.tools import HERE as SERVERS
from tests.support.tools import PLAIN, cell, executing, generate

from kernelbox import ApprovalPolicy, CodeExecutor, KernelRecord, execute, get_or_create, restart, wipe

pytestmark = needs_linux


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_work(box: KernelRecord, workspace: Path, method: str) -> None:
    (workspace / "squares.py").write_text("def square(x): return x * x\n")
    code = (
        "import multiprocessing, squares\n"
        f"with multiprocessing.get_context({method!r}).Pool(2) as pool: result = pool.map(squares.square, range(4))"
    )
    run(box, code)
    assert value(box, "result") == "[0, 1, 4, 9]"


def test_shared_memory_works(box: KernelRecord) -> None:
    code = (
        "from multiprocessing import shared_memory\n"
        "one = shared_memory.SharedMemory(create=True, size=16)\n"
        "other = shared_memory.SharedMemory(one.name)\none.buf[0] = 42\nseen = other.buf[0]\n"
        "other.close(); one.close(); one.unlink()"
    )
    run(box, code)
    assert value(box, "seen") == "42"


def test_numpy_and_threads_work(box: KernelRecord) -> None:
    pytest.importorskip("numpy")
    run(box, "import numpy, threading\na = numpy.random.rand(300, 300) @ numpy.random.rand(300, 300)")
    run(box, "t = threading.Thread(target=lambda: None); t.start(); t.join()")
    assert value(box, "a.shape") == "(300, 300)"


@pytest.mark.slow
def test_a_plot_is_captured(box: KernelRecord) -> None:
    pytest.importorskip("matplotlib")
    result = run(box, "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
    assert len(result.images) == 1
    assert "not a writable directory" not in result.text


def test_a_database_in_a_file_works(box: KernelRecord, workspace: Path) -> None:
    run(box, "import sqlite3\nc = sqlite3.connect('data.db'); c.execute('create table t (x)')")
    run(box, "c.execute('insert into t values (7)'); c.commit()")
    assert value(box, "c.execute('select x from t').fetchall()") == "[(7,)]"
    assert (workspace / "data.db").exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="uses git")
def test_git_works(box: KernelRecord) -> None:
    identity = "-c user.name=x -c user.email=x@y"
    result = run(
        box, f"!git init -q repo && cd repo && touch a && git add a && git {identity} commit -qm one && git log"
    )
    assert "one" in result.text


def test_a_terminal_of_its_own_works(box: KernelRecord) -> None:
    run(box, "import pty, os\npid, fd = pty.fork()\nif pid == 0: os.execvp('tty', ['tty'])\nshown = os.read(fd, 100)")
    assert "/dev/pts/0" in value(box, "shown")


def test_bash_keeps_its_state(box: KernelRecord) -> None:
    run(box, "x=42; cd /", language="bash")
    assert run(box, "echo $x in $PWD", language="bash").text.strip() == "42 in /"
    assert "7" in run(box, "%%bash\necho 7").text


def test_a_server_and_a_client_in_the_kernel_can_talk(box: KernelRecord) -> None:
    code = (
        "import asyncio\n"
        "async def serve(r, w): w.write(await r.readline()); w.close()\n"
        "server = await asyncio.start_server(serve, '127.0.0.1', 0)\n"
        "r, w = await asyncio.open_connection(*server.sockets[0].getsockname())\n"
        "w.write(b'hello\\n'); said = await r.read(); server.close()"
    )
    run(box, code)
    assert value(box, "said") == "b'hello\\n'"


def test_an_orphan_becomes_a_child_of_the_kernel(box: KernelRecord) -> None:
    run(box, "!sleep 1000 &")
    assert value(box, "open('/proc/2/task/2/children').read().split() != []") == "True"


def test_temporary_files_and_caches_have_a_place(box: KernelRecord) -> None:
    assert value(box, "import tempfile; tempfile.gettempdir()") == "'/tmp'"
    run(box, "with tempfile.NamedTemporaryFile() as file: file.write(b'x')")
    run(box, "import os; os.makedirs(os.environ['XDG_CACHE_HOME'] + '/x')")
    assert not os.path.exists("/dev/shm/.kernelbox")
    sizes = "{(info := os.statvfs(path)).f_blocks * info.f_frsize for path in ('/tmp', '/var/tmp', '/run', '/dev/shm')}"
    assert value(box, sizes) == str({1024**3})


def test_what_is_stored_lasts_from_cell_to_cell(box: KernelRecord) -> None:
    run(box, "x = 42\n%store x\ndel x")
    run(box, "%store -r x")
    assert value(box, "x") == "42"


def test_installing_a_package_fails_soon(box: KernelRecord) -> None:
    result = execute(box, "%pip install --no-cache-dir kernelbox-no-such-package", timeout=DEADLINE)
    assert result.status == "error"
    assert value(box, "import os; os.environ['PIP_RETRIES']") == "'0'"


def test_where_there_is_no_installer_it_is_said_to_be_got_from_outside(box: KernelRecord) -> None:
    run(box, "import os, sys\nsys.modules['pip'] = sys.modules['uv'] = None")
    run(box, "os.environ['PATH'] = '/nowhere'; sys.executable = '/nowhere/python'")
    result = execute(box, "%pip install x", timeout=DEADLINE)
    assert "run `/nowhere/python -m ensurepip` outside of the kernel" in result.stderr


def test_code_of_the_working_directory_is_imported_and_its_bytecode_written(box: KernelRecord, workspace: Path) -> None:
    (workspace / "helper.py").write_text("answer = 42\n")
    run(box, "import helper")
    assert value(box, "helper.answer") == "42"
    assert list(workspace.glob("__pycache__/helper*"))


def test_files_are_written_with_the_user_s_own_id(box: KernelRecord, workspace: Path) -> None:
    run(box, "open('mine', 'w').close()")
    assert (workspace / "mine").stat().st_uid == os.getuid()


def test_commands_are_approved_in_a_sandbox(workspace: Path, home: Path) -> None:
    async def scenario() -> None:
        async with CodeExecutor(
            sandbox=True, sandbox_level=LEVEL, approve_shell_cmds=True, require_shell_escape=True
        ) as executor:
            asked, result = await answer_all(executor, "!echo approved", accept)
            assert [request.tool_args["cmd"] for request in asked] == ["echo approved"]
            assert result is not None
            assert result.text == "approved"

    run_async(scenario)


def test_a_tool_is_called_from_a_sandbox(workspace: Path, home: Path) -> None:
    generate(workspace, PLAIN)

    async def scenario() -> None:
        async with executing(workspace, mcp_servers={"plain": PLAIN}, sandbox=True, sandbox_level=LEVEL) as executor:
            asked, result = await answer_all(executor, cell("echo", text="hello"), accept)
            assert [request.tool_name for request in asked] == ["echo"]
            assert result is not None
            assert "hello" in (result.text or "")

    run_async(scenario)


def test_a_tool_server_loads_nothing_that_a_cell_has_left(workspace: Path, home: Path) -> None:
    """It runs outside, in the directory of its host."""
    escaped = workspace.parent / "escaped"
    server = {"command": sys.executable, "args": ["-S", "-m", "plain_server"], "env": {"PYTHONPATH": str(SERVERS)}}
    generate(workspace, {**server, "cwd": "/"})
    planted = f"open({str(escaped)!r}, 'w')"

    async def scenario() -> None:
        async with executing(workspace, mcp_servers={"plain": server}, sandbox=True, sandbox_level=LEVEL) as executor:
            names = ("json", "plain_server", "time")
            await executor.execute(f"for name in {names}: open(name + '.py', 'w').write({planted!r})")
            _, result = await answer_all(executor, cell("echo", text="hello"), accept)
            assert "hello" in str(result)

    run_async(scenario)
    assert not escaped.exists()


def test_a_link_that_a_cell_puts_in_the_place_of_its_images_leads_nowhere(workspace: Path, home: Path) -> None:
    elsewhere = workspace.parent / "elsewhere"
    elsewhere.mkdir()
    picture = "display({'image/png': b'png'}, raw=True)"

    async def scenario() -> None:
        for chosen in (workspace / "shown", None, None):  # the last finds the link that the one before has made
            async with CodeExecutor(sandbox=True, images_dir=chosen) as executor:
                name = executor.images_dir.name
                await executor.execute(
                    f"import os\nif not os.path.lexists({name!r}): os.symlink({str(elsewhere)!r}, {name!r})"
                )
                result = await executor.execute(picture)
                assert "images could not be written" in (result.text or "")

    run_async(scenario)
    assert list(elsewhere.iterdir()) == []


def test_the_home_of_another_project_in_the_workspace_cannot_be_read_or_moved(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = workspace / "other" / ".kernelbox"
    other.parent.mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(other))
        run("project", "secret = 1")
        wipe()
    box = get_or_create("reader", sandbox=True, sandbox_level=LEVEL)
    for attempt in (f"listdir({str(other)!r})", f"rename({str(other)!r}, 'moved')", "rename('other', 'moved')"):
        assert execute(box, f"import os; os.{attempt}").error is not None, attempt
    assert "seal" in os.listdir(other)


def test_a_link_in_the_place_of_another_home_hides_nothing(
    box: KernelRecord, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = workspace / ".other"
    with monkeypatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(other))
        run("project", "1")
        wipe()
    shutil.rmtree(other)
    (workspace / "data").mkdir()
    (workspace / "data" / "table").touch()
    other.symlink_to(workspace / "data")
    reader = get_or_create("reader", sandbox=True, sandbox_level=LEVEL)
    assert value(reader, "__import__('os').listdir('data')") == "['table']"


def test_a_rule_denies_a_command_in_a_sandbox(box: KernelRecord) -> None:
    policy = ApprovalPolicy().deny(tool="shell")
    assert "reject" in execute(box, "!echo forbidden", policy=policy).text.lower()


def test_what_belongs_to_the_system_cannot_be_changed(box: KernelRecord) -> None:
    for code in ("open('/dev/new', 'w')", "open('/proc/sys/kernel/hostname', 'w')", "open('/sys/power/state', 'w')"):
        result = execute(box, code)
        assert result.error is not None, code
        assert result.error.ename in ("OSError", "PermissionError", "FileNotFoundError"), result.text
    kinds = "import os; {os.statvfs(path).f_flag & 1 for path in ('/', '/dev', '/proc', '/sys')}"  # ST_RDONLY
    assert value(box, kinds) == "{1}"
    assert value(box, "import resource; resource.getrlimit(resource.RLIMIT_CORE)") == "(1, 1)"
    assert (
        value(box, "any(os.access('/proc/' + name, os.R_OK) for name in ('keys', 'timer_list', 'slabinfo'))") == "False"
    )


def test_what_a_cell_stores_and_installs_ends_with_its_process_and_what_it_keeps_here_does_not(
    box: KernelRecord, workspace: Path
) -> None:
    run(box, "x = 42\n%store x\nimport os\nplace = os.environ['PIP_TARGET']")
    for folder in ("place", "'lib'"):
        run(box, f"os.makedirs({folder}, exist_ok=True); open({folder} + '/sample.py', 'w').write('answer = 42')")
    assert value(box, "import sample; sample.__file__.startswith(place)") == "True"
    again = restart(box)
    assert "no stored variable" in execute(again, "%store -r x").text
    assert "ModuleNotFoundError" in execute(again, "import sample").text
    assert value(again, "import sys; sys.path.insert(0, 'lib'); import sample; sample.answer") == "42"


# -- two kernels -------------------------------------------------------------------------------------------------


@pytest.fixture
def other(box: KernelRecord, tmp_path: Path) -> KernelRecord:
    """Opens a second sandboxed kernel, in a directory of its own."""
    directory = tmp_path / "other"
    directory.mkdir()
    return get_or_create("other-box", sandbox=True, sandbox_level=LEVEL, cwd=directory)


def test_the_interpreter_cannot_be_changed_through_the_process_that_it_runs(box: KernelRecord) -> None:
    before = os.stat(sys.executable)
    times = before.st_atime_ns, before.st_mtime_ns
    execute(box, f"import os\nos.utime('/proc/self/exe', ns={times})")
    execute(box, f"os.chmod('/proc/self/exe', {before.st_mode & 0o777})")
    assert os.stat(sys.executable).st_ctime_ns == before.st_ctime_ns
    assert value(box, "open('/proc/self/comm').read()").startswith("'python")


def test_two_sandboxed_kernels_see_neither_each_other_s_processes_nor_private_files(
    box: KernelRecord, other: KernelRecord
) -> None:
    for folder in ("/tmp", "/var/tmp", "/run", "/dev/shm"):
        run(other, f"open('{folder}/secret', 'w').write('secret')")
        assert value(box, f"import os; os.path.exists('{folder}/secret')") == "False"
    run(other, "import socket; s = socket.create_server(('127.0.0.1', 45678))")
    connect = execute(box, "import socket; socket.create_connection(('127.0.0.1', 45678), 5)")
    assert "ConnectionRefusedError" in connect.text
    assert value(box, "[n for n in os.listdir('/proc') if n.isdigit()]") == "['1', '2']"


def test_a_sandboxed_kernel_cannot_write_where_another_works(box: KernelRecord, other: KernelRecord) -> None:
    result = execute(box, f"open({other.cwd!r} + '/x', 'w')")
    assert result.error is not None
    assert not Path(other.cwd, "x").exists()


def test_kernels_in_one_directory_share_its_files(box: KernelRecord) -> None:
    beside = get_or_create("beside", sandbox=True, sandbox_level=LEVEL)
    run(box, "open('shared', 'w').write('x')")
    assert value(beside, "open('shared').read()") == "'x'"


def test_a_message_queue_of_one_kernel_is_not_another_s(box: KernelRecord, other: KernelRecord) -> None:
    make = "import ctypes; ctypes.CDLL(None).shmget(4711, 4096, 0o1600) >= 0"
    assert value(other, make) == "True"
    assert value(box, "import ctypes; ctypes.CDLL(None).shmget(4711, 0, 0)") == "-1"


def test_python_itself_can_be_run_in_a_sandbox(box: KernelRecord) -> None:
    assert run(box, f"!{sys.executable} -c 'import json; print(6 * 7)'").text.strip() == "42"

"""`require_shell_escape` keeps cells from kernelbox's own sockets, where code runs for the asking, and its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.executor import DEADLINE, run, text

from kernelbox import CodeExecutionError, CodeExecutor, get_or_create, wipe

pytestmark = pytest.mark.usefixtures("home")


def test_pairs_and_sockets_of_the_network_work_and_those_of_files_do_not() -> None:
    code = """
import asyncio, multiprocessing, socket
listener = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(listener.getsockname())
client.sendmsg([b'heard']); print(listener.accept()[0].recv(5))
ours, theirs = socket.socketpair(); ours.send(b'pair'); print(theirs.recv(5))
print(await asyncio.to_thread(int))
with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))
try: socket.socket(socket.AF_UNIX)
except PermissionError as error: print(error)
"""

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            return await text(executor, code)

    *said, refusal = (run(scenario) or "").splitlines()
    assert said == ["b'heard'", "b'pair'", "0", "[1, 2]"]
    assert refusal.startswith("Unix sockets cannot be made here")


@pytest.mark.parametrize(
    "opening",
    [
        "open(D + '/state', 'r+b')",
        "open(os.fsencode(D) + b'/connection.json')",
        "open(type('Sly', (str,), {'__str__': lambda self: '/nowhere'})(D + '/log'))",
        "os.open(D, os.O_RDONLY)",
        "os.open(os.path.dirname(D), os.O_RDONLY)",
        "(os.chdir(D), open('log', 'a'))",
        "os.open(D[1:] + '/state', os.O_RDWR, dir_fd=os.open('/', os.O_RDONLY))",
        "os.open('runtime', os.O_RDONLY, dir_fd=os.open(H, os.O_RDONLY))",
        "os.open(os.path.basename(H) + '/runtime', os.O_RDONLY, dir_fd=os.open(os.path.dirname(H), os.O_RDONLY))",
        "open('runtime', opener=lambda name, flags: os.open(name, flags, dir_fd=os.open(H, os.O_RDONLY)))",
        "os.chdir(D)",
        "os.chdir(os.fsencode(D))",
        "(os.chdir(H), os.chdir('runtime'))",
        "os.fchdir(os.open('.', os.O_RDONLY, dir_fd=os.open('runtime', 0, dir_fd=os.open(H, 0))))",
        "os.chmod('runtime', 0o777, dir_fd=os.open(H, os.O_RDONLY))",
        "(open(T, 'w').close(), os.rename(T, D + '/state'))",
        "(open(T, 'w').close(), os.rename(T, 'runtime/x', dst_dir_fd=os.open(H, os.O_RDONLY)))",
        "(open(T, 'w').close(), os.link(T, D + '/new'))",
        "open(OTHER + '/connection.json')",
        "open(OTHER + '/jupyter.json')",
        "os.symlink(D + '/log', T)",
        "(os.chdir(os.path.dirname(T)), os.symlink(os.path.relpath(D), T))",
        "open(LINKED + '/log')",
        "pathlib.Path(D, 'ending.json').write_text('{}')",
        "open(D + '/new', 'w')",
        "os.rename(D + '/state', T)",
        "os.link(D + '/state', T)",
        "shutil.move(D, T)",
        "os.rename(H, H + '-moved')",
        "os.replace(os.fsencode(H) + b'/', T)",
        "os.rename(os.path.dirname(H), T)",
        "os.rename('/proc/self/root' + H, T)",
        "os.rename(os.path.basename(H), T, src_dir_fd=os.open(os.path.dirname(H), os.O_RDONLY))",
        "(os.chdir(os.path.dirname(H)), os.rename('./' + os.path.basename(H), T))",
        "(os.chdir(H), os.rename('../' + os.path.basename(H), T))",
        "(os.mkdir(T), os.rename(T, H))",
        "shutil.move(H, T)",
        "os.rmdir(H)",
        "os.mkdir(D + '/ending.json')",
        "os.mkdir('runtime/new', dir_fd=os.open(H, os.O_RDONLY))",
        "os.chown(D + '/state', -1, -1)",
        "os.lchown(D + '/state', -1, -1)",
        "os.utime(D + '/state')",
        "os.utime('runtime', dir_fd=os.open(H, os.O_RDONLY))",
        "os.setxattr(D + '/state', 'user.x', b'1')",
        "os.removexattr(D + '/state', 'user.x')",
        "(os.environ.update(KERNELBOX_HOME=H, KERNELBOX_KEY_FILE=K), kernelbox.execute('another', '1'))",
    ],
)
def test_the_files_of_the_runtime_directory_are_out_of_reach(opening: str, home: Path, tmp_path: Path) -> None:
    other = tmp_path / "runtime" / ("0" * 32)  # a kernel's directory in another home
    other.mkdir(parents=True)
    (other / "socket").touch()
    (tmp_path / "linked").symlink_to(home / "runtime")
    code = (
        f"import kernelbox, os, pathlib, shutil\nK = {os.environ['KERNELBOX_KEY_FILE']!r}\n"
        f"H, LINKED = {str(home)!r}, {str(tmp_path / 'linked')!r} + '/' + os.environ['KERNELBOX_KERNEL_ID']\n"
        f"D, T = {str(home / 'runtime')!r} + '/' + os.environ['KERNELBOX_KERNEL_ID'], {str(tmp_path / 'made')!r}\n"
        f"OTHER = {str(other)!r}\n{opening}"
    )

    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(code, timeout=DEADLINE)
            assert await text(executor, "os.chdir('/')\n1 + 1") == "2"
            return caught.value

    assert "kernelbox's own" in run(scenario).evalue


def test_files_elsewhere_and_the_kernels_profile_work(tmp_path: Path) -> None:
    code = (
        f"import os, tempfile\nos.chdir({str(tmp_path)!r})\n"
        "name = 'd' * 32; os.mkdir(name); os.utime(name); os.chown(name, -1, -1)\n"
        "open(name + '/output.pkl', 'w').close(); os.rename(name, 'moved')\n"
        "tempfile.TemporaryFile().close(); open('kept', 'w').close()\n"
        "stored = 5\n%store stored\ndel stored\n%store -r stored\nstored"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            return await text(executor, code)

    assert (run(scenario) or "").endswith("5")
    assert sorted(os.listdir(tmp_path)) == ["kept", "moved"]


@pytest.mark.parametrize("act", ["os.unlink(L)", "os.rename(L, L + '-moved')", "os.replace(T, L)"])
def test_a_link_on_the_way_to_the_home_stays(act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (link := tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("KERNELBOX_HOME", str(link / "home"))
    code = f"import os\nL, T = {str(link)!r}, {str(tmp_path / 'other')!r}\nos.symlink('/', T)\n{act}"

    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(code, timeout=DEADLINE)
            return caught.value

    try:
        assert "kernelbox's own" in run(scenario).evalue
        assert link.is_symlink()
    finally:
        wipe()


@pytest.mark.parametrize(
    "act",
    [
        "os.unlink(T)",
        "os.chmod(os.path.dirname(T), 0o755)",
        "os.rename(ANOTHER, os.path.dirname(ANOTHER) + '/moved')",
    ],
)
def test_the_runtime_directory_cannot_be_changed_under_the_guard(act: str, home: Path, own_home: Path) -> None:
    another = Path(get_or_create("in another home").connection_file).parent
    code = (
        "import glob, os\n"
        f"T = next(p for p in glob.glob({str(home)!r} + '/runtime/template-*') if not p.endswith(('.log', '.lock')))\n"
        f"ANOTHER = {str(another)!r}\n{act}"
    )

    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(code, timeout=DEADLINE)
            return caught.value

    os.environ["KERNELBOX_HOME"] = str(home)
    try:
        assert "not allowed here" in run(scenario).evalue
    finally:
        os.environ["KERNELBOX_HOME"] = str(own_home)

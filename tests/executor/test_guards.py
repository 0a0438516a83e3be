"""`require_shell_escape`: `!` is the only way left to start a process from a cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.executor.support import DEADLINE, accept, answer_all, run, text

from kernelbox import ApprovalRequest, CodeExecutionError, CodeExecutor

pytestmark = pytest.mark.usefixtures("home")

DIRECT = {
    "subprocess.run": "import subprocess\nsubprocess.run(['touch', M])",
    "subprocess.Popen shell": "import subprocess\nsubprocess.Popen('touch ' + M, shell=True)",
    "subprocess.Popen mro": "import subprocess\nclass P(subprocess.Popen): pass\nP.__mro__[1](['touch', M])",
    "os.system": "import os\nos.system('touch ' + M)",
    "posix.system": "import posix\nposix.system('touch ' + M)",
    "os.popen": "import os\nos.popen('touch ' + M).read()",
    "os.execv": "import os\nos.execv('/bin/touch', ['touch', M])",
    "os.execvp": "import os\nos.execvp('touch', ['touch', M])",
    "posix.execv": "import posix\nposix.execv('/bin/touch', ['touch', M])",
    "os.spawnl": "import os\nos.spawnl(os.P_WAIT, '/bin/touch', 'touch', M)",
    "os.spawnvp": "import os\nos.spawnvp(os.P_NOWAIT, 'touch', ['touch', M])",
    "os.posix_spawn": "import os\nos.posix_spawn('/bin/touch', ['touch', M], {})",
    "os.posix_spawnp": "import os\nos.posix_spawnp('touch', ['touch', M], {})",
    "pty.spawn": "import pty\npty.spawn(['touch', M])",
    "asyncio": "import asyncio\nawait asyncio.create_subprocess_exec('touch', M)",
    "multiprocessing spawn": (
        "import multiprocessing\nprocess = multiprocessing.get_context('spawn').Process(target=open, args=(M, 'w'))\n"
        "process.start()"
    ),
    "multiprocessing forkserver": (
        "import multiprocessing\nprocess = multiprocessing.get_context('forkserver').Process(target=print)\n"
        "process.start()"
    ),
    "_posixsubprocess": (
        "import _posixsubprocess, os\n"
        "_posixsubprocess.fork_exec([b'touch', M.encode()], [b'/bin/touch'], True, (), None, None, -1, -1, -1, -1, -1,"
        " -1, 1, 2, False, False, -1, None, None, None, -1, None, False)"
    ),
    "ctypes system": "import ctypes\nctypes.CDLL(None).system(b'touch ' + M.encode())",
    "in a thread": (
        "import threading, subprocess\nfailures = []\n"
        "def work():\n    try: subprocess.run(['touch', M])\n    except RuntimeError as error: failures.append(error)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\nraise failures[0]"
    ),
}


@pytest.mark.parametrize("way", DIRECT)
def test_direct_ways_to_start_a_process_raise_and_point_to_the_escape(way: str, tmp_path: Path) -> None:
    made = tmp_path / "made"

    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(f"M = {str(made)!r}\n{DIRECT[way]}", timeout=DEADLINE)
            assert await text(executor, "1 + 1") == "2"
            return caught.value

    error = run(scenario)
    assert error.ename == "RuntimeError"
    assert "use !command" in error.evalue
    assert not made.exists()


def test_a_fork_that_tries_to_exec_is_stopped_and_says_so(tmp_path: Path) -> None:
    made = tmp_path / "made"
    code = (
        f"import os\npid = os.fork()\nif pid == 0:\n    os.execv('/bin/touch', ['touch', {str(made)!r}])\n"
        "os.waitpid(pid, 0)[1]"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            return await text(executor, code)

    assert "use !command" in (run(scenario) or "")
    assert not made.exists()


@pytest.mark.parametrize(
    "code", ["!echo ran", "x = !echo ran\nprint(x[0])", "%%bash\necho ran", "%%script sh\necho ran", "%sx echo ran"]
)
def test_the_escape_asks_and_works(code: str) -> None:
    async def scenario() -> tuple[list[ApprovalRequest], str | None]:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            requests, result = await answer_all(executor, code, accept)
            assert result is not None
            return requests, result.text

    requests, shown = run(scenario)
    assert len(requests) == 1
    assert "ran" in (shown or "")


def test_a_background_script_and_bash_cells_work_too(tmp_path: Path) -> None:
    async def scenario() -> list[str | None]:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            background = await executor.execute("%%script --bg --out pipe sh\necho ran")
            assert background.text is None
            bash = await executor.execute("echo ran", language="bash")
            return [await text(executor, "pipe.read()"), bash.text]

    assert run(scenario) == ["b'ran\\n'", "ran"]


def test_libraries_that_probe_the_machine_do_without() -> None:
    code = (
        "import platform\nplatform.processor()\nimport matplotlib.font_manager as fonts\n"
        "fonts._get_fontconfig_fonts.cache_clear()\nlen(fonts._get_fontconfig_fonts())"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            return await text(executor, code)

    assert run(scenario) == "0"


def test_forks_without_exec_are_no_new_program_and_work() -> None:
    code = (
        "import multiprocessing\n"
        "def double(n): return 2 * n\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(double, [1, 2]))"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            return await text(executor, code)

    assert run(scenario) == "[2, 4]"


def test_the_guards_end_with_the_executions_that_asked_for_them() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(name="shared", approve_shell_cmds=True, require_shell_escape=True) as guarded:
            with pytest.raises(CodeExecutionError):
                await guarded.execute("import os\nos.system('true')")
        async with CodeExecutor(name="shared") as free:
            return await text(free, "os.system('true')")

    assert run(scenario) == "0"


def test_nothing_of_the_guards_lies_in_the_users_namespace() -> None:
    async def scenario() -> list[str]:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            await executor.execute("!true")
            return [variable.name for variable in await executor.variables()]

    assert run(scenario) == []

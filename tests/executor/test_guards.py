"""`require_shell_escape`: `!` is the only way left to start a process from a cell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.executor import DEADLINE, accept, answer_all, run, text

import kernelbox
from kernelbox import ApprovalRequest, CodeExecutionError, CodeExecutor, KernelExists, get_or_create

pytestmark = pytest.mark.usefixtures("home")

# How to have a copy of _posixsubprocess that the guards have not seen, and to start a program with it. `O` is the file
# that has the module: its own, or the interpreter's in a Python that has it built in, as Debian's and Ubuntu's do.
FRESH = (
    "import _imp, _posixsubprocess, importlib.machinery, importlib.util, sys\n"
    "O = getattr(_posixsubprocess, '__file__', sys.executable)\n"
)
FORK_EXEC = (
    "_posixsubprocess.fork_exec([b'touch', M.encode()], [b'/bin/touch'], True, (), None, None, -1, -1, -1, -1, -1,"
    " -1, 1, 2, False, False, -1, None, None, None, -1, None, False)"
)

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
    "_posixsubprocess": f"import _posixsubprocess\n{FORK_EXEC}",
    "subprocess._fork_exec": FORK_EXEC.replace("_posixsubprocess.fork_exec", "__import__('subprocess')._fork_exec"),
    "fresh _posixsubprocess": f"{FRESH}del sys.modules['_posixsubprocess']\nimport _posixsubprocess\n{FORK_EXEC}",
    "fresh _posixsubprocess by importlib": (
        f"{FRESH}spec = importlib.util.find_spec('_posixsubprocess')\n"
        f"_posixsubprocess = importlib.util.module_from_spec(spec)\n{FORK_EXEC}"
    ),
    "fresh _posixsubprocess as a part of the interpreter": (
        f"{FRESH}spec = importlib.machinery.ModuleSpec('_posixsubprocess', None, origin='built-in')\n"
        f"_posixsubprocess = _imp.create_builtin(spec)\n{FORK_EXEC}"
    ),
    "fresh _posixsubprocess under another name": (
        f"{FRESH}loader = importlib.machinery.ExtensionFileLoader('mine._posixsubprocess', O)\n"
        "spec = importlib.machinery.ModuleSpec('mine._posixsubprocess', loader, origin=O)\n"
        f"_posixsubprocess = _imp.create_dynamic(spec)\n{FORK_EXEC}"
    ),
    **{
        f"fresh _posixsubprocess called {name!r}": (
            f"{FRESH}loader = importlib.machinery.ExtensionFileLoader({name!r}, O)\n"
            f"spec = importlib.util.spec_from_file_location({name!r}, O, loader=loader)\n"
            f"_posixsubprocess = importlib.util.module_from_spec(spec)\n{FORK_EXEC}"
        )
        for name in ("-posixsubprocess", "a.-posixsubprocess", "a-b._posixsubprocess", "_posixsubprocess\0x")
    },
    "fresh _posixsubprocess from a copy": (
        f"{FRESH}import shutil\nshutil.copy(O, M + '.so')\n"
        "spec = importlib.machinery.ModuleSpec('-posixsubprocess', None, origin=M + '.so')\n"
        f"_posixsubprocess = _imp.create_dynamic(spec)\n{FORK_EXEC}"
    ),
    "fresh _posixsubprocess through a link": (
        f"{FRESH}import os\nos.symlink(O, M + '.so')\n"
        "loader = importlib.machinery.ExtensionFileLoader('-posixsubprocess', M + '.so')\n"
        "spec = importlib.util.spec_from_loader(loader.name, loader)\n"
        f"_posixsubprocess = loader.create_module(spec)\n{FORK_EXEC}"
    ),
    "sub-interpreter called otherwise": (
        "import importlib.util\n"
        "found = importlib.util.find_spec('_interpreters') or importlib.util.find_spec('_xxsubinterpreters')\n"
        "spec = importlib.util.spec_from_file_location(found.name.replace('_', '-'), found.origin)\n"
        "interpreters = importlib.util.module_from_spec(spec)\n"
        "interpreters.run_string(interpreters.create(), f'import os; os.system(\"touch {M}\")')"
    ),
    "fresh _imp": f"{FRESH}del sys.modules['_imp']\nimport _imp",
    "fresh _imp by a spec that lies": (
        f"{FRESH}names = iter(['time', '_imp', '_imp', '_imp'])\n"
        "spec = type('Spec', (), {'name': property(lambda self: next(names)), 'origin': 'built-in'})()\n"
        "made = _imp.create_builtin(spec)\nassert made.__name__ == 'time'\nimport _testcapi"
    ),
    "sub-interpreter": (
        "try: import _interpreters as interpreters\n"
        "except ModuleNotFoundError: import _xxsubinterpreters as interpreters\n"
        "id = interpreters.create()\n"
        "interpreters.run_string(id, f'import os; os.system(\"touch {M}\")')"
    ),
    "_testcapi": "import _testcapi\n_testcapi.run_in_subinterp(f'import os; os.system(\"touch {M}\")')",
    "Tcl": "import _tkinter",
    "os.posix_spawn of a tuple": "import os\nos.posix_spawn('/bin/touch', ('touch', M), os.environ)",
    "executor of processes": (
        "import concurrent.futures, multiprocessing\n"
        "context = multiprocessing.get_context('spawn')\n"
        "concurrent.futures.ProcessPoolExecutor(1, mp_context=context).submit(open, M, 'w').result()"
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


def test_the_guards_stay_for_every_later_execution_of_any_client(tmp_path: Path) -> None:
    made = tmp_path / "made"

    async def scenario() -> list[str]:
        async with CodeExecutor(name="shared", approve_shell_cmds=True, require_shell_escape=True) as guarded:
            await guarded.execute("import os")
        failures = []
        async with CodeExecutor(name="shared") as free:
            for code in (f"os.system('touch {made}')", f"!touch {made}"):
                with pytest.raises(CodeExecutionError) as caught:
                    await free.execute(code, timeout=DEADLINE)
                failures.append(caught.value.evalue)
        async with CodeExecutor(name="shared", approve_shell_cmds=True) as asking:
            assert await text(asking, "!echo approved") == "approved"
        return failures

    direct, escape = run(scenario)
    assert "use !command" in direct
    assert "approve_shell_cmds=True" in escape
    assert not made.exists()


def test_a_thread_of_a_guarded_cell_is_not_freed_by_the_cell_of_another_client(tmp_path: Path) -> None:
    made, go, tried = tmp_path / "made", tmp_path / "go", tmp_path / "tried"
    os.mkfifo(go)
    code = f"""
import subprocess, threading
outcomes = []
def later():
    open({str(go)!r}).read()
    for start in (lambda: subprocess.run(['touch', {str(made)!r}]), lambda: get_ipython().system('touch {made}')):
        try: start()
        except Exception as error: outcomes.append(type(error).__name__)
    open({str(tried)!r}, 'w').close()
threading.Thread(target=later, daemon=True).start()
"""
    wait = (
        f"import os, time\nopen({str(go)!r}, 'w').close()\nwhile not os.path.exists({str(tried)!r}): time.sleep(0.001)"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(name="shared", approve_shell_cmds=True, require_shell_escape=True) as guarded:
            await guarded.execute(code)
        async with CodeExecutor(name="shared") as free:
            await free.execute(wait, timeout=DEADLINE)
            return await text(free, "outcomes")

    assert run(scenario) == "['RuntimeError', 'ApprovalRejectedError']"
    assert not made.exists()


def test_an_approved_command_frees_neither_its_thread_nor_another(tmp_path: Path) -> None:
    """A signal handler runs in the middle of the start, in its thread; another thread runs beside it all the time."""
    made = tmp_path / "made"
    code = f"""
import signal, subprocess, threading
tries, stop = [0], threading.Event()
def attempt(*_):
    tries[0] += 1
    try: subprocess.Popen(['touch', {str(made)!r}])
    except RuntimeError: pass
def beside():
    while not stop.is_set(): attempt()
signal.signal(signal.SIGALRM, attempt)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
thread = threading.Thread(target=beside); thread.start()
for _ in range(20): get_ipython().system('true')
signal.setitimer(signal.ITIMER_REAL, 0)
stop.set(); thread.join()
tries[0] > 20
"""

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            return await text(executor, code)

    assert run(scenario) == "True"
    assert not made.exists()


def test_a_bash_that_only_the_runner_types_in_lasts_from_cell_to_cell() -> None:
    async def scenario() -> list[str | None]:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as guarded:
            bash = [
                (await guarded.execute(code, language="bash")).text
                for code in (
                    "kept=2; echo [$kept]",
                    "echo [$kept]",
                    "cat; echo read nothing",
                    "#" * 200_000 + "\necho long",
                )
            ]
            with pytest.raises(CodeExecutionError, match="exit status 3"):
                await guarded.execute("exit 3", language="bash")
            return [*bash, (await guarded.execute("echo [$kept]", language="bash")).text]

    assert run(scenario) == ["[2]", "[2]", "read nothing", "long", "[]"]


def test_audit_hooks_of_the_cells_own_are_not_added() -> None:
    code = "import sys\nseen = []\nsys.addaudithook(lambda event, args: seen.append(event))\nopen('/dev/null')\nseen"

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            return await text(executor, code)

    assert (run(scenario) or "").endswith("[]")


def test_a_kernel_that_was_opened_without_the_guard_is_not_taken() -> None:
    async def scenario() -> None:
        async with CodeExecutor(name="shared") as free:
            await free.execute("x = 1")
        with pytest.raises(KernelExists, match="no guard, not require_shell_escape=True"):
            await CodeExecutor(name="shared", approve_shell_cmds=True, require_shell_escape=True).start()
        async with CodeExecutor(name="shared") as free:
            assert await text(free, "x") == "1"

    run(scenario)


def test_the_guard_is_in_the_record_and_stays_after_a_death_and_a_reset(tmp_path: Path) -> None:
    made = tmp_path / "made"

    async def scenario() -> None:
        async with CodeExecutor(name="shared", approve_shell_cmds=True, require_shell_escape=True) as guarded:
            await guarded.execute("1")
            assert get_or_create("shared").guarded
            await guarded.reset()
            assert get_or_create("shared").guarded
        died = kernelbox.execute("shared", "import os; os._exit(0)", timeout=DEADLINE).error
        assert died is not None
        assert died.ename == "KernelDied"
        failed = kernelbox.execute("shared", f"import os; os.system('touch {made}')", timeout=DEADLINE)
        assert failed.error is not None
        assert "use !command" in failed.error.evalue
        assert get_or_create("shared").guarded
        assert kernelbox.execute("shared", "!echo sealed", approve=lambda request: True).output == "sealed\n"

    run(scenario)
    assert not made.exists()


def test_a_guarded_kernel_leaves_in_good_order() -> None:
    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(name="shared", approve_shell_cmds=True, require_shell_escape=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute("exit()")
            return caught.value

    assert "the cell called exit()" in run(scenario).evalue


def test_nothing_of_the_guards_lies_in_the_users_namespace() -> None:
    async def scenario() -> list[str]:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
            await executor.execute("!true")
            return [variable.name for variable in await executor.variables()]

    assert run(scenario) == []

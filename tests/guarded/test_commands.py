"""Approved commands of a guarded kernel run as those of any other: output, input, ends, interrupts, deaths."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import eventually, is_running
from tests.support.executor import DEADLINE, accept, answer_all, reject, run, text

import kernelbox
from kernelbox import CodeExecutionError, CodeExecutor, get_or_create
from kernelbox.api._configured import kernels
from kernelbox.host.engines.own._guarded import fetch_key

pytestmark = [
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(sys.platform != "linux", reason="guarded kernels need Linux"),
]

GUARDED: dict[str, Any] = {"approve_shell_cmds": True, "require_shell_escape": True}

levels = pytest.mark.parametrize("options", [GUARDED, {**GUARDED, "sandbox": True}], ids=["guarded", "sandboxed"])

MANY = """
import threading
results = []
def go(n): results.append(get_ipython().getoutput(f'echo {n}')[0])
ways = [threading.Thread(target=go, args=(n,)) for n in range(8)]
[way.start() for way in ways]; [way.join() for way in ways]
print(sorted(results))
"""

COMMANDS = {
    "output in order": (
        "print('a', flush=True)\n!echo b; sleep 0.2; echo c >&2; sleep 0.2; echo d\nprint('e')",
        "a\nb\nc\nd\ne",
    ),
    "a pipe and a lot of output": ("!seq 300000 | tail -n 200000 | wc -l", "200000"),
    "much output": ("x = !seq 200000\nprint(len(x), x[-1])", "200000 200000"),
    "nothing to read": ("!cat; echo $?", "0"),
    "a script with input": ("%%script cat\nline", "line"),
    "a long script": ("%%bash\n: " + "x" * 300_000 + "\necho done", "done"),
    "captured streams": ("%%bash --out o --err e\necho out; echo err >&2", None),
    "a status": ("!exit 7\nprint(_exit_code)", "7"),
    "a death": ("!kill -9 $$\nprint(_exit_code)", "-9"),
    "%sx": ("%sx echo sx", "['sx']"),
    "a background process": ("!sleep 30 & echo begun", "begun"),
    "many at once": (MANY, str([str(n) for n in range(8)])),
    "multiprocessing by fork": (
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))",
        "[1, 2]",
    ),
    "no program": ("%%script nothing-of-this-name\nx", "Couldn't find program: 'nothing-of-this-name'"),
    "no program at a path": ("%%script /no/such/program\nx", "Couldn't find program: '/no/such/program'"),
}


@levels
def test_approved_commands_run(options: dict[str, Any], tmp_path: Path) -> None:
    async def scenario() -> dict[str, str | None]:
        async with CodeExecutor(working_dir=tmp_path, **options) as executor:
            return {name: await text(executor, code) for name, (code, _) in COMMANDS.items()}

    said = run(scenario)
    wanted = {name: shown for name, (_, shown) in COMMANDS.items() if shown is not None}
    assert {name: said[name] for name in wanted} == wanted


def test_commands_have_the_environment_limits_and_group_of_any_other() -> None:
    code = "!env | grep -v ^KERNELBOX | sort; umask; ulimit -a; grep Sig[BIC] /proc/self/status; ls /proc/self/fd"

    async def scenario() -> list[str | None]:
        said = []
        for options in ({}, GUARDED):
            async with CodeExecutor(**options) as executor:
                said.append(await text(executor, code))
        return said

    plain, guarded = run(scenario)
    assert plain == guarded


@levels
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "!sleep 60"),
        ("python", "!trap '' INT; while :; do sleep 1; done"),
        ("python", "x = !sleep 60"),
        ("python", "%%bash\nsleep 60"),
        ("bash", "kept=1; sleep 60"),
        ("bash", "bash -c \"trap '' INT; sleep 60; :\""),
    ],
)
def test_a_timeout_ends_the_command_and_keeps_the_kernel(
    language: Any, code: str, options: dict[str, Any], tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with CodeExecutor(working_dir=tmp_path, **options) as executor:
            await executor.execute("x = 1")
            with pytest.raises(TimeoutError):
                await executor.execute(code, timeout=1.0, language=language)
            assert await text(executor, "x") == "1"
            assert await text(executor, "!echo goes on") == "goes on"
            assert await text(executor, "import os\nlen(os.listdir('/proc'))") is not None
            assert (await executor.execute("echo bash", language="bash")).text == "bash"

    run(scenario)


def test_a_bash_that_is_interrupted_keeps_its_variables() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(**GUARDED) as executor:
            await executor.execute("kept=1", language="bash")
            with pytest.raises(TimeoutError):
                await executor.execute("sleep 60", timeout=1.0, language="bash")
            return (await executor.execute("echo [$kept]", language="bash")).text

    assert run(scenario) == "[1]"


def test_a_bash_that_was_killed_between_cells_is_followed_by_another() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(name="guarded", **GUARDED) as executor:
            await executor.execute("kept=1", language="bash")
            (bash,) = (pid for pid in below(get_or_create("guarded").pid or 0) if comm(pid) == "bash")
            os.kill(bash, signal.SIGKILL)
            return (await executor.execute("echo [$kept]", language="bash")).text

    assert run(scenario) == "[]"


def test_a_command_that_is_rejected_or_not_answered_does_not_run(tmp_path: Path) -> None:
    made = tmp_path / "made"

    async def never(request: object) -> None:
        """Leaves the question open."""

    async def scenario() -> list[str]:
        async with CodeExecutor(**GUARDED, approval_timeout=0.5) as executor:
            failures = []
            for answer in (reject, never):
                with pytest.raises(CodeExecutionError) as caught:
                    await answer_all(executor, f"!touch {made}", answer, timeout=DEADLINE)
                failures.append(caught.value.ename)
            return failures

    assert run(scenario) == ["ApprovalRejectedError"] * 2
    assert not made.exists()


@levels
def test_the_end_of_the_runner_ends_the_kernel_and_is_told(options: dict[str, Any], tmp_path: Path) -> None:
    ended = "its runner, the process that starts approved commands, has ended"

    async def scenario() -> str:
        async with CodeExecutor(working_dir=tmp_path, name="guarded", **options) as executor:
            await executor.execute("1")
            (runner,) = children(get_or_create("guarded").pid)
            asked = asyncio.ensure_future(answer_all(executor, "!sleep 60", accept, timeout=DEADLINE))
            await asyncio.to_thread(eventually, lambda: len(children(runner)) == 1)
            os.kill(runner, signal.SIGKILL)
            with pytest.raises(CodeExecutionError, match=ended):
                await asked
            with pytest.raises(CodeExecutionError) as caught:
                await execute_for_ever(executor)  # a cell that comes before the kernel has seen it may still be run
            return f"{caught.value.ename}: {caught.value.evalue}"

    assert run(scenario).startswith(f"KernelDied: {ended}")


async def execute_for_ever(executor: CodeExecutor) -> None:
    while True:
        await executor.execute("1", timeout=DEADLINE)


@levels
def test_nothing_is_left_of_a_guarded_kernel(options: dict[str, Any], tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        async with CodeExecutor(working_dir=tmp_path, name="guarded", **options) as executor:
            await executor.execute("sleep 60 &", language="bash")
            await answer_all(executor, "!setsid sleep 61 & sleep 62 &\n", accept, timeout=DEADLINE)
            pid = get_or_create("guarded").pid
            assert pid is not None
            found = list(below(pid))
            assert len(found) >= 5
            return [pid, *found]

    pids = run(scenario)
    kernelbox.destroy("guarded")
    eventually(lambda: not any(map(is_running, pids)))


@pytest.mark.slow
def test_the_key_of_the_seals_is_not_in_the_memory_of_the_kernel(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with CodeExecutor(name="guarded", **GUARDED) as executor:
            await answer_all(executor, "!true", accept, timeout=DEADLINE)
            record = get_or_create("guarded")
            key = fetch_key(kernels().store.directory(record.kernel_id))
            assert len(key) == 64
            assert record.pid is not None
            assert not is_in_memory(record.pid, key)
            assert is_in_memory(os.getpid(), key)  # that it is found where it is

    run(scenario)


def test_the_key_of_another_kernels_runner_is_not_taken(tmp_path: Path) -> None:
    """A cell can move the socket of another kernel to its own directory, and what is approved would run there."""

    async def scenario() -> None:
        for name in ("one", "other"):
            async with CodeExecutor(name=name, **GUARDED) as executor:
                await executor.execute("1")
        one, other = (Path(get_or_create(name).connection_file).parent / "runner" for name in ("one", "other"))
        one.unlink()
        os.link(other, one)
        kernels().pool.drop(get_or_create("one"))  # or a connection would be used that has its key already

    run(scenario)
    done = kernelbox.execute("one", "!echo x", approve=lambda request: True, timeout=DEADLINE)
    assert done.error is not None
    assert "no application has approved this command as it is" in done.error.evalue


def is_in_memory(pid: int, secret: bytes) -> bool:
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if line.split()[1].startswith("r") and "[v" not in line:
                try:
                    memory.seek(begin)
                    if secret in memory.read(end - begin):
                        return True
                except OSError:
                    continue
    return False


def children(pid: int | None) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def below(pid: int) -> list[int]:
    return [found for child in children(pid) for found in (child, *below(child))]

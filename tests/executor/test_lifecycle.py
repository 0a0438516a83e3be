"""Starting, stopping, resetting; private and named kernels; many at once; nothing left behind, nothing blocked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import wait_for_end
from tests.support.command_line import run_program
from tests.support.executor import DEADLINE, first_chunk, run, text

import kernelbox
from kernelbox import CodeExecutionError, CodeExecutionResult, CodeExecutor, ExecutorStopped, InvalidInput

pytestmark = pytest.mark.usefixtures("home")


def test_a_private_kernel_is_gone_when_the_executor_has_stopped() -> None:
    async def scenario() -> int:
        async with CodeExecutor() as executor:
            return int(await text(executor, "import os; print(os.getpid())") or 0)

    pid = run(scenario)
    wait_for_end(pid)
    assert kernelbox.list_kernels() == []


def test_a_named_kernel_lives_on_and_is_found_again_by_every_api() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(name="shared") as executor:
            await executor.execute("x = 42")
        assert kernelbox.execute("shared", "x").return_value == "42"
        async with CodeExecutor(name="shared") as executor:
            return await text(executor, "x")

    assert run(scenario) == "42"


def test_stopping_interrupts_the_cell_of_a_named_kernel() -> None:
    async def scenario() -> None:
        executor = CodeExecutor(name="shared")
        await executor.start()
        stream = executor.stream("print('running', flush=True)\nwhile True: pass", chunks=True)
        await first_chunk(stream)
        await executor.stop()
        with pytest.raises(CodeExecutionError):
            await anext(stream)

    run(scenario)
    assert kernelbox.execute("shared", "1 + 1").return_value == "2"


def test_a_named_kernel_that_somebody_restarted_is_used_as_it_is_now() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(name="shared") as executor:
            await executor.execute("x = 42")
            await asyncio.to_thread(kernelbox.restart, "shared")
            return await text(executor, "'x' in globals()")

    assert run(scenario) == "False"


SEEN = "import os; print(os.environ.get('HOST_SECRET'), os.environ.get('GIVEN'))"


def test_a_kernel_that_others_opened_gets_the_executors_environment_when_it_is_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOST_SECRET", "of the host")
    kernelbox.get_or_create("attached")

    async def scenario() -> tuple[str | None, str | None]:
        async with CodeExecutor(name="attached", kernel_env={"GIVEN": "yes"}) as executor:
            before = await text(executor, SEEN)
            await executor.reset()
            return before, await text(executor, SEEN)

    assert run(scenario) == ("of the host None", "None yes")


def test_a_kernel_that_had_to_be_killed_gets_the_executors_environment_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "of the host")
    kernelbox.get_or_create("attached")
    stubborn = "sum(range(10**13))"  # C code that looks at no signals

    async def scenario() -> str | None:
        async with CodeExecutor(name="attached", kernel_env={"GIVEN": "yes"}) as executor:
            with pytest.raises(TimeoutError, match="restarted"):
                await executor.execute(stubborn, timeout=BEGUN)
            return await text(executor, SEEN)

    assert run(scenario) == "None yes"


def test_an_executor_that_is_not_running_says_so() -> None:
    async def scenario() -> None:
        executor = CodeExecutor()
        with pytest.raises(ExecutorStopped):
            await executor.execute("1")
        await executor.stop()
        await executor.start()
        with pytest.raises(RuntimeError, match="running already"):
            await executor.start()
        await executor.stop()
        await executor.stop()
        with pytest.raises(ExecutorStopped):
            await executor.execute("1")

    run(scenario)


def test_an_executor_can_be_started_again() -> None:
    async def scenario() -> list[str | None]:
        executor = CodeExecutor()
        answers = []
        for _ in range(2):
            async with executor:
                answers.append(await text(executor, "'x' in globals()"))
                await executor.execute("x = 1")
        return answers

    assert run(scenario) == ["False", "False"]


def test_a_start_that_is_cancelled_leaves_no_kernel_behind() -> None:
    async def scenario() -> None:
        for _ in range(10):
            starting = asyncio.create_task(CodeExecutor().start())
            await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting

    run(scenario)  # ends when the threads have
    assert kernelbox.list_kernels() == []


def test_reset_gives_a_clean_kernel_and_destroys_the_old_one() -> None:
    async def scenario() -> tuple[int, str | None]:
        async with CodeExecutor() as executor:
            pid = int(await text(executor, "x = 1; import os; print(os.getpid())") or 0)
            await executor.reset()
            return pid, await text(executor, "'x' in globals()")

    pid, answer = run(scenario)
    assert answer == "False"
    wait_for_end(pid)


@pytest.mark.parametrize("name", [None, "shared"])
def test_reset_works_whatever_the_old_kernel_is_doing(name: str | None) -> None:
    code = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('busy', flush=True)\n"
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(name=name) as executor:
            stream = executor.stream(code, chunks=True)
            await first_chunk(stream)
            rest = asyncio.create_task(anext(stream))
            await executor.reset()
            answer = await text(executor, "1 + 1")
            with pytest.raises(CodeExecutionError):
                await rest
            return answer

    assert run(scenario) == "2"


def test_what_waits_for_its_turn_runs_in_the_new_kernel_after_a_reset() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            await executor.execute("x = 1")
            stream = executor.stream("print('busy', flush=True)\nwhile True: pass", chunks=True)
            await first_chunk(stream)
            waiting = asyncio.create_task(text(executor, "'x' in globals()"))
            await asyncio.sleep(0)
            await executor.reset()
            return await waiting

    assert run(scenario) == "False"


def test_resets_at_the_same_time_leave_one_kernel() -> None:
    async def scenario() -> tuple[int, str | None]:
        async with CodeExecutor() as executor:
            await asyncio.gather(*(executor.reset() for _ in range(5)), executor.execute("1"), return_exceptions=True)
            answer = await text(executor, "1 + 1")
            await executor.reset()
        return len(kernelbox.list_kernels()), answer

    assert run(scenario) == (0, "2")


def test_a_stop_that_is_cancelled_still_destroys_the_kernel() -> None:
    async def scenario() -> None:
        executor = CodeExecutor()
        await executor.start()
        stopping = asyncio.create_task(executor.stop())
        for _ in range(3):
            await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await executor.stop()

    run(scenario)
    assert kernelbox.list_kernels() == []


def test_many_executors_work_side_by_side_in_one_event_loop() -> None:
    """Each cell waits for all the others: they end only if they run at once."""

    async def scenario(directory: Path) -> list[str | None]:
        code = (
            "import os, time\n"
            f"open(os.path.join({str(directory)!r}, str(os.getpid())), 'w').close()\n"
            f"while len(os.listdir({str(directory)!r})) < 8: time.sleep(0.01)\n"
            "print('met')"
        )
        executors = [CodeExecutor() for _ in range(8)]
        await asyncio.gather(*(executor.start() for executor in executors))
        answers = await asyncio.gather(*(text(executor, code) for executor in executors))
        await asyncio.gather(*(executor.stop() for executor in executors))
        return answers

    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        assert run(lambda: scenario(Path(directory))) == ["met"] * 8


def test_an_executor_works_inside_a_running_loop_of_one_of_our_own_kernels() -> None:
    code = (
        "from kernelbox import CodeExecutor\n"
        "async with CodeExecutor() as executor:\n"
        "    result = await executor.execute('print(6 * 7)')\n"
        "result.text"
    )
    assert kernelbox.execute("outer", code).return_value == "'42'"


def test_an_executor_works_inside_jupyter() -> None:
    from jupyter_client.manager import KernelManager

    code = (
        "from kernelbox import CodeExecutor\n"
        "executor = CodeExecutor()\n"
        "await executor.start()\n"
        "print((await executor.execute('print(6 * 7)')).text)\n"
        "await executor.stop()"
    )
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=DEADLINE)
        outputs: list[str] = []
        client.execute_interactive(
            code,
            timeout=DEADLINE,
            output_hook=lambda message: outputs.append(message["content"].get("text", "")),
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
    assert "".join(outputs) == "42\n"


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_no_kernel_outlives_a_process_that_is_killed(ending: signal.Signals) -> None:
    code = (
        "import asyncio\nfrom kernelbox import CodeExecutor\n"
        "async def main():\n"
        "    async with CodeExecutor() as executor:\n"
        "        code = 'import os; print(os.getpid(), flush=True)\\nwhile True: pass'\n"
        "        async for item in executor.stream(code, chunks=True):\n"
        "            print(item.text, end='', flush=True)\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(ending)
    wait_for_end(pid)


# In a process of its own: what other tests have left to be collected would count too.
DESCRIPTORS = """
import asyncio, os
from kernelbox import CodeExecutionError, CodeExecutor

async def one_of_each(executor):
    await executor.execute("1")
    try: await executor.execute("1/0")
    except CodeExecutionError: pass
    async for _ in executor.stream("print('x', flush=True)\\nwhile True: pass", chunks=True):
        break
    await executor.variables()
    await executor.reset()
    await executor.execute("1")

async def cycle(count):
    async with CodeExecutor() as executor:
        for _ in range(count):
            await one_of_each(executor)
    return len(os.listdir("/proc/self/fd"))

async def main():
    print(await cycle(20) - await cycle(1))

asyncio.run(main())
"""


def test_executions_and_executors_leave_no_descriptor_behind() -> None:
    assert run_program(DESCRIPTORS) == "0\n"


class Watch:
    """Notes calls that can block, made by one thread; the interpreter announces them to audit hooks (PEP 578)."""

    EVENTS = frozenset({"time.sleep", "subprocess.Popen", "socket.connect", "fcntl.flock", "open", "os.listdir"})

    def __init__(self) -> None:
        self.thread: int | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event in self.EVENTS and threading.get_ident() == self.thread:
            self.seen.append(f"{event} {args!r:.200}")


_watch: list[Watch] = []


@pytest.fixture
def watch() -> Iterator[Watch]:
    """One for the session: audit hooks cannot be removed."""
    if not _watch:
        _watch.append(Watch())
    _watch[0].seen = []
    yield _watch[0]
    _watch[0].thread = None


def test_nothing_blocks_the_event_loop(watch: Watch, tmp_path: Path) -> None:
    stubborn = "print('x', flush=True)\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"

    async def scenario() -> None:
        async with CodeExecutor(images_dir=tmp_path, approve_shell_cmds=True) as executor:
            await executor.execute("!echo hello")
            await executor.execute("from PIL import Image\nImage.new('L', (1, 1))")
            with pytest.raises(TimeoutError):
                await executor.execute(stubborn, timeout=BEGUN)
            await executor.variables()
            with pytest.raises(CodeExecutionError):
                await executor.execute("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
            await executor.reset()
            async for _ in executor.stream(stubborn, chunks=True):
                break
            await executor.execute("1")

    async def watched() -> None:
        async with CodeExecutor() as warm:  # imports, and the template
            await warm.execute("1")
            await warm.variables()
        watch.thread = threading.get_ident()
        await scenario()
        watch.thread = None

    run(watched)
    assert [call for call in watch.seen if "/proc/" not in call and "/state'" not in call] == []


@pytest.mark.slow
def test_the_loop_goes_on_while_a_kernel_does_not_answer_at_all() -> None:
    async def scenario() -> int:
        turns = 0
        async with CodeExecutor() as executor:
            pid = int(await text(executor, "import os; print(os.getpid())") or 0)
            os.kill(pid, signal.SIGSTOP)
            waiting = asyncio.create_task(executor.execute("x" * 2_000_000, timeout=0.5))
            while not waiting.done():
                turns += 1
                await asyncio.sleep(0)
            with pytest.raises((TimeoutError, CodeExecutionError)):
                await waiting
        return turns

    assert run(scenario) > 100


@pytest.mark.parametrize(
    "parameter",
    ["tool_server_host", "tool_server_port", "kernel_gateway_host", "kernel_gateway_port"],
)
def test_parameters_of_the_old_gateway_are_ignored_with_a_warning_that_says_why(parameter: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{parameter}.*there is no"):
        CodeExecutor(**{parameter: "localhost"})  # type: ignore[arg-type]


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'kernel_envs'"):
        CodeExecutor(kernel_envs={})  # type: ignore[call-arg]


def test_require_shell_escape_needs_approve_shell_cmds() -> None:
    with pytest.raises(ValueError, match="approve_shell_cmds"):
        CodeExecutor(require_shell_escape=True)


@pytest.mark.parametrize("env", [{"A": 1}, {"": "x"}, {"A=B": "x"}, {"A": "\0"}])
def test_a_kernel_env_that_no_process_can_have_is_refused(env: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="kernel_env"):
        CodeExecutor(kernel_env=env)


def test_the_log_level_is_checked() -> None:
    with pytest.raises(InvalidInput, match="log_level"):
        CodeExecutor(log_level="LOUD")


def test_cancel_stops_the_cell_also_when_it_is_not_awaited() -> None:
    async def scenario() -> tuple[bool, str | None]:
        async with CodeExecutor() as executor:
            executor.cancel()  # there is nothing to stop
            await executor.cancel()
            stream = executor.stream("print('begun', flush=True)\nimport time\ntime.sleep(60)", chunks=True)
            await anext(stream)
            executor.cancel()
            *_, result = [item async for item in stream]
            assert isinstance(result, CodeExecutionResult)
            return result.cancelled, await text(executor, "1 + 1")

    assert run(scenario) == (True, "2")


def test_what_an_executor_was_made_with_can_be_read(tmp_path: Path) -> None:
    executor = CodeExecutor(
        working_dir=tmp_path,
        images_dir="pictures",
        kernel_env={"A": "b"},
        approve_shell_cmds=True,
        require_shell_escape=True,
    )
    assert (executor.working_dir, executor.images_dir) == (tmp_path, Path("pictures").absolute())
    assert (executor.kernel_env, executor.approve_tool_calls) == ({"A": "b"}, True)
    assert (executor.approve_shell_cmds, executor.require_shell_escape) == (True, True)

"""`kernelbox.e2b` does with local kernels what E2B's code interpreter does in its cloud, in both colours."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounded import run
from tests.support.cells import eventually, wait_for_end
from tests.support.colours import Colour

from kernelbox import Kernel, list_kernels
from kernelbox.e2b import (
    AsyncSandbox,
    CommandExitException,
    Context,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NoCounterpart,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    TimeoutException,
)


class Facade:
    """A sandbox of one colour whose methods all block, and what makes others."""

    def __init__(self, colour: Colour) -> None:
        self.kind: Any = AsyncSandbox if colour.asynchronous else Sandbox
        self.call = colour.call
        self.sandbox = self.call(self.kind.create, metadata={"user": "ann"}, envs={"GIVEN": "1"})

    def run(self, code: str, **options: Any) -> Any:
        return self.call(self.sandbox.run_code, code, **options)

    def command(self, cmd: str, **options: Any) -> Any:
        return self.call(self.sandbox.commands.run, cmd, **options)


@pytest.fixture(params=[False, True], ids=["Sandbox", "AsyncSandbox"])
def facade(request: pytest.FixtureRequest, home: Path) -> Iterator[Facade]:
    colour = Colour(request.param)
    facade = Facade(colour)
    yield facade
    root = Path(facade.sandbox._local.root)
    facade.call(facade.sandbox.kill)
    colour.close()
    assert list_kernels() == []
    assert not root.parent.exists()


def test_variables_last_and_the_last_expression_is_the_text(facade: Facade) -> None:
    facade.run("x = 1")
    execution = facade.run("x += 1; x")
    assert (execution.text, execution.error, execution.execution_count) == ("2", None, 2)
    assert facade.run("'plain'").text == "plain"
    assert facade.run("x = 3").text is None


def test_outputs_errors_and_results_are_collected_and_passed_to_callbacks(facade: Facade) -> None:
    seen: list[object] = []
    callbacks: dict[str, Any] = {f"on_{name}": seen.append for name in ("stdout", "stderr", "result", "error")}
    code = "import sys\nprint('out')\nsys.stderr.write('err\\n')\ndisplay({'a': 1})\n1 / 0"
    execution = facade.run(code, **callbacks)
    assert (execution.logs.stdout, execution.logs.stderr) == (["out\n"], ["err\n"])
    assert (execution.error.name, execution.error.value) == ("ZeroDivisionError", "division by zero")
    assert "1 / 0" in execution.error.traceback
    assert sorted(type(each).__name__ for each in seen) == [
        "ExecutionError",
        "OutputMessage",
        "OutputMessage",
        "Result",
    ]
    assert '"name": "ZeroDivisionError"' in execution.error.to_json()
    assert '"text": "{\'a\': 1}"' in execution.to_json()


def test_a_callback_may_be_a_coroutine_function(home: Path) -> None:
    async def main() -> list[str]:
        lines = list[str]()

        async def note(message: Any) -> None:
            lines.append(message.line)

        async with await AsyncSandbox.create() as sandbox:
            await sandbox.run_code("print('one')", on_stdout=note)
            await sandbox.commands.run("echo two", on_stdout=lines.append)
        return lines

    assert run(main) == ["one\n", "two\n"]


def test_a_plot_is_a_png_and_a_table_is_html(facade: Facade) -> None:
    (plot,) = facade.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()").results
    assert base64.b64decode(plot.png).startswith(b"\x89PNG")
    assert plot.formats() == ["text", "png"]
    (table,) = facade.run("import pandas as pd\npd.DataFrame({'a': [1]})").results
    assert "<table" in table.html
    assert table.is_main_result
    assert table["html"] == table.html
    assert set(table._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_a_timeout_raises_and_keeps_the_variables(facade: Facade) -> None:
    facade.run("x = 41")
    with pytest.raises(TimeoutException, match="timeout"):
        facade.run("while True: pass", timeout=1)
    with pytest.raises(TimeoutException, match="timeout"):
        facade.command("sleep 100", timeout=1)
    assert facade.run("x + 1", timeout=0).text == "42"


def test_cancelling_a_task_interrupts_its_cell(home: Path) -> None:
    async def main() -> str | None:
        async with await AsyncSandbox.create() as sandbox:
            began = asyncio.Event()
            code = "x = 42\nprint('began')\nwhile True: pass"
            task = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: began.set()))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await sandbox.run_code("x")).text

    assert run(main) == "42"


def test_variables_of_the_environment_are_those_of_the_sandbox_or_of_one_call(facade: Facade) -> None:
    code = "import os\nos.environ.get('GIVEN'), os.environ.get('PASSED')"
    assert facade.run(code, envs={"PASSED": "2"}).text == "('1', '2')"
    assert facade.run(code, envs={"GIVEN": "3"}).text == "('3', None)"
    assert facade.run(code).text == "('1', None)"
    assert facade.command("echo $GIVEN $PASSED", envs={"PASSED": "it's"}).stdout == "1 it's\n"
    assert facade.run("echo $PASSED", language="bash", envs={"PASSED": "2"}).logs.stdout == ["2\n"]


def test_contexts_have_variables_of_their_own_and_share_the_files(facade: Facade) -> None:
    facade.run("x = 1; open('shared.txt', 'w').write('s')")
    context = facade.call(facade.sandbox.create_code_context, cwd="sub")
    assert facade.run("'x' in globals()", context=context).text == "False"
    assert facade.run("open('../shared.txt').read()", context=context).text == "s"
    facade.run("y = 2", context=context)
    assert context in facade.call(facade.sandbox.list_code_contexts)
    facade.call(facade.sandbox.restart_code_context, context)
    code = "import os\n'y' in globals(), os.path.basename(os.getcwd())"
    assert facade.run(code, context=context).text == "(False, 'sub')"
    facade.call(facade.sandbox.remove_code_context, context.id)
    assert len(facade.call(facade.sandbox.list_code_contexts)) == 1
    with pytest.raises(NotFoundException, match="no context"):
        facade.run("1", context=context)
    with pytest.raises(InvalidArgumentException, match="kill"):
        facade.call(facade.sandbox.remove_code_context, facade.call(facade.sandbox.list_code_contexts)[0])


def test_a_bash_context_runs_bash(facade: Facade) -> None:
    context = facade.call(facade.sandbox.create_code_context, language="bash")
    facade.run("word=hello", context=context)
    assert facade.run("echo $word", context=context).logs.stdout == ["hello\n"]
    with pytest.raises(InvalidArgumentException, match="not both"):
        facade.run("1", language="python", context=context)


def test_files_are_written_read_listed_moved_and_removed(facade: Facade) -> None:
    files = facade.sandbox.files
    written = facade.call(files.write, "/home/user/data/a.csv", "n\n1\n")
    assert written.name == "a.csv"
    assert facade.run("open('data/a.csv').read()").text == "n\\n1\\n"
    assert facade.call(files.read, "data/a.csv") == "n\n1\n"
    assert facade.call(files.read, "data/a.csv", "bytes") == bytearray(b"n\n1\n")
    assert [(e.name, e.type) for e in facade.call(files.list, "/home/user")] == [("data", FileType.DIR)]
    assert [e.name for e in facade.call(files.list, ".", depth=2)] == ["data", "a.csv"]
    assert facade.call(files.rename, "data/a.csv", "b.csv").size == 4
    assert [facade.call(files.exists, path) for path in ("data/a.csv", "b.csv")] == [False, True]
    assert facade.call(files.make_dir, "data/deep/er")
    facade.call(files.remove, "data")
    facade.call(files.write_files, [{"path": "c", "data": b"\xff"}, {"path": "/tmp/d", "data": "own"}])
    assert facade.call(files.read, "c") == "�"
    assert facade.command("cat /tmp/d").stdout == "own"


def test_errors_of_files_are_those_of_e2b(facade: Facade) -> None:
    files = facade.sandbox.files
    with pytest.raises(FileNotFoundException, match="nowhere"):
        facade.call(files.read, "nowhere")
    with pytest.raises(InvalidArgumentException):
        facade.call(files.read, ".")
    with pytest.raises(SandboxException, match="Read-only"):
        facade.call(files.write, "/usr/planted", "x")


def test_a_command_has_its_output_and_exit_code_and_a_shell_of_its_own(facade: Facade) -> None:
    done = facade.command("cd /; export A=1; echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0)
    assert facade.command("basename $PWD; echo $A; cat").stdout == "user\n\n"
    with pytest.raises(CommandExitException) as caught:
        facade.command("echo wrong >&2; exit 7")
    assert (caught.value.exit_code, caught.value.stderr) == (7, "wrong\n")
    assert "code 7" in str(caught.value)


def test_cells_are_confined_unless_the_sandbox_is_opened_otherwise(facade: Facade) -> None:
    assert facade.run("open('/etc/planted', 'w')").error.name == "OSError"
    with facade.kind.create(sandbox=False) if facade.kind is Sandbox else Sandbox.create(sandbox=False) as other:
        (kernel,) = (each for each in list_kernels() if each.name == f"e2b-{other.sandbox_id}")
        assert kernel.sandbox is None


def test_a_sandbox_can_be_found_by_its_id_and_ended_by_it(facade: Facade) -> None:
    facade.run("x = 5")
    again = facade.call(facade.kind.connect, facade.sandbox.sandbox_id, timeout=100)
    assert facade.call(again.run_code, "x").text == "5"
    context = facade.call(again.create_code_context)
    assert facade.run("open('/etc/planted', 'w')", context=context).error.name == "OSError"
    info = facade.call(facade.kind.get_info, facade.sandbox.sandbox_id)
    assert info.metadata == {"user": "ann"}
    assert (info.end_at - info.started_at).total_seconds() > 90
    assert facade.call(facade.kind.kill, facade.sandbox.sandbox_id)
    assert not facade.call(facade.sandbox.is_running)
    with pytest.raises(SandboxNotRunningException, match="killed"):
        facade.run("1")
    with pytest.raises(SandboxNotFoundException, match=facade.sandbox.sandbox_id):
        facade.call(facade.kind.connect, facade.sandbox.sandbox_id)


def test_a_kernel_with_the_name_of_a_sandbox_is_not_one(home: Path, tmp_path: Path) -> None:
    kernel = Kernel("e2b-abc", cwd=tmp_path, tags={"e2b.sandbox": "abc"})
    with pytest.raises(SandboxNotFoundException):
        Sandbox.kill("abc")
    assert tmp_path.exists()
    kernel.destroy()


def test_a_sandbox_ends_when_its_time_is_over(facade: Facade) -> None:
    assert facade.call(facade.sandbox.is_running)
    (kernel,) = list_kernels()
    assert kernel.pid is not None
    facade.call(facade.sandbox.set_timeout, 0)  # its own thread ends it
    wait_for_end(kernel.pid)
    eventually(lambda: not Path(facade.sandbox._local.root).exists())
    assert not facade.call(facade.sandbox.is_running)
    with pytest.raises(SandboxNotRunningException):
        facade.call(facade.sandbox.set_timeout, 60)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_time_that_makes_no_sense_is_refused_and_ends_no_sandbox(facade: Facade, seconds: float) -> None:
    for face in (facade.sandbox.set_timeout, lambda timeout: facade.kind.create(timeout=timeout)):
        with pytest.raises(InvalidArgumentException, match=f"timeout is {seconds}; use 0 to "):
            facade.call(face, seconds)
    with pytest.raises(InvalidArgumentException):
        facade.call(facade.kind.connect, facade.sandbox.sandbox_id, timeout=seconds)
    assert facade.call(facade.sandbox.is_running)
    assert len(list_kernels()) == 1


def test_another_process_sees_that_the_time_is_over(home: Path) -> None:
    with Sandbox.create() as sandbox:
        other = Sandbox.connect(sandbox.sandbox_id)
        other.set_timeout(0)
        assert not other.is_running()
        assert not sandbox.is_running()
    assert list_kernels() == []


def test_a_sandbox_ends_with_its_program(home: Path, tmp_path: Path) -> None:
    program = "from kernelbox.e2b import Sandbox\ns = Sandbox.create()\nprint(s._local.kernel.pid, s._local.root)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    pid, root = done.stdout.split()
    wait_for_end(int(pid))
    assert not Path(root).parent.exists()


CLOUD: dict[str, Callable[[Any], object]] = {
    "pause": lambda sandbox: sandbox.pause(),
    "get_host": lambda sandbox: sandbox.get_host(80),
    "fork": lambda sandbox: sandbox.fork(),
    "git": lambda sandbox: sandbox.git,
    "list": lambda sandbox: type(sandbox).list(),
    "watch_dir": lambda sandbox: sandbox.files.watch_dir("."),
    "send_stdin": lambda sandbox: sandbox.commands.send_stdin(1, "x"),
    "background": lambda sandbox: sandbox.commands.run("true", background=True),
    "javascript": lambda sandbox: sandbox.run_code("1", language="javascript"),
}


def test_what_only_the_cloud_has_raises_a_sentence(home: Path) -> None:
    with Sandbox.create() as sandbox:
        for word, use in CLOUD.items():
            with pytest.raises(NoCounterpart, match=f"{word}.*no counterpart"):
                use(sandbox)
        assert not hasattr(sandbox, "pause")


@pytest.mark.parametrize(
    "options", [{"template": "mine"}, {"allow_internet_access": True}, {"mcp": {}}, {"volume_mounts": {"/a": "v"}}]
)
def test_an_option_that_only_the_cloud_has_is_refused(home: Path, options: dict[str, Any]) -> None:
    with pytest.raises(NoCounterpart, match="no counterpart"):
        Sandbox.create(**options)
    assert list_kernels() == []


def test_the_constructor_opens_a_sandbox_as_in_version_1_of_e2b(home: Path) -> None:
    with Sandbox(timeout=100, envs={"CITY": "Bern"}, api_key="e2b_…") as sandbox:
        assert sandbox.run_code("import os\nos.environ['CITY']").text == "Bern"
        assert sandbox.files.exists(".")
    assert not sandbox.is_running()


def test_options_of_the_connection_have_no_effect(home: Path) -> None:
    with Sandbox.create(api_key="e2b_123", request_timeout=5) as sandbox:
        assert sandbox.run_code("6 * 7").text == "42"
        assert Context("x", "python", "/") != sandbox.list_code_contexts()[0]

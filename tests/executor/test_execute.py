"""What `CodeExecutor.execute` returns and raises."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.executor import DEADLINE, run, text

from kernelbox import (
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    ExecutionTimeout,
    InvalidInput,
    get_or_create,
)

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1", None),
        ("None", None),
        ("print('   a  b')", "   a  b"),
        ("print()\nprint('second')", "\nsecond"),
        ("print('a   \\n\\n')", "a"),
        ("display(1); display(2)", "1\n2"),
        ("print('a', end='')\ndisplay(1)\nprint('b')", "a\n1\nb"),
        ("import sys\nprint('out')\nprint('err', file=sys.stderr)\n'value'", "out\nerr\n'value'"),
        ("!echo from a process", "from a process"),
    ],
)
def test_text_is_everything_written_in_order_with_only_its_end_trimmed(code: str, expected: str | None) -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            return await text(executor, code)

    assert run(scenario) == expected


def test_the_result_is_complete_where_a_model_would_long_have_stopped_reading() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            return await text(executor, "for number in range(100_000): print(number)")

    assert run(scenario) == "\n".join(map(str, range(100_000)))


@pytest.mark.parametrize(
    "code", ["print('x' * {0})", "import sys; print('x' * {0}, file=sys.stderr)", "!head -c {0} /dev/zero | tr '\\0' x"]
)
def test_megabytes_of_output_arrive_whole(code: str) -> None:
    async def scenario() -> list[int]:
        async with CodeExecutor() as executor:
            shown = [await text(executor, code.format(size)) or "" for size in (5_000_000, 15_000_000)]
            return [len(whole) for whole in shown if set(whole) == {"x"}]

    assert run(scenario) == [5_000_000, 15_000_000]


def test_a_call_has_a_limit_of_its_own() -> None:
    async def scenario() -> list[int]:
        lengths = []
        async with CodeExecutor(output_char_limit=1000) as executor:
            for limit in (None, 100, 0):
                result = await executor.execute("print('x' * 5000)", output_char_limit=limit)
                lengths.append(len(result.text or ""))
                *_, last = [item async for item in executor.stream("print('x' * 5000)", output_char_limit=limit)]
                assert isinstance(last, CodeExecutionResult)
                assert last.text == result.text
        return lengths

    kept, fewer, all_of_it = run(scenario)
    assert (900 < kept <= 1000, 60 < fewer <= 100, all_of_it) == (True, True, 5000)


def test_an_executor_refuses_a_limit_that_is_no_number() -> None:
    with pytest.raises(InvalidInput, match="output_char_limit"):
        CodeExecutor(output_char_limit="all")  # type: ignore[arg-type]


def test_output_beyond_the_limit_keeps_head_and_tail_and_says_what_was_cut() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor(output_char_limit=1000) as executor:
            return await text(executor, "print('head' + 'x' * 5000 + 'tail')")

    shown = run(scenario)
    assert shown is not None
    assert len(shown) <= 1000
    assert shown.startswith("head")
    assert shown.endswith("tail")
    assert "characters cut" in shown


def test_failing_code_raises_with_a_clean_traceback_and_all_that_was_written_before() -> None:
    async def scenario() -> CodeExecutionError:
        async with CodeExecutor() as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute("def half(n):\n    return n / 0\nprint('before')\nhalf(1)")
            assert await text(executor, "half.__name__") == "'half'"
            return caught.value

    error = run(scenario)
    assert str(error).startswith("ZeroDivisionError: division by zero\n")
    assert "return n / 0" in str(error)
    assert "\x1b" not in str(error)
    assert "site-packages" not in str(error)
    assert (error.ename, error.evalue, error.state) == ("ZeroDivisionError", "division by zero", "kept")
    assert error.text is not None
    assert error.text.startswith("before\n")
    assert error.text.endswith("ZeroDivisionError: division by zero")


def test_an_error_carries_the_images_shown_before_it(tmp_path: Path) -> None:
    async def scenario() -> list[Path]:
        async with CodeExecutor(images_dir=tmp_path) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute("from PIL import Image\ndisplay(Image.new('RGB', (2, 2)))\n1/0")
            return caught.value.images

    (image,) = run(scenario)
    assert image.parent == tmp_path
    assert image.read_bytes().startswith(b"\x89PNG")


def test_too_slow_raises_timeout_error_and_keeps_the_kernels_state() -> None:
    async def scenario() -> ExecutionTimeout:
        async with CodeExecutor() as executor:
            await executor.execute("kept = 42")
            with pytest.raises(TimeoutError) as caught:
                await executor.execute("print('before', flush=True)\nwhile True: pass", timeout=2)
            assert await text(executor, "kept") == "42"
            assert isinstance(caught.value, ExecutionTimeout)
            return caught.value

    timeout = run(scenario)
    assert "timed out after 2 s" in str(timeout)
    assert timeout.state == "kept"
    assert timeout.text is not None
    assert timeout.text.startswith("before\n")


def test_a_cell_that_cannot_be_stopped_loses_the_state_but_not_the_environment_or_the_executor() -> None:
    code = (
        "import signal, ctypes\n"
        "libc = ctypes.PyDLL(None)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "print('stuck', flush=True)\n"
        "libc.sleep(1000)"
    )

    async def scenario() -> ExecutionTimeout:
        async with CodeExecutor(kernel_env={"TEST_VAR": "kept"}) as executor:
            await executor.execute("lost = 42")
            with pytest.raises(ExecutionTimeout) as caught:
                await executor.execute(code, timeout=2)
            assert await text(executor, "'lost' in globals()") == "False"
            assert await text(executor, "import os; os.environ['TEST_VAR']") == "'kept'"
            assert await text(executor, "'PYTEST_CURRENT_TEST' in os.environ") == "False"
            return caught.value

    timeout = run(scenario)
    assert timeout.state == "lost"
    assert "restarted" in str(timeout)


def test_a_killed_kernel_is_reported_at_once_and_until_it_is_reset() -> None:
    async def scenario() -> None:
        async with CodeExecutor() as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute("print('last words')\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
            assert caught.value.ename == "KernelDied"
            assert "SIGKILL" in caught.value.evalue
            assert "reset()" in caught.value.evalue
            assert caught.value.state == "lost"
            assert "last words" in (caught.value.text or "")
            with pytest.raises(CodeExecutionError, match="SIGKILL"):
                await executor.execute("1")
            await executor.reset()
            assert await text(executor, "1 + 1") == "2"

    run(scenario)


def test_calls_at_once_run_one_after_the_other_in_their_order() -> None:
    async def scenario() -> list[str | None]:
        async with CodeExecutor() as executor:
            await executor.execute("seen = []")
            await asyncio.gather(*(executor.execute(f"seen.append({n}); print({n})") for n in range(20)))
            return [await text(executor, "seen")]

    assert run(scenario) == [str(list(range(20)))]


def test_a_failing_cell_does_not_disturb_the_one_behind_it() -> None:
    async def scenario() -> tuple[object, object]:
        async with CodeExecutor() as executor:
            return await asyncio.gather(
                executor.execute("1/0"), executor.execute("print('fine')"), return_exceptions=True
            )

    failed, fine = run(scenario)
    assert isinstance(failed, CodeExecutionError)
    assert getattr(fine, "text", "") == "fine"


def test_changed_names_what_the_cell_added_changed_and_removed() -> None:
    async def scenario() -> list[dict[str, list[str]] | None]:
        async with CodeExecutor() as executor:
            cells = [
                "x = [1]; y = 2; import math; _hidden = 1",
                "x.append(2)",
                "del y; x = 'other'",
                "def f():\n    global z\n    z = 1",
                "f()",
                "globals()['q'] = 1",
                "from string import *",
                "x",
            ]
            return [(await executor.execute(cell)).changed for cell in cells]

    added, mutated, removed, defined, called, reached, starred, nothing = run(scenario)
    assert added == {"added": ["math", "x", "y"], "changed": [], "removed": []}
    assert mutated == {"added": [], "changed": ["x"], "removed": []}
    assert removed == {"added": [], "changed": ["x"], "removed": ["y"]}
    assert defined == {"added": ["f"], "changed": [], "removed": []}
    assert called == {"added": ["z"], "changed": [], "removed": []}
    assert reached == {"added": ["q"], "changed": [], "removed": []}
    assert starred is not None
    assert "ascii_letters" in starred["added"]
    assert nothing == {"added": [], "changed": [], "removed": []}


def test_a_dataframe_that_grows_has_changed() -> None:
    async def scenario() -> dict[str, list[str]] | None:
        async with CodeExecutor() as executor:
            await executor.execute("import pandas\nframe = pandas.DataFrame({'a': [1]})")
            return (await executor.execute("frame['b'] = 2")).changed

    assert run(scenario) == {"added": [], "changed": ["frame"], "removed": []}


def test_variables_describes_what_lives_in_the_kernel() -> None:
    code = (
        "number = 7; words = ['a'] * 1_000_000; text = 'x' * 1_000_000\n"
        "import numpy\narray = numpy.zeros(1000)\n"
        "class Broken:\n    def __repr__(self): 1/0\nbroken = Broken()"
    )

    async def scenario() -> dict[str, tuple[str, int, str]]:
        async with CodeExecutor() as executor:
            await executor.execute(code)
            return {v.name: (v.type, v.size, v.preview) for v in await executor.variables()}

    found = run(scenario)
    assert sorted(found) == ["Broken", "array", "broken", "number", "numpy", "text", "words"]
    assert found["number"][0] == "int"
    assert found["number"][2] == "7"
    assert found["words"][1] >= 8_000_000
    assert found["array"][:2] == ("ndarray", 8000)
    assert found["broken"][0] == "Broken"
    assert all(len(preview) <= 80 for _, _, preview in found.values())


def test_variables_gives_up_on_a_repr_that_never_ends_and_the_kernel_goes_on() -> None:
    endless = "class Endless:\n    def __repr__(self):\n        while True: pass\nendless = Endless()"

    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            await executor.execute(endless)
            with pytest.raises(TimeoutError):
                await executor.variables(timeout=0.1)
            found = {variable.name: variable.preview for variable in await executor.variables()}
            assert found["endless"] == "<repr took too long>"
            return await text(executor, "1 + 1")

    assert run(scenario) == "2"


def test_bash_runs_in_a_shell_that_lasts() -> None:
    async def scenario() -> list[str | None]:
        async with CodeExecutor() as executor:
            await executor.execute("x=5; cd /", language="bash")
            return [(await executor.execute("echo $x; pwd", language="bash")).text]

    assert run(scenario) == ["5\n/"]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "1", True])
def test_a_timeout_that_makes_no_sense_is_refused(timeout: float) -> None:
    async def scenario() -> None:
        async with CodeExecutor() as executor:
            with pytest.raises(InvalidInput, match="timeout"):
                await executor.execute("1", timeout=timeout)

    run(scenario)


JPEG = """
import io
from PIL import Image
from IPython.display import Image as Shown
file = io.BytesIO()
Image.new('RGB', (4, 4)).save(file, 'jpeg')
Shown(data=file.getvalue())
"""


@pytest.mark.parametrize(
    ("show", "suffix", "magic"),
    [
        ("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", ".png", b"\x89PNG"),
        ("from PIL import Image\nImage.new('RGB', (4, 4), 'red')", ".png", b"\x89PNG"),
        (JPEG, ".jpg", b"\xff\xd8"),
        ("from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", ".svg", b"<svg"),
    ],
    ids=["figure", "pil", "jpeg", "svg"],
)
def test_every_kind_of_image_becomes_a_file(tmp_path: Path, show: str, suffix: str, magic: bytes) -> None:
    async def scenario() -> list[Path]:
        async with CodeExecutor(images_dir=tmp_path / "made") as executor:
            return (await executor.execute(show)).images

    (image,) = run(scenario)
    assert image.suffix == suffix
    assert image.parent == tmp_path / "made"
    assert image.read_bytes().startswith(magic)


def test_images_go_to_images_in_the_current_directory_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario() -> list[Path]:
        async with CodeExecutor() as executor:
            return (await executor.execute("from PIL import Image\nImage.new('L', (1, 1))")).images

    (image,) = run(scenario)
    assert image.parent == tmp_path / "images"
    assert image.exists()


def test_image_names_never_meet_across_cells_executors_and_resets(tmp_path: Path) -> None:
    code = "from PIL import Image\nfor _ in range(3): display(Image.new('L', (1, 1)))"

    async def scenario() -> list[Path]:
        async with CodeExecutor(images_dir=tmp_path) as one, CodeExecutor(images_dir=tmp_path) as two:
            results = await asyncio.gather(*(executor.execute(code) for executor in (one, two, one, two)))
            await one.reset()
            results.append(await one.execute(code))
            return [image for result in results for image in result.images]

    images = run(scenario)
    assert len(images) == 15
    assert len({image.name for image in images}) == 15
    assert all(image.exists() for image in images)


def test_the_kernel_sees_kernel_env_and_none_of_the_parents_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", "do-not-leak-this")
    code = (
        "import os\n"
        "print(os.environ.get('TEST_SECRET'), os.environ['GIVEN'], 'PATH' in os.environ, 'HOME' in os.environ)\n"
        "everything = open('/proc/self/environ', 'rb').read() + open('/proc/self/cmdline', 'rb').read()\n"
        "parent = open(f'/proc/{os.getppid()}/environ', 'rb').read()\n"
        "print(b'do-not-leak' in everything, b'do-not-leak' in parent)\n"
        "!env | grep -c do-not-leak"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(kernel_env={"GIVEN": "yes"}) as executor:
            return await text(executor, code)

    assert run(scenario) == "None yes True True\nFalse False\n0"


def test_the_environment_is_as_clean_after_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", "do-not-leak-this")

    async def scenario() -> str | None:
        async with CodeExecutor(kernel_env={"GIVEN": "yes"}) as executor:
            await executor.reset()
            return await text(executor, "import os\nprint(os.environ.get('TEST_SECRET'), os.environ['GIVEN'])")

    assert run(scenario) == "None yes"


def test_without_a_working_dir_the_kernel_starts_in_the_parents_and_chdir_lasts(tmp_path: Path) -> None:
    async def scenario() -> list[str | None]:
        async with CodeExecutor() as executor:
            before = await text(executor, "import os; print(os.getcwd())")
            await executor.execute(f"os.chdir({str(tmp_path)!r})")
            return [before, await text(executor, "print(os.getcwd())")]

    assert run(scenario) == [os.getcwd(), str(tmp_path)]


def test_a_working_dir_is_restored_after_each_cell_with_a_notice(tmp_path: Path) -> None:
    async def scenario() -> list[str | None]:
        async with CodeExecutor(working_dir=tmp_path) as executor:
            moved = await text(executor, "import os\nos.chdir('/')\nprint(os.getcwd())")
            return [moved, await text(executor, "print(os.getcwd())")]

    moved, after = run(scenario)
    assert moved is not None
    assert moved == f"/\n[kernelbox] cwd reset to {tmp_path}"
    assert after == str(tmp_path)


def test_a_cell_begins_in_the_working_dir_of_a_kernel_that_is_elsewhere_and_is_told_nothing(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)

    async def scenario() -> list[str | None]:
        async with CodeExecutor(name="elsewhere", working_dir=link) as executor:
            return [await text(executor, "import os; print(os.getcwd())") for _ in range(2)]

    get_or_create("elsewhere", cwd="/")
    assert run(scenario) == [str(tmp_path), str(tmp_path)]


def test_a_working_dir_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidInput, match="working_dir"):
            await CodeExecutor(working_dir=tmp_path / "missing").start()

    run(scenario)


def test_500_figures_are_500_files(tmp_path: Path) -> None:
    code = (
        "import os\nfrom IPython.display import Image\nfor _ in range(500):\n"
        "    display(Image(b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(100_000), format='png'))"
    )

    async def scenario() -> list[Path]:
        async with CodeExecutor(images_dir=tmp_path) as executor:
            return (await executor.execute(code, timeout=DEADLINE)).images

    images = run(scenario)
    assert len(images) == 500
    assert all(image.stat().st_size == 100_008 for image in images)


def test_the_time_in_the_queue_does_not_count(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    waiting = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)"

    async def scenario() -> str | None:
        async with CodeExecutor() as executor, CodeExecutor() as other:
            slow = asyncio.create_task(executor.execute(waiting, timeout=DEADLINE))
            queued = asyncio.create_task(executor.execute("print('in time')", timeout=2))
            with pytest.raises(TimeoutError):  # so long that a cell which began later has timed out
                await other.execute("while True: pass", timeout=2)
            assert not queued.done()
            go_on.touch()
            await slow
            return (await queued).text

    assert run(scenario) == "in time"


def test_a_working_directory_that_is_deleted_fails_no_cell(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()

    async def scenario() -> list[str | None]:
        async with CodeExecutor(working_dir=directory) as executor:
            before = await text(executor, "1 + 1")
            directory.rmdir()
            return [before, await text(executor, "2 + 2"), await text(executor, "print('still')")]

    first, second, third = run(scenario)
    assert first == "2"
    assert second is not None
    assert second.startswith("4\n")
    assert f"cwd cannot be reset to {directory}: No such file or directory" in second
    assert third is not None
    assert third.startswith("still\n")

"""An approved command runs in the directory that was shown, or in the kernel's own if none was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.executor import DEADLINE, accept, answer_all, run

from kernelbox import ApprovalPolicy, ApprovalRequest, CodeExecutionError, CodeExecutor

pytestmark = pytest.mark.usefixtures("home")

GUARDED: dict[str, Any] = {"approve_shell_cmds": True, "require_shell_escape": True}
ASKING: dict[str, Any] = {"approve_shell_cmds": True}
MODES = pytest.mark.parametrize("options", [ASKING, GUARDED], ids=["asking", "guarded"])

WAYS = {
    "a command": "get_ipython().system('pwd -P')",
    "a captured command": "print(*get_ipython().getoutput('pwd -P'))",
    "a script": "get_ipython().run_cell_magic('script', 'sh', 'pwd -P')",
}


async def ask(executor: CodeExecutor, code: str, language: str = "python") -> tuple[dict[str, Any], str]:
    """Runs a cell that asks once, and accepts; returns what was asked and the text."""
    (request,), result = await answer_all(executor, code, accept, language=language, timeout=DEADLINE)
    assert result is not None
    return request.tool_args, result.text or ""


@MODES
@pytest.mark.parametrize("way", ["a command", "a captured command", "a script"])
def test_a_directory_that_a_cell_went_to_is_shown_and_is_where_the_command_runs(
    way: str, options: dict[str, Any], tmp_path: Path
) -> None:
    async def scenario() -> tuple[dict[str, Any], str]:
        async with CodeExecutor(**options) as executor:
            return await ask(executor, f"import os\nos.chdir({str(tmp_path)!r})\n{WAYS[way]}")

    asked, shown = run(scenario)
    assert (asked["cwd"], shown) == (str(tmp_path), str(tmp_path))


@MODES
def test_the_directory_that_the_kernel_was_given_is_not_shown(options: dict[str, Any], tmp_path: Path) -> None:
    async def scenario() -> tuple[dict[str, Any], str]:
        async with CodeExecutor(working_dir=tmp_path, **options) as executor:
            return await ask(executor, "!pwd -P")

    assert run(scenario) == ({"cmd": "pwd -P"}, str(tmp_path))


@MODES
@pytest.mark.parametrize("way", ["a command", "a captured command", "a script"])
def test_a_thread_that_changes_the_directory_while_the_question_is_open_does_not_move_the_command(
    way: str, options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "other").mkdir()
    code = f"""
import os, threading
os.chdir({str(tmp_path / "shown")!r})
def move():
    while not os.path.exists({str(tmp_path / "asked")!r}): pass
    os.chdir({str(tmp_path / "other")!r})
    open({str(tmp_path / "moved")!r}, "w").close()
thread = threading.Thread(target=move)
thread.start()
{WAYS[way]}
print(os.getcwd())
"""

    async def answer(request: ApprovalRequest) -> None:
        (tmp_path / "asked").touch()
        while not (tmp_path / "moved").exists():
            pass
        await request.accept()

    async def scenario() -> str | None:
        async with CodeExecutor(**options) as executor:
            _, result = await answer_all(executor, code, answer, timeout=DEADLINE)
            assert result is not None
            return result.text

    assert run(scenario) == f"{tmp_path / 'shown'}\n{tmp_path / 'other'}"


@MODES
def test_a_function_that_a_cell_put_in_the_place_of_getcwd_does_not_change_what_is_shown(
    options: dict[str, Any], tmp_path: Path
) -> None:
    code = f"""
import os, posix
os.chdir({str(tmp_path)!r})
os.getcwd = posix.getcwd = lambda: '/'
os.getcwdb = posix.getcwdb = lambda: b'/'
get_ipython().system('/bin/pwd -P')
"""

    async def scenario() -> tuple[dict[str, Any], str]:
        async with CodeExecutor(**options) as executor:
            return await ask(executor, code)

    assert run(scenario) == ({"cmd": "/bin/pwd -P", "cwd": str(tmp_path)}, str(tmp_path))


@MODES
def test_a_directory_that_became_a_link_to_another_is_not_gone_to(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "other").mkdir()

    async def answer(request: ApprovalRequest) -> None:
        (tmp_path / "shown").rmdir()
        (tmp_path / "shown").symlink_to("other")
        await request.accept()

    async def scenario() -> str | None:
        async with CodeExecutor(**options) as executor:
            code = f"import os\nos.chdir({str(tmp_path / 'shown')!r})\n!touch made\nassert not _exit_code"
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, answer, timeout=DEADLINE)
            return caught.value.text

    assert "it was not run" in (run(scenario) or "")
    assert not (tmp_path / "other" / "made").exists()


@MODES
def test_in_a_directory_that_was_deleted_nothing_is_asked(options: dict[str, Any], tmp_path: Path) -> None:
    async def never(request: ApprovalRequest) -> None:
        raise AssertionError(request)

    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(**options) as executor:
            gone = str(tmp_path / "gone")
            code = f"import os\nos.mkdir({gone!r})\nos.chdir({gone!r})\nos.rmdir({gone!r})\n!echo x"
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, never, timeout=DEADLINE)
            return caught.value

    error = run(scenario)
    assert error.ename == "FileNotFoundError"
    assert "os.chdir" in error.evalue


def test_a_remembered_answer_covers_the_same_directory_only(tmp_path: Path) -> None:
    async def scenario() -> list[str | None]:
        asked: list[str | None] = []

        async def remember(request: ApprovalRequest) -> None:
            asked.append(request.tool_args.get("cwd"))
            await request.accept(remember="session")

        async with CodeExecutor(**GUARDED) as executor:
            for directory in (tmp_path, tmp_path, Path("/"), tmp_path, Path("/")):
                code = f"import os\nos.chdir({str(directory)!r})\n!true"
                await answer_all(executor, code, remember, timeout=DEADLINE)
        return asked

    assert run(scenario) == [str(tmp_path), "/"]


@pytest.mark.parametrize(
    ("args", "asks"),
    [
        ({"cmd": "true"}, True),
        ({"cmd": "true", "cwd": "*"}, False),
        ({"cmd": "true", "cwd": "/us*"}, False),
        ({"cmd": "true", "cwd": "/etc"}, True),
    ],
)
def test_a_rule_allows_a_command_in_another_directory_only_if_it_names_the_directory(
    args: dict[str, object], asks: bool
) -> None:
    async def scenario() -> bool:
        policy = ApprovalPolicy().allow("shell", args=args)
        async with CodeExecutor(approval_policy=policy, **GUARDED) as executor:
            requests, _ = await answer_all(executor, "import os\nos.chdir('/usr')\n!true", accept, timeout=DEADLINE)
            return bool(requests)

    assert run(scenario) is asks


def test_a_directory_whose_name_is_no_text_is_shown_as_what_it_is(tmp_path: Path) -> None:
    async def scenario() -> tuple[dict[str, Any], str]:
        async with CodeExecutor(**GUARDED) as executor:
            made = f"import os\nname = {str(tmp_path)!r} + '/\\udcff\\n'\nos.mkdir(name)\nos.chdir(name)\n"
            return await ask(executor, made + "!pwd | od -An -c | tr -d ' \\n'")

    asked, shown = run(scenario)
    assert asked["cwd"] == f"{tmp_path}/\\xff\n"
    assert shown.endswith("/377\\n\\n")


@MODES
def test_a_bash_cell_shows_the_directory_that_it_runs_in(options: dict[str, Any], tmp_path: Path) -> None:
    async def scenario() -> list[tuple[dict[str, Any], str]]:
        async with CodeExecutor(**options) as executor:
            await executor.execute(f"import os\nos.chdir({str(tmp_path)!r})")
            first = await ask(executor, "pwd -P; cd /usr", "bash")
            return [first, await ask(executor, "pwd -P", "bash")]

    (first, said), (second, said_later) = run(scenario)
    assert (first["cwd"], said) == (str(tmp_path), str(tmp_path))
    assert (second["cwd"], said_later) == ("/usr", "/usr")


COMMANDS = {
    "its name, signals and descriptors": "!echo $0; grep Sig[BIC] /proc/self/status; ls /proc/self/fd",
    "its environment": "!env | grep -v ^KERNELBOX | sort",
    "its environment without a locale": "import os\nfor n in ('LC_ALL', 'LC_CTYPE', 'LANG'): os.environ.pop(n, None)\n"
    "get_ipython().system('env | grep -v ^KERNELBOX | sort')",
    "what it reads": "!cat; echo $?",
    "its group": "!test $(ps -o pgid= $$) -eq $$ && echo leader",
    "its end": "!exit 7\nprint(_exit_code)",
    "its death": "!kill -9 $$\nprint(_exit_code)",
    "bytes that are no text": "get_ipython().system('printf %s \\udcff | od -c')",
}


@pytest.mark.parametrize("case", COMMANDS)
def test_an_approved_command_runs_as_one_that_is_not_asked_for(case: str) -> None:
    async def scenario(**options: Any) -> str:
        async with CodeExecutor(**options) as executor:
            _, result = await answer_all(executor, COMMANDS[case], accept, timeout=DEADLINE)
            assert result is not None
            return result.text or ""

    assert run(lambda: scenario(approve_shell_cmds=True)) == run(scenario)

"""The command line where its streams, its directory or its arguments are not what they should be."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.command_line import DEADLINE, KERNELBOX, Done, fail, succeed

COMMANDS = {
    "exec": "exec --name a 1+1",
    "stream": "exec --name a --stream 1+1",
    "pretty": "exec --name a --pretty 1+1",
    "list": "list",
    "list pretty": "list --pretty",
    "help": "--help",
    "help of a command": "exec --help",
    "version": "version --pretty",
    "completion": "completion bash",
    "doctor": "doctor --pretty",
}


def shell(line: str, **env: str) -> Done:
    """Runs a line of sh with the command line as $K; there is never a traceback."""
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=DEADLINE, check=False,
        env={**os.environ, "K": KERNELBOX, **env},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("command", "redirection", "reason"),
    [
        *((command, ">/dev/full", "No space left on device") for command in COMMANDS),
        *((command, ">&-", "Bad file descriptor") for command in ("exec", "list pretty", "help", "help of a command")),
    ],
)
def test_a_command_whose_stdout_cannot_be_written_says_so_and_exits_1(
    home: Path, command: str, redirection: str, reason: str
) -> None:
    done = shell(f"$K {COMMANDS[command]} {redirection}")
    assert done.status == 1
    assert done.stderr == f"kernelbox: cannot write the output: {reason}\n"


@pytest.mark.parametrize("command", ["exec --name a 1+1", "frob"])
@pytest.mark.parametrize("redirection", ["2>/dev/full", "<&-", "<&- 2>&-"])
def test_a_command_needs_neither_stdin_nor_stderr(home: Path, command: str, redirection: str) -> None:
    usual, done = shell(f"$K {command}"), shell(f"$K {command} {redirection}")
    assert done.status == usual.status
    assert json.loads(done.stdout).keys() == json.loads(usual.stdout).keys()


def test_a_command_without_any_stream_does_its_work(home: Path) -> None:
    assert shell("$K exec --name a 'x = 42' <&- >&- 2>&-").status == 1
    assert succeed("exec", "--name", "a", "x")["return_value"] == "42"


def test_code_from_a_stdin_that_is_closed_is_an_error_of_usage(home: Path) -> None:
    done = shell("$K exec --name a - <&-")
    assert done.status == 2
    assert json.loads(done.stdout) == {"error": "the code cannot be read from stdin: Bad file descriptor"}


def test_a_kernel_that_was_opened_without_streams_has_streams_of_its_own(home: Path) -> None:
    shell("$K create --name a <&- >&- 2>&-")
    code = "import os, subprocess; print('out'); os.system('cat; echo err >&2'); input"
    result = succeed("exec", "--name", "a", code)
    assert (result["output"], result["stderr"]) == ("out\n", "err\n")


@pytest.mark.parametrize("form", ["", "--stream", "--pretty"])
def test_a_reader_who_takes_one_line_gets_it_and_no_complaint(home: Path, form: str) -> None:
    done = shell(f"$K exec --name a {form} 'for n in range(100_000): print(n)' | head -1")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert succeed("exec", "--name", "a", "1+1")["return_value"] == "2"


GONE = 'mkdir "$D"; cd "$D"; rmdir "$D"; '


def test_a_deleted_directory_is_no_hindrance_for_kernels_that_live_elsewhere(home: Path, tmp_path: Path) -> None:
    succeed("create", "--name", "a")
    done = shell(f"{GONE} $K exec --name a 1+1", D=f"{tmp_path}/gone")
    assert done.json["return_value"] == "2"


@pytest.mark.parametrize("command", ["exec --name new 1", "create --name new", "create --name new --cwd ."])
def test_a_kernel_that_would_start_in_a_deleted_directory_is_refused(home: Path, tmp_path: Path, command: str) -> None:
    done = shell(f"{GONE} $K {command}", D=f"{tmp_path}/gone")
    assert done.status == 1
    assert "the current directory has been deleted" in done.json["error"]


@pytest.mark.parametrize("setting", ["", "relative/home"])
def test_kernels_kept_in_a_deleted_directory_cannot_be_had(tmp_path: Path, setting: str) -> None:
    done = shell(f"{GONE} $K list", D=f"{tmp_path}/gone", KERNELBOX_HOME=setting)
    assert done.status == 1
    assert "set KERNELBOX_HOME to an absolute path" in done.json["error"]


def test_help_and_version_need_no_directory(tmp_path: Path) -> None:
    done = shell(f"{GONE} $K --help && $K version --pretty", D=f"{tmp_path}/gone", KERNELBOX_HOME="")
    assert (done.status, done.stderr) == (0, "")


def test_bytes_that_are_no_text_are_refused_as_python_and_passed_on_to_bash(home: Path) -> None:
    code = os.fsdecode(b"print('\xff')")
    assert fail("exec", "--name", "a", code, status=2) == 'the code cannot be "\\udcff\')": it is not UTF-8 text'
    shown = succeed("exec", "--name", "a", "--bash", os.fsdecode(b"printf '\xff' | od -An -tx1"))
    assert shown["output"].strip() == "ff"


@pytest.mark.parametrize("words", [("exec", "--name", "{}", "1"), ("create", "--name", "{}"), ("{}",)])
def test_bytes_that_are_no_text_are_no_name(home: Path, words: tuple[str, ...]) -> None:
    fail(*(word.format(os.fsdecode(b"a\xff")) for word in words), status=2)


def test_seven_million_emoji_are_code(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "emoji.py"
    file.write_text(f"x = '{chr(0x1F600) * 7_000_000}'\nlen(x)")
    assert succeed("exec", "--name", "a", "-f", str(file))["return_value"] == "7000000"
    file.write_text("#" * 8_000_001)
    assert "use at most 8,000,000 characters" in fail("exec", "--name", "a", "-f", str(file), status=2)

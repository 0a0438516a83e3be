"""Every command, as users type it: JSON alone on stdout, sentences on stderr, exit statuses with a meaning."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import Running, eventually, is_running, wait_for_end
from tests.support.command_line import KERNELBOX, fail, kernelbox, succeed
from tests.support.homes import new_home
from tests.support.store import rewrite_record

from kernelbox import __version__, get_or_create, status

WRITE_AND_WAIT = "import time\nprint('running', flush=True)\nwhile True: time.sleep(0.01)"

RECORD_FIELDS = {
    "kernel_id",
    "connection_file",
    "name",
    "created_at",
    "last_used_at",
    "status",
    "session_name",
    "attempt_count",
    "tags",
}
RESULT_FIELDS = {
    "status",
    "output",
    "stderr",
    "error",
    "return_value",
    "execution_count",
    "duration_ms",
    "outputs",
    "attempts",
    "truncated",
}


def test_the_documented_commands_work_as_documented(home: Path) -> None:
    assert succeed("create", "--name", "my-kernel").keys() >= RECORD_FIELDS
    assert [record["name"] for record in succeed("list")["kernels"]] == ["my-kernel"]
    assert [record["status"] for record in succeed("list", "--refresh")["kernels"]] == ["idle"]
    shown = succeed("status", "--name", "my-kernel")
    assert shown["alive"] is True
    assert shown["kernel"].keys() >= RECORD_FIELDS
    result = succeed("exec", "--name", "my-kernel", "print(1 + 1)")
    assert result.keys() >= RESULT_FIELDS
    assert result["output"] == "2\n"
    assert succeed("exec", "--name", "my-kernel", "--bash", "echo hello")["output"] == "hello\n"
    assert succeed("exec", "--name", "my-kernel", "--timeout", "30", "1 + 1")["return_value"] == "2"
    assert succeed("restart", "--name", "my-kernel")["kernel_id"] == shown["kernel"]["kernel_id"]
    assert succeed("destroy", "--name", "my-kernel") == {"destroyed": True}
    assert succeed("list") == {"kernels": []}


def test_names_come_first_and_options_may_stand_anywhere(home: Path) -> None:
    assert succeed("create", "a")["name"] == "a"
    assert succeed("exec", "a", "x = 20")["opened"] is False
    assert succeed("exec", "a", "--timeout", "30", "x + 1")["return_value"] == "21"
    assert succeed("exec", "--bash", "a", "echo hello")["output"] == "hello\n"
    assert succeed("exec", "a", "--", "-x")["return_value"] == "-20"
    assert succeed("exec", "a", stdin="x + 2")["return_value"] == "22"
    assert succeed("status", "a")["alive"] is True
    assert succeed("create", "--", "-b")["name"] == "-b"
    for command in ("list", "ls", "ps"):
        assert [record["name"] for record in succeed(command)["kernels"]] == ["a", "-b"]
    assert succeed("interrupt", "a", "--", "-b") == {"interrupted": {"a": False, "-b": False}}
    assert [record["name"] for record in succeed("restart", "a", "--", "-b")["kernels"]] == ["a", "-b"]
    assert succeed("rm", "a") == {"destroyed": True}


def test_several_kernels_are_destroyed_and_one_that_is_missing_stops_nothing(home: Path) -> None:
    for name in ("a", "b"):
        succeed("create", name)
    done = kernelbox("destroy", "a", "nobody", "b")
    assert (done.status, done.json) == (1, {"destroyed": {"a": True, "nobody": False, "b": True}})
    assert done.stderr.startswith("kernelbox: there is no kernel 'nobody'")
    assert succeed("list") == {"kernels": []}


def test_run_prints_what_the_code_prints_and_nothing_else_in_a_pipe_too(home: Path) -> None:
    done = kernelbox("run", "demo", "print('hello'); 6 * 7")
    assert (done.status, done.stdout, done.stderr) == (0, "hello\n42\n", "")
    failed = kernelbox("run", "demo", "1 / 0")
    assert (failed.status, failed.stdout) == (1, "")
    assert failed.stderr.count("ZeroDivisionError: division by zero") == 1
    refused = kernelbox("run", "demo", "1", "2")
    assert (refused.status, refused.stdout) == (2, "")
    assert refused.stderr == "kernelbox: unexpected: '2'; see `kernelbox run --help`\n"


def test_a_setting_chooses_the_form_and_an_option_overrides_it(home: Path) -> None:
    assert kernelbox("exec", "demo", "print('a'); 2", KERNELBOX_FORMAT="text").stdout == "a\n2\n"
    assert kernelbox("list", KERNELBOX_FORMAT="text").stdout.startswith("NAME ")
    assert succeed("list", "--json", KERNELBOX_FORMAT="text")["kernels"]
    assert succeed("exec", "demo", "--full", "3", KERNELBOX_FORMAT="text")["return_value"] == "3"
    assert "KERNELBOX_FORMAT cannot be 'xml': use text or json" in fail("list", status=2, KERNELBOX_FORMAT="xml")


def test_a_budget_bounds_what_a_model_reads(home: Path) -> None:
    code = "for n in range(1000): print(n)"
    assert len(succeed("exec", "demo", "--budget", "200", code)["text"]) <= 200
    shown = kernelbox("run", "demo", "--budget", "200", code).stdout
    assert len(shown) <= 201
    assert shown.startswith("0\n1\n")


def test_a_busy_kernel_is_announced_on_stderr(home: Path) -> None:
    other = Running(get_or_create("demo"), WRITE_AND_WAIT).wait_for_output()
    with subprocess.Popen(
        [KERNELBOX, "exec", "demo", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "kernelbox: waiting for another cell of 'demo'\n"
        assert succeed("interrupt", "demo") == {"interrupted": True}
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["return_value"] == "1"
    assert other.result().ending == "interrupted"


def test_the_check_after_an_install_works_on_a_new_name(home: Path) -> None:
    result = succeed("exec", "--name", "test", "print('KernelBox is working!')")
    assert (result["status"], result["output"], result["return_value"]) == ("success", "KernelBox is working!\n", None)


def test_without_any_setting_kernels_live_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELBOX_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert succeed("exec", "--name", "test", "1 + 1")["return_value"] == "2"
    assert sorted(os.listdir(tmp_path / ".kernelbox")) == [".gitignore", "registry.json", "runtime", "seal"]
    assert len(succeed("wipe")["destroyed"]) == 1


def test_output_is_indented_and_sorted_and_nothing_else_is_on_stdout(home: Path) -> None:
    done = kernelbox("exec", "--name", "demo", "2 ** 10")
    assert done.stdout == json.dumps(json.loads(done.stdout), indent=2, sort_keys=True) + "\n"
    assert done.stderr == ""
    assert done.json["return_value"] == "1024"


@pytest.mark.parametrize(("limit", "kept"), [("10", 10), ("0", 20_001), ("-1", 20_001)])
def test_a_limit_for_text_is_kept_and_none_is_a_limit_of_0_or_less(home: Path, limit: str, kept: int) -> None:
    result = succeed("exec", "--name", "demo", "--output-char-limit", limit, "print('x' * 20_000)")
    assert len(result["output"]) == kept


def test_state_stays_from_one_command_to_the_next(home: Path) -> None:
    succeed("exec", "--name", "demo", "x = [1, 2, 3]")
    assert succeed("exec", "--name", "demo", "sum(x)")["return_value"] == "6"


@pytest.mark.parametrize("code", [["!echo ran"], ["--bash", "echo ran"]], ids=" ".join)
def test_approve_decides_shell_commands_and_without_it_they_run(home: Path, code: list[str]) -> None:
    assert succeed("exec", "--name", "demo", *code)["output"] == "ran\n"
    assert succeed("exec", "--name", "demo", "--approve", "all", *code)["output"] == "ran\n"
    rejected = kernelbox("exec", "--name", "demo", "--approve", "none", *code)
    assert rejected.status == 1
    assert rejected.json["output"] == ""
    assert "it was run with --approve none" in rejected.json["error"]["evalue"]


def test_code_comes_from_an_argument_a_file_or_stdin(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_bytes("\ufeffx = 'é'\nx".encode())
    assert succeed("exec", "--name", "demo", "-f", str(file))["return_value"] == "'é'"
    assert succeed("exec", "--name", "demo", "-", stdin="x * 2")["return_value"] == "'éé'"
    assert succeed("exec", "--name", "demo", "--", "-7")["return_value"] == "-7"


@pytest.mark.parametrize(
    ("words", "stdin", "sentence"),
    [
        ([], b"", "there is no code for the kernel 'demo'; give it after the name"),
        (["1", "-f", "x.py"], b"", "there is code in two places; give it after the name"),
        (["-f", "/no/such/file"], b"", "the code cannot be read from '/no/such/file': No such file"),
        (["-f", "/"], b"", "Is a directory"),
        (["-"], b"\xff\xfe", "not UTF-8"),
        (["--timeout", "soon", "1"], b"", "not a number of seconds"),
        (["--timeout", "nan", "1"], b"", "not a number of seconds"),
        (["--timeout=-1", "1"], b"", "'-1' is less than 0 seconds"),
        (["--colour", "1"], b"", "there is no option --colour"),
        (["-x"], b"", "there is no option -x; code that begins with a dash comes after --: -- '-x'"),
        (["--timout=5", "1"], b"", "there is no option --timout; did you mean --timeout?"),
    ],
)
def test_wrong_usage_of_exec_exits_2(home: Path, words: list[str], stdin: bytes, sentence: str) -> None:
    assert sentence in fail("exec", "--name", "demo", *words, status=2, stdin=stdin)
    assert succeed("list") == {"kernels": []}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["console", "x"], "the console needs a terminal on stdin and stdout; use `kernelbox exec`"),
        (["frob"], "there is no command 'frob'; see `kernelbox --help`"),
        (["exce"], "there is no command 'exce'; did you mean exec?"),
        (["help", "frob"], "there is no command 'frob'; see `kernelbox --help`"),
        (["exec", "--nam", "d", "1"], "there is no option --nam; did you mean --name?"),
        (["status", "--frob"], "there is no option --frob"),
        (["exec"], "the kernel's name is missing; see `kernelbox exec --help`"),
        (["exec", "1 + 1"], "there is no code for the kernel '1 + 1'; give it after the name, with -f FILE"),
        (["exec", "a", "1", "2"], "unexpected: '2'"),
        (["exec", "--name", "a", "1", "2"], "unexpected: '2'"),
        (["destroy", "a", "--name", "b"], "the kernel is named twice: 'b' and 'a'"),
        (["status", "a", "b"], "unexpected: 'b'"),
        (["status"], "the kernel's name is missing"),
        (["list", "a"], "unexpected: 'a'"),
        (["exec", "--name", "a", "--id", "b", "1"], "not allowed with argument"),
        (["create"], "the kernel's name is missing"),
        (["create", "--name", "a", "--tag", "b"], "use KEY=VALUE"),
        (["create", "--name", "a", "--cwd", "/no/such/directory"], "there is no such directory"),
        (["destroy", "--name", ""], "a kernel's name cannot be ''"),
        (["exec", "--name", "", "1"], "a kernel's name cannot be ''"),
        (["status", "--name", "a\nb"], "a kernel's name cannot be"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
        (["completion"], "`kernelbox completion` needs one of bash, zsh, fish; see `kernelbox completion --help`"),
        (["tools"], "`kernelbox tools` needs one of add, list, remove, refresh; see `kernelbox tools --help`"),
    ],
)
def test_wrong_usage_exits_2_with_a_sentence(home: Path, words: list[str], sentence: str) -> None:
    assert sentence in fail(*words, status=2)


@pytest.mark.parametrize("command", ["status", "restart", "interrupt", "logs"])
@pytest.mark.parametrize("target", [("--name", "nobody"), ("--id", "nobody"), ("--id", "0" * 32)])
def test_an_unknown_kernel_exits_1(home: Path, command: str, target: tuple[str, str]) -> None:
    assert "there is no kernel" in fail(command, *target)


@pytest.mark.parametrize("target", [("--name", "nobody"), ("--id", "nobody"), ("--id", "0" * 32)])
def test_destroying_an_unknown_kernel_exits_1_and_says_that_none_was_destroyed(
    home: Path, target: tuple[str, str]
) -> None:
    done = kernelbox("destroy", *target)
    assert (done.status, done.json) == (1, {"destroyed": False})
    assert done.stderr.startswith(f"kernelbox: there is no kernel {target[1]!r}")


def test_an_id_may_be_a_name(home: Path) -> None:
    succeed("create", "--name", "demo")
    assert succeed("exec", "--id", "demo", "1 + 1")["return_value"] == "2"
    for command in ("status", "restart", "interrupt", "logs", "destroy"):
        succeed(command, "--id", "demo")


def test_a_timeout_of_0_is_the_configured_one(home: Path) -> None:
    words = ("exec", "--name", "demo", "--timeout", "0")
    assert succeed(*words, "1 + 1")["return_value"] == "2"
    done = kernelbox(*words, "while True: pass", KERNELBOX_EXECUTION_TIMEOUT="0.3")
    assert "timed out after 0.3 s" in done.json["error"]["evalue"]


def test_exec_by_an_unknown_id_opens_nothing(home: Path) -> None:
    assert "there is no kernel" in fail("exec", "--id", "0" * 32, "1")
    assert "there is no kernel" in fail("exec", "--id", "a name", "1")
    assert succeed("list") == {"kernels": []}


def test_a_name_that_is_taken_exits_1(home: Path) -> None:
    succeed("create", "--name", "demo")
    assert "is running already" in fail("create", "--name", "demo")


def test_create_takes_a_directory_and_tags(home: Path, tmp_path: Path) -> None:
    words = ["--name", "demo", "--cwd", str(tmp_path), "--tag", "owner=ann", "--tag", "why=a=b"]
    record = succeed("create", *words)
    assert (record["cwd"], record["tags"]) == (str(tmp_path), {"owner": "ann", "why": "a=b"})


def test_a_failing_cell_exits_1_and_its_result_is_the_document(home: Path) -> None:
    done = kernelbox("exec", "--name", "demo", "print('before'); 1 / 0")
    assert done.status == 1
    assert done.json["error"]["ename"] == "ZeroDivisionError"
    assert done.json["output"] == "before\n"
    assert kernelbox("exec", "--name", "demo", "--bash", "exit 3").status == 1


def test_a_timeout_exits_1_and_keeps_the_state(home: Path) -> None:
    succeed("exec", "--name", "demo", "x = 7")
    done = kernelbox("exec", "--name", "demo", "--timeout", "0.3", "while True: pass")
    assert (done.status, done.json["status"], done.json["state"]) == (1, "timeout", "kept")
    assert succeed("exec", "--name", "demo", "x")["return_value"] == "7"


def test_everything_works_by_id_too(home: Path) -> None:
    kernel_id = succeed("create", "--name", "demo")["kernel_id"]
    assert succeed("exec", "--id", kernel_id, "1 + 1")["return_value"] == "2"
    assert succeed("status", "--id", kernel_id)["alive"] is True
    assert succeed("restart", "--id", kernel_id)["name"] == "demo"
    assert succeed("destroy", "--id", kernel_id) == {"destroyed": True}


def test_the_status_of_a_dead_kernel_exits_1_and_tells_why(home: Path) -> None:
    pid = succeed("create", "--name", "demo")["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    done = kernelbox("status", "--name", "demo")
    assert (done.status, done.json["alive"]) == (1, False)
    assert done.json["kernel"]["death"].startswith("killed by SIGKILL")  # other tests use up memory meanwhile
    told = kernelbox("exec", "--name", "demo", "1")
    assert (told.status, told.json["error"]["ename"]) == (1, "KernelDied")
    assert succeed("exec", "--name", "demo", "1")["return_value"] == "1"


def test_refresh_finds_a_kernel_that_does_not_answer(home: Path) -> None:
    pid = succeed("create", "--name", "demo")["pid"]
    os.kill(pid, signal.SIGSTOP)
    [record] = succeed("list", "--refresh")["kernels"]
    assert record["status"] == "unknown"
    os.kill(pid, signal.SIGCONT)
    [record] = succeed("list", "--refresh")["kernels"]
    assert record["status"] == "idle"


def test_restart_says_what_was_lost(home: Path) -> None:
    succeed("exec", "--name", "demo", "x = 1")
    done = kernelbox("restart", "--name", "demo")
    assert done.json["lost"] == "the variables of 1 execution"
    assert done.stderr == "kernelbox: restarted 'demo'; lost: the variables of 1 execution\n"


def test_interrupt_stops_a_cell_that_somebody_else_runs(home: Path) -> None:
    cell = Running(get_or_create("demo"), WRITE_AND_WAIT).wait_for_output()
    assert succeed("interrupt", "--name", "demo") == {"interrupted": True}
    assert cell.result().ending == "interrupted"
    done = kernelbox("interrupt", "--name", "demo")
    assert (done.status, done.json) == (0, {"interrupted": False})
    assert done.stderr == "kernelbox: kernel 'demo' was not running anything\n"


def test_wipe_reports_each_kernel_it_destroyed(home: Path) -> None:
    ids = [succeed("create", "--name", name)["kernel_id"] for name in ("a", "b")]
    assert succeed("wipe") == {"destroyed": ids}
    assert succeed("wipe") == {"destroyed": []}


def test_wipe_stale_ends_only_what_nobody_uses(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = succeed("create", "--name", "old")
    assert succeed("wipe", "--stale") == {"destroyed": []}
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0.01")
    eventually(lambda: status("old").stale)
    assert succeed("wipe", "--stale") == {"destroyed": [old["kernel_id"]]}
    assert "without work" in kernelbox("exec", "--name", "old", "1").json["error"]["evalue"]


def test_stream_prints_each_output_as_a_line_and_the_result_last(home: Path) -> None:
    done = kernelbox("exec", "--name", "demo", "--stream", "print('a'); display(1); 2")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["event"], line.get("kind")) for line in lines] == [
        ("output", "stream"),
        ("output", "display_data"),
        ("output", "execute_result"),
        ("result", None),
    ]
    assert lines[-1]["return_value"] == "2"


def test_stream_does_not_wait_for_the_end_of_the_cell(home: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = f"import os, time\nprint('first')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nprint('last')"
    with subprocess.Popen([KERNELBOX, "exec", "--name", "demo", "--stream", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["text"] == "first\n"
        gate.touch()
        assert "last\n" in json.loads(process.stdout.read().splitlines()[-1])["output"]
    assert process.returncode == 0


def test_pretty_prints_what_a_person_wants_to_read(home: Path) -> None:
    done = kernelbox("exec", "--name", "demo", "--pretty", "print('hello')\n6 * 7")
    assert done.stdout == "hello\n42\n"
    failed = kernelbox("exec", "--name", "demo", "--pretty", "1 / 0")
    assert (failed.status, failed.stdout) == (1, "")
    assert "ZeroDivisionError: division by zero" in failed.stderr
    assert "\x1b" not in failed.stderr
    table = kernelbox("list", "--pretty").stdout.splitlines()
    head = ["NAME", "STATUS", "PID", "AGE", "LAST USED", "CELLS", "MEMORY", "CPU", "SANDBOX", "PYTHON", "DIRECTORY"]
    assert re.split(r"\s\s+", table[0]) == head
    row = dict(zip(head, re.split(r"\s\s+", table[1]), strict=True))
    assert (row["NAME"], row["STATUS"], row["SANDBOX"]) == ("demo", "idle", "-")
    assert re.fullmatch(r"[\d.]+ MB", row["MEMORY"])
    assert re.fullmatch(r"[\d.]+ s", row["CPU"])
    shown = kernelbox("status", "--name", "demo", "--pretty").stdout
    assert re.search(r"usage +memory [\d.]+ MB, cpu [\d.]+ s, processes 2", shown)
    assert kernelbox("destroy", "--name", "demo", "--pretty").stdout == "destroyed 'demo'\n"
    assert kernelbox("list", "--pretty").stdout == "there are no kernels\n"


def test_on_a_terminal_the_status_of_a_kernel_has_a_colour_and_its_name_has_none(home: Path) -> None:
    succeed("create", "--name", "idle")
    leader, follower = os.openpty()
    with open(leader, "rb", buffering=0) as terminal:
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        subprocess.run(
            [KERNELBOX, "list", "--pretty"], stdout=follower, env={**environment, "TERM": "xterm"}, check=True
        )
        os.close(follower)
        shown = terminal.read(4096).decode()
    assert "\r\nidle  \x1b[32midle" in shown


def test_code_and_names_are_utf_8_where_the_locale_knows_only_ascii(home: Path) -> None:
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = succeed("exec", "--name", "Küche", "print('é😀'); 'ü'", **ascii_only)
    assert (result["output"], result["return_value"]) == ("é😀\n", "'ü'")
    assert succeed("status", "--name", "Küche")["alive"]


def test_pretty_survives_a_terminal_that_knows_only_ascii(home: Path) -> None:
    done = kernelbox("exec", "--name", "demo", "--pretty", "print('é')", PYTHONIOENCODING="ascii")
    assert done.stdout == "\\xe9\n"


def test_ctrl_c_interrupts_the_cell_says_so_and_keeps_the_kernel(home: Path) -> None:
    succeed("exec", "--name", "demo", "x = 7")
    words = [KERNELBOX, "exec", "--name", "demo", "--stream", WRITE_AND_WAIT]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["text"] == "running\n"
        process.send_signal(signal.SIGINT)
        result = json.loads(process.stdout.read())
        stderr = process.stderr.read().decode()
    assert process.returncode == 130
    assert (result["event"], result["ending"], result["state"]) == ("result", "interrupted", "kept")
    assert result["output"] == "running\n"
    assert stderr == "kernelbox: interrupted: the kernel kept its variables\n"
    assert succeed("exec", "--name", "demo", "x")["return_value"] == "7"


TIDY = "import time\ntry:\n    print('running', flush=True)\n    time.sleep(100)\nfinally:\n    print('tidied up')"


@pytest.mark.parametrize("form", ["--stream", "--pretty"])
def test_what_a_cell_writes_after_ctrl_c_is_shown(form: str, home: Path) -> None:
    words = [KERNELBOX, "exec", "--name", "demo", form, TIDY]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert b"running" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read().decode()
    assert process.returncode == 130
    shown = [json.loads(line) for line in rest.splitlines()] if form == "--stream" else None
    if shown is None:
        assert rest == "tidied up\n"
    else:
        assert [(line["event"], line.get("text")) for line in shown[:-1]] == [("output", "tidied up\n")]
        assert shown[-1]["output"] == "running\ntidied up\n"


STUBBORN = """
import time
print('running', flush=True)
while True:
    try:
        time.sleep(100)
    except KeyboardInterrupt:
        print('not yet', flush=True)
        open(CAUGHT, 'w').close()
"""


def test_ctrl_c_again_loses_nothing_that_the_cell_has_written(home: Path, tmp_path: Path) -> None:
    caught = tmp_path / "caught"
    words = [KERNELBOX, "run", "demo", STUBBORN.replace("CAUGHT", repr(str(caught)))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        eventually(caught.exists)
        process.send_signal(signal.SIGINT)
        rest, said = process.stdout.read(), process.stderr.read()
    assert process.returncode == 130
    assert set(rest.splitlines()) == {"not yet"}
    assert "the kernel was restarted: its variables are lost" in said


TIDY_IN_STEPS = """
import time
try:
    while True:
        print('running', flush=True)
        time.sleep(0.001)
finally:
    for step in range(100):
        print('step', step, flush=True)
        time.sleep(0.001)
"""


def test_what_a_cell_prints_while_it_tidies_up_after_ctrl_c_interrupts_it_only_once(home: Path) -> None:
    with subprocess.Popen([KERNELBOX, "run", "demo", TIDY_IN_STEPS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        lines = process.stdout.read().splitlines()
    assert process.returncode == 130
    assert [line for line in lines if line != "running"] == [f"step {step}" for step in range(100)]


def test_ctrl_c_does_not_interrupt_the_cell_of_somebody_else(home: Path) -> None:
    kernel = get_or_create("demo")
    other = Running(kernel, WRITE_AND_WAIT).wait_for_output()
    with subprocess.Popen([KERNELBOX, "exec", "--name", "demo", "1"], stdout=subprocess.PIPE) as process:
        eventually(lambda: has_connected(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        result = json.loads(process.stdout.read())
    assert process.returncode == 130
    assert result.get("ending") == "never ran"
    assert status("demo").status == "running"
    assert succeed("interrupt", "--name", "demo") == {"interrupted": True}
    assert other.result().ending == "interrupted"


def test_ctrl_c_while_a_kernel_starts_leaves_nothing_behind(home: Path, tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    startup = f"open({str(reached)!r}, 'w').close()\nimport time\nwhile True: time.sleep(0.01)"
    env = {**os.environ, "KERNELBOX_STARTUP_CODE": startup}
    with subprocess.Popen([KERNELBOX, "exec", "--name", "demo", "1"], stdout=subprocess.PIPE, env=env) as process:
        eventually(reached.exists)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert json.loads(process.stdout.read()) == {"error": "interrupted"}
    assert process.returncode == 130
    assert succeed("list") == {"kernels": []}


def test_running_a_cell_imports_nothing_slow(home: Path) -> None:
    succeed("create", "--name", "demo")
    slow = {"asyncio", "dataclasses", "datetime", "hashlib", "importlib.metadata", "inspect", "pathlib", "shutil"}
    slow |= {"prompt_toolkit", "pygments", "subprocess", "tempfile", "typing", "zmq"}
    slow |= {
        "argparse",
        "collections",
        "contextlib",
        "enum",
        "functools",
        "json",
        "re",
        "signal",
        "socket",
        "threading",
    }
    code = (
        "import sys; from kernelbox.cli import main; main(['exec', '--name', 'demo', '1']);"
        f"print(sorted({slow} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def has_connected(pid: int) -> bool:
    """Tells whether a process waits for the kernel: it has a socket, and sleeps in poll."""
    try:
        sockets = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        return any(link.startswith("socket:") for link in sockets) and "poll" in Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return False


def test_a_reader_that_goes_away_causes_no_traceback(home: Path) -> None:
    line = f"{shlex.quote(KERNELBOX)} exec --name demo --stream 'for i in range(100000): print(i)' | head -n 1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["event"] == "output"
    assert "Traceback" not in done.stderr


def test_startup_code_that_fails_is_one_line_on_stderr_and_all_of_it_in_json(home: Path) -> None:
    error = fail("create", "--name", "demo", KERNELBOX_STARTUP_CODE="1 / 0")
    assert "ZeroDivisionError: division by zero" in error
    assert succeed("list") == {"kernels": []}


@pytest.mark.parametrize("command", [["list"], ["exec", "--name", "a", "1"], ["wipe"]])
def test_a_setting_that_makes_no_sense_exits_2(home: Path, command: list[str]) -> None:
    assert "KERNELBOX_EXECUTION_TIMEOUT" in fail(*command, status=2, KERNELBOX_EXECUTION_TIMEOUT="soon")


def test_a_damaged_registry_is_a_warning_on_stderr(home: Path) -> None:
    succeed("create", "--name", "demo")
    (home / "registry.json").write_text("{")
    done = kernelbox("list")
    assert done.status == 0
    assert [record["name"] for record in done.json["kernels"]] == ["demo"]
    assert done.stderr.startswith("kernelbox: warning: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_home_that_cannot_be_used_exits_1(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "set KERNELBOX_HOME" in fail("create", "--name", "a", KERNELBOX_HOME=str(tmp_path / "file" / "home"))


def test_logs_show_what_a_crash_left(home: Path) -> None:
    kernelbox("exec", "--name", "demo", "import faulthandler, os; faulthandler._sigsegv()")
    [log] = succeed("logs", "--name", "demo")["logs"]
    assert "Segmentation fault" in log["text"]
    assert "Segmentation fault" in kernelbox("logs", "--name", "demo", "--pretty").stdout
    assert len(succeed("logs", "--name", "demo", "--lines", "1")["logs"][0]["text"].splitlines()) == 1
    assert {Path(log["path"]).suffix for log in succeed("logs", "--template")["logs"]} == {".log"}


def test_version_names_the_versions(home: Path) -> None:
    assert succeed("version")["kernelbox"] == __version__
    assert kernelbox("--version").stdout == f"kernelbox {__version__}\n"
    assert kernelbox("version", "--pretty").stdout.startswith(f"kernelbox {__version__} on Python 3.")


def test_doctor_finds_a_sound_installation_sound(home: Path) -> None:
    report = succeed("doctor")
    assert report["ok"] is True
    names = [check["name"] for check in report["checks"]]
    assert {"python", "packages", "settings", "runtime directory", "start", "template", "sandbox", "guard"} <= set(
        names
    )
    assert all(check["fix"] for check in report["checks"] if check["verdict"] != "ok")
    assert succeed("list") == {"kernels": []}, "it leaves no kernel behind"
    shown = kernelbox("doctor", "--pretty").stdout
    assert "✓ python" in shown
    assert "✓ sandbox in srt: not used" not in shown, "what is not used has no tick"
    assert shown.splitlines()[-1].startswith("Ready: ")


@pytest.mark.parametrize("words", [["run"], ["exec", "--text"]])
def test_ctrl_c_is_reported_once_to_people(home: Path, words: list[str]) -> None:
    with subprocess.Popen(
        [KERNELBOX, *words, "demo", WRITE_AND_WAIT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        stderr = process.stderr.read()
    assert process.returncode == 130
    assert stderr.count("kept its variables") == 1


def test_a_death_is_reported_once_to_people(home: Path) -> None:
    assert kernelbox("run", "demo", "import os; os._exit(3)").stderr.count("variables are lost") == 1


def test_doctor_says_what_is_wrong_and_how_to_fix_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = kernelbox("doctor", KERNELBOX_HOME=str(tmp_path / "file" / "home"))
    assert (done.status, done.json["ok"]) == (1, False)
    broken = {check["name"]: check for check in done.json["checks"] if check["verdict"] == "failed"}
    assert "set KERNELBOX_HOME" in broken["home"]["found"]
    shown = kernelbox("doctor", "--pretty", KERNELBOX_HOME=str(tmp_path / "file" / "home")).stdout
    assert shown.splitlines()[-1].startswith("Not ready: 1 of ")
    wrong = kernelbox("doctor", KERNELBOX_STORE_BACKEND="paper")
    assert "KERNELBOX_STORE_BACKEND" in str(wrong.json)
    with new_home() as home:
        unknown = kernelbox("doctor", KERNELBOX_HOME=str(home), KERNELBOX_KERNEL_TYPE="cobol")
        misspelt = kernelbox("doctor", KERNELBOX_HOME=str(home), KERNELBOX_TIMEOUT="5")
    [check] = [check for check in misspelt.json["checks"] if check["name"] == "unknown settings"]
    assert (check["verdict"], check["found"]) == ("warning", "KERNELBOX_TIMEOUT")
    [check] = [check for check in unknown.json["checks"] if check["name"] == "kernel type"]
    assert (check["verdict"], "python3" in check["found"]) == ("failed", True)


def test_a_kernel_opened_by_a_command_outlives_it(home: Path) -> None:
    record = succeed("create", "--name", "demo")
    assert is_running(record["pid"])


def test_the_memory_store_works_for_one_command(home: Path) -> None:
    result = succeed("exec", "--name", "demo", "1 + 1", KERNELBOX_STORE_BACKEND="memory")
    assert result["return_value"] == "2"
    assert succeed("list") == {"kernels": []}


HOSTILE = "\x1b]0;owned\x07\u202e\u2066"


def test_what_records_say_is_escaped_where_it_is_shown(home: Path, tmp_path: Path) -> None:
    directory = tmp_path / f"dir{HOSTILE}"
    directory.mkdir()
    record = succeed("create", "--name", "turn\u202earound", "--cwd", str(directory), "--tag", f"key={HOSTILE}")
    kernel_directory = home / "runtime" / record["kernel_id"]
    rewrite_record(kernel_directory / "connection.json", lost=HOSTILE, death=HOSTILE)
    key = ["--id", record["kernel_id"]]
    for words in (["list"], ["status", *key], ["restart", *key], ["doctor"], ["destroy", *key]):
        done = kernelbox(*words, "--pretty")
        assert done.status == 0
        shown = (done.stdout + done.stderr).replace("\n", "")
        assert shown.isprintable(), (words, ascii(shown))
    assert r"turn\u202earound" in done.stdout


def test_logs_are_escaped_line_by_line(home: Path) -> None:
    record = succeed("create", "--name", "demo")
    log = home / "runtime" / record["kernel_id"] / "log"
    log.write_text(f"first\n\tsecond {HOSTILE}\n")
    done = kernelbox("logs", "--name", "demo", "--pretty")
    assert done.stdout == "first\n\tsecond \\x1b]0;owned\\x07\\u202e\\u2066\n"


@pytest.mark.parametrize("kind", ["link", "fifo", "device", "huge"])
def test_logs_show_only_what_a_log_can_be(home: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("secret\n")
    record = succeed("create", "--name", "demo")
    log = home / "runtime" / record["kernel_id"] / "log"
    log.unlink(missing_ok=True)
    match kind:
        case "link":
            log.symlink_to(tmp_path / "secret")
        case "device":
            log.symlink_to("/dev/zero")
        case "fifo":
            os.mkfifo(log)
        case _:
            log.touch()
            os.truncate(log, 1 << 40)
    if kind == "huge":
        assert len(succeed("logs", "--name", "demo")["logs"][0]["text"]) <= 4 * 1024 * 1024
    else:
        assert "log' is " in fail("logs", "--name", "demo")


def test_names_that_cannot_be_seen_are_not_offered_for_completion(home: Path) -> None:
    for name in ("plain", "turn\u202earound"):
        succeed("create", "--name", name)
    assert kernelbox("list", "--names").stdout == "plain\n"


def test_doctor_shows_the_home_and_the_key(home: Path, key_file: Path, tmp_path: Path) -> None:
    succeed("create", "--name", "demo")
    found = {check["name"]: check["found"] for check in succeed("doctor")["checks"]}
    assert found["home"] == f"{home}, made by this user's kernelbox on this machine"
    assert found["key"].startswith(str(key_file))
    (tmp_path / "clone" / "runtime").mkdir(parents=True)
    done = kernelbox("doctor", KERNELBOX_HOME=str(tmp_path / "clone"))
    assert done.status == 1
    verdicts = {check["name"]: check["verdict"] for check in done.json["checks"]}
    assert verdicts["home"] == "failed"


@pytest.mark.parametrize(
    ("settings", "blamed"),
    [
        ({"KERNELBOX_STARTUP_CODE": "1 / 0"}, "start"),
        ({"KERNELBOX_STORE_BACKEND": "paper"}, "settings"),
        ({"KERNELBOX_HOME": "/dev/null/home"}, "home"),
    ],
)
def test_doctor_blames_the_cause_and_nothing_else(home: Path, settings: dict[str, str], blamed: str) -> None:
    done = kernelbox("doctor", **settings)
    assert done.status == 1
    assert [check["name"] for check in done.json["checks"] if check["verdict"] != "ok"] == [blamed]


@pytest.mark.parametrize("what", ["home", "key"])
def test_doctor_says_once_that_a_home_or_a_key_is_refused(what: str, tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "file").touch()
    settings = {"KERNELBOX_HOME": str(tmp_path / "clone")}
    if what == "key":
        settings = {"KERNELBOX_HOME": str(tmp_path / "home"), "KERNELBOX_KEY_FILE": str(tmp_path / "clone")}
        (tmp_path / "clone").chmod(0o700)
    done = kernelbox("doctor", **settings)
    assert done.status == 1
    failed = [check for check in done.json["checks"] if check["verdict"] == "failed"]
    assert [check["name"] for check in failed] == [what]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "99999"), "port cannot be 99999: use a whole number from 0 to 65535"),
        (("--max-queue", "-1"), "'-1' is not a whole number of 0 or more"),
        (("--max-body", "0"), "0 would refuse everything: use 1 or more"),
        (("--grace", "-1"), "'-1' is less than 0 seconds"),
        (("--approval-timeout", "-0.5"), "'-0.5' is less than 0 seconds"),
        (("--cors-origin", "http://localhost:3000/"), "'http://localhost:3000/' is not an origin"),
        (("--cors-origin", "localhost"), "such as http://localhost:3000, or *"),
        (("--allow-host", "http://example.org/"), "use a name such as example.org or example.org:8080"),
    ],
)
def test_a_server_refuses_options_that_could_have_no_effect_or_a_bad_one(words: tuple[str, str], said: str) -> None:
    assert said in fail("serve", f"{words[0]}={words[1]}", status=2)

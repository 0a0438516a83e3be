"""Bash: one shell per kernel, whose directory, variables and functions last from cell to cell."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, Running, run, value, wait_for_end

from kernelbox import ExecutionResult, KernelRecord, OutputItem, execute, interrupt, restart, stream


def bash(kernel: KernelRecord | str, code: str, timeout: float = DEADLINE) -> ExecutionResult:
    return execute(kernel, code, language="bash", timeout=timeout)


def say(kernel: KernelRecord | str, code: str) -> str:
    """Returns what a bash cell that must succeed prints."""
    result = bash(kernel, code)
    assert result.ok, result.text
    return result.output


def test_directory_variables_functions_and_aliases_last(kernel: KernelRecord, tmp_path: Path) -> None:
    say(kernel, f'cd {tmp_path}; export SHOWN=1; hidden=2; greet() {{ echo "hello $1"; }}; shopt -s nullglob')
    assert say(kernel, "pwd; echo $SHOWN $hidden; greet you") == f"{tmp_path}\n1 2\nhello you\n"
    assert say(kernel, "shopt -q nullglob && bash -c 'echo $SHOWN$hidden'") == "1\n"


def test_bash_starts_in_the_kernels_directory_with_its_environment(kernel: KernelRecord, tmp_path: Path) -> None:
    execute(kernel, f"import os; os.chdir({str(tmp_path)!r}); os.environ['SET_IN_PYTHON'] = 'yes'", timeout=DEADLINE)
    assert say(kernel, "pwd; echo $SET_IN_PYTHON") == f"{tmp_path}\nyes\n"


def test_a_bash_that_was_killed_between_cells_is_replaced_and_said_to_be(kernel: KernelRecord) -> None:
    pid = int(say(kernel, "kept=1; echo $$"))
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    result = bash(kernel, "echo ${kept-gone}; echo error >&2")
    said = "[bash has ended since the last bash cell; this is a new one]\n"
    assert (result.output, result.stderr) == ("gone\n", f"{said}error\n")
    assert bash(kernel, "echo again").stderr == ""


def test_a_bash_that_ends_leaves_nothing_in_the_home_directory(kernel: KernelRecord, tmp_path: Path) -> None:
    execute(kernel, f"import os; os.environ['HOME'] = {str(tmp_path)!r}", timeout=DEADLINE)
    say(kernel, "echo ~")
    bash(kernel, "exit")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("end", ["exec true", "exec nosuch", "exit", "history -a; exec true"])
def test_a_history_that_a_cell_switches_on_has_none_of_our_own_lines(
    kernel: KernelRecord, tmp_path: Path, end: str
) -> None:
    history = tmp_path / "history"
    say(kernel, f"HISTFILE={history}; set -o history; echo on")
    bash(kernel, "echo between")
    bash(kernel, end)
    assert not history.exists() or "builtin" not in history.read_text()


TAKEN = {
    "functions": "printf() { :; }; set() { :; }; .() { :; }",
    "aliases": "shopt -s expand_aliases; alias printf=false set=false .=false",
    "the editor vi": "set -o vi",
    "the editor emacs": "set -o emacs",
}


@pytest.mark.parametrize("code", TAKEN.values(), ids=TAKEN)
def test_what_a_cell_makes_of_the_commands_that_we_use_harms_no_cell(code: str, kernel: KernelRecord) -> None:
    assert bash(kernel, f"kept=1; {code}").text == ""
    assert say(kernel, "echo $kept") == "1\n"


def descriptor(kernel: KernelRecord, what: str) -> str:
    """Returns the number of a descriptor that we share with bash, by what it leads to."""
    listed = say(kernel, "for fd in /proc/$$/fd/1??; do echo ${fd##*/} $(readlink $fd); done")
    return next(line.partition(" ")[0] for line in listed.splitlines() if what in line)


def test_a_cell_that_closes_how_bash_tells_its_end_is_told_so_at_once(kernel: KernelRecord) -> None:
    result = bash(kernel, f"exec {descriptor(kernel, 'pipe')}>&-; sleep 1000")
    assert result.error is not None
    assert (result.status, result.error.ename) == ("error", "BashUnavailable")
    assert "a cell has closed descriptor" in result.error.evalue
    assert say(kernel, "echo again") == "again\n"


def test_a_cell_runs_though_the_one_before_closed_the_descriptors_of_bash(kernel: KernelRecord) -> None:
    say(kernel, f"kept=1; exec {descriptor(kernel, 'memfd')}>&-")
    result = bash(kernel, "echo ${kept-gone}")
    assert result.output == "gone\n"
    assert result.stderr == "[a bash cell has closed descriptors that bash needs; this is a new one]\n"


def test_what_a_users_terminal_is_set_to_does_not_show_in_cells(kernel: KernelRecord, tmp_path: Path) -> None:
    mailbox = tmp_path / "mailbox"
    mailbox.write_text("From a friend\n\nhello\n")
    terminal = {
        "PROMPT_COMMAND": "echo prompt",
        "TMOUT": "1",
        "MAIL": str(mailbox),
        "MAILCHECK": "0",
        "PS0": "x",
        "PS1": "y",
    }
    execute(kernel, f"import os; os.environ.update({terminal!r})", timeout=DEADLINE)
    assert say(kernel, "kept=1; echo first") == "first\n"
    assert (
        say(kernel, "echo ${TMOUT-none}; bash -c 'echo ${PROMPT_COMMAND-none} ${MAILCHECK-none}'")
        == "none\nnone none\n"
    )
    mailbox.write_text("From a friend\n\nhello again\n")
    assert say(kernel, "echo $kept") == "1\n"


def test_stdout_and_stderr_are_apart_and_stream(kernel: KernelRecord, tmp_path: Path) -> None:
    result = bash(kernel, "echo out; echo err >&2")
    assert (result.output, result.stderr) == ("out\n", "err\n")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    texts = []
    for event in stream(kernel, f"echo first; read < {gate}; echo second", language="bash", timeout=DEADLINE):
        if isinstance(event, OutputItem):
            texts.append(event.text)
            if len(texts) == 1:
                gate.write_text("go\n")
    assert texts == ["first\n", "second\n"]


@pytest.mark.parametrize(
    ("code", "status"), [("false", 1), ("(exit 7)", 7), ("no_such_command", 127), ("kill -9 $$", -9)]
)
def test_a_status_other_than_0_is_an_error_that_names_it(code: str, status: int, kernel: KernelRecord) -> None:
    result = bash(kernel, code)
    assert result.status == "error"
    assert result.error is not None
    assert result.error.ename == "CalledProcessError"
    assert str(abs(status)) in result.error.evalue
    assert say(kernel, "echo on") == "on\n"


def test_the_last_status_can_be_asked_for_in_the_next_cell(kernel: KernelRecord) -> None:
    bash(kernel, "(exit 7)")
    assert say(kernel, "true; echo $?") == "0\n"


@pytest.mark.parametrize(
    "code",
    [
        "sleep 100",
        "while true; do :; done",
        "sleep 100 | cat",
        "for i in 1 2 3; do sleep 100; done",
        "$(sleep 100)",
        "(trap '' INT; sleep 100)",
        "bash -c \"trap '' INT; while true; do sleep 1; done\"",
        "yes",
        "trap 'echo trapped' INT; sleep 100; trap - INT",
        "wait_for() { sleep 100; }; wait_for; echo not reached",
    ],
)
def test_a_timeout_keeps_bash_and_its_state(code: str, kernel: KernelRecord) -> None:
    shell = say(kernel, "kept=41; echo $$")
    result = bash(kernel, code, timeout=BEGUN)
    assert (result.status, result.state, result.ending) == ("timeout", "kept", "interrupted"), result.text
    assert "not reached" not in result.output
    assert say(kernel, "echo $((kept + 1)); echo $$") == f"42\n{shell}"


def test_a_bash_that_ignores_interrupts_itself_is_replaced_and_says_so(kernel: KernelRecord) -> None:
    execute(kernel, "kept = 1", timeout=DEADLINE)
    result = bash(kernel, "trap '' INT; while true; do sleep 1; done", timeout=BEGUN)
    assert (result.status, result.state) == ("timeout", "kept")
    assert "starts a new one" in result.stderr
    assert say(kernel, "echo on") == "on\n"
    assert value(kernel, "kept") == "1"


def test_an_interrupt_keeps_bash_and_its_state(kernel: KernelRecord) -> None:
    say(kernel, "kept=1")
    cell = Running(kernel, "echo in; sleep 100", language="bash").wait_for_output()
    assert interrupt(kernel)
    result = cell.result()
    assert (result.ending, result.state) == ("interrupted", "kept")
    assert say(kernel, "echo $kept") == "1\n"


def test_a_command_that_reads_stdin_sees_its_end(kernel: KernelRecord) -> None:
    assert say(kernel, 'cat; read line; echo "[$line]"; wc -c') == "[]\n0\n"


def test_exit_ends_bash_and_the_next_cell_starts_another(kernel: KernelRecord) -> None:
    say(kernel, "lost=1")
    result = bash(kernel, "echo bye; exit 3")
    assert (result.status, result.output) == ("error", "bye\n")
    assert result.error is not None
    assert "3" in result.error.evalue
    assert say(kernel, "echo [$lost]") == "[]\n"
    assert value(kernel, "1 + 1") == "2"


def test_exit_0_is_no_error(kernel: KernelRecord) -> None:
    assert bash(kernel, "exit 0").ok


def test_a_job_in_the_background_holds_nothing_up(kernel: KernelRecord) -> None:
    pid = int(say(kernel, "sleep 300 & echo $!"))
    assert say(kernel, "jobs -r | wc -l") == "1\n"
    say(kernel, f"kill {pid}")
    wait_for_end(pid)
    result = bash(kernel, "sleep 300 & exit 4")
    assert result.error is not None
    assert "4" in result.error.evalue


def test_a_restart_resets_bash(kernel: KernelRecord) -> None:
    say(kernel, "cd /; lost=1")
    restart(kernel)
    assert say(kernel.name, "echo [$lost]; pwd") == f"[]\n{os.getcwd()}\n"


QUOTES = 'it\'s "quoted" $HOME `x` \\ äöü 🎉'


def test_quotes_unicode_and_here_documents_arrive_as_written(kernel: KernelRecord) -> None:
    assert say(kernel, f"cat <<'END'\n{QUOTES}\nEND\n") == QUOTES + "\n"
    assert say(kernel, "x=5\ncat <<END\nx is $x\nEND") == "x is 5\n"
    assert say(kernel, "echo 'single'\\''s' \"double\"") == "single's double\n"
    assert say(kernel, "echo a \\\n  b # comment") == "a b\n"
    assert say(kernel, "# only a comment") == ""
    assert say(kernel, "") == ""
    assert say(kernel, "\n\necho late\n\n") == "late\n"
    assert say(kernel, "if true; then\n  echo yes\nfi") == "yes\n"
    assert say(kernel, "printf 'a\\nb'") == "a\nb"


@pytest.mark.parametrize("code", ["if true; then", "echo 'unclosed", "echo )", "fi", "cat <<END\nno end"])
def test_a_syntax_error_is_reported_and_bash_goes_on(code: str, kernel: KernelRecord) -> None:
    say(kernel, "kept=1")
    result = bash(kernel, code)
    if "END" not in code:  # a here-document without an end is a warning
        assert result.status == "error"
        assert "syntax error" in result.stderr or "unexpected" in result.stderr
    assert say(kernel, "echo $kept") == "1\n"


def test_an_error_in_a_line_shows_that_line_and_nothing_of_ours(kernel: KernelRecord) -> None:
    for _ in range(2):  # the second time behind a cell that has failed
        *_, shown = bash(kernel, "echo )").stderr.splitlines()
        assert shown.endswith(" line 1: `echo )'"), shown


def test_set_e_ends_bash_at_the_first_failure_and_says_so(kernel: KernelRecord) -> None:
    result = bash(kernel, "set -e; echo before; false; echo after")
    assert (result.status, result.output) == ("error", "before\n")
    assert say(kernel, "echo on; false; echo on") == "on\non\n"


def test_much_output_arrives_whole(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    assert bash(kernel, "seq 200000").output == "".join(f"{n}\n" for n in range(1, 200_001))


def test_a_cell_that_replaces_bash_is_survived(kernel: KernelRecord) -> None:
    assert bash(kernel, "exec echo replaced").output == "replaced\n"
    assert say(kernel, "echo on") == "on\n"


def test_a_cell_that_redirects_all_output_keeps_doing_so_and_can_be_undone(
    kernel: KernelRecord, tmp_path: Path
) -> None:
    say(kernel, f"exec 7>&1 >{tmp_path}/log; echo logged")
    assert say(kernel, "echo logged too") == ""
    assert say(kernel, "exec >&7 7>&-; echo back") == "back\n"
    assert (tmp_path / "log").read_text() == "logged\nlogged too\n"


def test_bash_dies_with_its_kernel(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    shell, job = map(int, say(kernel, "echo $$; setsid sleep 1000 & echo $!").split())
    os.kill(kernel.pid, signal.SIGKILL)
    wait_for_end(shell)
    wait_for_end(job)


def test_python_and_bash_share_the_order_of_cells(kernel: KernelRecord) -> None:
    cells = [
        Running(kernel, "echo bash; sleep 0.2", language="bash").wait_for_output(),
        Running(kernel, "print('python')"),
        Running(kernel, "echo bash again", language="bash"),
    ]
    assert [cell.result().output for cell in cells] == ["bash\n", "python\n", "bash again\n"]


# Little at a time: on a busy machine the interrupt of a program that floods the pipe comes late.
WRITES_ON = "sh -c 'while :; do echo y; sleep 0.01; done'"


@pytest.mark.parametrize("language", ["bash", "python"])
def test_an_interrupt_at_any_moment_of_a_commands_start_lets_nothing_run_on(
    language: Any, kernel: KernelRecord
) -> None:
    shell = say(kernel, "echo $$")
    for attempt in range(25):
        code = WRITES_ON if language == "bash" else f"!{WRITES_ON}"
        result = execute(kernel, code, language=language, timeout=0.0005 + attempt / 2000)
        assert (result.status, result.state) == ("timeout", "kept")
        assert say(kernel, "echo on") == "on\n"
    assert say(kernel, "echo $$") == shell


def test_a_harder_interrupt_of_a_python_cell_keeps_bash(kernel: KernelRecord) -> None:
    run(kernel, "X=kept", language="bash")
    code = (
        "import subprocess, time\n"
        "try: time.sleep(60)\n"
        "except KeyboardInterrupt: subprocess.run(['sleep', '60'], start_new_session=True)"
    )
    result = execute(kernel, code, timeout=0.2)
    assert (result.status, result.state) == ("timeout", "kept")
    assert run(kernel, "echo $X", language="bash").output == "kept\n"


@pytest.mark.parametrize(
    ("code", "status"),
    [("exit 3", 3), ("echo bye; exit 3", 3), ("(exit 2); exit", 2), ("f() { exit 4; }; f", 4), ("set -e; false", 1)],
)
def test_an_exit_gives_its_status_and_adds_no_line(kernel: KernelRecord, code: str, status: int) -> None:
    result = bash(kernel, code)
    assert (result.stderr, result.exit_code) == ("", status)
    assert bash(kernel, "true").exit_code == 0


def test_a_python_cell_has_no_exit_code(kernel: KernelRecord) -> None:
    assert execute(kernel, "!exit 3", timeout=DEADLINE).exit_code is None


def test_bytes_that_are_not_utf_8_become_replacement_characters(kernel: KernelRecord) -> None:
    assert bash(kernel, "printf 'a\\xffb\\xe2\\x82'").output == "a\ufffdb\ufffd"
    assert run(kernel, "!printf 'a\\377b'").output == "a\ufffdb"


def test_the_death_of_a_kernel_makes_its_bash_say_nothing(kernel: KernelRecord) -> None:
    assert say(kernel, "echo ready") == "ready\n"
    assert execute(kernel, "import os; os._exit(3)", timeout=DEADLINE).stderr == ""


def test_a_trace_shows_the_commands_of_the_cell_and_none_of_ours(kernel: KernelRecord) -> None:
    assert bash(kernel, "set -x\necho one").stderr == "++ echo one\n"
    assert bash(kernel, "echo two; (exit 5)").stderr == "++ echo two\n++ exit 5\n"
    assert bash(kernel, "echo $?").output == "5\n"
    assert bash(kernel, "set +x").stderr == "++ set +x\n"
    assert bash(kernel, "echo three").stderr == ""


@pytest.mark.parametrize("code", ["sleep 60", "while :; do :; done"])
def test_a_timeout_is_one_sentence(kernel: KernelRecord, code: str) -> None:
    say(kernel, "true")  # or starting bash would be part of it
    result = bash(kernel, code, timeout=1)
    ended = "the cell was interrupted and the kernel kept its variables"
    assert result.text == f"TimeoutError: timed out after 1 s; {ended}"


def test_a_cell_that_redirects_its_errors_keeps_doing_so_and_can_be_undone(
    kernel: KernelRecord, tmp_path: Path
) -> None:
    assert bash(kernel, f"exec 8>&2 2>{tmp_path}/log; echo one >&2").stderr == ""
    assert bash(kernel, "echo two >&2; no_such_command").stderr == ""
    assert bash(kernel, "sleep 60", timeout=0.3).status == "timeout"
    assert bash(kernel, "set -x; echo three; { set +x; } 2>&8").stderr == "++ set +x\n"
    assert bash(kernel, "exec 2>&8 8>&-; echo back >&2").stderr == "back\n"
    log = (tmp_path / "log").read_text().split("\n")
    assert log[:2] == ["one", "two"]
    assert "no_such_command: command not found" in log[2]
    assert "++ echo three" in log


@pytest.mark.parametrize("code", ["exit 3", "f() { exit 3; }; f", "set -e; false"])
def test_what_an_exit_trap_writes_arrives(kernel: KernelRecord, code: str) -> None:
    result = bash(kernel, f"trap 'echo out; echo err >&2' EXIT; {code}")
    assert (result.output, result.stderr) == ("out\n", "err\n")


def test_exit_is_the_builtin_and_the_descriptors_that_scripts_use_are_free(kernel: KernelRecord) -> None:
    free = "for fd in 3 4 5 6 7 8 9; do { true >&$fd; } 2>/dev/null || echo $fd; done"
    assert say(kernel, f"type exit; declare -F; {free}").split("\n", 1) == [
        "exit is a shell builtin",
        "3\n4\n5\n6\n7\n8\n9\n",
    ]


def test_the_status_of_the_cell_before_is_seen_and_sets_off_nothing(kernel: KernelRecord) -> None:
    bash(kernel, "trap 'echo trapped' ERR; (exit 7)")
    assert bash(kernel, "echo $?").output == "7\n"
    assert bash(kernel, "echo $?").output == "0\n"


def test_verbose_input_shows_the_lines_of_the_cell_and_none_of_ours(kernel: KernelRecord) -> None:
    bash(kernel, "set -v")
    assert bash(kernel, "echo one\necho two").stderr == "echo one\necho two\n"
    assert bash(kernel, "set +v; echo three").stderr == "set +v; echo three\n"
    assert bash(kernel, "echo four").stderr == ""


def test_megabytes_of_a_cell_are_read(kernel: KernelRecord) -> None:
    assert say(kernel, ": " + "x" * 3_000_000 + "\necho read") == "read\n"
    assert say(kernel, "echo short") == "short\n"


def test_a_debug_trap_lasts_and_can_be_removed(kernel: KernelRecord) -> None:
    assert say(kernel, "f() { echo in; }; trap 'echo $BASH_COMMAND' DEBUG") == ""
    assert say(kernel, "echo one").endswith("echo one\none\n")
    assert bash(kernel, "sleep 1000", timeout=0.3).status == "timeout"
    assert say(kernel, "echo one").endswith("echo one\none\n")
    assert "f\nin\n" in say(kernel, "f")  # functions do not inherit it, as without `set -T`
    say(kernel, "trap - DEBUG")
    assert say(kernel, "echo two") == "two\n"
    say(kernel, "set -T; trap 'echo $BASH_COMMAND' DEBUG")
    assert "echo in\nin\n" in say(kernel, "f")


def test_a_cell_can_return_and_counts_its_own_lines(kernel: KernelRecord) -> None:
    result = bash(kernel, "\n\necho $LINENO; return 3; echo not reached")
    assert (result.output, result.stderr) == ("3\n", "")
    assert result.error is not None
    assert "3" in result.error.evalue


def test_builtins_that_a_cell_disables_harm_no_cell(kernel: KernelRecord) -> None:
    assert say(kernel, "kept=1; enable -n . exec printf set; echo one") == "one\n"
    assert say(kernel, "echo $kept") == "1\n"


def test_a_cell_that_makes_bash_a_restricted_shell_ends_it_at_once(kernel: KernelRecord) -> None:
    result = bash(kernel, "set -r; echo one")
    assert result.output == "one\n"
    assert say(kernel, "echo two") == "two\n"

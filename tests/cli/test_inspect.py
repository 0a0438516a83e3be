"""The commands that look into kernels: variables, history, files, top."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.support.cells import Running
from tests.support.command_line import DEADLINE, KERNELBOX, fail, kernelbox, on_screen, succeed

from kernelbox import execute, get_or_create, list_kernels, status

WAIT = "print('running', flush=True)\nimport time\nwhile True: time.sleep(0.01)"


def test_variables_are_a_document_in_a_pipe_and_a_table_on_a_terminal(home: Path) -> None:
    succeed("exec", "demo", "name = 'ann'; numbers = [1, 2]")
    found = {each["name"]: each for each in succeed("variables", "demo")["variables"]}
    assert (found["name"]["type"], found["name"]["preview"]) == ("str", "'ann'")
    table = on_screen("variables", "demo", NO_COLOR="1")[1].splitlines()
    assert table[0].split() == ["NAME", "TYPE", "SIZE", "VALUE"]
    assert [line.split()[0] for line in table[1:]] == ["name", "numbers"]
    succeed("restart", "demo")
    assert kernelbox("variables", "demo", "--text").stdout == "kernel 'demo' has no variables\n"


def test_history_shows_each_cell_and_how_it_ended(home: Path) -> None:
    succeed("exec", "demo", "x = 1\nx")
    kernelbox("exec", "demo", "1 / 0")
    cells = succeed("history", "demo")["cells"]
    assert [(cell["code"], cell["status"]) for cell in cells] == [("x = 1\nx", "success"), ("1 / 0", "error")]
    lines = kernelbox("history", "demo", "--text").stdout.splitlines()
    assert lines[0].split() == ["CELL", "STATUS", "WHEN", "CODE"]
    assert lines[1].endswith("x = 1 …")
    assert [cell["code"] for cell in succeed("history", "demo", "--last", "1")["cells"]] == ["1 / 0"]


@pytest.mark.slow
def test_files_are_listed_read_and_written_as_the_kernel_sees_them(home: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    succeed("create", "demo", "--cwd", str(tmp_path))
    assert succeed("files", "demo", "--write", "sub/data.bin", stdin=b"\x00\xff") == {"written": 2}
    assert (tmp_path / "sub" / "data.bin").read_bytes() == b"\x00\xff"
    assert [(each["name"], each["is_dir"]) for each in succeed("files", "demo")["files"]] == [("sub", True)]
    assert [each["name"] for each in succeed("files", "demo", "sub")["files"]] == ["data.bin"]
    assert [each["name"] for each in succeed("files", "--name", "demo", "sub")["files"]] == ["data.bin"]
    (tmp_path / "text").write_text("hello")
    assert kernelbox("files", "demo", "--read", "text").stdout == "hello"
    assert fail("files", "demo", "--read", "nothing") == "kernel 'demo': [Errno 2] No such file or directory: 'nothing'"


@pytest.fixture
def top(home: Path) -> Iterator[pexpect.spawn[str]]:
    get_or_create("demo")
    child = spawn_top(lines=20)
    yield child
    child.close(force=True)


def spawn_top(lines: int) -> pexpect.spawn[str]:
    environment = {**os.environ, "TERM": "xterm"}
    return pexpect.spawn(
        KERNELBOX, ["top"], env=environment, encoding="utf-8", timeout=DEADLINE, dimensions=(lines, 100)
    )


def test_top_is_one_table_in_a_pipe(home: Path) -> None:
    cell = Running(get_or_create("demo"), WAIT).wait_for_output()
    head, row = kernelbox("top").stdout.splitlines()
    assert head.split()[:3] == ["NAME", "STATE", "MEMORY"]
    assert row.split()[:2] == ["demo", "running"]
    assert row.endswith("print('running', flush=True) …")
    [known] = succeed("top", "--json")["kernels"]
    assert (known["name"], known["status"], known["usage"]["memory"] > 0) == ("demo", "running", True)
    succeed("interrupt", "demo")
    assert cell.result().ending == "interrupted"


def test_top_interrupts_what_a_kernel_runs(top: pexpect.spawn[str]) -> None:
    cell = Running(status("demo"), WAIT).wait_for_output()
    top.expect("print")
    top.send("i")
    top.expect("interrupted 'demo'")
    assert cell.result().ending == "interrupted"


def test_top_destroys_a_kernel_only_after_a_yes(top: pexpect.spawn[str]) -> None:
    top.expect("demo")
    top.send("d")
    top.expect("destroy 'demo' and its variables")
    top.send("n")
    top.expect("choose")
    assert execute("demo", "1").opened is False
    top.send("d")
    top.expect("y or n")
    top.send("y")
    top.expect("destroyed 'demo'")
    assert list_kernels() == []
    top.send("q")
    top.expect(pexpect.EOF)


def test_top_takes_no_answer_that_was_typed_before_the_question(top: pexpect.spawn[str]) -> None:
    top.expect("demo")
    top.send("dy")
    top.expect("y or n")
    top.send("nq")
    top.expect(pexpect.EOF)
    assert execute("demo", "1").opened is False


def test_top_keeps_the_chosen_kernel_on_a_small_screen(home: Path) -> None:
    for name in ("first", "second", "third"):
        get_or_create(name)
    child = spawn_top(lines=4)
    try:
        child.expect("first")
        child.send("\x1b[B\x1b[B")
        child.expect("third")
        assert "second" not in child.before
        child.send("q")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)

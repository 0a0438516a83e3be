"""Commands on a real terminal: short, coloured, and each failure said once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.command_line import on_screen, succeed

COLOR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def _colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_exec_prints_the_fields_that_say_something_on_one_line(home: Path) -> None:
    succeed("create", "test")
    status, shown = on_screen("exec", "--name", "test", "print('KernelBox is working!')", NO_COLOR="1")
    assert status == 0
    assert shown == '{"status": "success", "output": "KernelBox is working!\\n", "return_value": null}\n'


def test_exec_is_coloured_unless_no_color_says_otherwise(home: Path) -> None:
    succeed("create", "demo")
    plain, coloured = on_screen("exec", "demo", "1 + 1", NO_COLOR="1")[1], on_screen("exec", "demo", "1 + 1")[1]
    assert "\x1b" not in plain
    assert COLOR.sub("", coloured) == plain != coloured


def test_exec_breaks_the_document_where_it_does_not_fit(home: Path) -> None:
    succeed("create", "demo")
    shown = on_screen("exec", "demo", "print('a' * 200)", width=60, NO_COLOR="1")[1]
    assert shown.startswith('{\n  "status": "success",\n')
    assert json.loads(shown)["output"] == "a" * 200 + "\n"


def test_a_typo_shows_its_traceback_once(home: Path) -> None:
    succeed("create", "demo")
    status, shown = on_screen("exec", "demo", "prnt(1)", NO_COLOR="1")
    assert status == 1
    assert shown.count("prnt(1)") == 1
    assert shown.count("Hint: did you mean 'print'?") == 1
    assert len(shown.splitlines()) <= 12
    assert json.loads(shown[shown.index("{") :])["error"] == {
        "ename": "NameError",
        "evalue": "name 'prnt' is not defined",
    }


def test_full_prints_the_whole_document(home: Path) -> None:
    succeed("create", "demo")
    shown = on_screen("exec", "demo", "--full", "1 + 1")[1]
    assert json.loads(COLOR.sub("", shown)).keys() == succeed("exec", "demo", "1 + 1").keys()


def test_a_new_kernel_is_announced_once_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELBOX_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    first, again = (on_screen("run", "demo", "1 + 1", NO_COLOR="1")[1] for _ in range(2))
    assert "opened 'demo' in ./.kernelbox\n2\n" in first
    assert again == "2\n"
    assert on_screen("create", "other")[1].endswith("opened 'other' in ./.kernelbox\n")
    succeed("wipe")


def test_run_colours_a_traceback(home: Path) -> None:
    succeed("create", "demo")
    shown = on_screen("run", "demo", "1 / 0")[1]
    assert "\x1b[" in shown
    assert COLOR.sub("", shown).count("ZeroDivisionError: division by zero") == 1


@pytest.mark.parametrize(
    ("words", "status"), [(["status", "nobody"], 1), (["frob"], 2), (["exec"], 2), (["rm", "nobody"], 1)]
)
def test_a_failure_is_one_line_once(home: Path, words: list[str], status: int) -> None:
    failed, shown = on_screen(*words)
    assert failed == status
    assert shown.startswith("kernelbox: ")
    assert shown.count("\n") == 1


def test_list_and_status_are_tables_that_fit_and_json_is_an_option(home: Path) -> None:
    succeed("create", "demo", "--tag", f"note={'x' * 100}")
    table = on_screen("ls", width=60, NO_COLOR="1")[1].splitlines()
    assert table[0].startswith("NAME  STATUS  PID")
    assert max(map(len, table)) <= 60
    assert re.search(r"^status +idle$", on_screen("status", "demo", NO_COLOR="1")[1], re.MULTILINE)
    assert re.search(r"^created_at +\d+ s ago, \d{4}-", on_screen("status", "demo", NO_COLOR="1")[1], re.MULTILINE)
    assert json.loads(COLOR.sub("", on_screen("list", "--json")[1]))["kernels"][0]["name"] == "demo"


@pytest.mark.parametrize(("words", "heading"), [((), "run code:"), (("run", "--help"), "examples:")])
def test_the_headings_of_help_are_bold_unless_no_color_says_otherwise(words: tuple[str, ...], heading: str) -> None:
    assert f"\x1b[1m{heading}\x1b[0m\n" in on_screen(*words)[1]
    assert f"\n{heading}\n" in on_screen(*words, NO_COLOR="1")[1]


def test_doctor_breaks_a_failure_between_words(home: Path) -> None:
    shown = on_screen("doctor", width=50, NO_COLOR="1", KERNELBOX_STORE_BACKEND="paper")[1]
    assert "✗ settings: KERNELBOX_STORE_BACKEND cannot be\n  'paper': use one of file, memory\n" in shown


@pytest.mark.parametrize("command", ["run", "exec"])
def test_a_cell_that_asks_for_input_leads_to_the_console(home: Path, command: str) -> None:
    shown = on_screen(command, "my demo", "input('name? ')", NO_COLOR="1")[1]
    assert "kernelbox: you can answer in `kernelbox console 'my demo'`\n" in shown


def test_code_is_not_read_from_the_keyboard_by_accident(home: Path) -> None:
    status, shown = on_screen("run", "demo")
    assert (status, "there is no code" in shown) == (2, True)

"""Help that teaches, the reference that shows it, and what shells complete."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.command_line import KERNELBOX, kernelbox, succeed

from kernelbox.cli._command_table import COMMANDS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
NAMES = [command.name for command in COMMANDS]


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in NAMES)], ids=" ".join)
def test_the_reference_shows_exactly_what_help_prints(words: list[str]) -> None:
    done = kernelbox(*words)
    assert (done.status, done.stderr) == (0, "")
    shown = re.findall(r"```text\n\$ kernelbox (.*?)\n(.*?)```\n", REFERENCE.read_text(), flags=re.DOTALL)
    assert _laid_out(dict(shown)[" ".join(words)]) == _laid_out(done.stdout)


def _laid_out(text: str) -> list[list[str]]:
    """Returns the words of the usage and of each line below it, however Python's version lays them out.

    3.13 names an option's value once, and never breaks a line before it.
    """
    once = re.sub(r"(-\w) ([A-Z]+), (--\w+ \2)", r"\1, \3", text)
    usage, _, rest = once.partition("\n\n")
    return [usage.split(), *(line.split() for line in rest.splitlines())]


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in NAMES)], ids=" ".join)
def test_help_fits_a_terminal_of_80_columns(words: list[str]) -> None:
    assert [line for line in kernelbox(*words).stdout.splitlines() if len(line) > 80] == []


def test_help_names_every_command_and_is_the_same_by_every_way_to_ask() -> None:
    text = kernelbox("--help").stdout
    assert all(re.search(rf"^  {name}[ ,]", text, re.MULTILINE) for name in NAMES)
    assert text == kernelbox("-h").stdout == kernelbox("help").stdout == kernelbox().stdout
    assert kernelbox("help", "exec").stdout == kernelbox("exec", "--help").stdout


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_help_of_a_command_has_examples(command: object) -> None:
    name = getattr(command, "name", "")
    text = kernelbox(name, "--help").stdout
    assert "examples:\n" in text
    assert f"kernelbox {name}" in text.partition("examples:")[2]


def test_help_needs_no_directory_and_no_settings(tmp_path: Path) -> None:
    assert kernelbox("--help", KERNELBOX_HOME=str(tmp_path / "none"), KERNELBOX_ENGINE="steam").status == 0
    assert not (tmp_path / "none").exists()


def complete_in_bash(*words: str) -> list[str]:
    """Returns what bash offers for the last of the words, with our script loaded."""
    quoted = " ".join(f"'{word}'" for word in ("kernelbox", *words))
    script = f"""
kernelbox() {{ '{KERNELBOX}' "$@"; }}
eval "$(kernelbox completion bash)"
COMP_WORDS=({quoted}); COMP_CWORD={len(words)}
_kernelbox
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def test_bash_completes_commands_options_and_names(home: Path) -> None:
    for name in ("alpha", "beta one"):
        succeed("create", "--name", name)
    assert complete_in_bash("st") == ["status"]
    assert complete_in_bash("exec", "--st") == ["--stream"]
    assert complete_in_bash("completion", "") == ["bash", "zsh", "fish", "-h", "--help"]
    assert complete_in_bash("exec", "--name", "") == ["alpha", r"beta\ one"]
    assert complete_in_bash("console", "al") == ["alpha"]
    assert complete_in_bash("console", r"beta\ o") == [r"beta\ one"]


def test_bash_completes_a_name_that_is_a_command_without_running_it(home: Path, tmp_path: Path) -> None:
    names = [f"$(touch {tmp_path}/ran)", f"`touch {tmp_path}/ran`", f"x; touch {tmp_path}/ran", "${HOME}"]
    for name in names:
        succeed("create", "--name", name)
    offered = complete_in_bash("exec", "--name", "")
    echoed = subprocess.run(["bash", "-c", f"printf '%s\\n' {' '.join(offered)}"], capture_output=True, text=True)
    assert echoed.stdout.splitlines() == names
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_valid_for_its_shell(shell: str) -> None:
    script = kernelbox("completion", shell).stdout
    assert all(name in script for name in NAMES)
    assert "--names" not in script.replace("list --names", "")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=script, text=True, check=True)

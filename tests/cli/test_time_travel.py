"""The commands about copies of kernels, as users type them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import fail, kernelbox, succeed


def shown(name: str, expression: str) -> object:
    return succeed("exec", "--name", name, expression)["return_value"]


def test_a_kernel_is_rolled_back_to_a_checkpoint_from_the_command_line(home: Path) -> None:
    succeed("exec", "--name", "demo", "x = 1")
    made = succeed("checkpoint", "demo", "loaded")
    assert (made["number"], made["label"], made["execution_count"], made["evicted"]) == (1, "loaded", 1, [])
    succeed("exec", "--name", "demo", "x = 2")
    for to in ([], ["1"], ["--to", "1"], ["loaded"], ["--to", "loaded"]):
        record = succeed("rollback", "demo", *to)
        assert (record["name"], record["restored_from"]) == ("demo", 1)
        assert shown("demo", "x") == "1"
    (listed,) = succeed("checkpoints", "demo")["checkpoints"]
    assert (listed["number"], listed["private_bytes"] > 0) == (1, True)
    assert succeed("drop", "demo", "--checkpoint", "loaded") == {"dropped": True}
    gone = kernelbox("drop", "demo", "1")
    assert (gone.status, "has no checkpoint '1'" in gone.stderr) == (1, True)
    assert "no checkpoint" in fail("rollback", "demo")


def test_a_kernel_is_branched_and_a_branch_promoted_from_the_command_line(home: Path) -> None:
    succeed("exec", "--name", "demo", "x = 1")
    made = succeed("branch", "demo", "one", "two")["branches"]
    assert [record["name"] for record in made] == ["one", "two"]
    succeed("exec", "--name", "two", "x = 2")
    assert (shown("demo", "x"), shown("one", "x")) == ("1", "1")
    assert succeed("promote", "two")["name"] == "demo"
    assert shown("demo", "x") == "2"
    assert [record["name"] for record in succeed("list")["kernels"]] == ["demo", "one"]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["branch", "demo"], "the branch's name is missing; see"),
        (["drop", "--name", "demo"], "the checkpoint is missing; see"),
        (["checkpoint", "demo", "one", "two"], "unexpected: 'two'; see"),
        (["rollback", "demo", "one", "--to", "two"], "unexpected: 'one'; see"),
        (["promote"], "the kernel's name is missing; see"),
    ],
    ids=" ".join,
)
def test_a_command_about_copies_says_what_is_missing(words: list[str], wrong: str) -> None:
    assert wrong in fail(*words, status=2)


def test_the_tree_shows_branches_below_their_originals_with_checkpoints(home: Path) -> None:
    succeed("exec", "--name", "demo", "x = 1")
    succeed("checkpoint", "demo", "--label", "loaded")
    succeed("branch", "demo", "--to", "child")
    succeed("branch", "child", "--to", "grandchild")
    (root,) = succeed("list", "--tree")["kernels"]
    assert [each["label"] for each in root["checkpoints"]] == ["loaded"]
    (child,) = root["branches"]
    assert (child["name"], [each["name"] for each in child["branches"]]) == ("child", ["grandchild"])
    lines = kernelbox("list", "--tree", "--text").stdout.splitlines()
    assert lines[0] == "demo  idle"
    assert lines[1].startswith("├─ checkpoint 1 'loaded': after 1 cell, ")
    assert lines[2:] == ["└─ child  idle", "   └─ grandchild  idle"]


def test_a_branch_whose_original_is_gone_stands_at_the_top_of_the_tree(home: Path) -> None:
    succeed("create", "--name", "demo")
    succeed("branch", "demo", "--to", "child")
    succeed("destroy", "--name", "demo")
    assert kernelbox("list", "--tree", "--text").stdout == "child  idle\n"


def test_what_cannot_be_copied_is_said_on_the_command_line(home: Path) -> None:
    code = "import threading, time; threading.Thread(target=time.sleep, args=(1e6,), daemon=True, name='mine').start()"
    succeed("exec", "--name", "demo", code)
    assert "Python thread 'mine' runs" in fail("checkpoint", "demo")


def test_people_read_what_was_done(home: Path) -> None:
    succeed("create", "--name", "demo")
    assert kernelbox("checkpoint", "demo", "--text").stdout.startswith("checkpoint 1: after 0 cells")
    assert kernelbox("checkpoints", "demo", "--text").stdout.startswith("checkpoint 1: after 0 cells")
    succeed("exec", "--name", "demo", "x = 1")
    rolled = kernelbox("rollback", "demo", "--text")
    assert "lost: execution 1" in rolled.stderr
    assert rolled.stdout.startswith("demo  idle")
    assert kernelbox("drop", "demo", "--checkpoint", "1", "--text").stdout == "dropped checkpoint 1\n"
    assert kernelbox("checkpoints", "demo", "--text").stdout == "there are no checkpoints\n"

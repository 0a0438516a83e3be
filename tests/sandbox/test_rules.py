"""What rules about paths come to, without a file system: mounts are played in order and every path is looked at."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import untimed

from kernelbox.sandbox._path_rules import PathRules, is_below, parents, resolve, state_of
from kernelbox.wire._confinement import Mount

NAMES = ("a", "b")
PATHS = ["/" + "/".join(steps) for depth in range(1, 4) for steps in itertools.product(NAMES, repeat=depth)]

some_paths = st.frozensets(st.sampled_from(PATHS), max_size=4)
rules = st.builds(
    PathRules,
    deny_read=some_paths,
    allow_read=some_paths,
    allow_write=some_paths,
    deny_write=some_paths,
    private=st.frozensets(st.sampled_from(["/a", "/b/a"]), max_size=2),
    needed=some_paths,
    secret=st.frozensets(st.sampled_from(PATHS), max_size=2),
)


def seen(path: str, mounts: list[Mount]) -> str:
    """Returns what a path is when all is mounted: what was mounted last at the nearest place decides."""
    for place in (path, *parents(path)):
        here = [mount.kind for mount in mounts if mount.path == place and mount.kind != "pin"]
        if here:
            return "hide" if here[-1] == "screen" else here[-1]
    return "read"


@untimed
@given(rules)
def test_every_path_is_what_the_rules_say_when_all_is_mounted(rules: PathRules) -> None:
    mounts = resolve(rules)
    for path in PATHS:
        expected, found = state_of(path, rules), seen(path, mounts)
        assert found == expected or (expected, found) == ("hide", "private"), path  # where there is nothing to hide


@untimed
@given(rules)
def test_no_directory_above_something_mounted_can_be_moved(rules: PathRules) -> None:
    mounts = resolve(rules)
    pinned = {mount.path for mount in mounts if mount.kind == "pin"}
    places = {mount.path for mount in mounts if mount.kind != "pin"}
    for path in places:
        above = list(itertools.takewhile(lambda place: place not in places, parents(path)))
        around = next((place for place in parents(path) if place in places), None)
        if around is not None and seen(around, mounts) == "write":
            assert set(above) <= pinned, path


@untimed
@given(rules)
def test_parents_are_mounted_before_what_is_in_them_and_pins_are_covered(rules: PathRules) -> None:
    mounts = resolve(rules)
    for index, mount in enumerate(mounts):
        later = mounts[index + 1 :]
        if mount.kind == "pin":
            assert any(other.kind == "write" and is_below(mount.path, other.path) for other in later)
        else:
            assert not any(is_below(mount.path, other.path) for other in later if other.kind != "pin")


@untimed
@given(rules)
def test_what_is_denied_to_be_written_is_nowhere_writable(rules: PathRules) -> None:
    for path in PATHS:
        if any(place in rules.deny_write for place in (path, *parents(path))):
            assert state_of(path, rules) != "write"


@untimed
@given(rules)
def test_what_is_secret_is_nowhere_shown(rules: PathRules) -> None:
    for path in PATHS:
        if any(place in rules.secret for place in (path, *parents(path))):
            assert seen(path, resolve(rules)) in ("hide", "private")


@pytest.mark.parametrize(
    ("rules", "path", "state"),
    [
        (PathRules(), "/a", "read"),
        (PathRules(allow_write=frozenset({"/a"})), "/a/b", "write"),
        (PathRules(deny_read=frozenset({"/a"})), "/a/b", "hide"),
        (PathRules(deny_read=frozenset({"/a"}), allow_read=frozenset({"/a/b"})), "/a/b/c", "read"),
        (PathRules(deny_read=frozenset({"/a"}), allow_read=frozenset({"/a"})), "/a", "read"),
        (PathRules(deny_read=frozenset({"/a/b"}), allow_read=frozenset({"/a"})), "/a/b", "hide"),
        (PathRules(deny_read=frozenset({"/a"}), allow_write=frozenset({"/a/b"})), "/a/b", "write"),
        (PathRules(deny_read=frozenset({"/a"}), allow_write=frozenset({"/a"})), "/a", "hide"),
        (PathRules(deny_write=frozenset({"/a"}), allow_write=frozenset({"/a/b"})), "/a/b", "read"),
        (PathRules(deny_write=frozenset({"/a/b"}), allow_write=frozenset({"/a"})), "/a/b", "read"),
        (PathRules(private=frozenset({"/a"})), "/a", "private"),
        (PathRules(private=frozenset({"/a"}), deny_read=frozenset({"/a"})), "/a", "private"),
        (PathRules(private=frozenset({"/a"}), allow_write=frozenset({"/a"})), "/a", "write"),
        (PathRules(private=frozenset({"/a"}), needed=frozenset({"/a/b"})), "/a/b", "read"),
        (PathRules(deny_read=frozenset({"/a/b"}), needed=frozenset({"/a/b"})), "/a/b", "hide"),
        (PathRules(secret=frozenset({"/a"}), allow_read=frozenset({"/a/b"})), "/a/b", "hide"),
        (PathRules(secret=frozenset({"/a"}), allow_write=frozenset({"/"})), "/a", "hide"),
    ],
)
def test_where_rules_meet_the_documented_one_decides(rules: PathRules, path: str, state: str) -> None:
    assert state_of(path, rules) == state


def test_the_directories_above_a_protected_one_are_pinned_below_what_cells_see() -> None:
    rules = PathRules(allow_write=frozenset({"/w"}), deny_write=frozenset({"/w/a/.git/hooks"}))
    assert [(mount.kind, mount.path) for mount in resolve(rules)] == [
        ("write", "/w"),
        ("pin", "/w/a"),
        ("pin", "/w/a/.git"),
        ("write", "/w"),
        ("read", "/w/a/.git/hooks"),
    ]


def test_a_hidden_directory_with_something_shown_in_it_is_a_screen() -> None:
    rules = PathRules(
        deny_read=frozenset({"/home"}), allow_read=frozenset({"/home/me/x"}), files=frozenset({"/home/me/x"})
    )
    assert resolve(rules) == [Mount("screen", "/home"), Mount("read", "/home/me/x", False)]

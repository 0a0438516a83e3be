"""What a name was opened with, besides walls, stays with it too: directory, environment, tags, session, lifetime."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cells import value
from tests.support.command_line import succeed
from tests.support.store import run_python

from kernelbox import KernelExists, StartFailed, create, execute, get_or_create, restart, status

pytestmark = pytest.mark.usefixtures("home")

DIE = "import os; os._exit(1)"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "place"
    path.mkdir()
    return path


def test_a_kernel_that_follows_a_dead_one_works_in_its_directory_under_its_names(place: Path) -> None:
    execute(create("mine", cwd=place, tags={"a": "b"}, session_name="talk"), DIE)
    assert value("talk", "__import__('os').getcwd()") == repr(str(place))
    after = status("mine")
    assert (after.name, after.session_name, after.tags, after.cwd) == ("mine", "talk", {"a": "b"}, str(place))


def test_options_that_are_given_again_count_and_the_others_stay(place: Path, tmp_path: Path) -> None:
    execute(create("mine", cwd=place, tags={"a": "b"}), DIE)
    again = get_or_create("mine", cwd=tmp_path)
    assert (again.cwd, again.tags) == (str(tmp_path), {"a": "b"})
    execute("mine", DIE)
    assert (create("mine", tags={}).cwd, status("mine").tags) == (str(tmp_path), {})


def test_the_command_line_leaves_tags_that_it_is_not_given() -> None:
    execute(create("mine", tags={"a": "b"}), DIE)
    assert succeed("create", "mine")["tags"] == {"a": "b"}
    execute("mine", DIE)
    assert succeed("create", "mine", "--tag", "c=d")["tags"] == {"c": "d"}


def test_an_environment_that_this_process_gave_is_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "the host's own")
    execute(get_or_create("mine", env={"SECRET": "x"}), DIE)
    assert value("mine", "__import__('os').environ.get('SECRET')") == "'x'"
    execute("mine", DIE)
    asked = "import kernelbox; print(kernelbox.execute('mine', 'import os; os.environ.get(\"SECRET\")').return_value)"
    assert run_python(asked).stdout == "None\n", "what another process gave is not known"


def test_a_kernel_that_ends_with_its_owner_is_followed_by_one_that_does() -> None:
    first = get_or_create("mine", lifetime="process")
    execute(first, DIE)
    run_python("import kernelbox; kernelbox.get_or_create('mine')")
    assert (status("mine").lifetime, status("mine").owner_pid) == ("process", first.owner_pid)


def test_a_directory_that_was_made_again_will_do_for_a_plain_kernel_and_a_link_will_not(place: Path) -> None:
    create("mine", cwd=place)
    place.rmdir()
    place.mkdir()
    assert restart("mine").cwd == str(place)
    place.rmdir()
    place.symlink_to("/")
    with pytest.raises(StartFailed, match=r"its working directory '.*place' was replaced by another one, or by a link"):
        restart("mine")
    assert value("mine", "1 + 1") == "2", "a kernel that could not be followed by another is left alone"


def test_a_session_name_that_a_dead_kernel_has_left_walls_for_is_not_taken() -> None:
    execute(create("walled", limits={"files": 100}), DIE)
    with pytest.raises(KernelExists, match="'walled'"):
        create("mine", session_name="walled")

"""The files of jobs where descriptors run out: nothing is lost or said to be, and no file stays open."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounded import run
from tests.support.homes import new_home
from tests.support.store import fill, held_in, mounted, shortage

from kernelbox.base._errors import StoreFailed
from kernelbox.host.files._home import Home
from kernelbox.host.store._job_entry import JobEntry
from kernelbox.host.store._job_follower import Follower
from kernelbox.host.store._job_journal import Journal
from kernelbox.server.jobs._job_service import Jobs

JOB = "1" * 32

# More than half of what one file of a job holds, so that the next event begins another.
LONG = b"x" * 200_000


@pytest.fixture
def files() -> Iterator[Path]:
    """Makes a home; yields the directory of its jobs."""
    with new_home() as home:
        yield home / "jobs"


def new_journal(files: Path, key_file: Path) -> Journal:
    return Journal(Home(str(files.parent), str(key_file)))


@pytest.fixture
def journal(files: Path, key_file: Path) -> Journal:
    return new_journal(files, key_file)


def begin(journal: Journal) -> JobEntry:
    entry = journal.claim(JOB, {"id": JOB, "state": "running"})
    assert entry is not None
    return entry


def begin_long(journal: Journal) -> JobEntry:
    """Begins a job whose events are in three files."""
    entry = begin(journal)
    for number in (1, 2, 3):
        entry.append([(number, "output", LONG)])
    return entry


def finish(entry: JobEntry, last: int) -> None:
    entry.finish({"id": JOB, "state": "done", "last": last}, (last, "result", b'{"result":42}'))


def read_all(follower: Follower) -> list[int]:
    """Returns the numbers of the events that can be read now, and of those that are said to be missing."""
    found = follower.read()
    while follower.is_behind:
        found += follower.read()
    return [number if kind != "dropped" else -number for number, kind, _ in found]


def opened_below(folder: Path) -> list[str]:
    """Returns the files of a directory that this process has open, also those that were removed."""
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [path for path in links if path.startswith(f"{folder}/")]


def refuse_files(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[str]:
    """Makes opening the files of one name fail as often as is said; returns the failures to come."""
    to_come, opened = [name] * times, os.open

    def open_if_possible(path: str, *args: Any, **options: Any) -> int:
        if path == name and to_come:
            to_come.pop()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", open_if_possible)
    return to_come


@pytest.mark.parametrize("spare", range(4))
def test_however_few_descriptors_are_free_a_follower_misses_nothing(spare: int, journal: Journal, files: Path) -> None:
    entry = begin_long(journal)
    follower = journal.follow(JOB, 0)
    with shortage(spare):
        found = read_all(follower)
    found += read_all(follower)
    assert found == [1, 2, 3]
    with shortage(spare):
        assert read_all(follower) == []
    entry.append([(4, "output", b"{}")])
    finish(entry, 5)
    assert read_all(follower) == [4, 5]
    assert held_in(files) == [JOB], "it holds the file that it reads, and no earlier one"
    follower.close()
    assert held_in(files) == []


def test_a_follower_that_can_open_only_the_newest_file_waits_for_the_earlier_ones(
    journal: Journal, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(begin_long(journal), 4)
    to_come = refuse_files(monkeypatch, f"{JOB}.1", 1)
    follower = journal.follow(JOB, 0)
    assert read_all(follower) == []
    assert (to_come, held_in(files)) == ([], [])
    assert read_all(follower) == [1, 2, 3, 4]
    follower.close()


def test_a_job_is_not_said_to_be_gone_because_no_descriptor_is_free(journal: Journal) -> None:
    finish(begin(journal), 1)
    with shortage(0):
        with pytest.raises(StoreFailed, match="too many open files"):
            journal.read(JOB)
        with pytest.raises(StoreFailed, match="too many open files"):
            journal.read_result(JOB)
    record = journal.read(JOB)
    assert record is not None
    assert (record["state"], journal.read_result(JOB)) == ("done", b"42")


@pytest.mark.parametrize("spare", range(4))
def test_however_few_descriptors_are_free_the_result_of_a_job_is_there_or_the_home_cannot_be_read(
    spare: int, journal: Journal, files: Path, key_file: Path
) -> None:
    finish(begin(journal), 1)
    with shortage(spare):
        with contextlib.suppress(StoreFailed):
            assert new_journal(files, key_file).read(JOB) is not None
        with contextlib.suppress(StoreFailed):
            assert new_journal(files, key_file).read_result(JOB) == b"42"


def test_those_who_follow_a_job_wait_until_a_descriptor_is_free(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(begin(journal), 1)
    to_come = refuse_files(monkeypatch, JOB, 5)

    async def main() -> list[str]:
        jobs = Jobs(journal, kernels=None)  # type: ignore[arg-type]  # no kernel is asked
        return [kind async for _, kind, _ in jobs.events(JOB, 0)]

    assert (run(main), to_come) == (["result"], [])


def test_an_answer_stays_until_a_descriptor_is_free(journal: Journal) -> None:
    begin(journal)
    journal.answer(JOB, "question", {"accept": True})
    assert journal.read(JOB) is not None
    with shortage(0):
        assert journal.take_answer(JOB, "question") is None
    assert journal.take_answer(JOB, "question") == {"accept": True}
    assert journal.take_answer(JOB, "question") is None


@pytest.mark.parametrize("mode", [0o600, 0o000])
def test_an_answer_that_a_cell_has_made_is_in_nobodys_way(mode: int, journal: Journal, files: Path) -> None:
    begin(journal)
    planted = files / f"{JOB}.answer-question"
    planted.write_text('{"accept": true}')
    planted.chmod(mode)
    assert journal.take_answer(JOB, "question") is None
    assert journal.answer(JOB, "question", {"accept": False})


def test_a_running_job_whose_file_cannot_be_opened_is_not_swept_away(
    journal: Journal, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = begin(journal)
    os.utime(files / JOB, (0, 0))
    to_come = refuse_files(monkeypatch, JOB, 1)
    journal.sweep()
    assert to_come == []
    finish(entry, 1)
    assert journal.read_result(JOB) == b"42"


def test_no_file_stays_open_that_was_only_looked_at(journal: Journal, files: Path) -> None:
    finish(begin_long(journal), 4)
    journal.answer(JOB, "question", {"accept": True})
    damaged = files / ("2" * 32)
    damaged.write_bytes(b"no entry at all")
    assert journal.read_result(JOB) == b"42"
    assert [record["id"] for record in journal.records()] == [JOB]
    assert (journal.read(damaged.name), journal.read_result(damaged.name)) == (None, None)
    assert journal.take_answer(JOB, "question") == {"accept": True}
    assert opened_below(files) == []


def test_a_job_that_is_given_up_leaves_nothing_but_its_name(journal: Journal, files: Path) -> None:
    entry = begin_long(journal)
    entry.give_up()
    assert (entry.is_open, held_in(files)) == (False, [])
    assert [(path.name, path.stat().st_size) for path in files.iterdir()] == [(JOB, 0)]
    assert journal.claim(JOB, {"id": JOB, "state": "running"}) is None


def test_a_job_for_which_there_is_no_room_leaves_neither_a_file_nor_a_descriptor(key_file: Path) -> None:
    with new_home() as directory, mounted(directory, "size=64k,mode=700") as disk:
        journal = Journal(Home(str(disk / "home"), str(key_file)))
        journal.withdraw(begin(journal))
        fill(disk)
        with pytest.raises(StoreFailed, match="No space left"):
            journal.claim(JOB, {"id": JOB, "state": "running", "name": "x" * 5_000})
        assert opened_below(disk / "home" / "jobs") == []
        assert list((disk / "home" / "jobs").iterdir()) == []


def test_events_make_room_on_a_full_disk_and_nothing_torn_is_left(key_file: Path) -> None:
    with new_home() as directory, mounted(directory, "size=1m,mode=700") as disk:
        journal, file = Journal(Home(str(disk / "home"), str(key_file))), disk / "home" / "jobs" / JOB
        entry = begin(journal)
        entry.append([(1, "output", LONG)])
        fill(disk)
        entry.append([(2, "output", LONG[50_000:])])
        assert b"\0" not in file.read_bytes()
        with pytest.raises(OSError, match="No space left"):
            entry.append([(3, "output", b"y" * 1_000_000)])
        assert b"y" * 10 not in file.read_bytes()
        finish(entry, 4)
        follower = journal.follow(JOB, 0)
        assert read_all(follower) == [-3, 4]
        follower.close()

"""No attack gets out of a sandbox, as the superuser or as an ordinary user; and each would without one."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from scripts.sandbox_runtime import install
from tests.sandbox.attacks import ATTACKS
from tests.support.homes import outside_of_tmp
from tests.support.sandbox import needs_linux

pytestmark = [needs_linux, pytest.mark.slow, pytest.mark.timeout(3000)]

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "sandbox.md"

# Seconds. Far beyond what all attacks take together; for each, srt is started anew.
DEADLINE = 2700.0

# An ordinary user, whom no database need know.
USER = 61234

# Attacks that fail without a sandbox as well, at least on some machines: they show that a door is shut, not by what.
PROVE_NOTHING = {
    "read files: a denied file by /proc/1/root",
    "write outside: by /proc/1/root",
    "kernelbox itself: another kernel's variables, in what the two were forked from",
    "kernelbox itself: a descriptor of a directory or process was left",
    "kernelbox itself: a directory that the first process has open",
    "persist: the interpreter's file",
    "persist: the interpreter's file, cut",
    "trace and enter processes: process_vm_readv",
    "the system: sysrq",
    "the system: a disk",
    "the system: a device is made",
    "the system: /sys",
    "the system: control groups",
    "the system: the kernel's debug files",
    "the system: a file that nobody can delete",
    "the system: keys of the user",
    "the system: pages of the machine's memory",
    "the system: memory of the Linux kernel",
    "the system: timers of all processes",
    "change files outside: rights of another user",
    "change files outside: times of the interpreter",
    "write outside: by a link that is raced",
    "write outside: by a file without a name",
    "network: an address of the machine",
    "network: TCP over IPv6",
    "network: routes",
    "other sockets and io_uring: vsock",
    "other sockets and io_uring: io_uring",
    "parts of the Linux kernel: calls by the numbers of x32",
    "parts of the Linux kernel: calls of 32 bits",
    "parts of the Linux kernel: fanotify",
    "parts of the Linux kernel: perf",
    "parts of the Linux kernel: bpf",
    "parts of the Linux kernel: userfaultfd",
    "parts of the Linux kernel: calls that are newer",
    "Unix sockets: half of a pair, connected to another end",
    "signals: the process at the other end of a socket",
    "trace and enter processes: descriptors of the other end of a socket",
    "trace and enter processes: namespaces of the other end of a socket",
    "the system: attributes of a file by the newest calls",
    "read files: a denied file by /proc/1/cwd",
    "read other processes: memory that is shared with them",
    "read other processes: list, where /proc is mounted again",
    "read other processes: command line, where /proc is mounted again",
    "trace and enter processes: parents of its namespaces",
    "network: TCP over IPv6 to an address of IPv4",
}

# Attacks that end the kernel: the filter of srt kills what makes such a call.
ENDS = {("srt", "parts of the Linux kernel: calls by the numbers of x32")}

users = pytest.mark.parametrize("uid", [0, USER] if os.getuid() == 0 else [os.getuid()])


@functools.cache
def results(uid: int) -> dict[str, dict[str, bool]]:
    """Runs all attacks as a user; returns what came of each."""
    base = Path(tempfile.mkdtemp(prefix="kernelbox-", dir=outside_of_tmp()))
    try:
        prepare(base, uid)
        stage = [sys.executable, str(HERE / "stage.py"), str(base)]
        if os.getuid() == 0:
            stage = [sys.executable, str(HERE / "as_user.py"), str(uid), str(base), *stage]
        package = str(HERE.parents[1] / "src")
        path = os.pathsep.join((str(install()), os.environ["PATH"]))
        env = {**os.environ, "HOME": str(base / "user"), "PYTHONPATH": package, "PATH": path}
        done = subprocess.run(stage, env=env, cwd=base, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, dict[str, bool]] = json.loads(done.stdout)
        return told
    finally:
        shutil.rmtree(base)


def prepare(base: Path, uid: int) -> None:
    """Makes what only the superuser can: a file of another user's, and a program that runs as that user."""
    base.chmod(0o755)
    for name in ("user", "mounted", "twin", "proc"):
        (base / name).mkdir()
    (base / "user" / ".bashrc").touch()
    (base / "foreign").write_text("secret")
    (base / "foreign").chmod(0o600)
    shutil.copy(shutil.which("id") or "/usr/bin/id", base / "setuid")
    if os.getuid() == 0:
        for path in (base, base / "user", base / "user" / ".bashrc"):
            os.chown(path, uid, uid)
        for name in ("foreign", "setuid"):
            os.chown(base / name, 12345 if uid == 0 else 0, 0)
    (base / "setuid").chmod(0o4755)


def levels_of(uid: int) -> list[str]:
    """Returns the levels that there are for a user: for the superuser srt is no sandbox."""
    return ["native"] if uid == 0 else ["native", "srt"]


@users
def test_no_attack_gets_out_of_a_sandbox(uid: int) -> None:
    through = [(level, name) for name, told in results(uid).items() for level in levels_of(uid) if told[level]]
    assert through == []


@users
def test_a_kernel_goes_on_after_every_attack_but_one_that_srt_kills_it_for(uid: int) -> None:
    gone = [
        (level, name) for name, told in results(uid).items() for level in levels_of(uid) if not told[f"{level} usable"]
    ]
    assert set(gone) <= ENDS


@pytest.mark.skipif(os.getuid() != 0, reason="most attacks need the superuser to get through anywhere")
def test_every_attack_gets_through_without_a_sandbox_and_so_proves_something() -> None:
    failed = {name for name, told in results(0).items() if not told["none"]}
    assert failed - PROVE_NOTHING == set()


def test_the_attacks_have_names_of_their_own_and_are_all_tried() -> None:
    names = [f"{attack.group}: {attack.name}" for attack in ATTACKS]
    assert len(set(names)) == len(names) >= 100
    assert set(names) >= PROVE_NOTHING


@pytest.mark.skipif(os.getuid() != 0, reason="the table has results of the superuser as well")
def test_the_document_shows_what_came_of_the_attacks() -> None:
    pattern = r"^\| ([^|`]+?) \| (\d+) \| [^|]+ \| (\d+), (\d+) \| (\d+) \|$"
    shown = re.findall(pattern, DOCUMENT.read_text(), flags=re.MULTILINE)
    assert shown == [tuple(row) for row in rows()], (
        "python -m tests.sandbox.test_attacks writes this table:\n" + table()
    )


def rows() -> list[list[str]]:
    """Returns of each group how many attacks there are, and how many get out of a sandbox.

    Of the native level, of a user and of the superuser; of srt, of a user.
    """
    through = [count(USER, "native"), count(0, "native"), count(USER, "srt")]
    groups = Counter(attack.group for attack in ATTACKS)
    return [[group, str(number), *(str(each[group]) for each in through)] for group, number in groups.items()]


def count(uid: int, level: str) -> Counter[str]:
    """Returns how many attacks of each group get through at a level."""
    return Counter(name.partition(":")[0] for name, told in results(uid).items() if told[level])


def table() -> str:
    """Returns the rows of the table, with the results without a sandbox on this machine."""
    plain = {uid: count(uid, "none") for uid in (USER, 0)}
    return "\n".join(
        f"| {group} | {number} | {plain[USER][group]}, {plain[0][group]} | {user}, {root} | {srt} |"
        for group, number, user, root, srt in rows()
    )


def write_table() -> None:
    """Puts the table into the document, in place of the one that is there."""
    text = DOCUMENT.read_text()
    head = re.search(r"^\| attacks on \|.*\n\|[-|]+\|\n", text, flags=re.MULTILINE)
    assert head is not None
    rest = text[head.end() :]
    DOCUMENT.write_text(text[: head.end()] + table() + "\n" + rest[rest.index("\n\n") + 1 :])


if __name__ == "__main__":
    write_table()

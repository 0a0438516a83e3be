"""Runs a program as a user, for tests that run as the superuser: `python as_user.py UID DIRECTORY PROGRAM …`.

It gets namespaces of its own, so that what it does as the superuser to mounts and names is undone with it; in them
something is mounted at DIRECTORY/mounted, DIRECTORY itself once more at DIRECTORY/twin, and the processes of the system
at DIRECTORY/proc, if those are there. The interpreter may be in a directory that only its owner can enter, such as the
superuser's home: that directory is covered there, and what the program needs is shown.
"""

from __future__ import annotations

import os
import shutil
import sys

from kernelbox.guest.walls._system_calls import (
    CLONE_NEWIPC,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    MS_BIND,
    MS_PRIVATE,
    MS_REC,
    attach,
    clone_tree,
    mount,
    unshare,
)


def main(uid: int, directory: str, command: list[str]) -> None:
    needed = [sys.prefix, sys.base_prefix, *(path for path in sys.path if os.path.isdir(path)), os.getcwd()]
    if srt := shutil.which("srt"):
        needed.append(os.path.dirname(os.path.dirname(srt)))  # as npm lays it out below a directory of a project
    unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC)
    mount("", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", f"{directory}/mounted", "tmpfs", 0)
    if os.path.isdir(f"{directory}/twin"):
        mount(directory, f"{directory}/twin", "", MS_BIND)
    if os.path.isdir(f"{directory}/proc"):
        mount("proc", f"{directory}/proc", "proc", 0)
    if uid != 0:
        open_up([os.path.realpath(path) for path in needed])
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    os.execv(command[0], command)


def open_up(paths: list[str]) -> None:
    for directory in sorted({found for path in paths if (found := closed_above(path))}):
        inside = [path for path in sorted(set(paths)) if path.startswith(directory + "/")]
        trees = [(path, clone_tree(path)) for path in inside]
        mount("tmpfs", directory, "tmpfs", 0, "mode=0755")
        for path, tree in trees:
            os.makedirs(path, exist_ok=True)
            attach(tree, path)


def closed_above(path: str) -> str:
    """Returns the outermost directory above a path that others cannot enter; "" if there is none."""
    steps = path.split("/")
    for count in range(2, len(steps)):
        directory = "/".join(steps[:count])
        if not os.stat(directory).st_mode & 0o001:
            return directory
    return ""


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])

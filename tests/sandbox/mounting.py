"""Runs a program where something is mounted on something else: `python mounting.py SOURCE TARGET … -- PROGRAM …`."""

from __future__ import annotations

import os
import sys

from kernelbox.guest.walls._system_calls import CLONE_NEWNS, CLONE_NEWUSER, MS_BIND, MS_PRIVATE, MS_REC, mount, unshare


def main(places: list[str], command: list[str]) -> None:
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWNS | (CLONE_NEWUSER if user != 0 else 0))
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mount("", "/", "", MS_REC | MS_PRIVATE)
    for source, target in zip(places[::2], places[1::2], strict=True):
        mount(source, target, "", MS_BIND)
    os.execv(command[0], command)


if __name__ == "__main__":
    at = sys.argv.index("--")
    main(sys.argv[1:at], sys.argv[at + 1 :])

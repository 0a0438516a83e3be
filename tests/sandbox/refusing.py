"""Runs a program on a system that refuses a system call: `python refusing.py NUMBER ERRNO WHEN PROGRAM …`.

WHEN is `3=15` if the fourth argument of the call must be 15 for it to be refused, `-` for anything. With an ERRNO of 0
the system does nothing, and says that it has done it.
"""

from __future__ import annotations

import os
import struct
import sys

from kernelbox.guest.walls._system_calls import filter_system_calls, forbid_new_privileges

LOAD, EQUAL, RETURN, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000


def main(number: int, error: int, when: str, command: list[str]) -> None:
    argument, _, value = when.partition("=")
    steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 3 if value else 1, number)]
    if value:
        steps += [(LOAD, 0, 0, 16 + 8 * int(argument)), (EQUAL, 0, 1, int(value))]
    steps += [(RETURN, 0, 0, ERRNO | error), (RETURN, 0, 0, ALLOW)]
    forbid_new_privileges()
    filter_system_calls(b"".join(struct.pack("HBBI", *step) for step in steps))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])

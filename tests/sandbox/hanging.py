"""Runs a program on a system that does not come back from a system call: `python hanging.py NUMBER PROGRAM …`.

As with a file system that does not answer only death ends it: the call waits for another process (seccomp_unotify(2)),
which says here that it has heard of it, never answers, and ends with our input.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import sys
from typing import NoReturn

from kernelbox.guest.walls._system_calls import forbid_new_privileges

LOAD, EQUAL, RETURN, ALLOW, ASK = 0x20, 0x15, 0x06, 0x7FFF0000, 0x7FC00000
SECCOMP = 317 if os.uname().machine == "x86_64" else 277
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 8, 32
NOTIF_RECV, NOTIF_SIZE = 0xC0502100, 80


def main(number: int, command: list[str]) -> None:
    steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, number), (RETURN, 0, 0, ASK), (RETURN, 0, 0, ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    header = struct.pack("HP", len(steps), ctypes.addressof(program))
    forbid_new_privileges()
    asked = ctypes.CDLL(None).syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE, header)
    assert asked >= 0
    if os.fork() == 0:
        hear(asked)
    os.close(asked)
    os.execv(command[0], command)


def hear(asked: int) -> NoReturn:
    poller = select.poll()
    for fd in (0, asked):
        poller.register(fd, select.POLLIN)
    while 0 not in [fd for fd, _ in poller.poll()]:
        fcntl.ioctl(asked, NOTIF_RECV, bytearray(NOTIF_SIZE))
        poller.unregister(asked)
        print("hanging", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

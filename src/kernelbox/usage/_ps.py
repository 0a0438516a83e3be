"""What ps(1) tells of a process, on systems without /proc; host and guest must get the same number from it."""

from __future__ import annotations

import os
import subprocess
import zlib


def ask_start_time(pid: int) -> int | None:
    """Returns a number that stands for when a process began; None if there is no such process, or a zombie."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    # The time is written in the zone and the language of who asks.
    env = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
    answer = subprocess.run(command, capture_output=True, check=False, env=env)
    state, _, started = answer.stdout.strip().partition(b" ")
    return None if not started or state.startswith(b"Z") else zlib.crc32(started.strip())

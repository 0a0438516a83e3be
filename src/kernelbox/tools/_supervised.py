"""Processes that end with this one, however it ends, and with them all that they started."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from kernelbox.host.process._forks import forget_in_forks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SUPERVISOR = str(Path(__file__).with_name("_supervisor.py"))


class Lifeline:
    """A pipe whose one end the supervisor watches; no fork of this process holds the other."""

    def __init__(self) -> None:
        self.end, self._ours = os.pipe()
        forget_in_forks(self)

    def forget(self) -> None:
        """Closes our end: the supervisor ends what it has started, with patience."""
        ours, self._ours = self._ours, -1
        if ours >= 0:
            os.close(ours)


async def start_supervised(
    command: Sequence[str],
    *,
    stdin: int,
    stderr: int,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    limit: int = 2**16,
) -> tuple[asyncio.subprocess.Process, Lifeline]:
    """Starts a command below a supervisor, which has its exit status; SIGTERM has the supervisor kill it at once.

    The caller forgets the lifeline. Raises OSError if no process can be started here.
    """
    lifeline = Lifeline()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            _SUPERVISOR,
            str(lifeline.end),
            *command,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=env,
            cwd=cwd,
            pass_fds=(lifeline.end,),
            start_new_session=True,
            limit=limit,
        )
    except BaseException:
        lifeline.forget()
        raise
    finally:
        os.close(lifeline.end)
    return process, lifeline

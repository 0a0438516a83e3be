"""What is too long to be sent at once: all of it arrives, and a connection with a rest to send carries nothing else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.cells import DEADLINE, connected, eventually, value
from tests.support.executor import run as run_scenario
from tests.support.executor import text

from kernelbox import CodeExecutor, KernelRecord
from kernelbox.wire._messages import Done, Execute, Message

# More than any socket holds.
LONG = 3_000_000


def test_a_cell_of_several_megabytes_runs(kernel: KernelRecord) -> None:
    assert value(kernel, f"len({'x' * LONG!r})") == str(LONG)
    assert value(kernel, "1 + 1") == "2"


def test_a_cell_of_several_megabytes_runs_on_an_event_loop(home: Path) -> None:
    async def scenario() -> tuple[str | None, str | None]:
        async with CodeExecutor() as executor:
            return await text(executor, f"len({'x' * LONG!r})"), await text(executor, "1 + 1")

    assert run_scenario(scenario) == (str(LONG), "2")


def test_a_connection_that_has_something_left_to_send_is_not_idle_until_it_is_sent(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    with connected(kernel) as connection:
        eventually(lambda: connection.idle)
        os.kill(kernel.pid, signal.SIGSTOP)
        try:
            connection.send(Execute("a", f"len({'x' * LONG!r})"))
            assert connection.unsent
            assert not connection.idle
        finally:
            os.kill(kernel.pid, signal.SIGCONT)
        received: list[Message] = []
        while not any(isinstance(message, Done) for message in received):
            received += connection.receive(DEADLINE)
            assert not connection.ended
        eventually(lambda: connection.idle)

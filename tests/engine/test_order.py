"""What different programs and streams write arrives in the order in which it was written."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cells import DEADLINE

from kernelbox import KernelRecord, stream
from kernelbox.wire._results import OutputItem

_CELLS = {
    "!": ("python", "!{command}"),
    "%%bash": ("python", "%%bash\n{command}"),
    "bash": ("bash", "{command}"),
    "subprocess.run": ("python", "import subprocess; subprocess.run({command!r}, shell=True)"),
    "subprocess.Popen": ("python", "import subprocess; subprocess.Popen(['sh', '-c', {command!r}]).wait()"),
    "os.system": ("python", "import os; os.system({command!r})"),
    "thread": (
        "python",
        "import os, threading\nt = threading.Thread(target=os.system, args=({command!r},))\nt.start(); t.join()",
    ),
}


@pytest.mark.parametrize("way", _CELLS)
def test_what_was_written_first_arrives_first(way: str, kernel: KernelRecord) -> None:
    for _ in range(10):
        assert _streams(kernel, way, "ls /nope; echo after") == ["stderr", "stdout"]
        assert _streams(kernel, way, "echo before; ls /nope") == ["stdout", "stderr"]


@pytest.mark.parametrize("way", _CELLS)
def test_programs_that_take_turns_are_kept_apart(way: str, kernel: KernelRecord) -> None:
    turns = "; sleep 0.05; ".join(("echo out", "ls /nope") * 3)
    assert _streams(kernel, way, turns) == ["stdout", "stderr"] * 3


@pytest.mark.parametrize("way", _CELLS)
def test_what_programs_write_milliseconds_apart_is_kept_apart(way: str, kernel: KernelRecord) -> None:
    turns = "; sleep 0.002; ".join(("echo out", "echo err >&2") * 5)
    attempts = (_streams(kernel, way, turns) for _ in range(50))  # a busy machine may be too late for some
    assert ["stdout", "stderr"] * 5 in attempts


def test_many_small_writes_of_a_program_arrive_whole_and_in_order(kernel: KernelRecord) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-uc', 'for n in range(5000): print(n)']);"
    text = "".join(item.text or "" for item in _items(kernel, code, "python"))
    assert text.splitlines() == [str(number) for number in range(5000)]


def _streams(kernel: KernelRecord, way: str, command: str) -> list[str]:
    """Returns the streams that a command wrote to, in order; what is said of its exit status is left out."""
    language, code = _CELLS[way]
    kinds: list[str] = []
    for item in _items(kernel, code.format(command=command), language):
        if item.name is not None and kinds[-1:] != [item.name]:
            kinds.append(item.name)
    return kinds


def _items(kernel: KernelRecord, code: str, language: Any) -> list[OutputItem]:
    events = stream(kernel, code, language=language, timeout=DEADLINE)
    return [event for event in events if isinstance(event, OutputItem)]

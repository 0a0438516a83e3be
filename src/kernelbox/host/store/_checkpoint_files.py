"""The checkpoints of a kernel, as files in its directory: each is about one frozen process, and signed by a host.

A file is written once. The keeper ends the process whose file is gone, and removes the file of a process that is gone.
"""

from __future__ import annotations

import json
import time

from kernelbox.host.process._process import ProcessIdentity
from kernelbox.wire._layout import CHECKPOINT
from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory

# Characters of a label, and bytes of a file: JSON takes up to 12 for a character.
MAX_LABEL = 200
_LONGEST = 8192

# Says how many checkpoints there have been: a number is not given twice.
_LAST = f"{CHECKPOINT}last"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A frozen copy of a kernel, to which it can be rolled back.

    `execution_count` is the number of the last cell before it. `private_bytes` is the memory that it shares with no
    other process; it grows as its kernel changes what the two shared. `evicted` are the numbers of the checkpoints that
    were dropped for this one.
    """

    kernel_id: str
    number: int
    label: str | None
    created_at: str
    execution_count: int
    pid: int
    start_time: int
    boot_id: str
    private_bytes: int = 0
    evicted: list[int] = field(default_factory=list)

    @property
    def process(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.start_time, self.boot_id)

    @property
    def age_seconds(self) -> float:
        from kernelbox.host.store._record import parse_time

        return max(0.0, time.time() - parse_time(self.created_at))

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__match_args__}

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        return f"<Checkpoint {self.number}{label} of {self.kernel_id[:8]} after execution {self.execution_count}>"


def next_number(place: Place) -> int:
    """Returns a number that no checkpoint of the kernel has had."""
    try:
        last = int(place.read(_LAST, 20))
    except (OSError, ValueError):
        last = 0
    number = max([last, *_numbers(place)]) + 1
    place.replace(_LAST, str(number).encode())
    return number


def write_checkpoint(place: Place, directory: KernelDirectory, checkpoint: Checkpoint) -> None:
    """Keeps a new checkpoint."""
    text = json.dumps(checkpoint.to_dict())
    place.add(f"{CHECKPOINT}{checkpoint.number}", f"{directory.sign(CHECKPOINT, text)}\n{text}".encode())


def read_checkpoints(directory: KernelDirectory) -> list[Checkpoint]:
    """Returns the checkpoints whose processes live, oldest first."""
    try:
        with directory.open() as place:
            found = [_read(place, directory, number) for number in _numbers(place)]
    except OSError:
        return []
    return [each for each in found if each is not None and each.process.alive]


def has_checkpoints(directory: KernelDirectory) -> bool:
    """Tells whether a kernel has had checkpoints."""
    try:
        with directory.open() as place:
            return place.exists(_LAST)
    except OSError:
        return False


def remove_checkpoint(directory: KernelDirectory, number: int) -> bool:
    """Removes the file of a checkpoint, which ends with it; returns whether there was one."""
    try:
        with directory.open() as place:
            place.remove(f"{CHECKPOINT}{number}")
    except FileNotFoundError:
        return False
    return True


def _numbers(place: Place) -> list[int]:
    found = (name.removeprefix(CHECKPOINT) for name in place.listdir() if name.startswith(CHECKPOINT))
    return sorted(int(number) for number in found if number.isdecimal() and number.isascii() and len(number) < 10)


def _read(place: Place, directory: KernelDirectory, number: int) -> Checkpoint | None:
    """Returns a checkpoint; None if no host has written it."""
    try:
        signature, _, text = place.read(f"{CHECKPOINT}{number}", _LONGEST).decode().partition("\n")
        if directory.sign(CHECKPOINT, text) != signature:
            return None
        checkpoint = Checkpoint(**json.loads(text))
    except (OSError, ValueError, TypeError):
        return None
    return checkpoint if checkpoint.number == number else None

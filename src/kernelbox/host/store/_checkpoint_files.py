"""The checkpoints of a kernel, as files in its directory: each is about one frozen process, and signed by a host.

A file is written once. The keeper ends the process whose file is gone, and removes the file of a process that is gone.
"""

from __future__ import annotations

from kernelbox.base._light_stdlib import suppress
from kernelbox.host.process._process import ProcessIdentity
from kernelbox.wire._json import encode_json, load
from kernelbox.wire._layout import CHECKPOINT, EVICTED, LAST_CHECKPOINT
from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory

# Characters of a label, and bytes of a file: JSON takes up to 12 for a character.
MAX_LABEL = 200
_LONGEST = 8192

WHY_EVICTED = {
    "number": "only KERNELBOX_CHECKPOINTS of them are kept",
    "age": "it was older than KERNELBOX_CHECKPOINT_AGE",
    "memory": "all of them together had more than KERNELBOX_CHECKPOINT_MEMORY",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A frozen copy of a kernel, to which it can be rolled back.

    `execution_count` is the number of the last cell before it. `private_bytes` is the memory that it shares with no
    other process; it grows as its kernel changes what the two shared. `evicted` are the numbers of the checkpoints that
    were dropped for this one, because of their number, age or memory, or since the one before it was made.
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

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__match_args__}

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        return f"<Checkpoint {self.number}{label} of {self.kernel_id[:8]} after execution {self.execution_count}>"


def next_number(place: Place) -> int:
    """Returns a number that no checkpoint of the kernel has had."""
    number = max([_read_last(place), *_numbers(place)]) + 1
    place.replace(LAST_CHECKPOINT, str(number).encode())
    return number


def write_checkpoint(place: Place, directory: KernelDirectory, checkpoint: Checkpoint) -> None:
    """Keeps a new checkpoint."""
    text = encode_json(checkpoint.to_dict(), ascii_only=True)
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
            return place.exists(LAST_CHECKPOINT)
    except OSError:
        return False


def read_evicted(directory: KernelDirectory) -> dict[int, str]:
    """Returns the checkpoints that were dropped, by number, and why."""
    with suppress(OSError), directory.open() as place:
        return {number: why for number, why, _ in _read_evicted(place)}
    return {}


def list_evicted(directory: KernelDirectory, since: int | None = None) -> list[int]:
    """Returns the numbers that were dropped between the making of a checkpoint, by default the last, and the next."""
    with suppress(OSError), directory.open() as place:
        number = _read_last(place) if since is None else since
        return [evicted for evicted, _, last in _read_evicted(place) if last == number]
    return []


def remove_checkpoint(directory: KernelDirectory, number: int) -> bool:
    """Removes the file of a checkpoint, which ends with it; returns whether there was one."""
    try:
        with directory.open() as place:
            place.remove(f"{CHECKPOINT}{number}")
    except FileNotFoundError:
        return False
    return True


def _read_last(place: Place) -> int:
    try:
        return int(place.read(LAST_CHECKPOINT, 20))
    except (OSError, ValueError):
        return 0


def _read_evicted(place: Place) -> list[tuple[int, str, int]]:
    """Returns the checkpoints that a keeper has dropped: the number, why, and the last number that had been given then,
    or 0 if the caller of `checkpoint` was told."""
    try:
        text = place.tail(EVICTED, _LONGEST)
    except OSError:
        return []
    found = []
    for line in text.decode("ascii", "replace").splitlines():
        match line.split():
            case [number, why, last] if number.isdecimal() and last.isdecimal() and why in WHY_EVICTED:
                found.append((int(number), why, int(last)))
    return found


def _numbers(place: Place) -> list[int]:
    found = (name.removeprefix(CHECKPOINT) for name in place.listdir() if name.startswith(CHECKPOINT))
    return sorted(int(number) for number in found if number.isdecimal() and number.isascii() and len(number) < 10)


def _read(place: Place, directory: KernelDirectory, number: int) -> Checkpoint | None:
    """Returns a checkpoint; None if no host has written it."""
    try:
        signature, _, text = place.read(f"{CHECKPOINT}{number}", _LONGEST).decode().partition("\n")
        if directory.sign(CHECKPOINT, text) != signature:
            return None
        checkpoint = Checkpoint(**load(text.encode()))
    except (OSError, ValueError, TypeError):
        return None
    return checkpoint if checkpoint.number == number else None

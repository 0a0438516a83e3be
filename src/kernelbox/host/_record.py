"""What is known about a kernel, as data."""

from __future__ import annotations

import time

from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from kernelbox.base._config import EngineName

    Lifetime = Literal["kernel", "process"]


@dataclass(slots=True)
class KernelRecord:
    """A kernel: who it is, where it is, and what it was doing when the record was made.

    `status` is running (a cell is), idle, dead or unknown (it is being started); times are ISO 8601, UTC. `death` says
    how a dead one ended, `lost` what an earlier process of this name took with it.
    """

    kernel_id: str
    connection_file: str
    name: str
    created_at: str
    last_used_at: str
    status: Literal["running", "idle", "dead", "unknown"] = "idle"
    session_name: str | None = None
    attempt_count: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    pid: int | None = None
    start_time: int = 0
    boot_id: str = ""
    kernel_type: str = "python3"
    engine: EngineName = "kernelbox"
    cwd: str = ""
    lifetime: Lifetime = "kernel"
    owner_pid: int | None = None
    owner_start_time: int = 0
    busy_since: str | None = None
    stale: bool = False
    death: str | None = None
    lost: str | None = None

    @property
    def age_seconds(self) -> float:
        return max(0.0, time.time() - parse_time(self.created_at))

    @property
    def alive(self) -> bool:
        return self.status in ("idle", "running")

    @property
    def names(self) -> tuple[str, ...]:
        """What the kernel can be found by, besides its id."""
        return tuple(sorted({self.name, self.session_name or self.name}))

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__match_args__}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> KernelRecord:
        """Reads a record; fields that this version does not know are passed over. Raises ValueError or TypeError."""
        record = cls(**{name: data[name] for name in cls.__match_args__ if name in data})
        texts = (record.kernel_id, record.name, record.session_name or "", record.created_at, record.cwd)
        numbers = (record.pid or 0, record.start_time, record.owner_pid or 0, record.owner_start_time)
        if not all(type(text) is str for text in texts) or not isinstance(record.tags, dict):
            raise ValueError("a text field of the record is none")
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("a process of the record is none")
        return record

    def __repr__(self) -> str:
        return f"<KernelRecord {self.name!r} {self.status} pid={self.pid} id={self.kernel_id[:8]}>"


def format_time(seconds: float) -> str:
    """Returns an ISO 8601 time in UTC, without importing datetime: the command line counts milliseconds."""
    micros = round(seconds * 1_000_000)
    clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(micros // 1_000_000))
    return f"{clock}.{micros % 1_000_000:06d}+00:00"


def parse_time(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()

"""What is known about a kernel, as data."""

from __future__ import annotations

import os
import time

from kernelbox.base._text import escape, is_name
from kernelbox.host.process._process import ProcessIdentity
from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, TypeGuard

    from kernelbox.base._config import EngineName

    Lifetime = Literal["kernel", "process"]

# The most characters of a path (PATH_MAX has 4,096 bytes), of all tags, of a sandbox's rules, and of a cause of death.
_LONGEST_PATH = 4096
MAX_TAGS = 10_000
MAX_RULES = 10_000
MAX_CAUSE = 2_000

# Characters of all requirements of an environment (host/pythons/_requirements.py).
_MAX_REQUIREMENTS = 5_000

# The most bytes of a record. JSON takes up to 12 bytes for a character. Two names, eight paths, the tags, two causes,
# the rules of a sandbox, the requirements and the rest stay below this.
MAX_RECORD = 896 * 1024

# The limit of counts: executions, and start times in ticks.
_LARGEST = 2**63

# A kernel is in one group for each hierarchy of controllers: memory, processes, processor time.
_MOST_GROUPS = 3

# Executions that were undone when a kernel was set back to a checkpoint; core/_time_travel.py lists at most as many.
_MOST_LOST = 1_000

# Characters of a version of Python, such as 3.13.0.
_LONGEST_VERSION = 40

# A pid is a C int.
_LARGEST_PID = 2**31

# The death of a kernel if neither its record nor any copy of it has a valid signature.
_REWRITTEN = "its record was rewritten by another program than kernelbox"

# Deaths that continue with a reason. The reason may quote paths and programs of the host.
RESTART_FAILED = "its restart failed: "
UNUSABLE = "its directory can no longer be used: "


def now() -> str:
    """Returns the current time in the format of records."""
    return format_time(time.time())


@dataclass(slots=True)
class KernelRecord:
    """A kernel: who it is, where it is, and what it was doing when the record was made.

    `status` is running (a cell runs), idle, dead, or unknown (the kernel is starting or does not answer). Times are ISO
    8601 in UTC. `death` says how a dead kernel ended. `lost` says how an earlier process of this name ended, with its
    variables. `environment` says whether the kernel was given its own environment, which is never written down,
    or has its opener's. `limits` has the names of `Limits` as keys. `usage`, if it was asked for, covers the kernel and
    everything it started: bytes of `memory`, seconds of `cpu`, and the number of `processes` with their threads.
    `groups` are its control groups. `sandbox` is the level of the sandbox that the host has verified, None for none;
    `sandbox_config` is its configuration as JSON. A `guarded` kernel starts only programs that a host has approved
    (`require_shell_escape`). `cwd_identity` tells the working directory from another at
    its path: boot, device, inode. `parent` is the id of the kernel that it is a branch of.
    `restored_from` is the checkpoint that it was last set back to, and `lost_executions` what that undid. `copied` says
    whether its process is a copy, of another kernel or of a checkpoint. `python` is the interpreter that it runs in,
    "" for other engines. `chosen_python` is the one that its opener chose, "" if it chose none. With `requirements`, it
    runs in an environment that kernelbox made of that one; None if there is none.
    """

    kernel_id: str
    connection_file: str
    name: str = ""
    created_at: str = field(default_factory=now)
    last_used_at: str = field(default_factory=now)
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
    environment: Literal["caller", "given"] = "caller"
    limits: dict[str, float] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    usage: dict[str, float] | None = None
    sandbox: Literal["native", "srt"] | None = None
    sandbox_config: str = ""
    guarded: bool = False
    cwd_identity: str = ""
    parent: str | None = None
    restored_from: int | None = None
    lost_executions: list[int] = field(default_factory=list)
    copied: bool = False
    python: str = ""
    python_version: str = ""
    python_prefix: str = ""
    chosen_python: str = ""
    requirements: list[str] | None = None

    @property
    def age_seconds(self) -> float:
        return max(0.0, time.time() - parse_time(self.created_at))

    @property
    def alive(self) -> bool:
        return self.status in ("idle", "running")

    @property
    def process(self) -> ProcessIdentity | None:
        """The kernel's process; None if it was never started or is not known."""
        return None if self.pid is None else ProcessIdentity(self.pid, self.start_time, self.boot_id)

    @property
    def owner(self) -> ProcessIdentity | None:
        """The process that the kernel must not outlive, if there is one."""
        return None if self.owner_pid is None else ProcessIdentity(self.owner_pid, self.owner_start_time, self.boot_id)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that lead to the kernel, besides its id."""
        return tuple(sorted({self.name, self.session_name or self.name}))

    @property
    def writable(self) -> list[str]:
        """Where cells of a sandboxed kernel can write; nothing for a plain one, which can write as its user can."""
        if self.sandbox is None:
            return []
        import json

        try:
            paths = json.loads(self.sandbox_config).get("allowWrite", ["."])
            return [os.path.normpath(os.path.join(self.cwd, os.path.expanduser(path))) for path in paths]
        except (ValueError, TypeError, AttributeError):  # no host has written it
            return [self.cwd]

    def touch(self) -> None:
        """Notes in this object, but in no file, that the kernel has just been used."""
        self.last_used_at = now()

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__match_args__}

    @classmethod
    def from_dict(cls, data: object) -> KernelRecord:
        """Reads a record; raises ValueError. Missing fields get their defaults, and unknown fields are ignored.

        A file can hold anything, so each field is checked, and text that is only shown is escaped.
        """
        fields: dict[str, Any] = data if isinstance(data, dict) else {}
        for name, is_sound in _CHECKS:
            if name in fields and not is_sound(fields[name]):
                raise ValueError(f"its {name} is not valid")
        if fields.get("death") or fields.get("lost"):
            fields = {**fields, "death": _shown(fields.get("death")), "lost": _shown(fields.get("lost"))}
        try:
            return cls(*[fields[name] for name in cls.__match_args__])
        except KeyError:  # written by another version
            pass
        try:
            return cls(**{name: fields[name] for name in cls.__match_args__ if fields.get(name) is not None})
        except TypeError as exc:
            raise ValueError("a field is missing") from exc

    def __repr__(self) -> str:
        return f"<KernelRecord {self.name!r} {self.status} pid={self.pid} id={self.kernel_id[:8]}>"


def mark_rewritten(record: KernelRecord) -> KernelRecord:
    """Returns what can be trusted of a record that no host has written: its names, but nothing about its process.

    The kernel counts as opened with an environment of its own, so a restart does not give it the host's.
    """
    record.pid, record.start_time, record.boot_id = None, 0, ""
    record.status, record.death, record.lost, record.environment = "dead", _REWRITTEN, None, "given"
    record.tags, record.groups = {}, []
    return record


def is_rewritten(record: KernelRecord) -> bool:
    """Tells whether a record came from `mark_rewritten`."""
    return record.pid is None and record.death == _REWRITTEN


def without_reasons(record: KernelRecord) -> KernelRecord:
    """Returns a record for remote clients: without the reasons why the host could not start or reach the kernel."""
    death, lost = _without_reason(record.death), _without_reason(record.lost)
    if (death, lost) == (record.death, record.lost):
        return record
    return KernelRecord(**{**record.to_dict(), "death": death, "lost": lost})


def _without_reason(told: str | None) -> str | None:
    for beginning in (RESTART_FAILED, UNUSABLE):
        before, found, _ = (told or "").partition(beginning)
        if found:
            return before + beginning.removesuffix(": ")
    return told


def are_tags(tags: object) -> TypeGuard[dict[str, str]]:
    """Tells whether these are strings by strings, within the limit of characters."""
    if not isinstance(tags, dict):
        return False
    parts = [part for pair in tags.items() for part in pair]
    return all(isinstance(part, str) for part in parts) and sum(map(len, parts)) <= MAX_TAGS


def format_time(seconds: float) -> str:
    """Returns an ISO 8601 time in UTC, without importing datetime, which would slow down the command line."""
    micros = round(seconds * 1_000_000)
    clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(micros // 1_000_000))
    return f"{clock}.{micros % 1_000_000:06d}+00:00"


def parse_time(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def _is_time(value: object) -> bool:
    """Tells whether `parse_time` accepts a value. The format of `format_time` is checked without datetime."""
    if type(value) is not str:
        return False
    if value.translate(_DIGITS) == "0000-00-00T00:00:00.000000+00:00" and value[:4] >= "1970":
        month, day, hour, minute, second = value[5:7], value[8:10], value[11:13], value[14:16], value[17:19]
        if "01" <= day <= _LAST_DAYS.get(month, "") and hour < "24" and minute < "60" and second < "60":
            return True
    try:
        parse_time(value)
    except (ValueError, OverflowError, OSError):
        return False
    return True


_DIGITS = str.maketrans("123456789", "000000000")
_LAST_DAYS = {
    f"{month:02}": str(day) for month, day in enumerate((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), start=1)
}


def _is_path(value: object) -> bool:
    return type(value) is str and len(value) <= _LONGEST_PATH and "\0" not in value


def _shown(cause: str | None) -> str | None:
    return cause if cause is None else escape(cause)[:MAX_CAUSE]


def _is_cause(value: object) -> bool:
    return value is None or (type(value) is str and len(value) <= MAX_CAUSE)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _are_amounts(value: object) -> bool:
    """Tells whether this maps names of limits to amounts."""
    if not value:
        return value == {}
    from kernelbox.base._limits import NAMES

    if type(value) is not dict or not value.keys() <= set(NAMES):
        return False
    return all(type(amount) in (int, float) and 0 <= amount < _LARGEST for amount in value.values())


def _is_pid(value: object) -> bool:
    return value is None or (type(value) is int and 0 < value < _LARGEST_PID)


def _are_requirements(value: object) -> bool:
    """Tells whether these are strings, within the limit of characters."""
    if type(value) is not list or not all(type(each) is str for each in value):
        return False
    return sum(map(len, value)) <= _MAX_REQUIREMENTS


def _one_of(*allowed: str) -> Callable[[object], bool]:
    return lambda value: type(value) is str and value in allowed


_CHECKS: tuple[tuple[str, Callable[[object], bool]], ...] = (
    ("kernel_id", is_name),
    ("connection_file", _is_path),
    ("name", lambda value: not value or is_name(value)),
    ("created_at", _is_time),
    ("last_used_at", _is_time),
    ("status", _one_of("running", "idle", "dead", "unknown")),
    ("session_name", lambda value: value is None or is_name(value)),
    ("attempt_count", _is_count),
    ("tags", are_tags),
    ("pid", _is_pid),
    ("start_time", _is_count),
    ("boot_id", lambda value: not value or is_name(value)),
    ("kernel_type", is_name),
    ("engine", _one_of("kernelbox", "jupyter")),
    ("cwd", _is_path),
    ("lifetime", _one_of("kernel", "process")),
    ("owner_pid", _is_pid),
    ("owner_start_time", _is_count),
    ("busy_since", lambda value: value is None or _is_time(value)),
    ("stale", lambda value: type(value) is bool),
    ("environment", _one_of("caller", "given")),
    ("sandbox", lambda value: value in (None, "native", "srt")),
    ("guarded", lambda value: type(value) is bool),
    ("cwd_identity", lambda value: not value or is_name(value)),
    ("sandbox_config", lambda value: type(value) is str and len(value) <= MAX_RULES),
    ("death", _is_cause),
    ("lost", _is_cause),
    ("parent", lambda value: value is None or is_name(value)),
    ("restored_from", lambda value: value is None or _is_count(value)),
    ("lost_executions", lambda value: type(value) is list and len(value) <= _MOST_LOST and all(map(_is_count, value))),
    ("copied", lambda value: type(value) is bool),
    ("python", _is_path),
    ("python_version", lambda value: type(value) is str and len(value) <= _LONGEST_VERSION),
    ("python_prefix", _is_path),
    ("chosen_python", _is_path),
    ("requirements", lambda value: value is None or _are_requirements(value)),
    ("limits", _are_amounts),
    ("groups", lambda value: type(value) is list and len(value) <= _MOST_GROUPS and all(map(_is_path, value))),
    ("usage", lambda value: value is None or _are_amounts(value)),
)

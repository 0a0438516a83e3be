"""The limits of a kernel: how they are parsed, checked, compared and shown.

They are enforced by control groups (`host/process/_control_groups.py`), by the kernel's own process
(`guest/walls/_own_limits.py`) and by its keeper (`guest/walls/_limit_watch.py`). `host/engines/_limiting.py` refuses
those that this system cannot enforce.
"""

from __future__ import annotations

import math

from kernelbox.base._errors import InvalidInput
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The lowest limits: a kernel needs this much for its own memory, threads, files and log.
_LEAST = {"memory": 32_000_000, "cpu": 1, "processes": 8, "files": 64, "file_size": 64_000, "disk": 64_000}
NAMES = tuple(_LEAST)

_SIZES = ("memory", "file_size", "disk")

# The system uses 64 bits with a sign.
_LARGEST = 2**62

_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _BYTES |= {_letter: 1000**_power, f"{_letter}b": 1000**_power}
    _BYTES |= {f"{_letter}i": 1024**_power, f"{_letter}ib": 1024**_power}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a kernel and all its processes may use. None means the value of KERNELBOX_LIMIT_*, 0 means no limit.

    `memory`, `file_size` (of one file) and `disk` (added to the working directory) are in bytes, or texts such as
    "512MB" and "1.5GiB". `cpu` is in seconds, or a text such as "10min". `processes` counts threads too; `files` are
    the open files of one process.
    """

    memory: int | str | None = None
    cpu: float | str | None = None
    processes: int | str | None = None
    files: int | str | None = None
    file_size: int | str | None = None
    disk: int | str | None = None

    def __post_init__(self) -> None:
        for name in NAMES:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, read_amount(f"the limit {name}", name, value))

    @property
    def given(self) -> dict[str, float]:
        """The limits that are set here and not left to the configuration, as numbers by name."""
        return {name: amount for name in NAMES if (amount := getattr(self, name)) is not None}

    def over(self, configured: Mapping[str, float]) -> dict[str, float]:
        """Returns the limits in force: these, and the configured ones for the rest; without those that are 0."""
        both = {**configured, **self.given}
        return {name: both[name] for name in NAMES if both.get(name)}

    def differences(self, held: Mapping[str, float]) -> list[str]:
        """Describes which of these limits a kernel with the limits `held` does not have."""
        return [_difference(name, held, amount) for name, amount in self.given.items() if held.get(name, 0) != amount]

    def excesses(self, held: Mapping[str, float]) -> list[str]:
        """Describes which of these limits are higher than those in `held`, or take one away."""
        given = ((name, amount) for name, amount in self.given.items() if held.get(name))
        return [_difference(name, held, amount) for name, amount in given if not 0 < amount <= held[name]]

    def require_within(self, ceiling: Mapping[str, float]) -> None:
        """Raises InvalidInput for a limit that is higher than a server allows."""
        for name, amount in self.given.items():
            most = ceiling.get(name, 0)
            if most and not 0 < amount <= most:
                allowed = f"this server allows at most {show_amount(name, most)}"
                raise InvalidInput(f"the limit {name}", show_amount(name, amount), allowed)


def _difference(name: str, held: Mapping[str, float], amount: float) -> str:
    return f"limits {name}={show_amount(name, held.get(name, 0))}, not {show_amount(name, amount)}"


def tightest(*held: Mapping[str, float]) -> dict[str, float]:
    """Returns the lowest of each limit."""
    return {name: min(amounts) for name in NAMES if (amounts := [limits[name] for limits in held if name in limits])}


def check_limits(limits: Limits | Mapping[str, object] | None) -> Limits | None:
    """Returns limits that were given as Limits or as a mapping; raises InvalidInput."""
    if limits is None or isinstance(limits, Limits):
        return limits
    try:
        named = dict(limits)
    except (TypeError, ValueError):
        raise InvalidInput(
            "limits", limits, "use Limits(memory='512MB'), or a dict such as {'memory': '512MB'}"
        ) from None
    for name in named:
        if name not in NAMES:
            raise InvalidInput("a limit's name", name, f"use one of {', '.join(NAMES)}")
    return Limits(**named)  # type: ignore[arg-type]  # each value is checked


def parse_limits(texts: list[str]) -> Limits | None:
    """Parses the values of `--limit`, of the form NAME=VALUE; None if there are none."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in NAMES:
            raise InvalidInput("--limit", text, f"use NAME=VALUE with one of {', '.join(NAMES)}, such as memory=512MB")
        pairs[name] = read_amount(f"--limit {name}", name, value)
    return Limits(**pairs) if pairs else None  # type: ignore[arg-type]  # each value is parsed


def read_amount(what: str, name: str, value: object) -> float:
    """Returns a limit as a number of bytes, seconds or things; raises InvalidInput, which calls it `what`."""
    units = _BYTES if name in _SIZES else _SECONDS if name == "cpu" else {"": 1}
    if isinstance(value, str):
        digits = value.strip().rstrip(_LETTERS)
        unit = units.get(value.strip()[len(digits) :].lower(), math.nan)
        try:
            amount = float(digits) * unit
        except ValueError:
            amount = math.nan
    else:
        amount = value if type(value) in (int, float) else math.nan  # type: ignore[assignment]  # not a bool
    if not (amount == 0 or _LEAST[name] <= amount < _LARGEST) or (units.keys() == {""} and amount != int(amount)):
        raise InvalidInput(
            what, value, f"use {_EXPECTED[name]} of at least {show_amount(name, _LEAST[name])}, or 0 for none"
        )
    return amount if name == "cpu" else int(amount)


_EXPECTED = {
    **dict.fromkeys(_SIZES, "a number of bytes, or a size such as '512MB' or '2GiB',"),
    **dict.fromkeys(("processes", "files"), "a whole number"),
    "cpu": "a number of seconds, or a time such as '90s', '10min' or '2h',",
}


def show_amount(name: str, amount: float, like: float = 0) -> str:
    """Returns an amount with its unit, in units of 1,024 if it, or the amount `like`, is a whole number of them."""
    if amount == 0 and not like:
        return "none"
    if name == "cpu":
        return f"{amount:.4g} s" if amount < 1000 else f"{amount:.0f} s"  # as many digits as matter
    if name not in _SIZES:
        return f"{amount:.0f}"
    pattern = int(like or amount)
    binary = pattern % 1024 == 0 and pattern % 1000 != 0
    base, units = (1024, _BINARY_UNITS) if binary else (1000, _DECIMAL_UNITS)
    power = 0
    while amount >= base and power < len(units) - 1:
        amount, power = amount / base, power + 1
    return f"{amount:.4g} {units[power]}"


_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB")
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def describe_excess(name: str, limit: float, used: float) -> str:
    """Returns which limit a kernel exceeded, and by how much."""
    what, verb = _EXCESSES.get(name, ("beyond a limit", "used"))
    return f"{what} (limit {show_amount(name, limit)}, {verb} {show_amount(name, used, like=limit)})"


_EXCESSES = {
    "memory": ("out of memory", "peak"),
    "cpu": ("out of CPU time", "used"),
    "processes": ("too many processes", "had"),
    "disk": ("out of disk space in its working directory", "added"),
}

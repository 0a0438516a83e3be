"""Settings, all from KERNELBOX_* environment variables; docs/configuration.md lists them and a test compares."""

from __future__ import annotations

import math
import os

from kernelbox.base._errors import InvalidInput, StoreFailed
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal, Protocol
    from weakref import ref

    from kernelbox.base._limits import Limits

    EngineName = Literal["kernelbox", "jupyter"]

    class ReadsRecords(Protocol):
        """What can read the records of a home."""

        def read_new(self) -> None: ...


DEFAULT_HOME = ".kernelbox"

# The stores of this process. Their records tell where cells can write; `_cell_places.py` reads them at a link.
stores: list[ref[ReadsRecords]] = []

# Characters of each text in a result by default; of a longer text, the head and the tail are kept.
# KERNELBOX_OUTPUT_CHAR_LIMIT changes it for the functions, the command line and the HTTP service.
OUTPUT_CHARACTERS = 10_000

# For CodeExecutor, whose results are meant to be complete. A cell that prints for ever must not fill the host's memory:
# a running cell uses a few times this many bytes.
EXECUTOR_CHARACTERS = 20_000_000

# For MCP, whose clients get a few thousand characters (mcp/toolsets/_tool_results.py) and can read the rest.
TOOL_CALL_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True)
class KernelBoxConfig:
    """The settings in the KERNELBOX_* variables. Paths are absolute, so a later chdir changes nothing.

    Any path-like object is accepted as a path, and None instead of a text means the default.
    """

    max_retries: int = 5
    kernel_idle_timeout: float = 1800.0
    execution_timeout: float = 60.0
    output_char_limit: int = OUTPUT_CHARACTERS
    store_backend: str = "file"
    registry_path: str = ""
    runtime_dir: str = ""
    startup_code: str = ""
    kernel_type: str = "python3"
    home: str = ""
    preload: tuple[str, ...] = ()
    engine: EngineName = "kernelbox"
    cull_idle: bool = False
    template: bool = True
    template_idle_timeout: float = 300.0
    key_file: str = ""
    limit_memory: int = 0
    limit_cpu: float = 0
    limit_processes: int = 0
    limit_files: int = 0
    limit_file_size: int = 0
    limit_disk: int = 0
    cgroups: bool = True
    checkpoints: int = 5
    checkpoint_memory: int = 512_000_000
    checkpoint_age: float = 0.0
    python: str = ""
    cache: str = ""

    @classmethod
    def from_env(cls) -> KernelBoxConfig:
        """Reads the environment. The same variables give the same object, whose paths are fixed at first use."""
        raw = tuple(map(_environment.get, _KEYS))
        known = _resolved.get(raw)
        if known is None:
            texts = [os.environ.get(variable) for variable, _, _ in VARIABLES]
            values = {
                field: parse(variable, text)
                for (variable, field, parse), text in zip(VARIABLES, texts, strict=True)
                if text is not None and (text != "" or variable == "KERNELBOX_PRELOAD")
            }
            known = _resolved[raw] = cls(**values)
        return known

    @property
    def limits(self) -> dict[str, float]:
        """The limits of a kernel whose opener sets none, by the names of `Limits`; 0 is no limit."""
        names = [name for name in self.__match_args__ if name.startswith("limit_")]
        return {name.removeprefix("limit_"): getattr(self, name) for name in names}

    def __post_init__(self) -> None:
        try:
            self._make_absolute()
        except FileNotFoundError as exc:
            raise StoreFailed(
                "the current directory has been deleted, and the home of kernels is relative to it; change to another "
                "directory, or set KERNELBOX_HOME to an absolute path"
            ) from exc

    def _make_absolute(self) -> None:
        home = _absolute("KERNELBOX_HOME", self.home) if self.home else find_home()
        registry = self.registry_path or os.path.join(home, "registry.json")
        runtime = self.runtime_dir or os.path.join(home, "runtime")
        object.__setattr__(self, "home", home)
        object.__setattr__(self, "registry_path", _absolute("KERNELBOX_REGISTRY_PATH", registry))
        object.__setattr__(self, "runtime_dir", _absolute("KERNELBOX_RUNTIME_DIR", runtime))
        key_file = _absolute("KERNELBOX_KEY_FILE", self.key_file) if self.key_file else ""
        object.__setattr__(self, "key_file", key_file)
        object.__setattr__(self, "startup_code", self.startup_code or "")
        object.__setattr__(self, "kernel_type", self.kernel_type or "python3")


def find_home() -> str:
    """Returns the home that the working directory has, or the nearest one above it, as git finds a repository.

    Without one it is `.kernelbox` in the working directory. A directory above counts only if this user owns it, no one
    else can write to it, and kernelbox has sealed it; the seal is checked when the home is used.
    """
    here = directory = os.getcwd()
    home = os.path.join(here, DEFAULT_HOME)
    while not os.path.lexists(home):
        parent = os.path.dirname(directory)
        if parent == directory:
            return os.path.join(here, DEFAULT_HOME)
        directory = parent
        above = os.path.join(directory, DEFAULT_HOME)
        if _may_be_ours(above):
            return above
    return home


def _may_be_ours(home: str) -> bool:
    try:
        info = os.lstat(home)
        sealed = os.lstat(os.path.join(home, "seal"))
    except OSError:
        return False
    owned = {info.st_uid, sealed.st_uid} == {os.geteuid()} if hasattr(os, "geteuid") else True
    return owned and info.st_mode & 0o170022 == 0o040000  # a directory, which no one else can write to


_LIMIT = "KERNELBOX_LIMIT_"


def limits_as_variables(limits: Limits | None) -> dict[str, str]:
    """Returns the variables that set limits for all kernels of a process."""
    given = {} if limits is None else limits.given
    return {f"{_LIMIT}{name.upper()}": str(amount) for name, amount in given.items()}


def set_limits(limits: Limits | None) -> None:
    """Sets limits for all kernels that this process opens; they replace those of its variables."""
    os.environ.update(limits_as_variables(limits))


def _absolute(variable: str, path: str) -> str:
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):  # otherwise a directory of that name would appear in the working directory
        user = expanded.partition("/")[0]
        raise InvalidInput(variable, path, f"there is no home directory {user}; for a file of that name use ./{user}")
    return os.path.abspath(expanded)


def _text(variable: str, text: str) -> str:
    return text


def _choice(*allowed: str) -> Callable[[str, str], str]:
    def parse(variable: str, text: str) -> str:
        if text not in allowed:
            raise InvalidInput(variable, text, f"use one of {', '.join(allowed)}")
        return text

    return parse


def _number(low: float, *, above: bool = False) -> Callable[[str, str], float]:
    def parse(variable: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < low or (above and value == low):
            raise InvalidInput(variable, text, f"use a finite number {'above' if above else 'of at least'} {low:g}")
        return value

    return parse


def _integer(low: float) -> Callable[[str, str], int]:
    def parse(variable: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or value < low:
            allowed = "use a whole number" if low == -math.inf else f"use a whole number of at least {low:g}"
            raise InvalidInput(variable, text, allowed)
        return value

    return parse


def _switch(variable: str, text: str) -> bool:
    match text.lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off":
            return False
    raise InvalidInput(variable, text, "use 1 or 0")


def _limit(name: str) -> Callable[[str, str], float]:
    def parse(variable: str, text: str) -> float:
        from kernelbox.base._limits import read_amount

        return read_amount(variable, name, text)

    return parse


def _modules(variable: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.replace(",", " ").split())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise InvalidInput(variable, name, "use module names, separated by commas or spaces")
    return names


# variable, field, parser
VARIABLES: tuple[tuple[str, str, Callable[[str, str], Any]], ...] = (
    ("KERNELBOX_MAX_RETRIES", "max_retries", _integer(1)),
    ("KERNELBOX_EXECUTION_TIMEOUT", "execution_timeout", _number(0, above=True)),
    ("KERNELBOX_KERNEL_IDLE_TIMEOUT", "kernel_idle_timeout", _number(0)),
    ("KERNELBOX_OUTPUT_CHAR_LIMIT", "output_char_limit", _integer(-math.inf)),
    ("KERNELBOX_STORE_BACKEND", "store_backend", _choice("file", "memory")),
    ("KERNELBOX_REGISTRY_PATH", "registry_path", _text),
    ("KERNELBOX_RUNTIME_DIR", "runtime_dir", _text),
    ("KERNELBOX_STARTUP_CODE", "startup_code", _text),
    ("KERNELBOX_KERNEL_TYPE", "kernel_type", _text),
    ("KERNELBOX_HOME", "home", _text),
    ("KERNELBOX_PRELOAD", "preload", _modules),
    ("KERNELBOX_ENGINE", "engine", _choice("kernelbox", "jupyter")),
    ("KERNELBOX_CULL_IDLE", "cull_idle", _switch),
    ("KERNELBOX_TEMPLATE", "template", _switch),
    ("KERNELBOX_TEMPLATE_IDLE_TIMEOUT", "template_idle_timeout", _number(0, above=True)),
    ("KERNELBOX_KEY_FILE", "key_file", _text),
    ("KERNELBOX_LIMIT_MEMORY", "limit_memory", _limit("memory")),
    ("KERNELBOX_LIMIT_CPU", "limit_cpu", _limit("cpu")),
    ("KERNELBOX_LIMIT_PROCESSES", "limit_processes", _limit("processes")),
    ("KERNELBOX_LIMIT_FILES", "limit_files", _limit("files")),
    ("KERNELBOX_LIMIT_FILE_SIZE", "limit_file_size", _limit("file_size")),
    ("KERNELBOX_LIMIT_DISK", "limit_disk", _limit("disk")),
    ("KERNELBOX_CGROUPS", "cgroups", _switch),
    ("KERNELBOX_CHECKPOINTS", "checkpoints", _integer(1)),
    ("KERNELBOX_CHECKPOINT_MEMORY", "checkpoint_memory", _limit("memory")),
    ("KERNELBOX_CHECKPOINT_AGE", "checkpoint_age", _number(0)),
    ("KERNELBOX_PYTHON", "python", _text),
    ("KERNELBOX_CACHE", "cache", _text),
)

# Every call reads the configuration. os.environ raises an exception inside for each missing variable; the dict below
# it, whose keys are encoded, answers for all of them in a microsecond.
_environment: Mapping[Any, object] = getattr(os.environ, "_data", os.environ)
_KEYS = tuple(
    os.environ.encodekey(variable) if _environment is not os.environ else variable for variable, _, _ in VARIABLES
)

# Only the command line reads this.
FORMAT_VARIABLE = "KERNELBOX_FORMAT"


def wanted_format() -> str:
    """Returns what KERNELBOX_FORMAT asks for: text, json, or "" to let stdout decide."""
    wanted = os.environ.get(FORMAT_VARIABLE, "")
    if wanted not in ("", "text", "json"):
        raise InvalidInput(FORMAT_VARIABLE, wanted, "use text or json")
    return wanted


# Only the servers read these.
TOKEN_VARIABLES = ("KERNELBOX_TOKEN", "KERNELBOX_MCP_TOKEN")

# Every kernel has these, for its children.
_GIVEN_VARIABLES = ("KERNELBOX_KERNEL_ID",)


def unknown_variables() -> list[str]:
    """Returns the names of variables that look like settings but are not, mostly misspellings."""
    known = {FORMAT_VARIABLE, *TOKEN_VARIABLES, *_GIVEN_VARIABLES, *(variable for variable, _, _ in VARIABLES)}
    return sorted(name for name in os.environ if name.startswith("KERNELBOX_") and name not in known)


def refuse_unknown_limits() -> None:
    """Raises InvalidInput for an unknown limit: a kernel would start without the limit that was meant."""
    for name in unknown_variables():
        if name.startswith(_LIMIT):
            from kernelbox.base._limits import NAMES

            known = ", ".join(each.upper() for each in NAMES)
            raise InvalidInput(name, os.environ[name], f"use one of {known} after {_LIMIT}")


_resolved: dict[tuple[object, ...], KernelBoxConfig] = {}

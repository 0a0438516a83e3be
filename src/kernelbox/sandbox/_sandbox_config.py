"""The configuration file of a sandbox, in the format of sandbox-runtime (`srt`) that its README documents.

It is read strictly. Unknown keys are rejected, and so are settings that cannot be honoured here: a sandbox must not
silently do less than it was asked for. Keys for other systems or for srt's own tools have no effect. Keys that are left
out have the README's defaults: everything can be read, nothing can be written, and there is no network.

What it allows becomes mounts and a filter of system calls in `_native.py`. At the level "srt", kernels run in srt
itself. Settings for its proxy and its programs are passed on to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from kernelbox.base._errors import InvalidInput
from kernelbox.sandbox._section import Section
from kernelbox.sandbox._srt_settings import take_passed
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Literal

    Level = Literal["native", "srt"]

LEVELS: tuple[Level, ...] = ("native", "srt")

# Names that the default policy hides wherever they are found in the working directory.
HIDDEN = (".env",)

# The most bytes of a configuration file.
_LARGEST_FILE = 1024 * 1024

# How deep to search for files that must stay read-only: by default, and at most.
_DEPTH, _MOST_DEPTH = 3, 10


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """What a sandbox allows. Paths are kept as written; relative ones start at the working directory."""

    deny_read: tuple[str, ...] = HIDDEN
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = (".",)
    deny_write: tuple[str, ...] = ()
    allow_git_config: bool = False
    unix_sockets: bool = False
    depth: int = _DEPTH
    level: Level = "native"
    passed: str = ""
    """Further settings for srt, as JSON; "" at the native level."""
    withheld: tuple[str, ...] = ()
    """Files of a server that its kernels must never read, even where other rules allow it."""

    def to_text(self) -> str:
        """Returns the configuration as JSON with its keys in a fixed order, for the record."""
        values = {key: getattr(self, field) for key, field in _FIELDS}
        return json.dumps({key: value for key, value in values.items() if key != _SELDOM or value}, ensure_ascii=False)

    def protecting(self, hidden: Iterable[str], kept: Iterable[str]) -> SandboxConfig:
        """Returns a copy for the kernels of a server, which hides some of the server's files and protects others."""
        values: dict[str, Any] = {field: getattr(self, field) for _, field in _FIELDS}
        values["withheld"] += tuple(hidden)
        values["deny_write"] += tuple(kept)
        return SandboxConfig(**values)

    def describe_difference(self, other: SandboxConfig) -> str:
        """Names the settings that differ from another configuration."""
        keys = [key for key, field in _FIELDS if getattr(self, field) != getattr(other, field)]
        return f"a sandbox with another {', '.join(keys)}"

    @classmethod
    def from_text(cls, text: str) -> SandboxConfig:
        """Reads the output of `to_text`; raises ValueError."""
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("not an object")  # noqa: TRY004  # the content of a file, not an argument
        values: dict[str, Any] = {field: data[key] for key, field in _FIELDS if key in data}
        for field, value in values.items():
            values[field] = tuple(value) if isinstance(value, list) else value
        return cls(**values)


_FIELDS = (
    ("denyRead", "deny_read"),
    ("allowRead", "allow_read"),
    ("allowWrite", "allow_write"),
    ("denyWrite", "deny_write"),
    ("allowGitConfig", "allow_git_config"),
    ("allowAllUnixSockets", "unix_sockets"),
    ("mandatoryDenySearchDepth", "depth"),
    ("level", "level"),
    ("network", "passed"),
    ("withheld", "withheld"),
)

# Left out of the text when empty, as it mostly is.
_SELDOM = "withheld"


def check_sandbox(sandbox: object, *, level: Level = "native") -> SandboxConfig | None:
    """Returns the configuration for True, the path of a file, or a file's contents; None for no sandbox."""
    if sandbox is None or sandbox is False:
        return None
    if sandbox is True:
        return SandboxConfig(level=level)
    if isinstance(sandbox, SandboxConfig):
        return sandbox
    if isinstance(sandbox, Mapping):
        return _read(dict(sandbox), "sandbox", level)
    if isinstance(sandbox, str | os.PathLike) and os.fspath(sandbox):
        return read_config(sandbox, "sandbox", level=level)
    raise InvalidInput(
        "sandbox", sandbox, "use True, False, the path of a configuration file, or a dict of its contents"
    )


def check_level(level: object) -> Level:
    """Returns the level of a sandbox; raises InvalidInput if it is not one."""
    for known in LEVELS:
        if level == known:
            return known
    raise InvalidInput("sandbox_level", level, f"use one of {', '.join(LEVELS)}")


def read_config(
    path: str | os.PathLike[str], what: str = "sandbox_config", *, level: Level = "native"
) -> SandboxConfig:
    """Reads a configuration file; raises InvalidInput.

    The file is read-only in the sandbox, so that a cell cannot change the rules of the next kernel.
    """
    name = os.fsdecode(path)
    try:
        with open(os.path.expanduser(name), "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise InvalidInput(what, name, f"the configuration cannot be read: {reason}") from exc
    if len(data) > _LARGEST_FILE:
        raise InvalidInput(what, name, f"a configuration has at most {_LARGEST_FILE:,} bytes")
    try:
        settings = json.loads(data, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(what, name, f"it is not JSON: {exc}") from exc
    return _read(settings, what, level, own=os.path.abspath(os.path.expanduser(name)))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1)
        raise ValueError(f"the key {twice!r} appears twice")
    return found


def _read(settings: object, what: str, level: Level, own: str = "") -> SandboxConfig:
    top = Section("", settings, what)
    network, files = top.section("network"), top.section("filesystem")
    passed = take_passed(top, network) if level == "srt" else ""
    for key in _WITHOUT_EFFECT:
        top.take(key)
    for key, reason in _REFUSED.items():
        top.refuse(key, reason)
    config = SandboxConfig(
        deny_read=_paths(files, "denyRead", patterns=True),
        allow_read=_paths(files, "allowRead", patterns=True),
        allow_write=_paths(files, "allowWrite", patterns=False),
        deny_write=_paths(files, "denyWrite", patterns=False) + ((own,) if own else ()),
        allow_git_config=files.flag("allowGitConfig"),
        unix_sockets=network.flag("allowAllUnixSockets"),
        depth=top.number("mandatoryDenySearchDepth", _DEPTH, 1, _MOST_DEPTH),
        level=level,
        passed=passed,
    )
    files.refuse("disabled", "a sandbox must confine the files; list what may be written in allowWrite")
    _check_network(network)
    for section in (top, network, files):
        section.finish()
    return config


# For macOS, Windows, or srt's own programs.
_WITHOUT_EFFECT = (
    "ignoreViolations",
    "enableWeakerNetworkIsolation",
    "allowAppleEvents",
    "ripgrep",
    "allowPty",
    "seccomp",
    "bwrapPath",
    "socatPath",
    "javaAgentJarPath",
    "windows",
)
_NETWORK_WITHOUT_EFFECT = (
    "deniedDomainReasons",
    "strictAllowlist",
    "deniedResolvedAddresses",
    "allowUnixSockets",
    "allowLocalBinding",
    "allowMachLookup",
)

_REFUSED = {
    "credentials": "nothing is masked here; deny the files in filesystem.denyRead, and leave the variables out of env",
    "enableWeakerNestedSandbox": "there is no weaker sandbox here; remove the key, or set it to false",
    "git": "nothing is added to git's configuration here; set GIT_CONFIG_* in env",
}
_PROXY_KEYS = ("httpProxyPort", "socksProxyPort", "mitmProxy", "filterRequest", "tlsTerminate", "parentProxy")
_NO_PROXY = "there is no network here, and so no proxy; remove the key"


def _check_network(network: Section) -> None:
    allowed = network.texts("allowedDomains")
    network.texts("deniedDomains")
    if allowed:
        raise InvalidInput.saying(
            f"{network.what}: network.allowedDomains names {allowed[0]!r}, but a sandboxed kernel has no network: use "
            "an empty list, and let tools of an MCP server fetch what cells need; or use the level srt, which has a "
            "proxy"
        )
    for key in _NETWORK_WITHOUT_EFFECT:
        network.take(key)
    for key in _PROXY_KEYS:
        network.refuse(key, _NO_PROXY)


def _paths(files: Section, key: str, *, patterns: bool) -> tuple[str, ...]:
    return tuple(_check_path(path, f"{files.what}: filesystem.{key}", patterns) for path in files.texts(key))


def _check_path(path: str, what: str, patterns: bool) -> str:
    if not path or "\0" in path:
        raise InvalidInput(what, path, "use a path")
    stripped = path.removesuffix("/**") or "/"
    if not is_pattern(stripped):
        return stripped
    if not patterns:
        raise InvalidInput(what, path, "patterns are for denyRead and allowRead; name the directory here")
    if path.endswith("/"):
        raise InvalidInput(what, path, "a pattern that ends in a slash matches nothing; leave the slash out")
    if is_pattern(stripped.lstrip("/").partition("/")[0]) and stripped.startswith(("/", "~")):
        raise InvalidInput(what, path, "a pattern needs a directory to start from, as in /data/*.pem")
    return stripped


def is_pattern(path: str) -> bool:
    """Tells whether a path contains wildcards."""
    return any(character in path for character in "*?[")

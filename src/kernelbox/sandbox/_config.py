"""The configuration file of a sandbox: that of sandbox-runtime (`srt`), as its README documents it.

It is read strictly. A key that is unknown is refused, and so is what cannot be honoured here: a sandbox that leaves out
what it was asked for is none. Keys that only other systems or srt's own tools need have no effect. What is left out has
the default of the README: everything can be read, nothing be written, and there is no network.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from kernelbox.base._errors import InvalidInput
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Bytes of a configuration file.
_LARGEST_FILE = 1024 * 1024

# Levels of subdirectories that are searched for what must stay read-only.
_DEPTH, _MOST_DEPTH = 3, 10


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """What a sandbox allows; paths are as they were written, relative ones are meant from the working directory."""

    deny_read: tuple[str, ...] = (".env",)
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = (".",)
    deny_write: tuple[str, ...] = ()
    allow_git_config: bool = False
    unix_sockets: bool = False
    depth: int = _DEPTH

    def to_text(self) -> str:
        """Returns what a record keeps: the keys that decide something, in one order."""
        values = [getattr(self, field) for _, field in _FIELDS]
        return json.dumps({key: value for (key, _), value in zip(_FIELDS, values, strict=True)}, ensure_ascii=False)

    def describe_difference(self, other: SandboxConfig) -> str:
        """Says what another configuration has otherwise."""
        keys = [key for key, field in _FIELDS if getattr(self, field) != getattr(other, field)]
        return f"a sandbox with another {', '.join(keys)}"

    @classmethod
    def from_text(cls, text: str) -> SandboxConfig:
        """Reads what `to_text` has written; raises ValueError."""
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("no object")  # noqa: TRY004  # of what a file has in it
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
)


def check_sandbox(sandbox: object, what: str = "sandbox") -> SandboxConfig | None:
    """Returns what a sandbox was asked for by: True, the path of a file, or what would be in it; None for none."""
    if sandbox is None or sandbox is False:
        return None
    if sandbox is True:
        return SandboxConfig()
    if isinstance(sandbox, SandboxConfig):
        return sandbox
    if isinstance(sandbox, Mapping):
        return _read(dict(sandbox), what)
    if isinstance(sandbox, str | os.PathLike) and os.fspath(sandbox):
        return read_config(sandbox, what)
    raise InvalidInput(what, sandbox, "use True, False, the path of a configuration file, or a dict of what is in one")


def read_config(path: str | os.PathLike[str], what: str = "sandbox_config") -> SandboxConfig:
    """Reads a configuration file; raises InvalidInput."""
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
    return _read(settings, what)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _read(settings: object, what: str) -> SandboxConfig:
    top = _Section("", settings, what)
    network, files = top.section("network"), top.section("filesystem")
    for key in _WITHOUT_EFFECT:
        top.take(key)
    for key, reason in _REFUSED.items():
        top.refuse(key, reason)
    config = SandboxConfig(
        deny_read=_paths(files, "denyRead", patterns=True),
        allow_read=_paths(files, "allowRead", patterns=True),
        allow_write=_paths(files, "allowWrite", patterns=False),
        deny_write=_paths(files, "denyWrite", patterns=False),
        allow_git_config=files.flag("allowGitConfig"),
        unix_sockets=network.flag("allowAllUnixSockets"),
        depth=top.number("mandatoryDenySearchDepth", _DEPTH, 1, _MOST_DEPTH),
    )
    files.refuse("disabled", "a sandbox that leaves the files open is none; name what may be written in allowWrite")
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
    "enableWeakerNestedSandbox": "there is no weaker sandbox here; leave it out, or set it to false",
    "git": "nothing is added to git's configuration here; set GIT_CONFIG_* in env",
}
_PROXY_KEYS = ("httpProxyPort", "socksProxyPort", "mitmProxy", "filterRequest", "tlsTerminate", "parentProxy")
_NO_PROXY = "there is no proxy here, and no network to use one for; leave it out"


def _check_network(network: _Section) -> None:
    allowed = network.texts("allowedDomains")
    network.texts("deniedDomains")
    if allowed:
        raise InvalidInput.saying(
            f"{network.what}: network.allowedDomains names {allowed[0]!r}, and a sandboxed kernel has no network: use "
            "an empty list, and let tools of an MCP server fetch what cells need"
        )
    for key in _NETWORK_WITHOUT_EFFECT:
        network.take(key)
    for key in _PROXY_KEYS:
        network.refuse(key, _NO_PROXY)


def _paths(files: _Section, key: str, *, patterns: bool) -> tuple[str, ...]:
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
    """Tells whether a path has wildcards in it."""
    return any(character in path for character in "*?[")


class _Section:
    """One object of the file; a key that has not been taken in the end is unknown."""

    def __init__(self, name: str, settings: object, what: str) -> None:
        if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
            raise InvalidInput.saying(f"{what}: {name or 'the configuration'} is an object of keys and values")
        self.name, self.what = name, what
        self._settings = dict(settings)

    def section(self, key: str) -> _Section:
        return _Section(key, self.take(key, {}), self.what)

    def take(self, key: str, default: object = None) -> Any:
        return self._settings.pop(key, default)

    def refuse(self, key: str, reason: str) -> None:
        """Refuses a key that is there, unless its value says that it is not wanted."""
        value = self.take(key)
        if value not in (None, False):
            raise InvalidInput.saying(f"{self.what}: {self._path(key)} cannot be honoured: {reason}")

    def texts(self, key: str) -> list[str]:
        def are_texts(value: object) -> bool:
            return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)

        return list(self._checked(key, [], are_texts, "use a list of strings"))

    def flag(self, key: str) -> bool:
        return bool(self._checked(key, False, lambda value: isinstance(value, bool), "use true or false"))

    def number(self, key: str, default: int, least: int, most: int) -> int:
        def fits(value: object) -> bool:
            return type(value) is int and least <= value <= most

        return int(self._checked(key, default, fits, f"use a whole number from {least} to {most}"))

    def finish(self) -> None:
        if self._settings:
            key = min(self._settings)
            raise InvalidInput.saying(
                f"{self.what}: {self._path(key)} is unknown; docs/sandbox.md lists the keys that there are"
            )

    def _checked(self, key: str, default: object, is_sound: Callable[[object], bool], allowed: str) -> Any:
        value = self.take(key, default)
        if not is_sound(value):
            raise InvalidInput(f"{self.what}: {self._path(key)}", value, allowed)
        return value

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

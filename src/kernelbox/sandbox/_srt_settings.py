"""The part of a configuration that only srt honours: its proxy, and the paths of its programs."""

from __future__ import annotations

import json

from kernelbox.base._errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.sandbox._sandbox_config import SandboxConfig
    from kernelbox.sandbox._section import Section

_DOMAINS = ("allowedDomains", "deniedDomains")

# Keys whose values srt itself checks when it starts; for an object, the keys it may have.
_NETWORK: dict[str, tuple[str, ...]] = {
    "deniedDomainReasons": (),
    "strictAllowlist": (),
    "deniedResolvedAddresses": (),
    "httpProxyPort": (),
    "socksProxyPort": (),
    "mitmProxy": ("socketPath", "domains"),
    "tlsTerminate": ("caCertPath", "caKeyPath", "excludeDomains", "extraCaCertPaths"),
    "parentProxy": ("http", "https", "noProxy"),
}
_TOP: dict[str, tuple[str, ...]] = {
    "ripgrep": ("command", "args", "argv0"),
    "seccomp": ("applyPath", "argv0"),
    "bwrapPath": (),
    "socatPath": (),
    "javaAgentJarPath": (),
    "git": ("safeDirectories",),
}


def take_passed(top: Section, network: Section) -> str:
    """Takes the settings that only srt honours out of a configuration; returns them as JSON."""
    domains = {key: names for key in _DOMAINS if (names := network.texts(key))}
    found = {"network": domains | _take(network, _NETWORK), "top": _take(top, _TOP)}
    try:
        return json.dumps(found, ensure_ascii=False, sort_keys=True) if any(found.values()) else ""
    except (TypeError, ValueError) as exc:
        raise InvalidInput.saying(f"{top.what}: it has values that cannot be written as JSON: {exc}") from exc


def _take(section: Section, known: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, inside in known.items():
        value = section.take(key)
        if value is None or (inside and value is False):
            continue
        if inside:
            part = section.part(key, value)
            value = {name: part.take(name) for name in inside if name in part}
            part.finish()
        found[key] = value
    return found


def programs_of_srt(config: SandboxConfig) -> list[str]:
    """Returns the programs that a configuration names in place of those that srt finds on PATH."""
    top: dict[str, Any] = json.loads(config.passed)["top"] if config.passed else {}
    found = [top.get("bwrapPath"), top.get("socatPath")]
    found += [top.get(key, {}).get(name) for key, name in (("ripgrep", "command"), ("seccomp", "applyPath"))]
    return [program for program in found if isinstance(program, str)]


def settings_for_srt(config: SandboxConfig) -> dict[str, Any]:
    """Returns the contents of the settings file for srt."""
    passed: dict[str, Any] = json.loads(config.passed) if config.passed else {"network": {}, "top": {}}
    return {
        **passed["top"],
        "network": {
            "allowedDomains": [],
            "deniedDomains": [],
            **passed["network"],
            "allowAllUnixSockets": config.unix_sockets,
        },
        "filesystem": {
            "denyRead": [*config.deny_read, *config.withheld],
            "allowRead": list(config.allow_read),
            "allowWrite": list(config.allow_write),
            "denyWrite": list(config.deny_write),
            "allowGitConfig": config.allow_git_config,
        },
        "mandatoryDenySearchDepth": config.depth,
    }

"""Which level of the sandbox is asked for, and what of the configuration each takes; without a kernel."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.sandbox import needs_linux

from kernelbox import CodeExecutor, InvalidInput, StartFailed, get_or_create
from kernelbox.gateway import KernelGateway
from kernelbox.sandbox._paths import find_absent
from kernelbox.sandbox._sandbox_config import SandboxConfig, check_sandbox
from kernelbox.sandbox._srt_settings import settings_for_srt

NETWORK: dict[str, Any] = {
    "allowedDomains": ["pypi.org", "*.example.com:8443", "[::1]:443"],
    "deniedDomains": ["evil.example.com"],
    "deniedDomainReasons": {"evil.example.com": "no"},
    "strictAllowlist": True,
    "deniedResolvedAddresses": ["10.0.0.0/8"],
    "tlsTerminate": {"excludeDomains": ["a.example.com"]},
    "parentProxy": {"http": "http://proxy:3128"},
}


def test_srt_is_told_what_the_configuration_says() -> None:
    files = {"denyRead": ["~/.ssh"], "allowRead": [], "allowWrite": ["."], "denyWrite": ["x"], "allowGitConfig": True}
    settings = {"network": NETWORK, "filesystem": files, "mandatoryDenySearchDepth": 5, "socatPath": "/usr/bin/socat"}
    config = check_sandbox(settings, level="srt")
    assert config is not None
    assert settings_for_srt(config) == {**settings, "network": {**NETWORK, "allowAllUnixSockets": False}}
    assert SandboxConfig.from_text(config.to_text()) == config


def test_the_default_of_srt_reads_all_but_dotenv_writes_here_and_has_no_network() -> None:
    assert settings_for_srt(SandboxConfig(level="srt")) == {
        "network": {"allowedDomains": [], "deniedDomains": [], "allowAllUnixSockets": False},
        "filesystem": {
            "denyRead": [".env"],
            "allowRead": [],
            "allowWrite": ["."],
            "denyWrite": [],
            "allowGitConfig": False,
        },
        "mandatoryDenySearchDepth": 3,
    }


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"newtork": {}}, "newtork is unknown; did you mean network?"),
        ({"network": {"allowedDomain": []}}, "network.allowedDomain is unknown; did you mean network.allowedDomains?"),
        ({"network": {"tlsTerminate": {"exclude": []}}}, "network.tlsTerminate.exclude is unknown"),
        ({"network": {"parentProxy": {"htp": "x"}}}, "network.parentProxy.htp is unknown"),
        ({"ripgrep": {"cmd": "rg"}}, "ripgrep.cmd is unknown"),
        ({"zzz": 1}, "zzz is unknown; docs/sandbox.md lists"),
        ({"network": {"allowedDomains": "pypi.org"}}, "network.allowedDomains"),
        ({"network": {"filterRequest": "x"}}, "network.filterRequest cannot be honoured"),
        ({"network": {"tlsTerminate": "yes"}}, "network.tlsTerminate must be an object"),
        ({"network": {"mitmProxy": {"socketPath": {1, 2}}}}, "values that cannot be written as JSON"),
        ({"credentials": {"files": []}}, "credentials cannot be honoured"),
        ({"enableWeakerNestedSandbox": True}, "enableWeakerNestedSandbox cannot be honoured"),
        ({"filesystem": {"disabled": True}}, "filesystem.disabled cannot be honoured"),
    ],
)
def test_what_srt_would_drop_or_weaken_is_refused_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(named)):
        check_sandbox(settings, level="srt")


def test_the_native_level_names_the_other_for_a_domain() -> None:
    with pytest.raises(InvalidInput, match=r"pypi\.org.*the level srt"):
        check_sandbox({"network": NETWORK})


@pytest.mark.parametrize("make", [CodeExecutor, KernelGateway])
def test_every_face_takes_a_level_and_refuses_what_is_none(make: type, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"network": NETWORK}))
    assert make(sandbox=True, sandbox_config=rules, sandbox_level="srt").sandbox_level == "srt"
    with pytest.raises(InvalidInput, match="use one of native, srt"):
        make(sandbox=True, sandbox_level="docker")
    with pytest.raises(InvalidInput, match="without sandbox=True"):
        make(sandbox_level="srt")


@pytest.mark.usefixtures("home")
def test_a_level_without_a_sandbox_is_refused(workspace: Path) -> None:
    for sandbox in (None, False):
        with pytest.raises(InvalidInput, match="without sandbox="):
            get_or_create("box", sandbox=sandbox, sandbox_level="srt")
    with pytest.raises(InvalidInput, match="use one of native, srt"):
        get_or_create("box", sandbox=True, sandbox_level="firejail")  # type: ignore[arg-type]  # that is the point


@needs_linux
@pytest.mark.usefixtures("home")
@pytest.mark.skipif(os.getuid() != 0, reason="it is about the superuser")
def test_the_superuser_is_refused_with_the_reason(workspace: Path) -> None:
    with pytest.raises(StartFailed, match=r"srt does not confine the superuser.*the native level confines"):
        get_or_create("box", sandbox=True, sandbox_level="srt")


def test_what_srt_will_put_in_a_directory_is_known_before(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").touch()
    (tmp_path / ".git").mkdir()
    found = {os.path.relpath(path, tmp_path) for path in find_absent(str(tmp_path), ("a/b/c", ".git"))}
    assert {".profile", ".vscode", ".claude", ".git/hooks", ".git/config", "a"} <= found
    assert not {".bashrc", ".git", ".claude/commands", "a/b"} & found

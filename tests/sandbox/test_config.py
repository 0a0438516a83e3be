"""The configuration file: read as its README says, and refused by name where it cannot be honoured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelbox import InvalidInput
from kernelbox.sandbox._sandbox_config import SandboxConfig, check_sandbox

# The complete example of the README, without what needs a network.
COMPLETE: dict[str, Any] = {
    "network": {
        "allowedDomains": [],
        "deniedDomains": ["malicious.com"],
        "allowUnixSockets": ["/var/run/docker.sock"],
        "allowLocalBinding": False,
    },
    "filesystem": {
        "denyRead": ["~/.ssh"],
        "allowRead": [],
        "allowWrite": [".", "src/", "test/", "/tmp"],
        "denyWrite": [".env", "config/production.json"],
    },
    "ignoreViolations": {"*": ["/usr/bin", "/System"], "git push": ["/usr/bin/nc"], "npm": ["/private/tmp"]},
    "enableWeakerNestedSandbox": False,
    "enableWeakerNetworkIsolation": False,
    "allowAppleEvents": False,
}


def with_setting(path: str, value: object) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(json.dumps(COMPLETE))
    section, _, key = path.rpartition(".")
    (settings[section] if section else settings)[key] = value
    return settings


def test_the_example_of_the_readme_is_read() -> None:
    assert check_sandbox(COMPLETE) == SandboxConfig(
        deny_read=("~/.ssh",),
        allow_write=(".", "src/", "test/", "/tmp"),
        deny_write=(".env", "config/production.json"),
    )


def test_a_file_means_the_same_as_the_dict_of_what_is_in_it_and_that_it_is_not_written_itself(tmp_path: Path) -> None:
    path = tmp_path / "srt-settings.json"
    path.write_text(json.dumps(COMPLETE))
    assert check_sandbox(path) == check_sandbox(str(path))
    deny_write = (*COMPLETE["filesystem"]["denyWrite"], str(path))
    assert check_sandbox(path) == check_sandbox(with_setting("filesystem.denyWrite", deny_write))


def test_what_is_left_out_has_the_default_of_the_readme() -> None:
    config = check_sandbox({"mandatoryDenySearchDepth": 5, "filesystem": {"allowWrite": ["."]}})
    assert config == SandboxConfig(deny_read=(), allow_write=(".",), depth=5)
    assert check_sandbox({}) == SandboxConfig(deny_read=(), allow_write=())


def test_true_is_the_default_policy_and_false_is_none() -> None:
    assert check_sandbox(True) == SandboxConfig(deny_read=(".env",), allow_write=(".",))
    assert check_sandbox(False) is None
    assert check_sandbox(None) is None


@pytest.mark.parametrize(
    "path",
    [
        "unknown",
        "network.allowedDomain",
        "filesystem.denyreads",
        "filesystem.denyExec",
        "denyRead",
        "filesystem.disabled",
        "enableWeakerNestedSandbox",
        "network.tlsTerminate",
        "network.mitmProxy",
        "network.parentProxy",
        "network.httpProxyPort",
        "credentials",
        "git",
    ],
)
def test_a_key_that_is_unknown_or_cannot_be_honoured_is_named(path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_sandbox(with_setting(path, {"x": 1} if path != "filesystem.disabled" else True))
    assert path in str(caught.value)


def test_a_domain_that_is_allowed_is_named_with_what_to_do() -> None:
    with pytest.raises(InvalidInput, match=r"allowedDomains names 'github\.com', .*use an empty list"):
        check_sandbox(with_setting("network.allowedDomains", ["github.com"]))


@pytest.mark.parametrize("path", ["filesystem.disabled", "network.tlsTerminate", "enableWeakerNestedSandbox"])
def test_a_key_that_is_switched_off_is_honoured(path: str) -> None:
    assert check_sandbox(with_setting(path, False)) == check_sandbox(COMPLETE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("filesystem.denyRead", "~/.ssh"),
        ("filesystem.denyRead", None),
        ("filesystem.allowWrite", [1]),
        ("filesystem.allowWrite", [""]),
        ("filesystem.allowWrite", ["a\0b"]),
        ("filesystem.allowWrite", ["src/*.py"]),
        ("filesystem.denyWrite", ["**/secret"]),
        ("filesystem.denyRead", ["/**/x"]),
        ("filesystem.denyRead", ["/opt*/keys"]),
        ("filesystem.denyRead", ["data/*/"]),
        ("filesystem.allowGitConfig", 1),
        ("network.allowAllUnixSockets", "yes"),
        ("network.allowedDomains", {}),
        ("mandatoryDenySearchDepth", 0),
        ("mandatoryDenySearchDepth", 11),
        ("mandatoryDenySearchDepth", True),
        ("network", []),
        ("filesystem", None),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_key(path: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_sandbox(with_setting(path, value))
    assert path in str(caught.value)


@pytest.mark.parametrize("path", ["src/**", "/data/**"])
def test_two_stars_at_the_end_mean_the_directory(path: str) -> None:
    config = check_sandbox(with_setting("filesystem.allowWrite", [path]))
    assert config is not None
    assert config.allow_write == (path.removesuffix("/**"),)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', '{"network": {}, "network": {}}', "[" * 100_000])
def test_a_file_that_is_no_object_of_json_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InvalidInput):
        check_sandbox(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_text("{}" + " " * 1024 * 1024)
    with pytest.raises(InvalidInput, match="at most 1,048,576 bytes"):
        check_sandbox(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        check_sandbox(tmp_path / "missing.json")


@pytest.mark.parametrize("sandbox", ["", 1, 0, [], object()])
def test_what_is_no_sandbox_is_refused(sandbox: object) -> None:
    with pytest.raises(InvalidInput):
        check_sandbox(sandbox)


def test_what_a_record_keeps_reads_back_as_the_same() -> None:
    config = check_sandbox(COMPLETE)
    assert config is not None
    assert SandboxConfig.from_text(config.to_text()) == config


def test_a_difference_names_the_keys() -> None:
    one, other = SandboxConfig(), SandboxConfig(deny_read=(), allow_write=("/data",))
    assert one.describe_difference(other) == "a sandbox with another denyRead, allowWrite"

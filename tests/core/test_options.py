"""What a caller asks of a new kernel, and in what a live one differs from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelbox import InvalidInput, KernelRecord, Limits
from kernelbox.core._options import KernelOptions, choose_sandbox
from kernelbox.sandbox._sandbox_config import SandboxConfig

DEFAULT = SandboxConfig()
OTHER = SandboxConfig(allow_write=(), unix_sockets=True)


def record(**fields: Any) -> KernelRecord:
    return KernelRecord("id", "file", "mine", session_name="mine", cwd="/", **fields)


@pytest.mark.parametrize(
    ("options", "differences"),
    [
        (KernelOptions(), []),
        (KernelOptions(kernel_type="python3", cwd="/", session_name="mine", tags={}), []),
        (KernelOptions(kernel_type="bash"), ["kernel_type='python3', not 'bash'"]),
        (KernelOptions(cwd="/tmp"), ["cwd='/', not '/tmp'"]),
        (KernelOptions(session_name="x"), ["session_name='mine', not 'x'"]),
        (KernelOptions(tags={"a": "b"}), ["tags={}, not {'a': 'b'}"]),
        (KernelOptions(lifetime="process"), ["lifetime='kernel', not 'process'"]),
        (KernelOptions(guarded=True), ["no guard, not require_shell_escape=True"]),
        (KernelOptions(limits={"memory": "1G"}), ["limits memory=none, not 1 GB"]),
        (KernelOptions(sandbox=True), ["no sandbox, where one is asked for"]),
        (KernelOptions(sandbox=False), []),
        (KernelOptions(env={}), ["the environment of the process that opened it, not env="]),
        (
            KernelOptions(limits=Limits(processes=9), sandbox=True, guarded=True),
            [
                "limits processes=none, not 9",
                "no sandbox, where one is asked for",
                "no guard, not require_shell_escape=True",
            ],
        ),
    ],
)
def test_what_a_live_kernel_is_not_is_said_option_by_option(options: KernelOptions, differences: list[str]) -> None:
    assert options.differences(record(), None) == differences


@pytest.mark.parametrize(
    ("fields", "options", "differences"),
    [
        ({"lifetime": "process"}, KernelOptions(), []),
        ({"lifetime": "process"}, KernelOptions(lifetime="process"), []),
        ({"guarded": True}, KernelOptions(), []),
        ({"guarded": True}, KernelOptions(guarded=True), []),
        ({"limits": {"processes": 9}}, KernelOptions(), []),
        ({"limits": {"processes": 9}}, KernelOptions(limits=Limits(processes=9)), []),
        ({"sandbox": "native", "sandbox_config": DEFAULT.to_text()}, KernelOptions(), []),
        ({"sandbox": "native", "sandbox_config": DEFAULT.to_text()}, KernelOptions(sandbox=True), []),
        (
            {"sandbox": "native", "sandbox_config": DEFAULT.to_text()},
            KernelOptions(sandbox=False),
            ["a sandbox (native), where none is asked for"],
        ),
        (
            {"sandbox": "native", "sandbox_config": DEFAULT.to_text()},
            KernelOptions(sandbox=OTHER),
            [DEFAULT.describe_difference(OTHER)],
        ),
        (
            {"sandbox": None, "sandbox_config": DEFAULT.to_text()},
            KernelOptions(sandbox=True),
            ["no sandbox, where one is asked for"],
        ),
    ],
)
def test_what_a_live_kernel_has_beyond_the_default_is_compared_where_it_is_asked_for(
    fields: dict[str, Any], options: KernelOptions, differences: list[str]
) -> None:
    assert options.differences(record(**fields), None) == differences


def test_a_directory_is_the_same_by_whatever_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    live = KernelRecord("id", "file", "mine", cwd=str(tmp_path))
    assert KernelOptions(cwd=tmp_path / "link").differences(live, None) == []


@pytest.mark.parametrize(
    ("given", "differences"),
    [
        (None, []),
        ({"A": "1", "B": "2"}, []),
        ({"A": "1", "B": "secret"}, ["an env= with another B"]),
        ({"A": "1"}, ["an env= with another B"]),
        ({"A": "1", "B": "2", "C": "secret"}, ["an env= with another C"]),
        ({"A": "1", "B": "2"} | dict.fromkeys("cdefghijkl", ""), ["an env= with another c, d, e, f, g, h, i, j, k, l"]),
        ({"A": "1"} | dict.fromkeys("cdefghijkl", ""), ["an env= with another B, c, d, e, f, g, h, i, j, k …"]),
    ],
)
def test_of_an_environment_the_names_are_said_and_no_values(
    given: dict[str, str] | None, differences: list[str]
) -> None:
    options = KernelOptions(env={"A": "1", "B": "2"})
    assert options.differences(record(environment="given"), given) == differences
    assert KernelOptions().differences(record(environment="given"), given) == []


@pytest.mark.parametrize(
    "options",
    [
        KernelOptions(kernel_type=5),  # type: ignore[arg-type]
        KernelOptions(cwd="/no/such/directory"),
        KernelOptions(session_name=""),
        KernelOptions(tags={"a": 5}),  # type: ignore[dict-item]
        KernelOptions(lifetime="for ever"),  # type: ignore[arg-type]
        KernelOptions(env={"a=b": "c"}),
        KernelOptions(limits={"memory": "lots"}),
        KernelOptions(sandbox="/no/such/file"),
        KernelOptions(sandbox={"filesystem": {"denyRead": ["x" * 2000] * 6}}),
    ],
    ids=["type", "cwd", "session", "tags", "lifetime", "env", "limits", "sandbox", "rules"],
)
def test_what_no_kernel_can_be_is_refused_whether_or_not_there_is_one(options: KernelOptions) -> None:
    with pytest.raises(InvalidInput):
        options.differences(record(), None)
    if not isinstance(options.sandbox, dict):  # how many characters a record keeps is looked at when it is made
        with pytest.raises(InvalidInput):
            options.checked()


def test_rules_are_as_many_as_a_record_keeps() -> None:
    around = len(SandboxConfig(deny_read=("",)).to_text())
    fits = KernelOptions(sandbox=SandboxConfig(deny_read=("x" * (10_000 - around),)))
    assert len(fits.sandbox_rules()) == 10_000
    with pytest.raises(InvalidInput, match="these rules have more than 10,000 characters; use fewer paths"):
        KernelOptions(sandbox=SandboxConfig(deny_read=("x" * (10_001 - around),))).sandbox_rules()
    assert KernelOptions().sandbox_rules() == ""


def test_options_that_are_checked_are_copies_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    tags, env = {"a": "b"}, {"A": "1"}
    given = KernelOptions("s", tags, ".", env, "process", "bash", {"processes": 9}, True, guarded=True)
    checked = given.checked()
    assert checked == KernelOptions(
        "s", {"a": "b"}, str(tmp_path), {"A": "1"}, "process", "bash", Limits(processes=9), DEFAULT, guarded=True
    )
    assert checked.tags is not tags
    assert checked.env is not env
    assert KernelOptions(sandbox=False).checked() == KernelOptions(sandbox=False)


def test_a_kernel_is_found_by_its_name_and_its_session_name() -> None:
    assert KernelOptions().names("a") == ["a"]
    assert KernelOptions(session_name="b").names("a") == ["a", "b"]
    with pytest.raises(InvalidInput):
        KernelOptions(session_name="").names("a")


def test_limits_hold_over_those_of_the_configuration_and_none_is_none() -> None:
    configured = {"memory": 1000.0, "cpu": 0.0, "processes": 10.0}
    assert KernelOptions().effective_limits(configured) == {"memory": 1000.0, "processes": 10.0}
    assert KernelOptions(limits={"processes": 9, "memory": 0}).effective_limits(configured) == {"processes": 9}


def test_options_cannot_be_changed() -> None:
    with pytest.raises((AttributeError, TypeError)):
        KernelOptions().cwd = "/"  # type: ignore[misc]


@pytest.mark.parametrize(("config", "level"), [("file", None), (None, "native"), ("", None), (None, "")])
def test_what_would_have_no_effect_without_a_sandbox_is_refused(config: str | None, level: str | None) -> None:
    with pytest.raises(InvalidInput, match=r"without sandbox=True, or --sandbox, it would have no effect"):
        choose_sandbox(False, config, level)


def test_a_sandbox_is_chosen_by_a_switch_a_file_and_a_level(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({"filesystem": {"allowWrite": []}}))
    assert choose_sandbox(False, None) is None
    assert choose_sandbox(True, None) == DEFAULT
    assert choose_sandbox(True, None, "native") == DEFAULT
    by_file = choose_sandbox(True, tmp_path / "file")
    assert by_file is not None
    assert (by_file.level, by_file.allow_write) == ("native", ())
    chosen = choose_sandbox(True, None, "srt")
    assert chosen is not None
    assert chosen.level == "srt"
    from_file = choose_sandbox(True, tmp_path / "file", "srt")
    assert from_file is not None
    assert (from_file.level, from_file.allow_write) == ("srt", ())
    with pytest.raises(InvalidInput):
        choose_sandbox(True, None, "none")


def test_a_level_is_that_of_a_sandbox_that_is_asked_for() -> None:
    rules: dict[str, object] = {"filesystem": {"allowWrite": []}}
    for asked in (True, rules):
        leveled = choose_sandbox(asked, level="srt")
        assert leveled is not None
        assert leveled.level == "srt"
    for none in (None, False):
        assert choose_sandbox(none) is None
        with pytest.raises(InvalidInput, match=r"sandbox_level .* without sandbox=True"):
            choose_sandbox(none, level="srt")
    with pytest.raises(InvalidInput):
        choose_sandbox(rules, level="none")

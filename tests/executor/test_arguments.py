"""What a CodeExecutor refuses when it is made: nothing that cannot be used gets as far as a kernel."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from tests.support.executor import run

from kernelbox import CodeExecutor, InvalidInput

SWITCHES = ("approve_tool_calls", "approve_shell_cmds", "require_shell_escape", "report_changes", "sandbox")


@pytest.mark.parametrize("value", [0, 1, None, "yes", "", [], 1.0], ids=repr)
@pytest.mark.parametrize("option", SWITCHES)
def test_a_switch_is_true_or_false_and_nothing_that_passes_for_it(option: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{option} cannot be .*use True or False"):
        CodeExecutor(**{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("mcp_servers", 5),
        ("mcp_servers", 0),
        ("mcp_servers", ["x"]),
        ("kernel_env", "x"),
        ("kernel_env", 0),
        ("kernel_env", ["a"]),
        ("kernel_env", {"a": 1}),
        ("working_dir", 5),
        ("working_dir", ""),
        ("working_dir", b"/"),
        ("working_dir", "\0"),
        ("images_dir", 0),
        ("images_dir", []),
        ("log_level", []),
        ("log_level", 10),
        ("output_char_limit", "5"),
        ("approval_timeout", "5"),
        ("connect_timeout", 0),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_its_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"^{option} cannot be "):
        CodeExecutor(**{option: value})


def test_any_mapping_will_do_where_a_mapping_is_expected() -> None:
    environment: Any = MappingProxyType({"COLOUR": "red"})
    executor = CodeExecutor(kernel_env=environment, mcp_servers=MappingProxyType({}), images_dir="")
    assert executor.kernel_env == {"COLOUR": "red"}


@pytest.mark.parametrize("timeout", [0, "5", float("inf")])
def test_variables_refuses_a_timeout_that_makes_no_sense(timeout: Any) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidInput, match=r"^timeout cannot be "):
            await CodeExecutor().variables(timeout)

    run(scenario)

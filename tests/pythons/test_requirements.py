"""What `requirements=` accepts, and how it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbox import InvalidInput, get_or_create
from kernelbox.host.pythons._requirements import Requirements, check_requirements

SCRIPT = """\
#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "rich>=13",
#   "humanize",
# ]
# ///
print("hello")
"""


def test_the_order_and_the_spaces_of_requirements_do_not_matter() -> None:
    assert check_requirements(["b >= 2", "a", "a"]) == check_requirements(("a", "b>=2"))


def test_a_script_says_in_its_comments_what_it_needs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert check_requirements(script) == Requirements(("humanize", "rich>=13"), ">=3.11")
    assert check_requirements(str(script)) == check_requirements(script)


@pytest.mark.parametrize(
    ("rule", "version", "accepted"),
    [
        (">=3.12", "3.12.0", True),
        (">=3.12", "3.11.7", False),
        (">=3.11,<3.13", "3.13.0", False),
        ("<=3.12", "3.12.4", True),
        (">3.11", "3.11.7", False),
        ("==3.12.*", "3.12.4", True),
        ("==3.12.*", "3.13.0", False),
        ("!=3.12.1", "3.12.1", False),
        ("~=3.12", "3.13.0", True),
        ("~=3.12.1", "3.13.0", False),
        ("", "3.11.0", True),
        ("newest", "3.11.0", False),
    ],
)
def test_a_rule_about_python_is_kept(rule: str, version: str, accepted: bool) -> None:
    assert Requirements((), rule).accepts(version) is accepted


@pytest.mark.parametrize(
    "given", [["-r x.txt"], ["./here"], ["/tmp/here"], [""], ["a\nb"], [1], 5, {"a": 1}, ["a" * 6000]]
)
def test_what_is_not_a_package_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="requirements"):
        check_requirements(given)


def test_a_script_without_metadata_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print(1)\n")
    with pytest.raises(InvalidInput, match="the script has no inline metadata; use a list such as"):
        check_requirements(script)
    script.write_text("# /// script\n# dependencies = [\n# ///\n")
    with pytest.raises(InvalidInput, match="its inline metadata is not valid"):
        check_requirements(script)
    with pytest.raises(InvalidInput, match=r"cannot be read as a script .*; use a list such as"):
        check_requirements("pandas")


@pytest.mark.slow
def test_a_script_that_no_python_here_can_run_is_refused(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text('# /// script\n# requires-python = ">=3.99"\n# ///\n')
    with pytest.raises(InvalidInput, match=r"requires-python cannot be '>=3\.99': no such Python was found"):
        get_or_create("none", requirements=script)

"""What `ps` shows of our processes: which kernel, what it does, and no code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.cells import eventually, value

from kernelbox import Kernel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reads titles from a process's memory")

OWN_TITLE = "open('/proc/self/cmdline').read().rstrip(chr(0))"


def title(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").replace("\0", " ")


def test_the_title_of_a_kernel_is_its_name_and_what_it_does(home: Path) -> None:
    kernel = Kernel("demo")
    assert title(kernel.pid) == "kernelbox: demo (idle)"
    assert value("demo", OWN_TITLE) == "'kernelbox: demo (busy)'"
    assert title(kernel.pid) == "kernelbox: demo (idle)"


def test_the_title_of_a_template_has_its_role_and_the_name_that_hosts_look_for(home: Path) -> None:
    parent = value(Kernel("demo").name, "__import__('os').getppid()")
    assert title(int(parent)).startswith("kernelbox: template template-")


@pytest.mark.parametrize(
    ("name", "shown"), [("naïve 名", "naïve 名"), ("x" * 100, "x" * 59 + "…"), ("a\u202eb", "a?b")]
)
def test_a_name_is_shown_in_one_short_line(home: Path, name: str, shown: str) -> None:
    assert title(Kernel(name).pid) == f"kernelbox: {shown} (idle)"


def test_copies_are_shown_by_their_own_names(home: Path) -> None:
    kernel = Kernel("demo")
    kernel.checkpoint()
    branch = kernel.branch("try-1")
    assert title(branch.pid) == "kernelbox: try-1 (idle)"
    parent = value(kernel.name, "__import__('os').getppid()")
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    assert "kernelbox: demo (checkpoint 1)" in [title(int(pid)) for pid in children]
    kernel.rollback()
    eventually(lambda: title(kernel.refresh().pid) == "kernelbox: demo (idle)")  # it may not have gone on yet


def test_a_kernel_in_a_sandbox_has_a_title(home: Path, tmp_path: Path) -> None:
    kernel = Kernel("box", sandbox=True, cwd=tmp_path)
    assert title(kernel.pid) == "kernelbox: box (idle)"

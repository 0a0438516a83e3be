"""Environments of requirements: made once, shared, and made again when their maker was killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import eventually, value
from tests.support.command_line import succeed

from kernelbox import KernelExists, StartFailed, get_or_create, restart
from kernelbox.host.pythons._virtual_environments import list_environments, remove_environment

ROOT = Path(__file__).resolve().parents[2]

OPEN = """
import sys, kernelbox
kernelbox.get_or_create(sys.argv[1], requirements=["humanize"], progress=lambda line: print(line, flush=True))
"""

pytestmark = pytest.mark.slow  # they install packages


@pytest.fixture
def cache(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has environments made by the bootstrap's uv, if there is one, in a cache of the test's own."""
    monkeypatch.setenv("KERNELBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{ROOT / '.bootstrap' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "cache"


def version_of_humanize(name: str) -> str:
    return value(name, "__import__('humanize').__version__")


def test_kernels_with_the_same_requirements_share_an_environment(cache: Path) -> None:
    told: list[str] = []
    one = get_or_create("one", requirements=["humanize", "tabulate"], progress=told.append)
    assert told[0].endswith("with humanize, tabulate")
    two = get_or_create("two", requirements=("tabulate", "humanize"), progress=told.append)
    assert one.python == two.python
    assert sum(line.startswith("making an environment") for line in told) == 1
    assert version_of_humanize("two")
    with pytest.raises(KernelExists, match=r"has requirements=\['humanize', 'tabulate'\], not \['humanize'\]"):
        get_or_create("one", requirements=["humanize"])
    (kept,) = list_environments(str(cache))
    assert (kept.requirements, kept.complete) == (("humanize", "tabulate"), True)
    assert succeed("cache")["environments"][0]["requirements"] == ["humanize", "tabulate"]
    assert succeed("cache", "--clean") == {"removed": []}  # live kernels run in it
    assert remove_environment(kept)
    restart("one")  # makes it again
    assert version_of_humanize("one")


def test_two_makers_at_once_make_an_environment_once(cache: Path) -> None:
    makers = [subprocess.Popen([sys.executable, "-c", OPEN, name], stdout=subprocess.PIPE, text=True) for name in "ab"]
    said = "".join(maker.communicate()[0] for maker in makers)
    assert [maker.returncode for maker in makers] == [0, 0]
    assert said.count("making an environment") == 1
    assert version_of_humanize("a") == version_of_humanize("b")


def test_what_a_killed_maker_leaves_is_made_again(cache: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OPEN, "killed"], stdout=subprocess.DEVNULL) as maker:
        eventually(lambda: list(cache.glob("environments/*/bin/python")))
        maker.kill()
    get_or_create("after", requirements=["humanize"])
    assert version_of_humanize("after")
    assert [each.complete for each in list_environments(str(cache))] == [True]


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_package_that_does_not_exist_is_named_and_nothing_is_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, installer: str
) -> None:
    if installer == "pip":
        rest = [path for path in os.environ["PATH"].split(os.pathsep) if shutil.which("uv", path=path) is None]
        monkeypatch.setenv("PATH", os.pathsep.join(rest))
    elif shutil.which("uv") is None:
        pytest.skip("there is no uv here")
    with pytest.raises(StartFailed, match="no environment could be made with no-such-package-anywhere: ") as failed:
        get_or_create("none", requirements=["no-such-package-anywhere"])
    assert str(failed.value).count("no-such-package-anywhere") >= 2
    assert len(str(failed.value)) < 800
    assert list_environments(str(cache)) == []

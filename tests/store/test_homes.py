"""Which home a name belongs to: the nearest one above the working directory, and all homes of the user together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.bounded import DEADLINE

from kernelbox import KernelNotFound, destroy, execute, get_or_create, list_kernels, status, wipe
from kernelbox.base._config import find_home
from kernelbox.host.files._known_homes import known_homes


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a home of its own, which is the working directory, without KERNELBOX_HOME."""
    monkeypatch.delenv("KERNELBOX_HOME", raising=False)
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(tmp_path / "keys" / "key"))
    (tmp_path / "keys").mkdir(mode=0o700)
    project = tmp_path / "project"
    (project / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(project)
    return project


def kernelbox(*words: str, cwd: Path) -> dict[str, list[dict[str, object]]]:
    command = [sys.executable, "-m", "kernelbox", *words]
    env = {name: value for name, value in os.environ.items() if name != "KERNELBOX_HOME"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=DEADLINE, check=True)
    answer: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return answer


def test_the_home_is_found_upwards(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_home() == str(project / ".kernelbox")
    kernelbox("create", "--name", "above", cwd=project)
    monkeypatch.chdir(project / "deep" / "er")
    assert find_home() == str(project / ".kernelbox")
    [record] = kernelbox("list", cwd=project / "deep")["kernels"]
    assert record["name"] == "above"
    assert not (project / "deep" / ".kernelbox").exists()
    kernelbox("wipe", cwd=project / "deep" / "er")


@pytest.mark.parametrize("wrong", ["no seal", "a link", "writable by others", "a file"])
def test_a_directory_above_that_is_not_a_home_of_ours_is_passed_over(
    project: Path, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, elsewhere = project / ".kernelbox", project / "deep" / "other"
    if wrong == "a file":
        above.touch()
    else:
        real = elsewhere if wrong == "a link" else above
        real.mkdir()
        if wrong != "no seal":
            (real / "seal").touch()
        if wrong == "a link":
            above.symlink_to(elsewhere)
        if wrong == "writable by others":
            above.chmod(0o777)
    monkeypatch.chdir(project / "deep" / "er")
    assert find_home() == str(project / "deep" / "er" / ".kernelbox")


def test_kernels_of_all_homes_are_listed_and_used_where_they_are(project: Path, own_home: Path) -> None:
    get_or_create("here")
    kernelbox("create", "--name", "there", cwd=project)
    assert [record.name for record in list_kernels()] == ["here"]
    found = {kernel.name: kernel for kernel in list_kernels(all_homes=True)}
    assert found.keys() == {"here", "there"}
    there = found["there"]
    assert there.home == str(project / ".kernelbox")  # type: ignore[attr-defined]  # an object with a home
    assert there.execute("1 + 1").return_value == "2"  # type: ignore[attr-defined]
    listed = kernelbox("list", "--all", cwd=project)["kernels"]
    homes = {record["name"]: record["home"] for record in listed}
    assert homes == {"here": str(own_home), "there": str(project / ".kernelbox")}
    assert len(wipe(all_homes=True)) == 2


def test_stale_kernels_of_all_homes_are_ended_together(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernelbox("create", "--name", "forgotten", cwd=project)
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0.001")
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    ended = kernelbox("wipe", "--stale", "--all", cwd=elsewhere)["destroyed"]
    assert len(ended) == 1
    kernelbox("wipe", "--all", cwd=elsewhere)


def test_a_home_that_is_gone_is_forgotten(project: Path, tmp_path: Path) -> None:
    kernelbox("create", "--name", "brief", cwd=project)
    kernelbox("wipe", cwd=project)
    assert known_homes(os.environ["KERNELBOX_KEY_FILE"]) == [str(project / ".kernelbox")]
    shutil.rmtree(project / ".kernelbox")
    assert known_homes(os.environ["KERNELBOX_KEY_FILE"]) == []
    assert list((tmp_path / "keys" / "homes").iterdir()) == []


@pytest.mark.parametrize("first", [["list"], ["run", "original", "1"]])
def test_a_copied_home_is_set_aside_with_a_sentence(project: Path, first: list[str]) -> None:
    kernelbox("create", "--name", "original", cwd=project)
    copy = project / "deep"
    shutil.copytree(
        project / ".kernelbox", copy / ".kernelbox", ignore=shutil.ignore_patterns("socket", "keeper", "template-*")
    )
    command = [sys.executable, "-m", "kernelbox", *first]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["{", '"kernels":', "[]", "}"] if first == ["list"] else ["1"])
    assert done.stderr.count("\n") == 1
    assert "is a copy of another home" in done.stderr
    assert [path.name for path in copy.glob(".kernelbox-copy-*")]
    again = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert again.stderr == ""
    [record] = kernelbox("list", cwd=project)["kernels"]
    assert record["status"] == "idle"
    kernelbox("wipe", cwd=project)
    kernelbox("wipe", cwd=copy)


def test_an_error_about_a_missing_kernel_names_the_home(home: Path) -> None:
    with pytest.raises(KernelNotFound, match=f"there is no kernel 'nowhere' in '{home}'"):
        status("nowhere")
    assert execute("somewhere", "1").ok
    assert destroy("somewhere")

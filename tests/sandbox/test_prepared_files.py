"""Rules are resolved on a file system that a hostile cell has prepared: its links, its modes, and very many names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import run, value
from tests.support.sandbox import LEVEL, needs_linux
from tests.support.store import as_user

from kernelbox import InvalidInput, KernelRecord, StartFailed, execute, get_or_create, restart
from kernelbox.sandbox._native import Surroundings, find_rules
from kernelbox.sandbox._path_rules import resolve, state_of
from kernelbox.sandbox._sandbox_config import SandboxConfig

pytestmark = needs_linux


def boxed(name: str, **options: object) -> KernelRecord:
    return get_or_create(name, sandbox=True, sandbox_level=LEVEL, **options)  # type: ignore[arg-type]  # of the caller


@pytest.mark.parametrize(
    ("name", "target"),
    [(".env", "/"), (".env", "/usr/bin/env"), (".vscode", "."), (".vscode", ".."), (".git", "/"), (".bashrc", "/proc")],
)
def test_a_link_that_a_cell_leaves_neither_stops_the_next_start_nor_closes_its_directory(
    home: Path, workspace: Path, name: str, target: str
) -> None:
    run(boxed("first"), f"import os; os.symlink({target!r}, {name!r})")
    again = restart("first")
    assert value(again, "open('written', 'w').write('x')") == "1"
    assert value(again, "__import__('subprocess').run(['env', 'true']).returncode") == "0"


def test_links_that_add_up_hide_no_file_from_a_pattern(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / "store" / f"d{number:02}").mkdir(parents=True)
        (tmp_path / "store" / f"d{number:02}" / "n").symlink_to(f"../d{number + 1:02}")
        (tmp_path / "store" / f"d{number:02}" / "key.pem").touch()
    for number in range(30):  # one of them comes before the directory itself, in whatever order these are found
        (tmp_path / f"start{number}").symlink_to("store/d00")
    for written in ((".",), ()):
        rules = find_rules(
            SandboxConfig(deny_read=("**/*.pem",), allow_write=written), Surroundings(str(tmp_path), homes=())
        )
        assert {state_of(str(path), rules) for path in tmp_path.glob("store/d*/key.pem")} == {"hide"}


def test_a_pattern_goes_through_no_link_of_a_cell(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "all").symlink_to("/")
    config = SandboxConfig(deny_read=("**/*.pem",))
    assert not find_rules(config, Surroundings(str(tmp_path / "work"), homes=())).deny_read


def test_very_many_protected_names_start_all_the_same(home: Path, workspace: Path) -> None:
    for number in range(2_500):
        (workspace / f"p{number}").mkdir()
        (workspace / f"p{number}" / ".bashrc").touch()
    box = boxed("many")
    assert "Read-only file system" in execute(box, "open('p2000/.bashrc', 'w')").text
    assert value(box, "open('p2000/other', 'w').write('x')") == "1"


def test_of_too_many_protected_names_whole_folders_are_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelbox.sandbox._native._MOST_PROTECTED", 20)
    for number in range(30):
        (tmp_path / "modules" / str(number)).mkdir(parents=True)
        (tmp_path / "modules" / str(number) / ".gitmodules").touch()
    (tmp_path / ".bashrc").touch()
    (tmp_path / "mine").mkdir()
    rules = find_rules(SandboxConfig(), Surroundings(str(tmp_path), homes=()))
    assert len(resolve(rules)) < 20
    states = {name: state_of(str(tmp_path / name), rules) for name in (".bashrc", "modules/5/.gitmodules", "mine/x")}
    assert states == {".bashrc": "read", "modules/5/.gitmodules": "read", "mine/x": "write"}


CLOSED = """
import os, shutil, tempfile
from kernelbox.base._errors import StartFailed
from kernelbox.sandbox._native import Surroundings, find_rules
from kernelbox.sandbox._path_rules import state_of
from kernelbox.sandbox._sandbox_config import SandboxConfig
os.chdir(tempfile.mkdtemp())
for path in ('a/.git/hooks', 'b/.git/hooks', 'c/inner', '.git/modules/sub/hooks'):
    os.makedirs(path)
open('c/inner/.env', 'w'); open('c/key.pem', 'w')
for path, mode in (('a', 0o300), ('b/.git', 0o300), ('c', 0o600), ('.git/modules/sub', 0o300)):
    os.chmod(path, mode)
for config in (SandboxConfig(), SandboxConfig(deny_read=('**/*.pem',))):
    rules = find_rules(config, Surroundings(os.getcwd(), homes=()))
    paths = ('a/.git/hooks', 'b/.git/hooks', 'c/inner/.env', 'c/key.pem', '.git/modules/sub/hooks', 'd')
    print(*(state_of(os.path.abspath(path), rules) for path in paths))
os.chmod('.', 0o300)
try:
    find_rules(SandboxConfig(), Surroundings(os.getcwd(), homes=()))
except StartFailed as exc:
    print(exc)
for path in ('.', 'a', 'b/.git', 'c', '.git/modules/sub'):
    os.chmod(path, 0o700)
shutil.rmtree(os.getcwd())
"""


def test_a_directory_that_cannot_be_listed_is_hidden_and_read_only() -> None:
    default, pattern, closed = as_user(1234, CLOSED).splitlines()
    assert default == "hide read hide hide read write"
    assert pattern == "hide hide hide hide hide write"
    assert "cannot be listed" in closed


def test_an_entry_to_write_that_a_neighbour_made_a_link_is_refused(home: Path, workspace: Path, tmp_path: Path) -> None:
    (workspace / "out").mkdir()
    (tmp_path / "inner").mkdir()
    rules = {"filesystem": {"allowWrite": [".", str(workspace / "out")]}}
    opened = get_or_create("careful", cwd=tmp_path / "inner", sandbox=rules)
    run(boxed("neighbour"), "import os; os.rename('out', 'away'); os.symlink('/etc', 'out')")
    with pytest.raises(StartFailed, match=r"may not write to '.*out', because '.*out' is a link that another"):
        restart(opened)


def test_a_directory_to_work_in_that_a_cell_made_a_link_is_refused(home: Path, workspace: Path) -> None:
    (workspace / "inner").mkdir()
    run(boxed("neighbour"), "import os; os.rename('inner', 'away'); os.symlink('/etc', 'inner')")
    with pytest.raises(InvalidInput, match=r"cwd cannot be 'inner': '.*inner' is a link that a sandboxed cell may"):
        get_or_create("other", cwd="inner")


def test_pictures_are_not_written_through_a_link_of_a_cell(home: Path, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    box = boxed("drawing")
    run(box, f"import os; os.symlink({str(tmp_path / 'elsewhere')!r}, 'pictures')")
    drawn = execute(box, "from IPython.display import SVG; SVG('<svg/>')", images_dir="pictures")
    assert drawn.images == []
    assert "images could not be written" in drawn.text
    drawn = execute(box, "from IPython.display import SVG; SVG('<svg/>')", images_dir="pictures/deeper")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert drawn.images == []


DRAWING = "\"from IPython.display import SVG; SVG('<svg/>')\""
FRESH = {
    "function": f"execute('drawing', {DRAWING}, images_dir='pictures/deeper')",
    "another kernel": f"execute('other', {DRAWING}, images_dir='pictures')",
    "object": f"Kernel('drawing', images_dir='pictures').execute({DRAWING})",
    "executor": "asyncio.run(draw())",
}
PREAMBLE = f"""
import asyncio
from kernelbox import *
async def draw():
    async with CodeExecutor(images_dir='pictures') as executor:
        return await executor.execute({DRAWING})
"""


@pytest.mark.parametrize("way", FRESH)
def test_a_fresh_process_writes_no_pictures_through_a_link_of_a_cell(
    way: str, home: Path, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    run(boxed("drawing"), f"import os; os.symlink({str(tmp_path / 'elsewhere')!r}, 'pictures')")
    program = f"{PREAMBLE}drawn = {FRESH[way]}\nprint(drawn.images, 'images could not be written' in drawn.text)"
    done = subprocess.run([sys.executable, "-c", program], cwd=workspace, capture_output=True, text=True, check=False)
    assert done.stdout == "[] True\n", done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_home_of_another_project_in_the_directory_is_hidden_and_stays(home: Path, workspace: Path) -> None:
    (workspace / "project" / ".kernelbox").mkdir(parents=True)
    (workspace / "project" / ".kernelbox" / "record").touch()
    box = boxed("nosy")
    assert "Permission denied" in execute(box, "__import__('os').listdir('project/.kernelbox')").text
    for moved in ("project", "project/.kernelbox"):
        assert execute(box, f"__import__('os').rename({moved!r}, 'away')").error is not None
    assert os.path.exists("project/.kernelbox/record")

"""What is hidden is hidden at every path that leads to it, also where a directory is mounted twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.cells import DEADLINE
from tests.support.sandbox import needs_linux, of_native

from kernelbox.sandbox._mounts import find_twins, read_mounts

MOUNTING = str(Path(__file__).with_name("mounting.py"))

PROGRAM = """
import os, sys
from kernelbox import execute, get_or_create, wipe
twin, *hidden = sys.argv[1:]
files = {"denyRead": [".env", "../denied"], "allowRead": [".."], "allowWrite": ["."]}
box = get_or_create("box", sandbox={"filesystem": files})
try:
    for path in (".env", f"{twin}/.env", *hidden):
        result = execute(box, f"open({path!r}, 'rb').read()")
        print(result.error and result.error.ename)
    print(execute(box, f"open({twin!r} + '/shown').read()").return_value)
finally:
    wipe()
"""


@needs_linux
@of_native
def test_what_is_hidden_is_so_at_every_path_where_it_is_mounted(tmp_path: Path, workspace: Path) -> None:
    for name in ("state", "twin", "key-twin", "denied/in", "part", "processes"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("work/.env", "work/shown", "denied/in/file", "state/servers.json"):
        (tmp_path / name).write_text("text")
    own = {"KERNELBOX_KEY_FILE": str(tmp_path / "state" / "key"), "KERNELBOX_HOME": str(tmp_path / "h")}
    pairs = (("work", "twin"), ("state", "key-twin"), ("denied/in", "part"))
    places = [str(tmp_path / name) for pair in pairs for name in pair]
    given = [str(tmp_path / name) for name in ("twin", "key-twin/key", "part/file", "state/key", "state/servers.json")]
    if os.getuid() == 0:  # others may not
        places += ["/proc", str(tmp_path / "processes")]
        given.append(str(tmp_path / "processes/self/status"))
    command = [sys.executable, MOUNTING, *places, "--", sys.executable, "-c", PROGRAM, *given]
    env = {**os.environ, **own}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["PermissionError"] * (len(given) + 1) + ["'text'"]


def test_other_mounts_of_a_file_system_are_found_by_what_the_system_lists(tmp_path: Path) -> None:
    for name in ("a/b c", "twin/b c"):
        (tmp_path / name).mkdir(parents=True)
    listed = tmp_path / "mountinfo"
    listed.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/a rw\n"
        f"2 1 8:2 / {tmp_path} rw - ext4 /dev/b rw\n"
        f"3 2 8:2 /a/b\\040c/d {tmp_path}/part rw - ext4 /dev/b rw\n"
        f"4 2 8:2 /a/b\\040c/e {tmp_path}/a/b\\040c/inner rw - ext4 /dev/b rw\n"
        f"5 2 8:2 /a {tmp_path}/twin rw - ext4 /dev/b rw\n"
        f"6 2 8:3 /a {tmp_path}/other rw - ext4 /dev/c rw\n"
    )
    mounts = read_mounts(str(listed))
    assert mounts[f"{tmp_path}/part"] == ("8:2", "/a/b c/d", "ext4")
    # The part that is mounted elsewhere; at the twin is another directory by now, and what is in it is hidden with it.
    assert find_twins([f"{tmp_path}/a/b c"], mounts) == {f"{tmp_path}/part"}
    assert find_twins([f"{tmp_path}/other/x", "/usr"], mounts) == set()

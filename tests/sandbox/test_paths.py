"""Which real paths rules mean: patterns, links that cells may have planted, and what is always protected."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pwd
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cells import run, value
from tests.support.homes import outside_of_tmp
from tests.support.sandbox import has_landlock, needs_linux
from tests.support.strategies import untimed

from kernelbox import StartFailed, destroy, execute, get_or_create, wipe
from kernelbox.base._environment import scrubbed_environment
from kernelbox.base._interpreter import own_interpreter
from kernelbox.guest.walls._system_calls import Unarmed, place
from kernelbox.host.engines.own._sandboxed import names_writable
from kernelbox.sandbox import _paths
from kernelbox.sandbox._native import Surroundings, confine, environment_in_sandbox, find_rules
from kernelbox.sandbox._path_rules import PathRules, is_writable, state_of
from kernelbox.sandbox._paths import expand, find_protected, real_allowed
from kernelbox.sandbox._sandbox_config import SandboxConfig


def make(root: Path, *names: str) -> None:
    """Makes files, and directories for names that end in a slash."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text("secret")


def rules_for(root: Path, *secrets: str, **fields: tuple[str, ...]) -> PathRules:
    return find_rules(SandboxConfig(**fields), Surroundings(str(root), secrets))  # type: ignore[arg-type]  # all are paths


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.pem", {"a.pem"}),
        ("**/*.pem", {"a.pem", "x/b.pem", "x/y/c.pem"}),
        ("x/*.pem", {"x/b.pem"}),
        ("x/**/*.pem", {"x/b.pem", "x/y/c.pem"}),
        ("?.pem", {"a.pem"}),
        ("[ab].pem", {"a.pem"}),
        ("[!a].pem", set()),
        ("**/y", {"x/y"}),
        ("x/y", {"x/y"}),
        ("nothing/*", set()),
    ],
)
def test_a_pattern_finds_what_there_is(tmp_path: Path, pattern: str, found: set[str]) -> None:
    make(tmp_path, "a.pem", "x/b.pem", "x/y/c.pem", "x/other")
    assert {os.path.relpath(path, tmp_path) for path in expand(f"{tmp_path}/{pattern}")} == found


def test_a_pattern_follows_links_to_directories_once(tmp_path: Path) -> None:
    make(tmp_path, "real/key.pem")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "loop").symlink_to("..")
    found = expand(f"{tmp_path}/**/*.pem")
    assert {os.path.realpath(path) for path in found} == {str(tmp_path / "real" / "key.pem")}


def test_a_pattern_that_is_too_much_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *(f"{n}" for n in range(20)))
    monkeypatch.setattr(_paths, "_MOST_ENTRIES", 10)
    with pytest.raises(StartFailed, match="smaller directory"):
        expand(f"{tmp_path}/**/x")


@needs_linux
def test_rules_that_come_to_too_many_mounts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *(f"{n}.pem" for n in range(20)))
    monkeypatch.setattr("kernelbox.sandbox._native.MOST_MOUNTS", 20)
    with pytest.raises(StartFailed, match="mounts here, and 20 is the limit; deny directories"):
        confine(SandboxConfig(deny_read=("*.pem",)), Surroundings(str(tmp_path)))


def test_a_directory_that_is_too_large_to_be_searched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, *(f"{n}" for n in range(20)))
    monkeypatch.setattr(_paths, "_MOST_ENTRIES", 10)
    with pytest.raises(StartFailed, match="mandatoryDenySearchDepth"):
        find_protected(str(tmp_path), 3, git_config=False, hidden=frozenset())


@needs_linux
def test_a_link_that_is_put_on_the_way_after_the_host_has_looked_is_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "real/inside")
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(Unarmed, match="openat2"), place(f"{tmp_path}/link/inside"):
        pass
    with place(f"{tmp_path}/link") as fd:
        assert os.readlink("", dir_fd=fd) == "real"
    with place(f"{tmp_path}/real/inside") as fd:
        assert os.fstat(fd).st_ino == (tmp_path / "real/inside").stat().st_ino


@untimed
@given(st.text("ab*?[]!\\.^-/", min_size=1, max_size=12))
def test_no_pattern_breaks_the_search(pattern: str) -> None:
    with contextlib.suppress(StartFailed):  # a range that goes backwards
        expand("/nowhere/" + pattern)


def test_a_pattern_with_a_range_that_goes_backwards_is_refused() -> None:
    with pytest.raises(StartFailed, match="is not valid"):
        expand("/nowhere/[b-a]")


def test_what_programs_outside_read_is_protected_to_a_depth(tmp_path: Path) -> None:
    make(
        tmp_path,
        ".bashrc",
        "a/.gitconfig",
        "a/b/c/.mcp.json",
        "a/b/c/d/.zshrc",
        ".git/hooks/",
        ".git/config",
        ".git/modules/sub/hooks/",
        ".git/modules/sub/config",
        ".git/modules/libs/inner/hooks/",
        ".git/modules/libs/inner/modules/deep/config",
        ".git/modules/libs/inner/objects/ab/",
        ".git/modules/libs/inner/objects/tree/config",
        ".git/worktrees/other/config.worktree",
        ".git/worktrees/other/commondir",
        "a/.git",
        ".vscode/",
        ".claude/commands/",
        ".claude/settings",
    )
    protected, _ = find_protected(str(tmp_path), 3, git_config=False, hidden=frozenset())
    assert {os.path.relpath(path, tmp_path) for path in protected} == {
        ".bashrc",
        "a/.gitconfig",
        "a/b/c/.mcp.json",
        ".git/hooks",
        ".git/config",
        ".git/modules/sub/hooks",
        ".git/modules/sub/config",
        ".git/modules/libs/inner/hooks",
        ".git/modules/libs/inner/modules/deep/config",
        ".git/modules/libs/inner/objects/tree/config",
        ".git/worktrees/other/config.worktree",
        ".git/worktrees/other/commondir",
        "a/.git",
        ".vscode",
        ".claude/commands",
    }
    protected, named = find_protected(str(tmp_path), 1, git_config=True, hidden=frozenset({".bashrc"}))
    assert str(tmp_path / ".git/config") not in protected
    assert str(tmp_path / "a/b/c/.mcp.json") not in protected
    assert named == {str(tmp_path / ".bashrc")}


def test_a_link_that_a_cell_has_planted_is_not_followed_by_what_allows(tmp_path: Path) -> None:
    make(tmp_path, "work/", "outside/secret")
    (tmp_path / "work" / "src").symlink_to(tmp_path / "outside")
    rules = rules_for(
        tmp_path / "work", allow_write=(".", "src"), allow_read=("src/secret",), deny_read=("../outside",)
    )
    assert state_of(str(tmp_path / "outside"), rules) == "hide"
    assert state_of(str(tmp_path / "outside" / "secret"), rules) == "hide"
    assert real_allowed(f"{tmp_path}/work/src", [f"{tmp_path}/work"]) is None
    rules = rules_for(tmp_path / "work", allow_write=(".", "src"), deny_read=())
    assert state_of(str(tmp_path / "outside" / "secret"), rules) != "write"


def test_what_denies_follows_links_and_keeps_them_as_they_are(tmp_path: Path) -> None:
    make(tmp_path, "work/data/hooks/", "work/.git/", "shared/.env")
    (tmp_path / "work" / ".git" / "hooks").symlink_to("../data/hooks")
    (tmp_path / "work" / ".env").symlink_to("../shared/.env")
    rules = rules_for(tmp_path / "work")
    assert state_of(str(tmp_path / "work/data/hooks"), rules) == "read"
    assert str(tmp_path / "work/.git/hooks") in rules.deny_write & rules.files
    assert state_of(str(tmp_path / "shared/.env"), rules) == "hide"


def test_the_default_hides_env_files_of_folders_too(tmp_path: Path) -> None:
    make(tmp_path, ".env", "app/.env", "app/env")
    rules = rules_for(tmp_path)
    assert state_of(str(tmp_path / "app/.env"), rules) == "hide"
    assert state_of(str(tmp_path / "app/env"), rules) == "write"
    assert state_of(str(tmp_path / ".env"), rules_for(tmp_path, deny_read=())) == "write"


def test_what_is_not_there_has_no_rule(tmp_path: Path) -> None:
    rules = rules_for(tmp_path, deny_read=("missing", "no/*"), deny_write=("gone",), allow_write=(".", "/nowhere"))
    assert not rules.deny_read
    assert not rules.deny_write
    assert rules.allow_write == {str(tmp_path)}


@needs_linux
def test_what_a_kernel_needs_stays_readable_unless_a_rule_names_it(tmp_path: Path) -> None:
    make(tmp_path, "work/file", "other/file")
    work, interpreter = tmp_path / "work", os.path.realpath(sys.prefix)
    rules = rules_for(work, deny_read=("..", os.path.dirname(interpreter)), allow_write=())
    assert [state_of(str(path), rules) for path in (work / "file", f"{interpreter}/lib")] == ["read", "read"]
    assert [state_of(str(path), rules) for path in (tmp_path / "other", f"{interpreter}-x")] == ["hide", "hide"]
    assert state_of(str(work / "file"), rules_for(work, deny_read=(".",), allow_write=())) == "hide"


def test_secrets_stay_hidden_in_a_writable_directory(tmp_path: Path) -> None:
    make(tmp_path, ".kernelbox/runtime/", "x")
    rules = rules_for(tmp_path, str(tmp_path / ".kernelbox"), allow_read=(".kernelbox/runtime",))
    assert state_of(str(tmp_path / ".kernelbox/runtime"), rules) == "hide"


def test_programs_are_told_where_they_can_write_whatever_the_host_says() -> None:
    told = environment_in_sandbox({"TMPDIR": "/home/me/tmp", "PYTHONPATH": "/a:b", "KEPT": "x"})
    assert (told["TMPDIR"], told["KEPT"]) == ("/tmp", "x")
    assert told["PYTHONPATH"] == f"/a:b:{told['PIP_TARGET']}"
    assert {told[name].startswith("/dev/shm/") for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "IPYTHONDIR")} == {True}


# -- the same, seen by a kernel ------------------------------------------------------------------------------------


@needs_linux
def test_a_kernel_sees_files_as_the_rules_say(home: Path, workspace: Path) -> None:
    make(workspace, "secret/deep/shown", "secret/hidden", "reference/table", "keys/a.pem", "keys/b.txt")
    files = {
        "denyRead": ["secret", "**/*.pem"],
        "allowRead": ["secret/deep"],
        "allowWrite": ["."],
        "denyWrite": ["reference"],
    }
    box = get_or_create("ruled", sandbox={"filesystem": files})
    assert value(box, "open('secret/deep/shown').read()") == "'secret'"
    assert (
        "PermissionError"
        in execute(box, "open('secret/hidden')").text + execute(box, "import os; os.listdir('secret')").text
    )
    assert "PermissionError" in execute(box, "open('keys/a.pem')").text
    run(box, "open('keys/b.txt', 'a').write('more')")
    assert "Read-only file system" in execute(box, "open('reference/table', 'a')").text
    assert "Read-only file system" in execute(box, "os.chmod('secret', 0o755)").text
    assert "busy" in execute(box, "import os; os.rename('reference', 'other')").text
    assert "busy" in execute(box, "os.rename('keys', 'other')").text


@needs_linux
def test_a_file_can_be_moved_across_a_directory_with_something_protected(home: Path, workspace: Path) -> None:
    make(workspace, "a/b/.git/hooks/", "a/b/file")
    box = get_or_create("mover", sandbox=True)
    run(
        box, "import os\nos.rename('a/b/file', 'file')\nos.link('file', 'a/linked')\nos.rename('file', 'a/b/.git/file')"
    )
    assert (workspace / "a/b/.git/file").exists()


@needs_linux
def test_a_hook_that_is_a_link_cannot_be_replaced(home: Path, workspace: Path) -> None:
    make(workspace, "scripts/", ".git/")
    (workspace / ".git" / "hooks").symlink_to("../scripts")
    box = get_or_create("linker", sandbox=True)
    assert "busy" in execute(box, "import os; os.unlink('.git/hooks')").text
    assert "busy" in execute(box, "os.rename('.git', 'x')").text
    assert "Read-only file system" in execute(box, "open('.git/hooks/pre-commit', 'w')").text
    assert "Read-only file system" in execute(box, "open('scripts/pre-commit', 'w')").text


@needs_linux
def test_the_virtual_environment_in_the_working_directory_stays_as_it_is(home: Path, workspace: Path) -> None:
    make(workspace, ".venv/lib/site.py")
    python = dataclasses.replace(own_interpreter(), prefixes=(str(workspace / ".venv"),))
    rules = find_rules(SandboxConfig(), Surroundings(str(workspace), interpreter=python))
    assert state_of(str(workspace / ".venv/lib"), rules) == "read"


@needs_linux
def test_unix_sockets_work_where_they_are_allowed(home: Path, workspace: Path) -> None:
    config = {"network": {"allowAllUnixSockets": True}, "filesystem": {"allowWrite": ["."]}}
    box = get_or_create("sockets", sandbox=config)
    run(box, "import multiprocessing\nwith multiprocessing.Manager() as m: d = m.dict(a=1); copied = dict(d)")
    assert value(box, "copied") == "{'a': 1}"


@needs_linux
def test_the_real_temporary_directory_is_shown_where_a_rule_asks_for_it(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)  # the tests' own is in it, and must not be written to
    box = get_or_create("real-tmp", sandbox={"filesystem": {"allowWrite": [".", "/tmp"]}})
    name = f"/tmp/kernelbox-test-{os.getpid()}"
    try:
        run(box, f"open({name!r}, 'w').close()")
        assert os.path.exists(name)
        run(box, "import os; os.makedirs(os.environ['XDG_CACHE_HOME'])")
        assert not [entry for entry in os.listdir("/tmp") if box.kernel_id in entry]  # and nothing of ours is in it
    finally:
        os.unlink(name)


@needs_linux
@pytest.mark.skipif(not has_landlock(), reason="only Landlock tells named pipes apart")
def test_a_named_pipe_is_written_to_only_where_files_can_be(home: Path, workspace: Path) -> None:
    """A mount that is read-only does not keep anyone from it."""
    with tempfile.TemporaryDirectory(prefix="kb-", dir=outside_of_tmp()) as outside:
        pipe = f"{outside}/pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            box = get_or_create("piper", sandbox=True)
            run(box, "import os\nway = os.O_WRONLY | os.O_NONBLOCK")
            assert "PermissionError" in execute(box, f"os.open({pipe!r}, way)").text
            for place in (".", "/tmp", "/dev/shm"):
                run(box, f"os.mkfifo('{place}/own'); end = os.open('{place}/own', os.O_RDONLY | os.O_NONBLOCK)")
                run(box, f"os.write(os.open('{place}/own', way), b'x')")
        finally:
            os.close(reader)


@needs_linux
@pytest.mark.parametrize("name", ["PYTHONPATH", "HOME", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH"])
def test_a_template_does_without_variables_that_name_what_cells_can_write(workspace: Path, name: str) -> None:
    make(workspace, "lib/", "linked/", ".venv/lib/")
    (workspace.parent / "way").symlink_to(workspace / "lib")
    (workspace / "out").symlink_to("/usr/lib")
    can_write = functools.partial(is_writable, mounted={str(workspace): "write", str(workspace / ".venv"): "read"})
    inside, above = f"{workspace}/lib", workspace.parent
    for text in (inside, f"/usr/lib:{inside}", f"/usr/lib.so {inside}", f"{above}/way", f"{workspace}/out", "lib"):
        assert names_writable(name, text, str(workspace), can_write), text
    for text in ("/usr/lib", f"{workspace}/.venv/lib", f"{above}/other", ""):
        assert not names_writable(name, text, str(workspace), can_write), text


@needs_linux
def test_code_that_a_cell_leaves_on_its_path_is_its_own_and_not_loaded_outside(own_home: Path, workspace: Path) -> None:
    make(workspace, "lib/")
    escaped = workspace.parent / "escaped"
    env = scrubbed_environment({"PYTHONPATH": f"{workspace}/lib"})
    box = get_or_create("one", sandbox=True, env=env)
    planted = f"open({str(escaped)!r}, 'w')"
    run(box, f"open('lib/sitecustomize.py', 'w').write({planted!r})")
    run(box, "open('lib/mine.py', 'w').write('answer = 42')")
    assert value(box, "import mine; mine.answer") == "42"
    destroy(box)
    wipe()  # and with it the template
    again = get_or_create("another", sandbox=True, env=env)
    assert not escaped.exists()
    assert value(again, "import mine; mine.answer") == "42"

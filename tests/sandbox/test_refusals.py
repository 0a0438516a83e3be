"""Where a sandbox cannot be armed the kernel does not start, the error says what to do, and other kernels go on."""

from __future__ import annotations

import errno
import os
import platform
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, eventually, wait_for_end
from tests.support.sandbox import needs_linux

from kernelbox import InvalidInput, StartFailed, execute, get_or_create, list_kernels, wipe
from kernelbox.api._configured import kernels
from kernelbox.base._interpreter import own_interpreter
from kernelbox.guest._process_tree import children
from kernelbox.guest.walls._sandbox_maker import FIRST
from kernelbox.host.engines.own._sandboxed import find_gap, require_armed
from kernelbox.host.engines.own._template_processes import list_templates, process_behind
from kernelbox.host.files._sockets import dial
from kernelbox.sandbox._advice import advise, advise_about_srt
from kernelbox.sandbox._native import Surroundings, confine
from kernelbox.sandbox._sandbox_config import SandboxConfig
from kernelbox.wire._confinement import describe_failure, failed_step
from kernelbox.wire._messages import Spawned

pytestmark = [needs_linux, pytest.mark.usefixtures("home")]

REFUSING = str(Path(__file__).with_name("refusing.py"))
MOUNTING = str(Path(__file__).with_name("mounting.py"))
HANGING = str(Path(__file__).with_name("hanging.py"))

# Numbers of x86-64 and of arm64; the fourth argument of mount(2) for /proc, and the first of prctl(2) for a filter.
MACHINE = 0 if os.uname().machine == "x86_64" else 1
UNSHARE, MOUNT, PRCTL, SETATTR = (272, 97)[MACHINE], (165, 40)[MACHINE], (157, 167)[MACHINE], 442
CAPSET = (126, 91)[MACHINE]
PROC, FILTER = f"3={1 | 2 | 4 | 8}", "0=22"

PROGRAM = """
import contextlib, time
from kernelbox import KernelBoxError, destroy, execute, get_or_create, list_kernels
try:
    get_or_create("box", sandbox=True)
except KernelBoxError as exc:
    print(type(exc).__name__, exc)
print(execute("plain", "6 * 7").return_value, [record.name for record in list_kernels()])
template = execute("plain", "import os; os.getppid()").return_value
deadline = time.monotonic() + 60
titles = {}
while list(titles.values()) != ["kernelbox: plain (idle)"]:
    assert time.monotonic() < deadline, titles
    pids = open(f"/proc/{template}/task/{template}/children").read().split()
    with contextlib.suppress(OSError):
        titles = {pid: open(f"/proc/{pid}/cmdline").read().strip("\\0") for pid in pids}
        titles = {pid: title for pid, title in titles.items() if title != "kernelbox: spare"}
destroy("plain")
"""


@pytest.mark.parametrize(
    ("number", "error", "when", "step", "advice"),
    [
        (UNSHARE, errno.EPERM, "-", "unshare", "a container whose profile forbids namespaces, or a chroot"),
        (UNSHARE, errno.ENOSPC, "-", "unshare", "user.max_user_namespaces"),
        (SETATTR, errno.ENOSYS, "-", "mount_setattr", "Linux 5.12"),
        (MOUNT, errno.EPERM, PROC, "mount proc", "systempaths=unconfined"),
        (MOUNT, errno.EACCES, "-", "mount", "container"),
        (429, errno.EPERM, "-", "move_mount", "container"),
        (PRCTL, errno.EINVAL, "-", "prctl", "seccomp"),
    ],
)
def test_a_system_that_refuses_a_step_gets_no_kernel_no_process_and_a_hint(
    own_home: Path, workspace: Path, number: int, error: int, when: str, step: str, advice: str
) -> None:
    command = [sys.executable, REFUSING, str(number), str(error), when, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    refusal, plain = done.stdout.splitlines()
    assert refusal.startswith("StartFailed the kernel could not be started: ")
    assert f"the sandbox cannot be armed: {step}" in refusal
    assert os.strerror(error) in refusal
    assert advice in refusal
    assert plain == "42 ['plain']"  # the template goes on, and nothing is left of the other


def test_a_system_without_the_program_for_the_first_process_says_where_it_must_be(
    own_home: Path, workspace: Path
) -> None:
    places = [part for path in FIRST if os.path.exists(path) for part in (os.devnull, path)]
    command = [sys.executable, MOUNTING, *places, "--", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    refusal, plain = done.stdout.splitlines()
    assert refusal.startswith("StartFailed the kernel could not be started: ")
    assert "the sandbox cannot be armed: start cat failed" in refusal
    assert 'ln -s "$(command -v cat)" /bin/cat' in refusal
    assert plain == "42 ['plain']"


def test_a_sandbox_that_waits_for_a_file_system_is_given_up_with_its_opener(own_home: Path, workspace: Path) -> None:
    program = "from kernelbox import get_or_create; get_or_create('box', sandbox=True)"
    command = [sys.executable, HANGING, str(MOUNT), sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as opener:
        assert opener.stdout is not None
        assert opener.stdout.readline().startswith("hanging")
        eventually(lambda: len(children_of_templates()) == 2)
        maker, kernel = children_of_templates()
        assert len(children(maker)) == 1, "the first process"
        opener.kill()
        eventually(lambda: children_of_templates() == [maker])
        eventually(lambda: not children(maker))
    wipe()
    wait_for_end(maker)
    wait_for_end(kernel)


def children_of_templates() -> list[int]:
    found = []
    with kernels().store.runtime() as runtime:
        for name in list_templates(runtime):
            with dial(runtime, name) as client:
                template = process_behind(client, name)
                found += children(template.pid) if template is not None else []
    return found


def test_a_system_without_proc_is_told_to_mount_it(own_home: Path, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    program = "from kernelbox import get_or_create\nget_or_create('box', sandbox=True)"
    command = [sys.executable, MOUNTING, str(tmp_path / "empty"), "/proc", "--", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert "StartFailed: sandboxed kernels need /proc, which is not mounted here: use `mount" in done.stderr


def test_a_kernel_that_may_read_no_program_starts_nevertheless(workspace: Path) -> None:
    denied = {"filesystem": {"denyRead": ["/usr", "/bin", "/lib"], "allowWrite": ["."]}}
    kernel = get_or_create("box", sandbox=denied)
    assert execute(kernel, "6 * 7").return_value == "42"
    result = execute(kernel, "import subprocess; subprocess.run(['/bin/cat'])")
    assert result.error is not None
    assert result.error.ename in ("PermissionError", "FileNotFoundError")


def test_an_interpreter_that_cannot_be_run_apart_from_its_file_gets_no_sandboxed_kernel(
    monkeypatch: pytest.MonkeyPatch, workspace: Path, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    own_interpreter.cache_clear()
    try:
        with pytest.raises(StartFailed) as caught:
            get_or_create("apart", sandbox=True)
        assert execute(get_or_create("plain"), "1").ok
    finally:
        own_interpreter.cache_clear()
    assert "could not be run apart from its file" in str(caught.value)
    assert "use one that belongs to another user" in str(caught.value)


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_told_at_once(platform: str, monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(StartFailed, match=f"need Linux, and this is {platform}"):
        confine(SandboxConfig(), Surroundings(str(workspace)))


def test_a_jupyter_kernel_cannot_be_sandboxed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_ENGINE", "jupyter")
    with pytest.raises(InvalidInput, match="own engine can be sandboxed"):
        get_or_create("box", sandbox=True)
    assert list_kernels() == []


def test_the_home_directory_as_the_working_directory_is_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = workspace / "me"
    inner.mkdir()
    monkeypatch.setenv("HOME", str(inner))
    for directory in (inner, workspace):
        with pytest.raises(StartFailed, match="it contains your home directory"):
            get_or_create("box", cwd=directory, sandbox=True)


def test_the_home_directory_of_the_user_database_counts_whatever_home_says(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace))
    with pytest.raises(StartFailed, match="it contains your home directory"):
        get_or_create("box", cwd=pwd.getpwuid(os.getuid()).pw_dir, sandbox=True)


def test_kernelbox_s_own_directory_as_the_working_directory_is_refused(own_home: Path) -> None:
    get_or_create("plain")
    (own_home / "work").mkdir()
    with pytest.raises(StartFailed, match="belongs to kernelbox and is hidden"):
        get_or_create("box", cwd=own_home / "work", sandbox=True)


def test_rules_of_too_many_characters_are_refused(workspace: Path) -> None:
    with pytest.raises(InvalidInput, match="use fewer paths"):
        get_or_create("box", sandbox={"filesystem": {"denyRead": [f"/data/{n}" * 10 for n in range(2000)]}})


@pytest.mark.parametrize(
    ("number", "when", "gap"),
    [
        (CAPSET, "-", "it has capabilities"),
        (PRCTL, FILTER, "its system calls are not filtered"),
        (SETATTR, "-", "its root is not read-only"),
    ],
)
def test_a_kernel_that_takes_itself_to_be_confined_and_is_not_is_found_out(
    own_home: Path, workspace: Path, number: int, when: str, gap: str
) -> None:
    command = [sys.executable, REFUSING, str(number), "0", when, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    refusal, plain = done.stdout.splitlines()
    assert refusal.startswith(f"StartFailed the kernel was killed, because its sandbox is not in force: {gap}")
    assert plain == "42 ['plain']"


def test_a_process_that_is_not_confined_is_found_out_and_killed(workspace: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        assert find_gap(process.pid).startswith("it shares its template's user namespace")
        with pytest.raises(StartFailed, match="not in force"):
            require_armed(Spawned(process.pid, started))
        assert process.wait(DEADLINE) == -signal.SIGKILL


def test_a_process_with_only_a_user_namespace_of_its_own_is_found_out() -> None:
    program = "import ctypes; ctypes.CDLL(None).unshare(0x10000000); print(flush=True); input()"  # CLONE_NEWUSER
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        assert find_gap(process.pid).startswith("it shares the host's ")
        process.kill()


def test_a_confined_process_has_no_gap(workspace: Path) -> None:
    assert find_gap(get_or_create("box", sandbox=True).pid or 0) == ""


def test_a_reason_is_read_back_as_the_step_and_the_error() -> None:
    reason = describe_failure("mount proc", OSError(errno.EPERM, "Operation not permitted"))
    assert failed_step(f"RuntimeError: {reason}") == ("mount proc", errno.EPERM)
    assert failed_step("something else failed: (errno 1)") is None


CONTAINER, APPARMOR = "a container whose profile forbids namespaces", "AppArmor restricts user namespaces"
NAMESPACES, RESTRICTED = "user/max_user_namespaces", "kernel/apparmor_restrict_unprivileged_userns"


@pytest.mark.parametrize(
    ("step", "error", "setting", "advice"),
    [
        ("unshare", errno.EPERM, "", CONTAINER),
        ("unshare", errno.EPERM, f"{NAMESPACES}=0", "sysctl user.max_user_namespaces=10000"),
        ("unshare", errno.EPERM, f"{NAMESPACES}=100", CONTAINER),
        ("unshare", errno.EPERM, "kernel/unprivileged_userns_clone=0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("unshare", errno.EPERM, f"{RESTRICTED}=1", APPARMOR),
        ("unshare", errno.EPERM, f"{RESTRICTED}=0", CONTAINER),
        ("unshare", errno.EINVAL, "", "Linux 5.12 or newer, built with user namespaces"),
        ("write uid_map", errno.EPERM, f"{RESTRICTED}=1", APPARMOR),
        ("write uid_map", errno.EPERM, "", CONTAINER),
        ("mount tmpfs", errno.EACCES, f"{RESTRICTED}=1", "with a profile for this interpreter that has `userns,`"),
        ("mount proc", errno.EPERM, f"{RESTRICTED}=1", "parts of /proc are masked"),
        ("loopback", errno.EPERM, f"{RESTRICTED}=1", APPARMOR),
        ("prctl PR_SET_SECCOMP", errno.EINVAL, "", "seccomp filters"),
    ],
)
def test_the_advice_is_for_the_system_that_refuses(
    step: str, error: int, setting: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(setting, tmp_path, monkeypatch)
    assert advice in advise(describe_failure(step, OSError(error, os.strerror(error))))


@pytest.mark.parametrize(
    ("said", "setting", "advice"),
    [
        ("bwrap: No permissions to create new namespace", "", CONTAINER),
        ("bwrap: setting up uid map: Permission denied", f"{RESTRICTED}=1", APPARMOR),
        ("bwrap: Creating new namespace failed: No space left on device", "", "sysctl user.max_user_namespaces=10000"),
        ("settings.json does not hold a valid config — x", "", "change what it names"),
        ("Error: Cannot find module", "", "try `srt -- true` in the same directory"),
    ],
)
def test_the_advice_about_srt_is_for_what_it_said(
    said: str, setting: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(setting, tmp_path, monkeypatch)
    assert advice in advise_about_srt(said)


def set_up(setting: str, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the hints read the settings of a system that is another than this one."""
    monkeypatch.setattr("kernelbox.sandbox._advice._SETTINGS", str(settings))
    name, _, content = setting.partition("=")
    if name:
        (settings / name).parent.mkdir()
        (settings / name).write_text(f"{content}\n")


def test_another_machine_is_told_at_once(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(StartFailed, match="need a machine of x86_64 or aarch64, and this one is riscv64"):
        get_or_create("box", sandbox=True)
    assert list_kernels() == []


def test_there_is_advice_for_a_step_that_nobody_has_seen_fail() -> None:
    assert "kernelbox doctor" in advise(describe_failure("capset", OSError(errno.EINVAL, "Invalid argument")))

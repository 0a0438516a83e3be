"""Where a kernel cannot be guarded it does not start, the error says what to do, and other kernels go on."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE
from tests.support.executor import run

from kernelbox import CodeExecutor, InvalidInput, StartFailed
from kernelbox.host.engines.own._guarded import guard_filter, require_guarded
from kernelbox.wire._messages import Spawned

pytestmark = [
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(sys.platform != "linux", reason="guarded kernels need Linux"),
]

REFUSING = str(Path(__file__).parent.with_name("sandbox") / "refusing.py")

PROGRAM = """
import asyncio
from kernelbox import CodeExecutor, KernelBoxError, destroy, execute, list_kernels
try:
    options = {'approve_shell_cmds': True, 'require_shell_escape': True, 'sandbox': SANDBOX}
    asyncio.run(CodeExecutor(name='guarded', **options).start())
except KernelBoxError as exc:
    print(type(exc).__name__, exc)
print(execute('plain', '6 * 7').return_value, [record.name for record in list_kernels()])
destroy('plain')
"""


@pytest.mark.parametrize("sandbox", [False, True])
@pytest.mark.parametrize(
    ("number", "error"), [(444, errno.ENOSYS), (444, errno.EOPNOTSUPP), (445, errno.EPERM), (446, errno.EPERM)]
)
def test_a_system_without_landlock_gets_no_guarded_kernel_and_a_hint(
    number: int, error: int, sandbox: bool, own_home: Path, tmp_path: Path
) -> None:
    program = PROGRAM.replace("SANDBOX", str(sandbox))
    command = [sys.executable, REFUSING, str(number), str(error), "-", sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    refusal, plain = done.stdout.splitlines()
    assert refusal.startswith("StartFailed the kernel could not be started: ")
    assert "the guard of require_shell_escape cannot be armed: Landlock failed" in refusal
    assert os.strerror(error) in refusal
    assert "Linux 5.19 or newer" in refusal
    assert plain == "42 ['plain']"  # the template goes on, and nothing is left of the other


def test_a_landlock_that_is_too_old_is_none(own_home: Path, tmp_path: Path) -> None:
    program = PROGRAM.replace("SANDBOX", "False")
    command = [sys.executable, REFUSING, "444", "0", "-", sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    refusal, plain = done.stdout.splitlines()
    assert "the guard of require_shell_escape cannot be armed: Landlock failed: version 0 is too old" in refusal
    assert plain == "42 ['plain']"


def test_a_kernel_that_takes_itself_to_be_guarded_and_is_not_is_found_out(own_home: Path, tmp_path: Path) -> None:
    prctl = 157 if os.uname().machine == "x86_64" else 167
    command = [
        sys.executable,
        REFUSING,
        str(prctl),
        "0",
        "0=22",
        sys.executable,
        "-c",
        PROGRAM.replace("SANDBOX", "False"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    refusal, plain = done.stdout.splitlines()
    assert refusal.startswith("StartFailed the kernel was killed, because its system calls are not filtered")
    assert plain == "42 ['plain']"


def test_another_system_or_machine_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(platform, "machine", lambda: "riscv64")
        with pytest.raises(StartFailed, match="needs a machine of x86_64 or aarch64, and this one is riscv64"):
            guard_filter()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(StartFailed, match="needs Linux, and this is darwin"):
        guard_filter()


def test_a_process_that_the_system_does_not_show_to_be_filtered_is_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(StartFailed, match="its system calls are not filtered"):
            require_guarded(Spawned(process.pid, start_time(process.pid)), sandboxed=False)
        assert process.wait(DEADLINE) == -9


def test_a_kernel_of_jupyter_is_not_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_ENGINE", "jupyter")

    async def scenario() -> None:
        with pytest.raises(InvalidInput, match="only python3 kernels of kernelbox's own engine can be guarded"):
            await CodeExecutor(approve_shell_cmds=True, require_shell_escape=True).start()

    run(scenario)


def start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])

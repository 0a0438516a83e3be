"""Limits of an ordinary user's kernels, who may make no control groups: run as the superuser, the tests become one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
SETPRIV = shutil.which("setpriv")

PROGRAM = """
import os, sys
os.environ.update(KERNELBOX_HOME=sys.argv[1] + "/home", KERNELBOX_KEY_FILE=sys.argv[1] + "/key")
from kernelbox import CodeExecutor, create, execute, wipe
import asyncio

work = sys.argv[1] + "/work"
os.mkdir(work)

forks = "import os, time\\nfor _ in range(60):\\n    if os.fork() == 0: time.sleep(100)\\n"
hidden = "import os, time\\nos.makedirs('d')\\nf = open('d/f', 'wb')\\nos.chmod({!r}, {})\\n"
hidden += "for _ in range(100): f.write(bytes(1_000_000))\\nf.flush()\\ntime.sleep(100)"
secretly = "import ctypes, os, time\\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\\n"  # PR_SET_DUMPABLE
secrets = {
    "memory": "x = bytearray(400_000_000)\\ntime.sleep(100)",
    "memfd": "fd = os.memfd_create('x')\\nfor _ in range(40): os.write(fd, bytes(10_000_000))\\ntime.sleep(100)",
    "disk": "f = open('f', 'wb')\\nos.unlink('f')\\nfor _ in range(100): f.write(bytes(1_000_000))\\ntime.sleep(100)",
}
bomb = "x = [bytearray(8_000_000) for _ in range(60)]\\nimport time\\ntime.sleep(100)"
async def guarded():
    options = {"approve_shell_cmds": True, "require_shell_escape": True, "limits": {"disk": "10MB", "memory": "60MB"}}
    async with CodeExecutor(**options) as executor:
        with open(f"{work}/of-others", "wb") as file:
            file.write(bytes(30_000_000))
            os.fsync(file.fileno())
        code = "import os, time\\nwith open('f', 'wb') as f:\\n    f.write(bytes(6_000_000))\\n    f.flush()\\n"
        print((await executor.execute(code + "    os.fsync(f.fileno())\\ntime.sleep(1)\\nprint('goes on')")).text)
try:
    for sandbox in (False, True):
        kernel = create(f"processes-{sandbox}", cwd=work, limits={"processes": 30}, sandbox=sandbox)
        print(execute(kernel, forks + "time.sleep(100)", timeout=90).error.evalue.partition(";")[0])
        print(execute(kernel, "1 + 1", timeout=90).return_value)
        kernel = create(f"memory-{sandbox}", cwd=work, limits={"memory": "150MB"}, sandbox=sandbox)
        print(execute(kernel, bomb, timeout=90).error.evalue.partition(",")[0])
    for number, (closed, mode) in enumerate((("d", 0), ("d", 0o400), (".", 0))):
        os.mkdir(f"{work}/{number}")
        kernel = create(f"disk-{number}", cwd=f"{work}/{number}", limits={"disk": "10MB"}, sandbox=True)
        print(execute(kernel, hidden.format(closed, mode), timeout=90).error.evalue.partition(",")[0])
    for name, code in secrets.items():
        limits = {"disk": "10MB"} if name == "disk" else {"memory": "150MB"}
        os.mkdir(f"{work}/{name}")
        kernel = create(f"secret-{name}", cwd=f"{work}/{name}", limits=limits, sandbox=True)
        print(execute(kernel, secretly + code, timeout=90).error.evalue.partition(",")[0])
    os.mkdir(f"{work}/guarded")
    os.chdir(f"{work}/guarded")
    asyncio.run(guarded())
finally:
    wipe()
"""


# An orphan that has become the superuser's, as by sudo(8): no process of the user's can end it.
LEAVING = """
import os, sys
os.environ.update(KERNELBOX_HOME=sys.argv[1] + "/home", KERNELBOX_KEY_FILE=sys.argv[1] + "/key")
from kernelbox import create, execute, wipe

start = "import os, subprocess\\np = subprocess.Popen([{!r}, '--reuid=0', '--clear-groups', 'sleep', '100'])\\n"
start += "while os.stat(f'/proc/{{p.pid}}').st_uid: pass\\nprint(p.pid)"
try:
    neighbour = create("neighbour", limits={"memory": "500MB"})
    execute(neighbour, "kept = 41", timeout=90)
    kernel = create("leaving")
    print(execute(kernel, start.format(sys.argv[2]), timeout=90).output.strip(), flush=True)
    execute(kernel, "os._exit(1)", timeout=90)
    print(execute(neighbour, "kept + 1", timeout=90).return_value)
    print(execute(create("next"), "6", timeout=90).return_value)
finally:
    wipe()
"""


# Descriptors that were sent and not received count for the user, up to the sender's own limit of files.
IN_FLIGHT = """
import os, resource, sys
os.environ.update(KERNELBOX_HOME=sys.argv[1] + "/home", KERNELBOX_KEY_FILE=sys.argv[1] + "/key")
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 6000))
os.mkdir("work")
os.chdir("work")
from kernelbox import create, execute, wipe

send = "import os, resource, socket\\nhard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\\n"
send += "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\\nkept, sent = [], 0\\n"
send += "try:\\n    while True:\\n        kept += (pair := socket.socketpair())\\n"
send += "        socket.send_fds(pair[0], [b'x'], [0] * 250)\\n        sent += 250\\n"
send += "except OSError as exc: print(sent > 300, exc.errno)"
try:
    kernel = create("sending", sandbox=True)
    print(execute(kernel, send, timeout=90).text)
    print(execute(create("next"), "6", timeout=90).return_value, execute(kernel, "7", timeout=90).return_value)
    print(execute(create("sandboxed", sandbox=True), "8", timeout=90).return_value)
finally:
    wipe()
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """Makes a directory of the user's, with an empty one in it, in a place that every user can enter."""
    path = Path(tempfile.mkdtemp(prefix="kb-", dir="/var/lib"))
    try:
        path.chmod(0o755)
        (path / "mounted").mkdir()
        os.chown(path, NOBODY, NOBODY)
        yield path
    finally:
        shutil.rmtree(path)


def run_as_user(base: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    become = [sys.executable, str(ROOT / "tests" / "sandbox" / "as_user.py"), str(NOBODY), str(base)]
    return subprocess.run(
        [*become, sys.executable, "-c", program, str(base), *words],
        env={**os.environ, "HOME": str(base), "PYTHONPATH": str(ROOT / "src")},
        cwd=base,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.skipif(os.getuid() != 0 or SETPRIV is None, reason="only the superuser can become another")
def test_an_orphan_that_has_become_another_users_harms_no_other_kernel(base: Path) -> None:
    become = base / "become"
    shutil.copy(SETPRIV or "", become)
    become.chmod(0o4755)
    done = run_as_user(base, LEAVING, str(become))
    orphan, *rest = done.stdout.splitlines()
    os.kill(int(orphan), signal.SIGKILL)
    assert (done.returncode, rest) == (0, ["42", "6"]), done.stderr


@pytest.mark.skipif(os.getuid() != 0 or SETPRIV is None, reason="only the superuser can become another")
def test_a_cell_cannot_keep_its_user_from_passing_descriptors(base: Path) -> None:
    done = run_as_user(base, IN_FLIGHT)
    assert done.stdout.splitlines() == ["True 109", "6 7", "8"], done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser can become another")
def test_a_users_kernels_are_kept_within_their_limits_and_in_a_sandbox_survive_their_forks_and_hide_no_file(
    base: Path,
) -> None:
    done = run_as_user(base, PROGRAM)
    assert done.returncode == 0, done.stderr
    plain, after, memory, inside, after_inside, memory_inside, *disk, secret, secret_file, last, goes_on = (
        done.stdout.splitlines()
    )
    assert plain.startswith("too many processes (limit 30, had ")
    assert after == "None"
    assert inside == "[Errno 11] Resource temporarily unavailable"
    assert after_inside == "2"
    assert memory == memory_inside == secret == secret_file == "out of memory (limit 150 MB"
    assert goes_on == "goes on", "the runner of a guarded kernel hides nothing of a cell's"
    assert [*disk, last] == ["out of disk space in its working directory (limit 10 MB"] * 4

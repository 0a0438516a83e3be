"""What goes beyond a limit stays inside: the kernel dies by the declared cause, or its cell fails; others go on."""

from __future__ import annotations

import os
import re
import resource
import tempfile
from pathlib import Path

import pytest
from tests.support.cells import eventually, is_running
from tests.support.limits import GROUPS, WAYS, death, error, limited, run

from kernelbox import destroy, execute, get_or_create, status, wipe

pytestmark = pytest.mark.usefixtures("home")

FILL = "block = lambda: bytearray(8_000_000)\n"

# Each grows to 480 MB, in pieces that can be seen.
MEMORY_BOMBS = {
    "heap": f"{FILL}x = [block() for _ in range(60)]",
    "private mapping": "import mmap\nm = mmap.mmap(-1, 480_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    "for i in range(0, len(m), 4096): m[i] = 1",
    "shared mapping": "import mmap\nm = mmap.mmap(-1, 480_000_000)\nfor i in range(0, len(m), 4096): m[i] = 1",
    "memfd": "import os\nf = os.memfd_create('x')\nfor _ in range(60): os.write(f, bytes(8_000_000))",
    "a file in /dev/shm": "import tempfile\nf = tempfile.TemporaryFile(dir='/dev/shm')\n"
    "for _ in range(60): f.write(bytes(8_000_000)); f.flush()",
    "page tables": "import mmap\nm = mmap.mmap(-1, 1 << 37, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)\n"
    "for i in range(0, len(m), 1 << 21): m[i]",  # MAP_NORESERVE; what is only read takes no memory of its own
    "a file and a mapping": "import mmap, os\nf = os.memfd_create('x')\n"
    "for _ in range(12): os.write(f, bytes(8_000_000))\n"
    "m = mmap.mmap(-1, 96_000_000)\nfor i in range(0, len(m), 4096): m[i] = 1",  # neither alone is too much
    "threads": f"{FILL}import threading\nx = []\ndef grow():\n    for _ in range(15): x.append(block())\n"
    "for _ in range(4): threading.Thread(target=grow).start()",
}


@pytest.mark.parametrize("cgroups", WAYS)
@pytest.mark.parametrize("bomb", MEMORY_BOMBS)
def test_a_kernel_that_takes_too_much_memory_dies_of_it(
    bomb: str, cgroups: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    with limited(tmp_path, memory="150MB") as kernel:
        told = death(kernel, MEMORY_BOMBS[bomb])
        assert told.startswith("out of memory (limit 150 MB, peak "), told
        assert status(kernel).death == told.partition(";")[0]


CHILD_BOMB = f"""
import os, sys
{FILL}
if os.fork() == 0:
    x = [block() for _ in range(60)]
    os._exit(0)
_, status = os.wait()
"""


def test_looks_count_the_memory_of_children_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    with limited(tmp_path, memory="150MB") as kernel:
        assert death(kernel, CHILD_BOMB).startswith("out of memory (limit 150 MB, peak ")


def test_looks_count_the_files_of_memory_of_each_of_many_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    code = """
import os, time
for _ in range(75):
    if os.fork() == 0:
        held = os.memfd_create("x")
        for _ in range(5): os.write(held, bytes(1_000_000))
        time.sleep(100)
"""
    with limited(tmp_path, memory="500MB") as kernel:  # half of them would not be enough
        assert death(kernel, code).startswith("out of memory (limit 500 MB, peak ")


def test_looks_find_the_one_of_many_children_that_takes_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    code = """
import os, time
for number in range(75):
    if os.fork() == 0:
        if number == 0: x = bytearray(600_000_000)
        time.sleep(100)
"""
    with limited(tmp_path, memory="500MB") as kernel:
        assert death(kernel, code).startswith("out of memory (limit 500 MB, peak ")


@pytest.mark.parametrize("cgroups", WAYS)
def test_a_kernel_between_cells_is_kept_within_its_limits_too(
    cgroups: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    grow = "    go.wait()\n    for _ in range(60): x.append(block())"
    with limited(tmp_path, memory="150MB") as kernel:
        run(kernel, f"{FILL}import threading\nx, go = [], threading.Event()\ndef grow():\n{grow}")
        run(kernel, "threading.Thread(target=grow, daemon=True).start(); threading.Timer(0.2, go.set).start()")
        eventually(lambda: status(kernel).status == "dead")
        assert (status(kernel).death or "").startswith("out of memory (limit 150 MB, peak ")


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 3_100, reason="so many cannot be open here")
def test_memory_among_more_open_files_than_are_looked_at_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    code = """
import os, resource, time
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
read, write = os.pipe()
for number in range(8):
    if os.fork() == 0:
        if number > 0:
            for _ in range(3000): os.dup(read)
            os.write(write, b"x")
        else:
            for _ in range(7): os.read(read, 1)
            held = os.memfd_create("x")
            for _ in range(60): os.write(held, bytes(8_000_000))
        time.sleep(100)
"""
    with limited(tmp_path, memory="150MB") as kernel:
        assert death(kernel, code).startswith("out of memory (limit 150 MB, peak ")


@pytest.mark.skipif(not GROUPS, reason="no control groups can be made here")
def test_in_a_group_the_child_that_takes_too_much_is_killed_and_the_kernel_goes_on(tmp_path: Path) -> None:
    with limited(tmp_path, memory="150MB") as kernel:
        assert run(kernel, f"{CHILD_BOMB}\nos.waitstatus_to_exitcode(status)").return_value == "-9"
        assert run(kernel, "1 + 1").return_value == "2"
        told = death(kernel, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
        assert "memory" not in told, "what it died of later is told as such"


BUFFERS = """
import socket
listener, ends, sent = socket.create_server(("127.0.0.1", 0)), [], 0
while len(ends) < 100 and sent < 400_000_000:
    ends += [(end := socket.create_connection(listener.getsockname())), (other := listener.accept()[0])]
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 6_000_000)
    end.setblocking(False)
    try:
        while True: sent += end.send(bytes(65536))
    except BlockingIOError: pass
sent
"""


@pytest.mark.skipif(not GROUPS, reason="no control groups can be made here")
def test_in_a_group_the_buffers_of_connections_are_limited_with_the_memory(tmp_path: Path) -> None:
    with limited(tmp_path, memory="100MB") as kernel:
        result = run(kernel, BUFFERS)  # cgroups v2 counts them as memory, and may end the kernel
        assert result.state == "lost" or int(result.return_value or "") < 100_000_000


def test_memory_that_processes_share_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    code = """
import os, signal, time
x = bytearray(80_000_000)
children = [os.fork() for _ in range(8) if os.getpid() == kernel]
if os.getpid() != kernel:
    signal.pause()
time.sleep(1)  # in which the keeper looks some twenty times
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
len(children), len(x)
"""
    with limited(tmp_path, memory="200MB") as kernel:
        run(kernel, "import os; kernel = os.getpid()")
        assert run(kernel, code).return_value == "(8, 80000000)"


def test_a_file_of_memory_that_is_open_and_mapped_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    code = """
import mmap, os, time
f = os.memfd_create("x")
for _ in range(12): os.write(f, bytes(8_000_000))
m = mmap.mmap(f, 96_000_000)
seen = sum(m[i] for i in range(0, len(m), 4096))
time.sleep(0.5)  # in which the keeper looks some ten times
seen
"""
    with limited(tmp_path, memory="150MB") as kernel:
        assert run(kernel, code).return_value == "0"


def test_files_that_are_read_do_not_count_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    (tmp_path / "data").write_bytes(bytes(120_000_000))
    code = """
import mmap, time
with open("data", "rb") as file:
    m = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    seen = sum(m[i] for i in range(0, len(m), 4096))
    time.sleep(0.5)
seen
"""
    with limited(tmp_path, memory="100MB") as kernel:
        assert run(kernel, code).return_value == "0"


FORKS = "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        time.sleep(100)\n        os._exit(0)"
FORK_BOMB = "import os\nfor _ in range(7):\n    try: os.fork()\n    except OSError: pass\nimport time\ntime.sleep(100)"
THREADS = "import threading, time\nfor _ in range(60): threading.Thread(target=time.sleep, args=(100,)).start()"


@pytest.mark.parametrize("bomb", [FORKS, FORK_BOMB, THREADS], ids=["forks", "fork bomb", "thread bomb"])
def test_a_kernel_with_too_many_processes_is_ended_and_they_with_it(
    bomb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    with limited(tmp_path, processes=30) as kernel:
        assert death(kernel, bomb).startswith("too many processes (limit 30, had ")
        eventually(lambda: not processes_in(tmp_path))


NUMBERED = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 14)


FASTER_AND_FASTER = """
import os, time
until = time.monotonic() + 20
while time.monotonic() < until:
    try: os.fork()
    except OSError: pass
"""


@pytest.mark.skipif(not NUMBERED, reason="numbers of processes can be bounded in a namespace since Linux 6.14")
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox starts no more processes than the limit")
def test_in_a_sandbox_the_system_bounds_a_fork_bomb_without_a_group_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", "0")
    bound = Path("/proc/sys/kernel/pid_max").read_text()
    with limited(tmp_path, sandbox=True, processes=30) as kernel:
        assert run(kernel, "int(open('/proc/sys/kernel/pid_max').read())").return_value == "331"
        assert death(kernel, FASTER_AND_FASTER).startswith("too many processes (limit 30, had ")
        eventually(lambda: not processes_in(tmp_path))
    assert Path("/proc/sys/kernel/pid_max").read_text() == bound, "of the machine"


def test_a_sandboxed_kernel_starts_more_processes_one_after_the_other_than_it_may_have(tmp_path: Path) -> None:
    forks = "import os\nfor _ in range(310): os.waitpid(os.fork() or os._exit(0), 0)\n"
    with limited(tmp_path, sandbox=True, processes=20) as kernel:
        assert run(kernel, f"{forks}!echo many | cat | cat").output == "many\n"


def test_a_sandboxed_cell_cannot_use_up_what_the_system_counts_for_its_user(tmp_path: Path) -> None:
    code = "import ctypes\nopen_one = ctypes.CDLL(None).inotify_init\nsum(open_one() >= 0 for _ in range(100))"
    with limited(tmp_path, sandbox=True, files=1000) as kernel:
        assert 0 < int(run(kernel, code).return_value or "") < 100


@pytest.mark.skipif(not GROUPS, reason="no control groups can be made here")
@pytest.mark.parametrize(
    ("bomb", "failure"),
    [(FORKS, "BlockingIOError: [Errno 11]"), (THREADS, "RuntimeError: can't start new thread")],
    ids=["forks", "threads"],
)
def test_in_a_group_no_more_processes_can_be_started_and_the_kernel_goes_on(
    bomb: str, failure: str, tmp_path: Path
) -> None:
    with limited(tmp_path, processes=30) as kernel:
        assert error(kernel, bomb).startswith(failure)
        assert run(kernel, "import time; time.sleep(0.2); 5").return_value == "5", "no thread of ours can be started"
        destroy(kernel)
        eventually(lambda: not processes_in(tmp_path))


@pytest.mark.skipif(not GROUPS, reason="no control groups can be made here")
def test_a_fork_bomb_in_a_group_leaves_nothing_when_its_kernel_is_destroyed(tmp_path: Path) -> None:
    with limited(tmp_path, processes=30) as kernel:
        result = execute(kernel, FORK_BOMB, timeout=1)
        assert result.status == "timeout"
        destroy(kernel)
        eventually(lambda: not processes_in(tmp_path))


def test_a_leak_of_descriptors_ends_in_the_cell(tmp_path: Path) -> None:
    with limited(tmp_path, files=100) as kernel:
        assert "Too many open files" in error(kernel, "leaked = []\nwhile True: leaked.append(open('/dev/null'))")
        assert run(kernel, "import resource; resource.getrlimit(resource.RLIMIT_NOFILE)").return_value == "(100, 100)"
        assert get_or_create(kernel.name).pid == kernel.pid


@pytest.mark.parametrize("files", [64, 100])
def test_bash_works_with_as_few_files_as_a_limit_may_allow(files: int, tmp_path: Path) -> None:
    with limited(tmp_path, files=files) as kernel:
        for code, said in (("x=5; exec 9>f; echo y >&9", ""), ("echo $x; cat f", "5\ny\n")):
            assert execute(kernel, code, language="bash").output == said
        assert run(kernel, "%%bash\necho 6").output == "6\n"


def test_a_file_cannot_be_larger_than_its_limit(tmp_path: Path) -> None:
    with limited(tmp_path, file_size="1MB") as kernel:
        assert "File too large" in error(kernel, "with open('big', 'wb') as file: file.write(bytes(2_000_000))")
        assert (tmp_path / "big").stat().st_size <= 1_000_000
        assert "File too large" in error(kernel, "import os\nos.truncate('big', 2_000_000)")
        program = "['sh', '-c', 'head -c 2000000 /dev/zero > big2']"
        assert run(kernel, f"import subprocess\nsubprocess.run({program}).returncode").return_value != "0"


# One after the other, so that none of them uses much, and no more than are needed: in the end the kernel itself would
# have used that much.
UNWAITED = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(6):
    if not (pid := os.fork()):
        while time.process_time() < 0.4: pass
        os._exit(0)
    while os.path.exists(f"/proc/{pid}"): time.sleep(0.1)
"""

# Each is over before it is looked at, or has used nothing then that the system shows.
SHORT = """
import os, time
for _ in range(200):
    if not (pid := os.fork()):
        while time.process_time() < 0.01: pass
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("cgroups", WAYS)
@pytest.mark.parametrize(
    "spin",
    [
        "while True: pass",
        "import subprocess; subprocess.run(['sh', '-c', 'while :; do :; done'])",
        "import os\nfor _ in range(2):\n    if os.fork() == 0:\n        while True: pass",
        "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass",
        UNWAITED,
        SHORT,
    ],
    ids=[
        "a loop",
        "a program",
        "two children",
        "deaf to SIGXCPU",
        "children that are not waited for",
        "short children",
    ],
)
def test_a_kernel_that_has_used_up_its_processor_time_is_ended(
    spin: str, cgroups: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", cgroups)
    with limited(tmp_path, cpu=1) as kernel:
        assert death(kernel, spin).startswith("out of CPU time (limit 1 s, used ")


DISK_BOMBS = {
    "a file": "with open('f', 'wb') as f:\n    for _ in range(100): f.write(bytes(1_000_000))",
    "many files": "for i in range(100):\n    with open(str(i), 'wb') as f: f.write(bytes(1_000_000))",
    "an unlinked file": "import os\nf = open('f', 'wb')\nos.unlink('f')\n"
    "for _ in range(100): f.write(bytes(1_000_000))",
    "a mapping": "import mmap\nf = open('f', 'wb+')\nf.truncate(100_000_000)\nm = mmap.mmap(f.fileno(), 0)\n"
    "for i in range(0, len(m), 4096): m[i] = 1",
    "a file, with its log gone": "import os\nfds = [int(fd) for fd in os.listdir('/proc/self/fd')]\n"
    "paths = [os.path.realpath(f'/proc/self/fd/{fd}') for fd in fds]\n"
    "os.unlink(next(path for path in paths if path.endswith('/log')))\n"
    "with open('f', 'wb') as f:\n    for _ in range(100): f.write(bytes(1_000_000))",
    "a tree too deep to be counted": "import os\nfor i in range(150):\n    os.mkdir('d' * 250)\n"
    "    os.chdir('d' * 250)\nwith open('f', 'wb') as f:\n    for _ in range(100): f.write(bytes(1_000_000))",
    "inodes": "for i in range(4000): open(str(i), 'w').close()",
    "a deep tree": "import os\nfor i in range(40):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\n"
    "with open('f', 'wb') as f:\n    for _ in range(100): f.write(bytes(1_000_000))",
    "an allocation": "import os\nf = os.open('f', os.O_CREAT | os.O_RDWR)\nos.posix_fallocate(f, 0, 100_000_000)",
    "a child": "import subprocess\nsubprocess.run(['sh', '-c', 'head -c 100000000 /dev/zero > f'])",
    "its own log": "import os\nfds = [int(fd) for fd in os.listdir('/proc/self/fd')]\n"
    "log = next(fd for fd in fds if os.path.realpath(f'/proc/self/fd/{fd}').endswith('/log'))\n"
    "for _ in range(100): os.write(log, bytes(1_000_000))",
}


@pytest.mark.parametrize("bomb", DISK_BOMBS)
def test_a_kernel_that_fills_its_working_directory_is_ended(bomb: str, tmp_path: Path) -> None:
    with limited(tmp_path, disk="10MB") as kernel:
        told = death(kernel, DISK_BOMBS[bomb])
        assert told.startswith("out of disk space in its working directory (limit 10 MB, added "), told


def test_only_what_is_added_to_the_working_directory_counts(tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(bytes(30_000_000))
    os.link(tmp_path / "before", tmp_path / "link")
    code = """
import os, time
for _ in range(5):
    with open("f", "wb") as f: f.write(bytes(12_000_000))  # so much that the directory is counted
    time.sleep(0.1)
"""
    with limited(tmp_path, disk="20MB") as kernel:
        assert run(kernel, f"{code}os.stat('f').st_size").return_value == "12000000"
        assert death(kernel, "with open('g', 'wb') as f: f.write(bytes(30_000_000))").startswith("out of disk space")


@pytest.mark.parametrize("way", ["rename", "link"])
def test_files_that_come_from_elsewhere_count(way: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as quiet:  # where nobody else takes space meanwhile
        (Path(quiet) / "elsewhere").write_bytes(bytes(30_000_000))
        (Path(quiet) / "here").mkdir()
        with limited(Path(quiet) / "here", disk="20MB") as kernel:
            told = death(kernel, f"import os\nos.{way}('../elsewhere', 'f')")
            assert told.startswith("out of disk space in its working directory (limit 20 MB, added 30"), told


def test_what_kernelbox_keeps_in_a_working_directory_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="kb-") as path:
        home = Path(path, ".kernelbox")
        monkeypatch.setenv("KERNELBOX_HOME", str(home))
        try:
            with limited(Path(path), disk="10MB") as kernel:
                (home / "images").mkdir()
                (home / "images" / "large").write_bytes(bytes(30_000_000))
                kept = "with open('f', 'wb') as f: f.write(bytes(6_000_000))\nimport time\ntime.sleep(0.5)\n7"
                assert run(kernel, kept).return_value == "7"
                told = death(kernel, "with open('g', 'wb') as f: f.write(bytes(6_000_000))")
                # It may have been looked at in the middle of writing.
                assert re.match(r"out of disk space in its working directory \(limit 10 MB, added 1[0-2]", told), told
        finally:
            wipe()


def test_a_kernel_is_ended_for_what_one_without_the_limit_adds_to_its_directory(tmp_path: Path) -> None:
    free = get_or_create("free", cwd=tmp_path)
    with limited(tmp_path, disk="10MB") as kernel:
        run(free, "with open('f', 'wb') as f: f.write(bytes(30_000_000))")
        eventually(lambda: status(kernel).status == "dead")
        assert (status(kernel).death or "").startswith("out of disk space in its working directory (limit 10 MB")
        assert run(free, "7").return_value == "7"


def test_of_kernels_that_share_a_directory_the_one_that_fills_it_is_ended(tmp_path: Path) -> None:
    if os.stat(tmp_path).st_dev == os.stat("/dev/shm").st_dev:
        pytest.skip("nobody counts what is written to memory")
    others = [get_or_create(f"shares-{number}", cwd=tmp_path, limits={"disk": "20MB"}) for number in range(2)]
    with limited(tmp_path, disk="20MB") as kernel:
        for other in others:
            run(other, "open(f'small-{__import__(\"os\").getpid()}', 'w').write('x' * 100_000)")
        told = death(kernel, "with open('f', 'wb') as f:\n    for _ in range(100): f.write(bytes(1_000_000))")
        assert told.startswith("out of disk space")
        for other in others:
            assert run(other, "import time\ntime.sleep(0.5)\n7").return_value == "7"
        told = death(others[0], "with open('g', 'wb') as f:\n    for _ in range(100): f.write(bytes(1_000_000))")
        assert told.startswith("out of disk space")
        assert run(others[1], "import time\ntime.sleep(0.5)\n7").return_value == "7"


def test_a_kernel_that_was_spared_answers_for_what_it_adds_later(tmp_path: Path) -> None:
    if os.stat(tmp_path).st_dev == os.stat("/dev/shm").st_dev:
        pytest.skip("nobody counts what is written to memory")
    other = get_or_create("more", cwd=tmp_path, limits={"disk": "1GB"})
    with limited(tmp_path, disk="20MB") as kernel:
        run(other, "with open('f', 'wb') as f: f.write(bytes(30_000_000))")
        assert run(kernel, "import time\ntime.sleep(0.5)\n7").return_value == "7", "the other has written it"
        assert death(kernel, "with open('g', 'wb') as f: f.write(bytes(25_000_000))").startswith("out of disk space")
        assert run(other, "7").return_value == "7"


def processes_in(directory: Path) -> list[int]:
    """Returns the processes that work in a directory."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == str(directory) and is_running(int(entry)):
                found.append(int(entry))
        except OSError:
            continue
    return found

"""Templates tell the truth: a kernel finds what is installed now, under the limits of the process that opens it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.cells import Running, eventually, parent_of, run, value, wait_for_end

from kernelbox import destroy, get_or_create, restart
from kernelbox.base._interpreter import own_interpreter
from kernelbox.guest._descriptors import read_file
from kernelbox.host.engines._spawning import write_secret
from kernelbox.host.engines.own import _warm_template as _template
from kernelbox.host.engines.own._path_files import import_stamps

OPEN_LIMITED = """
import os, resource, kernelbox
os.nice(5)
os.sched_setaffinity(0, {{{cpu}}})
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_NOFILE, (500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
result = kernelbox.execute(kernelbox.get_or_create("limited"), {code!r})
print(result.output, end="")
"""

LIMITS = (
    "import os, resource\n"
    "print(os.nice(0), sorted(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_CORE),"
    " resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Makes a virtual environment that can be written to and sees the packages of ours; returns its interpreter."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    paths = [path for path in sys.path if "site-packages" in path or path.endswith("src")]
    source = Path(__file__).resolve().parents[2] / "src"
    (packages / "ours.pth").write_text("\n".join([str(source), *paths]))
    return folder / "bin" / "python"


def test_a_package_on_a_new_path_is_found_by_the_next_kernel_and_after_a_restart(
    own_home: Path, environment: Path, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "installed_later.py").write_text("answer = 42")
    script = f"""
import kernelbox, pathlib
before = kernelbox.get_or_create("before")
assert kernelbox.execute(before, "import installed_later").error.ename == "ModuleNotFoundError"
(site,) = pathlib.Path({str(environment.parent.parent)!r}).glob("lib/python*/site-packages")
(site / "editable.pth").write_text({str(package)!r})
code = "import installed_later; print(installed_later.answer)"
print(kernelbox.execute(kernelbox.get_or_create("after"), code).output, end="")
kernelbox.restart(before)
print(kernelbox.execute("before", code).output, end="")
(site / "editable.pth").write_text("# nothing any more")
print(kernelbox.execute(kernelbox.get_or_create("last"), "import installed_later").error.ename)
"""
    done = subprocess.run([environment, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("42\n42\nModuleNotFoundError\n", "")


def test_a_path_file_that_appears_changes_or_goes_is_noticed_in_a_folder_known_for_long(tmp_path: Path) -> None:
    python = dataclasses.replace(own_interpreter(), folders=(str(tmp_path),))
    seen = []

    def look() -> None:
        stamps = import_stamps(python)
        assert stamps == import_stamps(python)
        seen.append(stamps)

    def look_later() -> None:
        long_ago = time.time_ns() - (100 - len(seen)) * 10**9
        os.utime(tmp_path, ns=(long_ago, long_ago))
        look()

    look_later()
    (tmp_path / "one.pth").write_text("")
    look()  # too soon after the change for the list to be kept
    (tmp_path / "two.pth").write_text("")
    look_later()
    os.utime(tmp_path / "two.pth", ns=(1, 1))
    look()
    (tmp_path / "one.pth").unlink()
    look_later()
    assert all(before != after for before, after in itertools.pairwise(seen))
    assert [str(tmp_path / "two.pth"), 1] in seen[-1]


def test_new_code_in_any_folder_that_a_template_runs_needs_another_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("guest/birth/_a.py", "guest/_b.py", "usage/_c.py", "wire/_d.py")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    monkeypatch.setattr(_template, "PACKAGE", str(tmp_path))
    stamps = [_template._code_stamp.__wrapped__()]
    for later, file in enumerate(files, start=1):
        os.utime(file, ns=(0, stamps[0] + later))
        stamps.append(_template._code_stamp.__wrapped__())
    assert len(set(stamps)) == len(stamps)


def test_a_kernel_gets_the_limits_priority_and_processors_of_its_opener(own_home: Path) -> None:
    ordinary = run(get_or_create("ordinary"), LIMITS).output
    priority = os.nice(0)
    cpu = min(os.sched_getaffinity(0))
    script = OPEN_LIMITED.format(cpu=cpu, code=LIMITS)
    limited = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert limited == f"{priority + 5} [{cpu}] (0, 0) 500\n"
    assert run(get_or_create("ordinary again"), LIMITS).output == ordinary
    restarted = value(restart("limited"), "import os; os.nice(0)")
    assert restarted == str(priority), "who restarts a kernel opens a process"


def test_a_kernels_own_variables_neither_reach_its_template_nor_need_another(own_home: Path) -> None:
    kernels = [get_or_create(name, env={**os.environ, "API_KEY": f"key-of-{name}"}) for name in ("one", "two")]
    template, other = (parent_of(kernel.pid) for kernel in kernels if kernel.pid)
    assert template == other
    assert b"API_KEY" not in Path(f"/proc/{template}/environ").read_bytes()
    for kernel in kernels:
        assert value(kernel, "import os; os.environ['API_KEY']") == repr(f"key-of-{kernel.name}")
        assert value(kernel, "b'API_KEY' in open('/proc/self/environ', 'rb').read()") == "False"


def test_what_libraries_read_when_they_are_imported_needs_a_template_of_its_own(own_home: Path) -> None:
    plain = get_or_create("plain", env={**os.environ})
    threads = get_or_create("threads", env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert plain.pid is not None
    assert threads.pid is not None
    assert parent_of(plain.pid) != parent_of(threads.pid)


def test_what_a_padded_process_makes_lies_beyond_what_it_has_freed() -> None:
    program = """
from kernelbox.guest.birth._warmup import pad
made = [bytes(300) for _ in range(40)]
freed = {id(each) for each in made[::2]}
del made[::2]
pad()
print(freed & {id(each) for each in [bytes(300) for _ in range(40)]})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_code_of_a_template_is_immortal_in_its_kernels_and_what_cells_define_is_not(own_home: Path) -> None:
    kernel = get_or_create("a")
    counts = "import abc, functools, sys; lasts = lambda each: sys.getrefcount(each) > 2**31"
    run(kernel, f"{counts}\ndef own(): pass")
    found = "[*map(lasts, (abc, abc.ABC, functools.wraps, functools.wraps.__code__, own, own.__code__, sys.path))]"
    immortal = sys.version_info >= (3, 12)  # Python 3.11 has no immortal objects
    assert value(kernel, found) == repr([immortal] * 4 + [False] * 3)
    run(kernel, "import gc; gc.unfreeze(); gc.collect(); del sys.modules['functools'], functools; import functools")
    assert value(kernel, "functools.reduce(int.__add__, range(4))") == "6"


def test_objects_of_a_preloaded_module_are_not_asked_what_they_are(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy_settings.py").write_text("""
class Lazy:
    @property
    def __class__(self):
        raise RuntimeError("it was asked")

settings = Lazy()
""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("KERNELBOX_PRELOAD", "lazy_settings")
    assert value(get_or_create("a"), "import sys; 'lazy_settings' in sys.modules") == "True"


@pytest.mark.slow
def test_an_upgraded_package_gets_a_new_template(own_home: Path, tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "src" / "kernelbox"
    shutil.copytree(source, tmp_path / "kernelbox", ignore=shutil.ignore_patterns("__pycache__"))
    script = """
import kernelbox, sys
from kernelbox import execute, get_or_create
print(kernelbox.__file__, execute(get_or_create(sys.argv[1]), "import os; os.getppid()").return_value)
"""
    path, templates = {**os.environ, "PYTHONPATH": str(tmp_path)}, []
    for name in ("first", "again", "guest", "wire"):
        for changed in sorted(tmp_path.glob(f"kernelbox/{name}/_*.py"))[:1]:
            os.utime(changed, ns=(0, changed.stat().st_mtime_ns + (10**15 if name == "guest" else 10**16)))
        done = subprocess.run(
            [sys.executable, "-c", script, name], capture_output=True, text=True, check=True, env=path
        )
        file, _, template = done.stdout.partition(" ")
        assert file == f"{tmp_path}/kernelbox/__init__.py"
        templates.append(template)
    assert [templates.index(template) for template in templates] == [0, 0, 2, 3]


# Neither lets the kernel see to it: the one is stopped, the other does not come to the end of its exit functions.
LEAVE_A_PROCESS = {
    "in a session of its own": "note(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)\n"
    "os.kill(os.getpid(), signal.SIGSTOP)",
    "while it ends": "def leave():\n    note(subprocess.Popen(['sleep', '1000']).pid)\n    time.sleep(1000)\n"
    "atexit.register(leave)",
}


@pytest.mark.parametrize("start", LEAVE_A_PROCESS.values(), ids=LEAVE_A_PROCESS)
def test_what_a_kernel_started_does_not_survive_it_though_its_template_is_gone(
    start: str, own_home: Path, tmp_path: Path
) -> None:
    kernel = get_or_create("orphan")
    assert kernel.pid is not None
    pid_file = tmp_path / "pid"
    note = f"def note(pid): pathlib.Path({str(pid_file)!r}).write_text(str(pid))"
    template = parent_of(kernel.pid)
    os.kill(template, signal.SIGKILL)
    wait_for_end(template)
    cell = Running(
        kernel, f"import atexit, os, pathlib, signal, subprocess, time\n{note}\nprint(1, flush=True)\n{start}"
    )
    cell.wait_for_output()
    if "SIGSTOP" in start:
        eventually(lambda: pid_file.exists() and pid_file.read_text())
    else:
        cell.result()
    assert destroy(kernel)
    cell.result()
    pid = int(pid_file.read_text())
    try:
        wait_for_end(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_what_a_kernel_is_given_is_whole_for_the_next_template_that_reads_it() -> None:
    """An opener sends the same descriptors again when a template has ended, which may have read them."""
    given = write_secret("environment", b"A=1\0B=2")
    try:
        assert [read_file(os.dup(given)) for _ in range(2)] == [b"A=1\0B=2"] * 2
    finally:
        os.close(given)

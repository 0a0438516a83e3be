"""What a name was opened with stays with it until it is destroyed, whatever becomes of its kernels and their starts."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, eventually, run, value
from tests.support.command_line import kernelbox
from tests.support.executor import run as run_async
from tests.support.sandbox import LEVEL, needs_linux
from tests.support.store import run_python

from kernelbox import (
    CodeExecutor,
    InvalidInput,
    KernelBoxError,
    KernelExists,
    KernelRecord,
    StartFailed,
    create,
    destroy,
    execute,
    execute_with_retry,
    get_or_create,
    list_kernels,
    restart,
    status,
    wipe,
)

pytestmark = [needs_linux, pytest.mark.usefixtures("own_home")]

DIE = "import os; os.kill(os.getpid(), 9)"


@pytest.fixture
def inner(workspace: Path) -> Path:
    """Makes a directory below that of the caller, for kernels to work in."""
    path = workspace / "inner"
    path.mkdir()
    return path


@pytest.fixture
def mortal(inner: Path) -> KernelRecord:
    """Opens a kernel with all the terms that there are, and ends it from inside."""
    opened = create(
        "mortal",
        cwd=inner,
        sandbox=True,
        sandbox_level=LEVEL,
        limits={"files": 100},
        tags={"of": "mine"},
        session_name="talk",
    )
    execute(opened, DIE, timeout=DEADLINE)
    return opened


def require_terms(opened: KernelRecord) -> None:
    """Looks at what the kernel of a name is by its record, and by what its cells can do."""
    now = status("mortal")
    assert now.alive
    assert (now.sandbox, now.sandbox_config, now.limits) == (opened.sandbox, opened.sandbox_config, {"files": 100})
    assert (now.name, now.session_name, now.tags) == ("mortal", "talk", {"of": "mine"})
    assert value("mortal", "__import__('os').getcwd()") == repr(opened.cwd)
    assert "Read-only file system" in execute("talk", "open('/etc/kernelbox-test', 'w')", timeout=DEADLINE).text
    assert "Too many open files" in execute("mortal", "[open('/dev/null') for _ in range(200)]").text
    assert [record.name for record in list_kernels()] == ["mortal"]


# -- faces ---------------------------------------------------------------------------------------------------


def by_name() -> None:
    result = execute("mortal", "1", timeout=DEADLINE)
    if result.error is not None:
        raise KernelBoxError(result.text)


def by_session_name() -> None:
    result = execute("talk", "1", timeout=DEADLINE)
    if result.error is not None:
        raise KernelBoxError(result.text)


def by_retry() -> None:
    result = execute_with_retry("mortal", "1", lambda result, attempt: None, max_attempts=1)
    if result.error is not None:
        raise KernelBoxError(result.text)


def by_command_line() -> None:
    done = kernelbox("exec", "--name", "mortal", "1")
    if done.status != 0:
        raise KernelBoxError(done.stderr)


def by_executor() -> None:
    async def scenario() -> None:
        async with CodeExecutor(name="mortal") as executor:
            await executor.execute("1")

    run_async(scenario)


FACES: dict[str, Callable[[], object]] = {
    "execute": by_name,
    "execute by the session name": by_session_name,
    "get_or_create": lambda: get_or_create("mortal"),
    "create": lambda: create("mortal"),
    "restart": lambda: restart("mortal"),
    "execute_with_retry": by_retry,
    "command line": by_command_line,
    "executor": by_executor,
}


# -- what makes a start fail ---------------------------------------------------------------------------------


@contextlib.contextmanager
def variable(name: str, text: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, text)
        yield


@contextlib.contextmanager
def limited(which: int, amount: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (amount, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def descriptors_for(more: int) -> int:
    """Returns the limit under which this process can open so many files more, however many it has open."""
    taken = {int(fd) for fd in os.listdir("/proc/self/fd")}
    free = (number for number in itertools.count() if number not in taken)
    return next(itertools.islice(free, more, None))


@contextlib.contextmanager
def missing(directory: Path) -> Iterator[None]:
    away = directory.with_name("away")
    directory.rename(away)
    yield
    away.rename(directory)


@contextlib.contextmanager
def linked(directory: Path) -> Iterator[None]:
    with missing(directory):
        directory.symlink_to(directory.parent)
        yield
        directory.unlink()


@contextlib.contextmanager
def made_again(directory: Path) -> Iterator[None]:
    with missing(directory):
        directory.mkdir()
        yield
        directory.rmdir()


FAULTS: dict[str, Callable[[Path], contextlib.AbstractContextManager[None]]] = {
    "start-up code that fails": lambda inner: variable("KERNELBOX_STARTUP_CODE", "1 / 0"),
    "start-up code that ends the kernel": lambda inner: variable("KERNELBOX_STARTUP_CODE", DIE),
    "few files": lambda inner: limited(resource.RLIMIT_NOFILE, descriptors_for(10)),
    "a home that cannot be written": lambda inner: limited(resource.RLIMIT_FSIZE, 0),
    "no directory": missing,
    "a link for a directory": linked,
    "another directory": made_again,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_no_start_that_fails_loosens_the_terms_of_a_name(fault: str, mortal: KernelRecord, inner: Path) -> None:
    # A command may open more files than this process, which has many open already.
    faces = [face for name, face in FACES.items() if (name, fault) != ("command line", "few files")]
    with FAULTS[fault](inner):
        for face in faces:
            with pytest.raises((KernelBoxError, OSError)):
                face()
        assert not status("mortal").alive
        assert [record.name for record in list_kernels()] == ["mortal"]
    by_name()
    require_terms(mortal)


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES.values(), ids=list(FACES))
def test_a_kernel_that_follows_a_dead_one_has_the_terms_of_its_name(
    face: Callable[[], object], mortal: KernelRecord
) -> None:
    with variable("KERNELBOX_STARTUP_CODE", "1 / 0"), pytest.raises(KernelBoxError):
        face()
    face()
    require_terms(mortal)


def test_a_client_with_another_engine_frees_no_kernel_of_the_name(mortal: KernelRecord) -> None:
    with variable("KERNELBOX_ENGINE", "jupyter"), pytest.raises(InvalidInput, match="own engine can be sandboxed"):
        get_or_create("mortal")
    by_name()
    require_terms(mortal)


def test_a_link_that_a_cell_leaves_before_its_kernel_dies_frees_no_kernel_of_the_name(inner: Path) -> None:
    opened = get_or_create("mortal", cwd=inner, sandbox=True, sandbox_level=LEVEL)
    execute(opened, "import os; os.symlink('/', '.env'); os.kill(os.getpid(), 9)", timeout=DEADLINE)
    for _ in range(3):
        with contextlib.suppress(KernelBoxError):
            execute("mortal", "1", timeout=DEADLINE)
        assert status("mortal").sandbox == LEVEL


def test_a_cell_that_ignores_its_timeout_frees_no_kernel_of_the_name(inner: Path) -> None:
    opened = get_or_create("mortal", cwd=inner, sandbox=True, sandbox_level=LEVEL, limits={"files": 100})
    with missing(inner):
        held = execute(opened, "sum(range(10**13))", timeout=1)
        assert held.ending == "died"
        with pytest.raises(StartFailed, match=r"its working directory .* is gone"):
            execute("mortal", "1")
        with pytest.raises(StartFailed, match=r"its working directory .* is gone"):
            restart("mortal")
    run("mortal", "1")
    assert (status("mortal").sandbox, status("mortal").limits) == (LEVEL, {"files": 100})


def test_an_opener_that_is_killed_while_it_starts_the_next_kernel_leaves_its_terms(
    mortal: KernelRecord, inner: Path
) -> None:
    code = "import kernelbox; kernelbox.get_or_create('mortal')"
    waiting = "open('waiting', 'w').close(); import time; time.sleep(60)"
    opener = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "KERNELBOX_STARTUP_CODE": waiting}, cwd="/"
    )
    eventually((inner / "waiting").exists)
    opener.send_signal(signal.SIGKILL)
    opener.wait(DEADLINE)
    eventually(lambda: not execute("mortal", "1").error)
    require_terms(mortal)
    destroy("mortal")
    assert get_or_create("mortal").sandbox is None, "what was left of the start that was cut short has ended too"


def test_files_that_are_deleted_under_a_dead_kernel_leave_the_terms_of_its_name(own_home: Path, inner: Path) -> None:
    opened = get_or_create("mortal", cwd=inner, sandbox=True, sandbox_level=LEVEL)
    (own_home / "runtime" / opened.kernel_id / "socket").unlink()
    said = "import kernelbox; print(kernelbox.execute('mortal', '1').text)"
    assert "is dead" in run_python(said).stdout
    with variable("KERNELBOX_STARTUP_CODE", "1 / 0"), pytest.raises(StartFailed):
        get_or_create("mortal")
    assert run_python(said).stdout == "1\n", "the death was reported once"
    assert status("mortal").sandbox == LEVEL


@pytest.mark.parametrize("end", [lambda: destroy("talk"), wipe], ids=["destroy", "wipe"])
def test_the_terms_of_a_name_end_when_it_is_destroyed(end: Callable[[], object], mortal: KernelRecord) -> None:
    end()
    fresh = get_or_create("mortal")
    assert (fresh.sandbox, fresh.limits, fresh.tags, fresh.session_name) == (None, {}, {}, "mortal")
    assert fresh.cwd == os.getcwd()


def test_options_may_tighten_the_terms_of_a_name_and_not_loosen_them(mortal: KernelRecord, inner: Path) -> None:
    for looser in (False, {"filesystem": {"allowWrite": [".", "/srv"]}}):
        with pytest.raises(KernelExists, match=r"the kernel 'mortal' that died had a sandbox .* leave these out"):
            get_or_create("mortal", sandbox=looser)
    for amount in (0, 200):
        with pytest.raises(KernelExists, match=f"had limits files=100, not {amount or 'none'}, and the next one"):
            create("mortal", limits={"files": amount})
    tighter = get_or_create("mortal", limits={"files": 80, "processes": 50})
    assert (tighter.limits, tighter.sandbox) == ({"files": 80, "processes": 50}, LEVEL)
    assert tighter.cwd == str(inner)


def test_a_plain_kernel_that_died_may_be_followed_by_a_sandboxed_one_where_its_opener_is(
    workspace: Path, inner: Path
) -> None:
    execute(get_or_create("mortal", cwd=inner), DIE)
    boxed = get_or_create("mortal", sandbox=True, sandbox_level=LEVEL)
    assert (boxed.sandbox, boxed.cwd) == (LEVEL, str(workspace))

"""How a fork of the template becomes one particular kernel: preload → fork → **specialize**.

Specializing has stages: **open** all that the kernel needs and give the process its identity, **confine** it, and only
then report success and **serve**. A failure before that is reported to the opener, and leaves no process.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps in enums, whose pages a kernel need not copy
import contextlib
import faulthandler
import gc
import mmap
import os
import resource
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from kernelbox.guest._descriptors import Descriptors, read_file
from kernelbox.guest._process_title import show_kernel
from kernelbox.guest._process_tree import become_subreaper, die_with_parent
from kernelbox.guest.copies._library_state import reseed
from kernelbox.guest.programs._command_environment import keep_given_directory, keep_given_environment
from kernelbox.guest.serve._identity import Identity
from kernelbox.wire._framing import encode
from kernelbox.wire._layout import PACKAGES, PROFILE, UNGUARDED
from kernelbox.wire._messages import Introduced, Spawn, group_name

if TYPE_CHECKING:
    from kernelbox.guest.serve._kernel_process import KernelProcess

# Tools behave when they know that no terminal shows their output; plots go to the notebook backend.
_ENVIRONMENT = {
    b"TERM": b"dumb",
    b"NO_COLOR": b"1",
    b"PAGER": b"cat",
    b"GIT_PAGER": b"cat",
    b"MPLBACKEND": b"module://matplotlib_inline.backend_inline",
}
_DEFAULTS = (b"MPLBACKEND", b"PAGER", b"GIT_PAGER")  # unless the opener's environment says otherwise

# What the child says to its keeper through the pipe between them: this, or that it is ready and must not outlive it, or
# why it could not be specialized.
READY, READY_WITH_KEEPER = b"ready", b"ready with keeper"

# What a kernel has open in its sandbox; anything else might be a way out.
_INSIDE = (
    *("listener", "state", "log", "cells", "older cells", "environment", "report", "runner", "filter", "keeper"),
    *("alive", "link to keeper", "stdout", "stdout writer", "stderr", "stderr writer"),
)

_exit = os._exit

_FAILED = 70  # EX_SOFTWARE of sysexits.h


@dataclass(slots=True)
class Birth:
    """What a forked child is made of: the request, its descriptors, and what its keeper adds."""

    spawn: Spawn
    given: Descriptors
    """What came with the request (see Spawn), and what the template has opened: `stdout` and `stderr`, and a writer for
    each, and `report`, through which the child says that it is ready. In a sandbox also `first process`; `told`, where
    the maker says what it has made; `alive`, which keeps the first process alive; `keeper`, which ends with the keeper.
    """
    keeper: int
    files_limit: tuple[int, int]
    entry: SandboxEntry | None


@dataclass(slots=True)
class SandboxEntry:
    """How a child enters its sandbox: as which user, as seen from outside. In srt it gets the variables by which
    programs find the proxy, and introduces itself to the opener."""

    user: int
    srt_variables: dict[bytes, bytes] | None = None
    opener: socket.socket | None = None


def specialize(birth: Birth) -> NoReturn:
    """Turns the forked process into a kernel, or into the program that was asked for; never returns."""
    reported = False
    try:
        show_kernel(birth.spawn.name)
        watched = _join_groups(birth)
        if birth.entry is None:
            _open(birth)
            _take_limits(birth)
            if watched:
                die_with_parent(birth.keeper)
            if birth.spawn.argv:
                os.execvpe(birth.spawn.argv[0], birth.spawn.argv, os.environ)  # closes the report: it has begun
            identity, scratch = _identify(birth), ""
        else:
            identity, scratch = _open_sandboxed(birth, birth.entry, watched=watched)
        identity.watched = watched
        keep_given_environment()
        _start_runner(identity, birth)
        kernel = _build(identity, birth.spawn, scratch)
        _shut_in(birth)
        os.write(birth.given["report"], READY_WITH_KEEPER if watched else READY)
        birth.given.close("report")
        reported = True
        kernel.serve()
    except BaseException as exc:  # noqa: BLE001  # nothing above this frame belongs to the kernel
        with contextlib.suppress(OSError), open(birth.given["log"], "a", closefd=False) as log:
            traceback.print_exc(file=log)
        if not reported:
            with contextlib.suppress(OSError):
                os.write(birth.given["report"], f"{type(exc).__name__}: {exc}".encode("utf-8", "replace")[:4000])
    finally:
        _exit(_FAILED)


def _open(birth: Birth) -> None:
    """Gives the process an identity of its own: session, signals, descriptors, directory, environment, randomness."""
    spawn = birth.spawn
    os.setsid()
    _reset_signals()
    if not spawn.argv:  # other programs do not reap orphans: those go to the keeper that keeps just them
        become_subreaper()
    _take_descriptors(birth)
    os.umask(spawn.umask)
    os.chdir(spawn.cwd)
    keep_given_directory()  # at once: it may be deleted as soon as the kernel is ready
    _take_environment(birth)
    if hasattr(time, "tzset"):
        time.tzset()
    reseed()
    resource.setrlimit(resource.RLIMIT_NOFILE, birth.files_limit)


def _identify(birth: Birth) -> Identity:
    """Returns what makes this process one particular kernel."""
    given = birth.given
    return Identity(
        kernel_id=birth.spawn.kernel_id,
        directory=birth.spawn.directory,
        pid=os.getpid(),
        keeper=birth.keeper,
        listener=socket.socket(fileno=given["listener"]),
        outputs=(given["stdout"], given["stderr"]),
        inputs=(given["stdout writer"], given["stderr writer"]),
        state_file=given["state"],
        memory=mmap.mmap(given["state"], 0),
        cells=(given["cells"], given["older cells"]),
        log=given["log"],
        link=given.get("link to keeper") or -1,
        lifeline=given.get("keeper"),
        alive=given.get("alive"),
    )


def _open_sandboxed(birth: Birth, entry: SandboxEntry, *, watched: bool) -> tuple[Identity, str]:
    """Enters the sandbox. No user code has run in it yet."""
    from kernelbox.guest.walls._confine import enter
    from kernelbox.guest.walls._system_calls import Unarmed, close_but, give_up_privileges

    try:
        given = birth.given
        given.close_but(*_INSIDE, "first process", "told")
        if watched:
            given.close("alive")  # the template's copy counts
        others = (0, 1, 2) if entry.opener is None else (0, 1, 2, entry.opener.fileno())
        close_but((*others, *given.numbers))  # at once: it may wait for long, and others' sandboxes end with these
        own_network = entry.srt_variables is None  # in srt it has the way to srt's proxy
        told = given.take("told")
        processes = birth.spawn.limits.get("processes", 0)
        scratch, program = enter(
            given["first process"], told, user=entry.user, own_network=own_network, processes=processes
        )
        given.close("first process")  # a process, as a directory, would be a way out
        close_but((*others, *given.numbers))
        _open(birth)
        identity = _identify(birth)
        _take_limits(birth, alone=True)
        give_up_privileges(program)
    except Unarmed as exc:
        raise RuntimeError(str(exc)) from exc
    if entry.opener is not None:  # outside of srt this process has another pid, which the opener must learn
        with entry.opener as opener:
            opener.sendall(encode(Introduced(birth.spawn.kernel_id)))
    return identity, scratch


def _start_runner(identity: Identity, birth: Birth) -> None:
    """Forks the runner of a kernel that is to be guarded; through the pipe `runner ready` it says that it serves."""
    if not birth.spawn.is_guarded:
        return
    from kernelbox.guest.programs._runner import run

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    given = birth.given
    given.open_pipe("runner ready", "says so")
    identity.runner_pid = os.fork()
    if identity.runner_pid == 0:
        gc.enable()
        listener = socket.socket(fileno=given["runner"])
        run(birth.spawn.kernel_id, theirs, listener, given["log"], given["says so"])
    theirs.close()
    given.close("says so", "runner")
    identity.runner = ours


def _shut_in(birth: Birth) -> None:
    """Takes away all ways to start a program, before any user code runs, if the kernel is guarded."""
    if not birth.spawn.is_guarded:
        return
    from kernelbox.guest.walls._guard import shut_in
    from kernelbox.guest.walls._system_calls import Unarmed

    try:
        shut_in(read_file(birth.given.take("filter")))
    except Unarmed as exc:
        raise RuntimeError(f"{UNGUARDED}{exc.step} failed: {exc.error.strerror} (errno {exc.error.errno})") from exc
    if not os.read(birth.given["runner ready"], 1):
        raise RuntimeError(f"{UNGUARDED}its runner ended while it was being prepared")
    birth.given.close("runner ready")


def _join_groups(birth: Birth) -> bool:
    """Moves the process into its control groups before anything else, so that all it uses counts there.

    Returns whether its keeper must check limits all the same. Then the kernel must not outlive the keeper.
    """
    if not birth.spawn.limits:
        return False
    from kernelbox.guest.walls._own_limits import join, need_keeper

    groups = birth.spawn.groups
    joined = join([birth.given.take(group_name(group)) for group in groups])
    return need_keeper(birth.spawn.limits, groups if joined else [])


def _take_limits(birth: Birth, *, alone: bool = False) -> None:
    if birth.spawn.limits or alone:
        from kernelbox.guest.walls._own_limits import take

        take(birth.spawn.limits, alone=alone)


def _build(identity: Identity, spawn: Spawn, scratch: str) -> KernelProcess:
    """Builds the kernel. In a sandbox, `scratch` is the directory for the kernel's own files."""
    from kernelbox.guest.serve._kernel_process import KernelProcess
    from kernelbox.guest.shell._shell import ZMQInteractiveShell

    sys.argv = [""]
    shell = ZMQInteractiveShell.instance()
    shell.profile_dir.place(scratch or os.path.join(spawn.directory, PROFILE))
    gc.freeze()  # or the first collection would copy what the template knows of its other kernels
    gc.enable()
    if scratch:
        from kernelbox.guest.birth._own_path import complete_path

        # The template, which is outside, does without directories that cells can write; programs in here do not.
        complete_path()
        given = map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
        packages = f"{scratch}/{PACKAGES}"
        sys.path[:0] = [path for path in given if path not in (packages, *sys.path)]
        sys.path.append(packages)
    kernel = KernelProcess(shell, identity, spawn.idle_timeout)
    if sys.path[:1] != [""]:
        sys.path.insert(0, "")  # last: what we import ourselves does not come from the working directory
    return kernel


def _reset_signals() -> None:
    """Undoes what the template set; what it inherited, such as nohup's, it has already undone for all of us."""
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _take_descriptors(birth: Birth) -> None:
    program = bool(birth.spawn.argv)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(birth.given["log" if program else "stdout writer"], 1)
    os.dup2(birth.given["log" if program else "stderr writer"], 2)
    os.close(null)
    if not program:
        faulthandler.enable(file=birth.given["log"], all_threads=True)  # a crash leaves its stack in the log


def _take_environment(birth: Birth) -> None:
    """Reads the environment. Only the child may: later kernels inherit the memory of the keeper."""
    given: dict[bytes, bytes] = {}
    for pair in read_file(birth.given.take("environment")).split(b"\0"):
        name, separator, value = pair.partition(b"=")
        if separator:
            given[name] = value
    given[b"KERNELBOX_KERNEL_ID"] = birth.spawn.kernel_id.encode()
    if birth.entry is not None and birth.entry.srt_variables is not None:
        given |= birth.entry.srt_variables
    for name, value in _ENVIRONMENT.items():
        if name not in _DEFAULTS or name not in given:
            given[name] = value
    # Only what differs: each change copies a page of the C library's memory.
    now: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]  # what it keeps
    for name in [name for name in now if name not in given]:
        os.unsetenv(name)
        del now[name]
    for name, value in given.items():
        if now.get(name) != value:
            os.putenv(name, value)
            now[name] = value

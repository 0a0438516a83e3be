"""How a fork of the template becomes one particular kernel: preload → fork → **specialize**."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import mmap
import os
import random
import signal
import socket
import sys
import threading
import time

from kernelbox.wire._messages import Spawn

# Tools behave when they know that nobody watches a terminal; plots go to the notebook backend.
_ENVIRONMENT = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}

STATE, LOG = "state", "log"


def specialize(spawn: Spawn, pipes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Gives the process an identity of its own: session, signals, descriptors, directory, environment, randomness."""
    os.setsid()
    _reset_signals()
    _take_descriptors(spawn, pipes)
    os.umask(spawn.umask)
    os.chdir(spawn.cwd)
    os.environ.clear()
    os.environ.update(spawn.env)
    os.environ["KERNELBOX_KERNEL_ID"] = spawn.kernel_id
    for name, value in _ENVIRONMENT.items():
        if name not in ("MPLBACKEND", "PAGER", "GIT_PAGER") or name not in spawn.env:
            os.environ[name] = value
    if hasattr(time, "tzset"):
        time.tzset()
    _reseed()


def serve(
    spawn: Spawn, listener: socket.socket, pipes: tuple[tuple[int, int], tuple[int, int]], *, keeper: int
) -> None:
    """Runs the kernel in this process until it ends."""
    from kernelbox.guest._kernel import Kernel
    from kernelbox.guest._shell import ZMQInteractiveShell

    sys.argv = [""]
    if sys.path[:1] != [""]:
        sys.path.insert(0, "")
    memory = _map_state(os.path.join(spawn.directory, STATE))
    shell = ZMQInteractiveShell.instance()
    shell.profile_dir.place(os.path.join(spawn.directory, "profile"))
    gc.enable()
    kernel = Kernel(shell, listener, memory, (pipes[0][0], pipes[1][0]), spawn.idle_timeout)
    kernel.directory = spawn.directory
    kernel.keeper = keeper
    kernel.keep_spares((pipes[0][1], pipes[1][1]))
    kernel.serve()


def preload(modules: list[str]) -> None:
    """Imports what every kernel will need, and builds the shell; raises RuntimeError if that starts a thread."""
    from kernelbox.guest._warmup import warm_up

    gc.disable()  # freed pages would be filled, and so copied, by every child
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as exc:  # a module may even call sys.exit()
            raise RuntimeError(f"importing {module!r} failed: {type(exc).__name__}: {exc}") from exc
        started = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if started:
            raise RuntimeError(
                f"importing {module!r} starts threads ({', '.join(started)}), which do not survive a fork; "
                "take it out of KERNELBOX_PRELOAD"
            )
    warm_up()
    gc.collect()
    gc.freeze()  # or the first collection in a child would copy every page of the template


def _reset_signals() -> None:
    """Undoes what the template set; what it inherited, such as nohup's, it has already undone for all of us."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _take_descriptors(spawn: Spawn, pipes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    log = os.open(os.path.join(spawn.directory, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log if spawn.argv else pipes[0][1], 1)
    os.dup2(log if spawn.argv else pipes[1][1], 2)
    os.close(null)
    if spawn.argv:
        os.close(log)
    else:
        faulthandler.enable(file=log, all_threads=True)  # a crash leaves its stack in the log


def _map_state(path: str) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(fd, 0)
    finally:
        os.close(fd)


def _reseed() -> None:
    random.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if (uuid := sys.modules.get("uuid")) is not None:
        uuid._last_timestamp = None  # type: ignore[attr-defined]  # what uuid1() counts from

"""How the process of a template starts: by its arguments, as the host passes them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from kernelbox.guest._process_title import find_place, show_role
from kernelbox.guest.birth._forker import Forker
from kernelbox.guest.birth._keeper import Keeper, appoint_keeper
from kernelbox.guest.birth._listener import TemplateListener, take_socket
from kernelbox.guest.birth._template import Template

# The opener, which binds the socket, uses the same number.
_BACKLOG = 128


def main(argv: list[str]) -> None:
    """Runs a template: `warm socket directory name idle_timeout [module …]`; or a keeper of one, `cold socket` for a
    kernel and `program socket` for another program. Socket and directory are descriptors. `warm-sandboxes` and
    `cold-sandboxes` are for sandboxed kernels.

    One that runs in srt, `srt socket name idle_timeout token variables [module …]`, is started by a parent outside: srt
    passes the first three descriptors on and no others.
    """
    mode, fd, *rest = argv
    if mode != "srt" and os.fork() > 0:
        os._exit(0)  # the process that started us need not wait for us: init, or its subreaper, does
    _reset_signals()
    _take_name()
    find_place()
    show_role("keeper")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if mode == "program":
        appoint_keeper(int(fd))
    sys.argv = [f"kernelbox-template-{mode}"]
    sock, listener, idle_timeout = take_socket(int(fd)), None, 60.0
    if mode.startswith("warm"):
        directory, name, seconds, *rest = rest
        os.set_inheritable(int(directory), False)
        listener, idle_timeout = TemplateListener(name, int(directory)), float(seconds)
    if mode == "srt":
        name, seconds, token, variables, *rest = rest
        listener, idle_timeout = TemplateListener(name), float(seconds)
    if listener is not None:
        show_role("template", name)
        sock.listen(_BACKLOG)  # again: hosts find us by SO_PEERCRED, which names the last process that called it
    keeper = Keeper()
    forker = Forker()
    if mode == "srt":
        from kernelbox.guest.birth._sandbox_forker import SrtForker

        forker = SrtForker(keeper, token, variables.split(","))
    elif mode.endswith("sandboxes"):
        from kernelbox.guest.birth._sandbox_forker import SandboxForker

        forker = SandboxForker(keeper)
    Template(sock, listener, idle_timeout, keeper, forker).run(rest)
    os._exit(0)  # exit functions of preloaded modules are for the kernels to run


def _take_name() -> None:
    """Names a process that the loader has started like the others, not by the loader's descriptor."""
    with contextlib.suppress(OSError):
        if os.readlink("/proc/self/exe").startswith("/memfd:"):
            with open("/proc/self/comm", "w") as file:
                file.write(os.path.basename(sys.executable))


def _reset_signals() -> None:
    """Takes nothing over from the process that started us: nohup ignores SIGHUP, a shell may block others."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python itself starts
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())

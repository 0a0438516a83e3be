"""The template: a warm, single-threaded process that kernels are forked from. preload → **fork** → specialize.

It owns nothing but the knowledge of how its kernels end. When it dies they live on; the next opener starts another.
Started cold, for one kernel and without preloading, the same code is the plain spawn of systems where no warm
template can be used.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback

from kernelbox.guest._descendants import start_time
from kernelbox.guest._keeper import Keeper, Kept, become_subreaper
from kernelbox.guest._peer import is_same_user
from kernelbox.guest._specialize import preload, serve, specialize
from kernelbox.wire._framing import Decoder, ProtocolError, encode
from kernelbox.wire._messages import Message, Refused, Spawn, Spawned

# A request comes in one piece; whoever stops in the middle of it must not stop us.
_CLIENT_PATIENCE = 5.0

# How often to look for kernels that have lost their directory.
_CHECK_EVERY = 5.0


class Template:
    """Forks kernels on request and keeps them."""

    def __init__(self, listener: socket.socket, path: str, idle_timeout: float) -> None:
        self._listener = listener
        self._path = path
        self._inode = _inode(path)
        self._pid = os.getpid()
        self._idle_timeout = idle_timeout
        self._keeper = Keeper()
        self._clients: dict[int, socket.socket] = {}
        self._used_at = time.monotonic()
        self._checked_at = time.monotonic()
        self._refusal = ""
        self._wake, self._bell = -1, -1
        self._files_limit = _raise_files_limit()

    def run(self, modules: list[str], *, cold: bool) -> None:
        """Serves until nobody needs it. A cold one takes a single request, from `listener` itself."""
        if cold:
            self._clients[self._listener.fileno()] = self._listener
        else:
            try:
                preload(modules)
            except Exception as exc:  # noqa: BLE001  # any module of the user's; told to whoever asks for a kernel
                traceback.print_exc()
                self._refusal = f"the template could not be preloaded: {type(exc).__name__}: {exc}"
        self._wake, self._bell = _wake_on_child_death()  # not before: a module's event loop would take it
        self._used_at = time.monotonic()
        while not self._is_done(cold):
            self._turn(cold)

    def _is_done(self, cold: bool) -> bool:
        if self._keeper.kernels:
            return False
        if cold:
            return not self._clients
        idle = time.monotonic() - self._used_at
        return (idle > self._idle_timeout or not self._has_its_place()) and self._withdraw()

    def _withdraw(self) -> bool:
        """Takes the socket away, under the lock that openers hold; not if somebody waits at it."""
        lock_path = self._path + ".lock"
        with contextlib.suppress(OSError):
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                poller = select.poll()
                poller.register(self._listener, select.POLLIN)
                if os.stat(lock_path).st_ino != os.fstat(lock).st_ino or poller.poll(0):
                    return False
                if self._has_its_place():
                    os.unlink(self._path)
                os.unlink(lock_path)
            finally:
                os.close(lock)
            return True
        return not self._has_its_place()

    def _has_its_place(self) -> bool:
        """Tells whether the socket at our path is ours, not gone and not that of a successor."""
        return _inode(self._path) == self._inode

    def _turn(self, cold: bool) -> None:
        poller = select.poll()
        watched = [self._wake, *self._clients, *self._lifelines()]
        if not cold:
            watched.append(self._listener.fileno())
        for fd in watched:
            poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(min(self._idle_timeout, _CHECK_EVERY) * 1000):
            if fd == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 4096)
            elif fd in self._clients:
                self._serve(self._clients[fd])
            elif fd == self._listener.fileno():
                self._accept()
            else:
                self._keeper.cut(fd)
        self._keeper.reap()
        if time.monotonic() - self._checked_at > _CHECK_EVERY:
            self._keeper.check()
            gc.collect()  # it is off here for the children's sake, and every request leaves a few kilobytes
            self._checked_at = time.monotonic()

    def _lifelines(self) -> list[int]:
        return [kept.lifeline for kept in self._keeper.kernels.values() if kept.lifeline >= 0]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            if not is_same_user(client):
                client.close()
                return
            client.settimeout(_CLIENT_PATIENCE)
            self._clients[client.fileno()] = client
            self._used_at = time.monotonic()

    def _serve(self, client: socket.socket) -> None:
        """Answers one request; a client sends one and goes."""
        fds: list[int] = []
        try:
            request, fds = _receive(client)
            if isinstance(request, Spawn):
                client.sendall(encode(self._fork(request, fds)))
        except (OSError, ProtocolError):
            traceback.print_exc()  # the opener vanished or spoke nonsense; it has seen the connection end
        finally:
            self._used_at = time.monotonic()
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
            del self._clients[client.fileno()]
            client.close()
        if self._refusal:
            self._used_at = -self._idle_timeout  # of no use: the next opener starts another

    def _fork(self, spawn: Spawn, fds: list[int]) -> Message:
        if self._refusal:
            return Refused(self._refusal)
        if len(fds) != (1 + spawn.lifeline):
            return Refused(f"{len(fds)} descriptors came with the request")
        pipes = (_pipe(spawn), _pipe(spawn))
        try:
            pid = os.fork()
        except OSError as exc:
            for fd in (*pipes[0], *pipes[1]):
                _close(fd)
            return Refused(f"fork failed: {exc}")
        if pid == 0:
            self._become_kernel(spawn, fds, pipes)
        for _, write in pipes:
            _close(write)
        lifeline = os.dup(fds[1]) if spawn.lifeline else -1
        self._keeper.kernels[pid] = Kept(spawn.directory, (pipes[0][0], pipes[1][0]), lifeline)
        return Spawned(pid, start_time(pid))

    def _become_kernel(self, spawn: Spawn, fds: list[int], pipes: tuple[tuple[int, int], tuple[int, int]]) -> None:
        try:
            for sock in (self._listener, *self._clients.values()):
                sock.close()
            for kept in self._keeper.kernels.values():
                for fd in (*kept.pipes, kept.lifeline):
                    _close(fd)
            signal.set_wakeup_fd(-1)
            _close(self._wake)
            _close(self._bell)
            if not spawn.argv:  # other programs do not reap orphans: those go to the template that keeps just them
                become_subreaper()
            specialize(spawn, pipes)
            resource.setrlimit(resource.RLIMIT_NOFILE, self._files_limit)
            if spawn.argv:
                for fd in fds:
                    _close(fd)
                os.execvpe(spawn.argv[0], spawn.argv, os.environ)
            serve(spawn, socket.socket(fileno=fds[0]), pipes, keeper=self._pid)
        except BaseException:  # noqa: BLE001  # nothing above this frame belongs to the kernel
            with contextlib.suppress(OSError), open(os.path.join(spawn.directory, "log"), "a") as log:
                traceback.print_exc(file=log)
        finally:
            os._exit(70)  # EX_SOFTWARE


def main(argv: list[str]) -> None:
    """Runs a template: `mode fd path idle_timeout [module …]`; mode is warm or cold."""
    mode, fd, path, idle_timeout, *modules = argv
    if os.fork() > 0:
        os._exit(0)  # whoever started us need not wait for us: init, or its subreaper, does
    _reset_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv = [f"kernelbox-template-{mode}"]
    template = Template(socket.socket(fileno=int(fd)), path, float(idle_timeout))
    template.run(modules, cold=mode == "cold")
    os._exit(0)  # exit functions of preloaded modules are for the kernels to run


def _reset_signals() -> None:
    """Takes nothing over from whoever started us: nohup ignores SIGHUP and SIGINT, a shell may block others."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python itself starts
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _receive(client: socket.socket) -> tuple[Message, list[int]]:
    decoder, fds = Decoder(), list[int]()
    while True:
        data, received, _, _ = socket.recv_fds(client, 65536, 4)
        for fd in received:
            os.set_inheritable(fd, False)  # a program that a cell starts must not hold the kernel's socket open
        fds += received
        if not data:
            raise ConnectionResetError("the opener went away")
        if messages := decoder.feed(data):
            return messages[0], fds


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _pipe(spawn: Spawn) -> tuple[int, int]:
    return (-1, -1) if spawn.argv else os.pipe()


def _close(fd: int) -> None:
    if fd >= 0:
        with contextlib.suppress(OSError):
            os.close(fd)


def _wake_on_child_death() -> tuple[int, int]:
    """Returns the two ends of a pipe that a dying child writes to."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read, write


def _raise_files_limit() -> tuple[int, int]:
    """Raises our own limit, three descriptors a kernel; returns the one that kernels get back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard

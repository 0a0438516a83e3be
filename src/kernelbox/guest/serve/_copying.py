"""How a kernel makes copies of itself, between cells: look → fork → present itself to the keeper → renew.

A copy is a new kernel, or a checkpoint. A checkpoint stays frozen and keeps a spare: a copy that continues when a
kernel is wanted. A fork takes longer with more memory, so no rollback should wait for one. The original must not be
disturbed, so it waits until the copy has released everything that the two share.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelbox.guest._descriptors import Descriptors, close, put_behind
from kernelbox.guest._interrupts import Interrupts
from kernelbox.guest._keeper_link import make_link, receive_packet, send_packet
from kernelbox.guest._process_title import show_checkpoint, show_kernel, show_role
from kernelbox.guest._process_tree import become_subreaper, die_with_parent
from kernelbox.guest._stdlib import contextlib, os, select, signal
from kernelbox.guest.copies._library_state import (
    RandomState,
    forget_children,
    forget_exit_functions,
    freeze,
    reseed,
)
from kernelbox.guest.copies._open_files import UserFiles
from kernelbox.guest.copies._sibling_fork import fork_sibling
from kernelbox.guest.copies._thread_survey import find_obstacles, is_alone
from kernelbox.guest.output._outbox import Outbox
from kernelbox.guest.programs._orphans import forget_started
from kernelbox.guest.serve._event_loop import Loop
from kernelbox.guest.serve._identity import Identity
from kernelbox.guest.serve._io import IO
from kernelbox.guest.serve._request_queue import RequestQueue
from kernelbox.guest.shell._cells import Cells
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._layout import PROFILE
from kernelbox.wire._messages import Adopt, Adopted, Copy, Measure, Thaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelbox.guest.programs._bash import Bash
    from kernelbox.guest.shell._shell import ZMQInteractiveShell

keep_builtins(globals())

_exit = os._exit

_FAILED = 70  # EX_SOFTWARE of sysexits.h

# What a copy tells its original when it has released everything that the two share.
_APART = b"apart"

# Seconds that a host may take to measure a checkpoint: the system looks at each page.
_MEASURING = 5.0

# Seconds until a checkpoint makes a spare, which takes a processor: a host that has just had an answer goes first. When
# it was measured, others were too, and all would fork at once.
_DELAY = 0.02
_DELAY_WHEN_MEASURED = 1.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What a kernel consists of; each part renews itself in a copy."""

    identity: Identity
    io: IO
    queue: RequestQueue
    outbox: Outbox
    loop: Loop
    interrupts: Interrupts
    bash: Bash
    cells: Cells
    shell: ZMQInteractiveShell

    @property
    def descriptors(self) -> set[int]:
        """All that the kernel itself has open."""
        parts = (self.identity, self.io, self.outbox, self.loop, self.bash)
        return {number for part in parts for number in part.descriptors}


@dataclass(frozen=True, slots=True)
class _Survey:
    """What was found before the fork, and cannot be found after it."""

    files: UserFiles
    bash: bytes
    random: RandomState
    timer: tuple[float, float]


class Copies:
    """Makes copies of this process. `under_way` says that we make a fork, and not a cell."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.under_way = False

    def make(self, request: Copy) -> dict[str, Any] | None:
        """Makes copies of the kernel, and returns the answer to the request; None in a copy, which answers none.

        The kernel's own threads are stopped meanwhile.
        """
        try:
            return self._make(request)
        except Exception as exc:  # noqa: BLE001  # bash does not answer, or too much is open: the kernel goes on
            return {"status": "failed", "reason": f"{type(exc).__name__}: {exc}"}

    def _make(self, request: Copy) -> dict[str, Any] | None:
        parts = self._parts
        reasons, files = find_obstacles(), UserFiles(parts.descriptors)
        reasons += files.reasons
        if reasons:
            return {"status": "refused", "reasons": reasons}
        survey = _Survey(files, parts.bash.remember(), RandomState(), signal.getitimer(signal.ITIMER_REAL))
        parts.outbox.settle()
        files.flush()
        freeze()
        begun, failures = list[int](), list[str]()
        for token in request.tokens:  # all are forked before one is waited for: they settle beside each other
            try:
                waits = self._begin(lambda apart, token=token: self._become(token, request, survey, apart), begun)
            except OSError as exc:
                failures.append(f"fork failed: {exc}")
                break
            if waits is None:
                return None
            begun.append(waits)
        failures += filter(None, map(_await_apart, begun))
        if failures:
            return {"status": "failed", "reason": failures[0]}
        return {"status": "ok", "execution_count": parts.shell.execution_count - 1}

    def _fork(self, become: Any) -> str | None:
        """Forks a copy. Returns None in the copy, and in the original why there is no copy, "" if there is one."""
        try:
            waits = self._begin(become)
        except OSError as exc:
            return f"fork failed: {exc}"
        return None if waits is None else _await_apart(waits)

    def _begin(self, become: Any, others: Sequence[int] = ()) -> int | None:
        """Forks a copy, which calls `become` with the descriptor on which it reports that nothing is shared any more.

        Returns None in the copy, and in the original where that report arrives. `others` are where those of other
        copies do. Raises OSError.
        """
        waits, apart = os.pipe()
        self.under_way = True
        try:
            is_copy = fork_sibling(twice=self._parts.identity.is_sandboxed or not is_alone())
        except OSError:
            close(waits, apart)
            raise
        finally:
            self.under_way = False
        if not is_copy:
            os.close(apart)
            return waits
        close(waits, *others)
        try:
            become(apart)
        except BaseException as exc:  # noqa: BLE001  # half a copy must not run on as if it were the original
            with contextlib.suppress(OSError), open(self._parts.identity.log, "a", closefd=False) as log:
                traceback.print_exc(file=log)
            with contextlib.suppress(OSError):
                os.write(apart, f"{type(exc).__name__}: {exc}".encode("utf-8", "replace")[:1000])
            _exit(_FAILED)
        return None

    def _become(self, token: str, request: Copy, survey: _Survey, apart: int) -> None:
        """Makes the forked process a copy that does not disturb the original."""
        link = self._present(token)  # first: the keeper takes it in meanwhile
        self._let_go(survey)
        if not request.frozen:
            become_subreaper()
            forget_exit_functions()
            if request.reseed:
                reseed()
            else:
                survey.random.restore()
        self._settle(link, apart)
        if request.frozen:
            self._stay_frozen(survey)
            survey.random.restore()
        signal.setitimer(signal.ITIMER_REAL, *survey.timer)

    def _let_go(self, survey: _Survey) -> None:
        parts = self._parts
        parts.identity.let_go()
        parts.io.renew()
        parts.queue.forget()
        parts.loop.renew()
        parts.bash.renew(survey.bash)
        parts.cells.renew()
        survey.files.renew()
        forget_started()
        forget_children()

    def _stay_frozen(self, survey: _Survey) -> None:
        """Waits for as long as the checkpoint is kept; returns in a spare that continues as a kernel.

        A spare looks at the keeper's request, and leaves it there for the checkpoint to take. So the request is not
        lost with a spare that was killed.
        """
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        link, delay = self._parts.identity.link, _DELAY
        while True:
            _wait_for(link, delay)
            delay = _DELAY
            failure = self._fork(lambda apart: self._wait_as_spare(survey, apart))
            if failure:  # it was killed, or there is no memory for one: the next is made when it is needed
                receive_packet(link, peek=True)
                failure = self._fork(lambda apart: self._wait_as_spare(survey, apart))
            if failure is None:
                _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
                return
            received = receive_packet(link)
            if received is None:
                _exit(0)  # the keeper has gone
            if isinstance(received.message, Measure):
                _let_measure(received.fds)
                delay = _DELAY_WHEN_MEASURED
            elif isinstance(received.message, Thaw) and failure:
                send_packet(link, Adopt(received.message.token, failure))

    def _wait_as_spare(self, survey: _Survey, apart: int) -> None:
        """Waits until a kernel is wanted; ends if the keeper wants anything else, or has gone."""
        self._let_go(survey)
        become_subreaper()
        show_role("spare")
        received = receive_packet(self._parts.identity.link, peek=True)
        if received is None or not isinstance(received.message, Thaw):
            os.write(apart, _APART)
            _exit(0)
        self._settle(self._present(received.message.token), apart)

    def _present(self, token: str) -> int:
        """Presents this process to the keeper, and returns the new link, on which it answers."""
        ours, theirs = make_link()
        send_packet(self._parts.identity.link, Adopt(token), [ours])
        os.close(ours)
        return theirs

    def _settle(self, link: int, apart: int) -> None:
        """Takes the descriptors that make this process a kernel, if it is one, and lets the original continue."""
        received = receive_packet(link)
        if received is None:
            raise ConnectionError("the keeper does not take it")
        adopted = received.message
        assert isinstance(adopted, Adopted)
        put_behind(self._parts.identity.link, link)
        given = Descriptors(dict(zip(adopted.descriptors, received.fds, strict=True)))
        if given.numbers:
            show_kernel(adopted.name)
            self._take(adopted, given)
        else:
            show_checkpoint(adopted.name, adopted.checkpoint)
        self._stand_alone()
        os.write(apart, _APART)
        os.close(apart)

    def _take(self, adopted: Adopted, given: Descriptors) -> None:
        parts, identity = self._parts, self._parts.identity
        groups = [given.take(name) for name in adopted.descriptors if name.startswith("group ")]
        if groups:
            from kernelbox.guest.walls._own_limits import join

            join(groups)
        is_another = adopted.kernel_id != identity.kernel_id
        identity.renew(adopted.kernel_id, adopted.directory, given)
        count = parts.shell.execution_count - 1
        parts.outbox.renew(identity.memory, identity.outputs, adopted.executions, count)
        parts.outbox.history.reopen(identity.cells)
        parts.interrupts.renew(identity.memory)
        if is_another:
            os.environ["KERNELBOX_KERNEL_ID"] = identity.kernel_id
            parts.bash.rename(identity.kernel_id)
            if not identity.is_sandboxed:
                parts.shell.profile_dir.place(os.path.join(identity.directory, PROFILE))

    def _stand_alone(self) -> None:
        os.setsid()
        if self._parts.identity.watched and not self._parts.identity.is_sandboxed:
            die_with_parent(self._parts.identity.keeper)


def _await_apart(waits: int) -> str:
    """Waits until a copy and its original share nothing that would disturb one of them; returns why there is no copy,
    "" if there is one."""
    said = b"".join(iter(lambda: os.read(waits, 1024), b""))
    os.close(waits)
    return "" if said == _APART else said.decode("utf-8", "replace") or "the copy ended at once"


def _let_measure(fds: list[int]) -> None:
    """Tells a host that no spare shares this process's memory now, and waits until it has measured that."""
    for fd in fds:
        with contextlib.suppress(OSError):  # it has gone
            os.write(fd, b".")
            _wait_for(fd, _MEASURING)
        os.close(fd)


def _wait_for(fd: int, seconds: float) -> None:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.poll(seconds * 1000)

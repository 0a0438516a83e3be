"""How a keeper adopts copies of its kernels. It finishes or undoes every step that is left half done.

    a host: Foster ──▶ expected ──(the copy: Adopt)──▶ a child ──(the host: settled)──▶ kept

If the host ends before the last step, its copy is ended, and nothing has changed. An heir takes the place of its
kernel's process in that last step: its files get their names, and the process before it is ended.
The record, which the host writes first, says whether that step was taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelbox.guest._descriptors import Descriptors, close
from kernelbox.guest._keeper_link import Received, receive_packet, send_packet
from kernelbox.guest._process_tree import children, kill_descendants, start_time
from kernelbox.guest.birth._checkpoint_memory import note_evicted
from kernelbox.guest.birth._child_kernel import SANDBOX, ChildKernel, identify
from kernelbox.wire._framing import encode
from kernelbox.wire._layout import INTENT, RECORD, SOCKET, STATE
from kernelbox.wire._messages import (
    UNBORN,
    Adopt,
    Adopted,
    Agreed,
    Foster,
    Measure,
    Message,
    Refused,
    Release,
    Spawned,
    Thaw,
    group_name,
)

if TYPE_CHECKING:
    from kernelbox.guest.birth._keeper import Keeper

# Bytes of a record that are read; host/store/_record.py has the same.
_LONGEST_RECORD = 640 * 1024

# The descriptors of a request that the copy itself gets. A directory would be a way out of a sandbox.
_OF_KERNEL = ("listener", "state", "log", "cells", "older cells")
_OF_KEEPER = ("directory", "opening", "lifeline", "door", "stdout", "stderr", "state for watch", "process", *SANDBOX)

# The files that get their names when an heir takes its place. The last says why the process before it is ended.
_OF_HEIR = (SOCKET, STATE, INTENT)


@dataclass(slots=True)
class _Expected:
    """A copy that a host has announced, and the host that waits for it."""

    foster: Foster
    given: Descriptors
    host: socket.socket


class Adoptions:
    """Takes in the copies of a keeper's kernels."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._expected: dict[str, _Expected] = {}
        self._heirs: dict[int, socket.socket] = {}  # the hosts that wait for an heir to take its place, by its pid

    def __repr__(self) -> str:
        return f"<Adoptions expected={len(self._expected)}>"

    @property
    def watched(self) -> list[int]:
        """The connections of hosts that wait: they end with the hosts."""
        return [each.host.fileno() for each in self._expected.values()]

    @property
    def descriptors(self) -> list[int]:
        """All that is open here, for a fork to close."""
        given = [number for each in self._expected.values() for number in each.given.numbers]
        return [*self.watched, *given, *(host.fileno() for host in self._heirs.values())]

    # -- hosts -----------------------------------------------------------------------------------------------

    def take_request(self, message: Foster | Release | Measure, fds: list[int], host: socket.socket) -> None:
        """Takes a request about copies. A refused one is answered at once."""
        if isinstance(message, Measure):
            close(*fds)
            self._keeper.memory.measure(message.kernel_id, message.limit, host)
            return
        if isinstance(message, Release):
            close(*fds)
            released = self.release(message.kernel_id, message.checkpoint, why=message.why, told=message.told)
            for pid in released if message.wait else ():
                self._keeper.wait(pid)
            _answer(host, Agreed())
            host.close()
            return
        refusal = self._refuse(message, fds)
        if refusal:
            close(*fds)
            _answer(host, Refused(refusal))
            host.close()
            return
        given = Descriptors(dict(zip(message.descriptors, fds, strict=True)))
        self._expected[message.token] = _Expected(message, given, host)
        host.settimeout(None)
        _answer(host, Agreed())
        if message.thaw:
            self._thaw(message)

    def give_up(self, descriptor: int) -> bool:
        """Forgets a copy whose host has gone; returns whether this was the connection of one."""
        for token, each in self._expected.items():
            if each.host.fileno() == descriptor:
                self._forget(token)
                return True
        return False

    def lose(self, checkpoint: ChildKernel) -> None:
        """Tells the hosts that wait for a copy of a checkpoint that it has ended."""
        number = checkpoint.checkpoint
        for token, each in list(self._expected.items()):
            if (each.foster.source, each.foster.thaw) == (checkpoint.kernel_id, number):
                self._forget(token, f"checkpoint {number} is gone")

    def release(self, kernel_id: str, checkpoint: int = 0, *, why: str = "", told: bool = False) -> list[int]:
        """Ends a checkpoint of a kernel, 0 for all of them; returns the pids. With `why` that is noted for messages."""
        wanted = [
            pid
            for pid, kept in self._keeper.kernels.items()
            if kept.kernel_id == kernel_id and kept.checkpoint and checkpoint in (0, kept.checkpoint)
        ]
        for pid in wanted:
            kept = self._keeper.kernels[pid]
            if why and not kept.reason:
                note_evicted(kept.held["directory"], kept.checkpoint, why, told=told)
            kept.reason = "dropped"
            kept.remove_entrances()
            self._keeper.kill(pid)
        return wanted

    def settle(self, pid: int, kept: ChildKernel, *, settled: bool) -> None:
        """Ends the start of a child. It stays if its host has said so, or if the record names it."""
        kept.held.close("opening")
        heir = self._heirs.pop(pid, None)
        if heir is None:
            branch = None if kept.checkpoint else kept.announced
            settled = settled or (branch is not None and _is_recorded(pid, kept))
            if settled and branch is not None and branch.limits:
                settled = self._watch(pid, kept, branch)
            if not settled:
                kept.reason = kept.reason or "its start was cut short"
                self._keeper.kill(pid)
            elif kept.checkpoint and kept.announced is not None and kept.announced.checkpoint_memory:
                self._keeper.memory.expect(kept.kernel_id, kept.announced.checkpoint_memory)
            return
        with heir:
            if settled or _is_recorded(pid, kept):
                self._succeed(pid, kept)
                _answer(heir, Agreed())
            else:
                self._disinherit(pid, kept)

    def _refuse(self, foster: Foster, fds: list[int]) -> str:
        if len(fds) != len(foster.descriptors):
            return f"{len(fds)} descriptors came with the request, and {len(foster.descriptors)} names"
        if foster.thaw and not self.find(foster.source, foster.thaw):
            return f"checkpoint {foster.thaw} is gone"
        return ""

    def find(self, kernel_id: str, checkpoint: int = 0) -> int:
        """Returns the pid of a kernel, not of an heir that has not its place, or of a checkpoint; 0 if it has ended, or
        the keeper ends it."""
        for pid, kept in self._keeper.kernels.items():
            if (kept.kernel_id, kept.checkpoint) == (kernel_id, checkpoint) and pid not in self._heirs:
                return 0 if kept.reason else pid
        return 0

    def _thaw(self, foster: Foster) -> None:
        checkpoint = self._keeper.kernels[self.find(foster.source, foster.thaw)]
        try:
            send_packet(checkpoint.held["link"], Thaw(foster.token))
        except OSError as exc:
            self._forget(foster.token, f"checkpoint {foster.thaw} cannot be reached: {exc}")

    # -- copies ----------------------------------------------------------------------------------------------

    def heed(self, kept: ChildKernel) -> None:
        """Takes what a kernel, or a copy of it, says on the kernel's link."""
        try:
            received = receive_packet(kept.held["link"], wait=False)
        except BlockingIOError:
            return
        except OSError:
            received = None  # a cell has written something else there
        if received is None or not isinstance(received.message, Adopt):
            close(*(received.fds if received is not None else ()))
            kept.held.close("link")
            if kept.checkpoint:
                self.release(kept.kernel_id, kept.checkpoint)  # it can make no copies any more
            return
        expected = self._expected.get(received.message.token)
        if expected is None or expected.foster.source != kept.kernel_id:
            close(*received.fds)  # its host has gone; the copy sees that it is not wanted
            return
        if received.message.failure:
            close(*received.fds)
            self._forget(received.message.token, received.message.failure)
            return
        try:
            self._adopt(kept, expected, received)
        except OSError as exc:
            close(*received.fds)
            self._forget(received.message.token, f"the copy could not be taken in: {exc}")

    def _adopt(self, parent: ChildKernel, expected: _Expected, received: Received) -> None:
        foster, given, pid = expected.foster, expected.given, received.sender
        beside = bool(parent.first) and pid in children(parent.first)
        if len(received.fds) != 1 or pid in self._keeper.kernels or not (beside or pid in children()):
            raise PermissionError("it is not a copy of the kernel")
        is_kernel = not foster.checkpoint
        if is_kernel and foster.limits:
            given.keep("state for watch", os.dup(given["state"]))
        if is_kernel:
            given.open_pipe("stdout", "stdout writer")
            given.open_pipe("stderr", "stderr writer")
        for name in SANDBOX:
            if name in parent.held:
                given.keep(name, os.dup(parent.held[name]))
        if beside:
            given.keep("process", os.pidfd_open(pid))
        entrances = {name: identify(name, given["directory"]) for name in foster.entrances}
        began = start_time(pid)
        if not began:
            raise ProcessLookupError("it has ended, or too many files are open to look at it")
        if is_kernel:
            self._hand_over(foster, given, received.fds[0])
        else:
            told = Adopted(foster.kernel_id, "", name=foster.name, checkpoint=foster.checkpoint)
            send_packet(received.fds[0], told)
        held = given.move(*_OF_KEEPER)  # nothing fails from here on: the copy has been told that it stays
        held.keep("link", received.fds.pop())
        copy = ChildKernel(foster.kernel_id, began, entrances, held, parent.first)
        copy.checkpoint, copy.announced = foster.checkpoint, foster
        if foster.checkpoint_age:
            copy.expires = time.monotonic() + foster.checkpoint_age
        copy.shared_watch = parent.watch or parent.shared_watch
        if copy.shared_watch is not None and copy.checkpoint:
            copy.shared_watch.checkpoints.add(pid)
        copy.groups = foster.groups or (parent.groups if foster.kernel_id == parent.kernel_id else [])
        self._keeper.keep(pid, copy)
        del self._expected[foster.token]
        if foster.heir:
            self._heirs[pid] = expected.host
        told_host = _answer(expected.host, Spawned(pid, copy.start_time))
        if not foster.heir:
            expected.host.close()
        if not told_host and not foster.heir:
            self._keeper.kill(pid)  # the host has gone, and no record leads to the process

    def _hand_over(self, foster: Foster, given: Descriptors, link: int) -> None:
        """Gives a copy what makes it a kernel."""
        names = [
            *_OF_KERNEL,
            *("stdout", "stdout writer", "stderr", "stderr writer"),
            *(group_name(group) for group in foster.groups if group_name(group) in given),
        ]
        adopted = Adopted(foster.kernel_id, foster.directory, foster.executions, names, foster.name)
        send_packet(link, adopted, [given[name] for name in names])
        given.close(*(name for name in names if name not in ("stdout", "stderr")))

    def _succeed(self, pid: int, heir: ChildKernel) -> None:
        """Puts an heir in the place of the process before it."""
        directory = heir.held["directory"]
        old_pid, old = self._predecessor(pid, heir)
        if old is not None:
            old.note_execution()
        for name in _OF_HEIR:
            with contextlib.suppress(OSError):  # a cell has moved it, or made a directory there
                os.rename(f"{name}{UNBORN}", name, src_dir_fd=directory, dst_dir_fd=directory)
        heir.entrances = {name: identify(name, directory) for name in heir.entrances}
        before = old.watch if old is not None else heir.shared_watch
        if before is not None:
            self._keeper.limit(pid, before.pass_on(pid, heir.held.take("state for watch"), directory))
            for relative in self._keeper.family(heir):
                relative.shared_watch = heir.watch
        if old is not None:
            if "door" in old.held:
                heir.held.keep("door", old.held.take("door"))
            if not old.first:
                kill_descendants(old_pid)  # first: they become others' children when it has ended
            self._keeper.kill(old_pid)

    def _watch(self, pid: int, kept: ChildKernel, foster: Foster) -> bool:
        """Begins to check the limits of a branch; returns whether that can be done."""
        from kernelbox.guest.walls._limit_watch import LimitWatch

        state = kept.held.take("state for watch")
        try:
            watch = LimitWatch(foster, pid, 0, state, kept.held["directory"], alone=False)
        except OSError as exc:
            close(state)
            kept.reason = f"its limits cannot be kept: {exc}"
            return False
        if kept.shared_watch is not None:
            watch.compare_with(kept.shared_watch)
            kept.shared_watch = None
        self._keeper.limit(pid, watch)
        return True

    def _disinherit(self, pid: int, heir: ChildKernel) -> None:
        """Ends an heir whose host has gone before the record named it. The process before it continues."""
        _remove_unborn(heir.held["directory"])
        heir.reason = "its start was cut short"
        heir.is_disinherited = True
        self._keeper.kill(pid)

    def _predecessor(self, pid: int, heir: ChildKernel) -> tuple[int, ChildKernel | None]:
        for other, kept in self._keeper.kernels.items():
            if other != pid and kept.kernel_id == heir.kernel_id and not kept.checkpoint:
                return other, kept
        return 0, None

    def _forget(self, token: str, reason: str = "") -> None:
        expected = self._expected.pop(token)
        if reason:
            _answer(expected.host, Refused(reason))
        expected.host.close()
        if expected.foster.heir:
            _remove_unborn(expected.given["directory"])
        expected.given.close_all()


def _remove_unborn(directory: int) -> None:
    """Removes what was made for an heir that does not take its place."""
    for name in _OF_HEIR:
        with contextlib.suppress(OSError):
            os.unlink(f"{name}{UNBORN}", dir_fd=directory)


def _is_recorded(pid: int, kept: ChildKernel) -> bool:
    """Tells whether the record of a kernel names a process: then a host wrote it before it ended."""
    try:
        fd = os.open(RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=kept.held["directory"])
        with open(fd, "rb") as file:
            record = json.loads(file.read(_LONGEST_RECORD))
        return (record["pid"], record["start_time"]) == (pid, kept.start_time)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _answer(host: socket.socket, message: Message) -> bool:
    """Answers a host; returns whether it was still connected."""
    try:
        host.sendall(encode(message))
    except OSError:
        return False
    return True

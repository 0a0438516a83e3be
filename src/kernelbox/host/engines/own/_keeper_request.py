"""Requests of hosts for copies of kernels: the kernel forks itself, and its keeper adopts the copy.

The host sends the copy's descriptors to the keeper, never through the kernel: an open directory would be a way out of a
sandbox. A token in both requests connects them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from kernelbox.base._errors import CannotCopy, CheckpointNotFound
from kernelbox.host.engines._spawning import closed_by, open_kernel_files
from kernelbox.host.files._sockets import dial, send_descriptors
from kernelbox.host.process._lifeline import lifeline_to
from kernelbox.host.store._cell_files import carry_over
from kernelbox.host.store._checkpoint_files import Checkpoint, read_checkpoints
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._layout import CHECKPOINT, DOOR, SOCKET
from kernelbox.wire._messages import (
    SETTLED,
    UNBORN,
    Agreed,
    Foster,
    Measure,
    Measured,
    Refused,
    Spawned,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.engines._interface import CopyPlan
    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._messages import Message, Release

# A keeper answers in milliseconds, and a copy has presented itself when its kernel has answered; on a machine that is
# out of memory or under heavy load it takes longer.
_PATIENCE = 30.0

_ADVICE = "restart the kernel, which loses its variables, or continue without copies"


def find_refusals(record: KernelRecord, *, branch: bool) -> list[str]:
    """Returns why a kernel of this kind cannot be copied; empty if it can."""
    if sys.platform != "linux":
        return [f"copies of live kernels need Linux, and this is {sys.platform}; run kernelbox in a Linux container"]
    if record.guarded:
        return ["it is guarded (require_shell_escape), and its runner cannot be copied; use a kernel without it"]
    if record.sandbox == "srt":
        return ["it runs in srt (sandbox_level='srt'), whose processes cannot be copied; use the native sandbox"]
    if record.sandbox is not None and branch:
        return ["a branch would share the sandbox of its original; use checkpoints, or a kernel without a sandbox"]
    return []


class KeeperRequest:
    """A copy that a keeper has been asked to adopt. `with` closes what was opened for it."""

    def __init__(self, plan: CopyPlan) -> None:
        self.plan = plan
        self.token = os.urandom(16).hex()
        self._stack = contextlib.ExitStack()
        self._decoder = Decoder()
        self._received: list[Message] = []
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> KeeperRequest:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open(self) -> None:
        plan, record = self.plan, self.plan.record
        place = self._stack.enter_context(plan.directory.open())
        opening, self._settling = os.pipe()
        for end in (opening, self._settling):
            closed_by(self._stack, end)
        given = {"directory": place.fd, "opening": opening, **self._describe_owner(record)}
        if not plan.checkpoint:
            given |= self._open_kernel(place)
        foster = Foster(
            token=self.token,
            source=plan.source.kernel_id,
            kernel_id=record.kernel_id,
            directory=plan.directory.path,
            name=record.name,
            cwd=record.cwd,
            checkpoint=plan.checkpoint,
            thaw=plan.thaw,
            heir=plan.heir,
            executions=record.attempt_count if plan.heir else 0,
            entrances=[f"{CHECKPOINT}{plan.checkpoint}"] if plan.checkpoint else [SOCKET],
            descriptors=list(given),
            limits={} if plan.checkpoint else record.limits,
            groups=record.groups if self._joins_groups else [],
            disk_before=plan.disk_before,
            home=plan.home,
            checkpoint_memory=plan.checkpoint_memory,
            checkpoint_age=plan.checkpoint_age,
        )
        self._keeper = self._stack.enter_context(_call_keeper(plan.source_directory, plan.source.name))
        send_descriptors(self._keeper, encode(foster), list(given.values()))
        self._expect(Agreed)

    @property
    def _joins_groups(self) -> bool:
        """Whether the copy has control groups of its own."""
        return not self.plan.checkpoint and self.plan.source.kernel_id != self.plan.record.kernel_id

    def _describe_owner(self, record: KernelRecord) -> dict[str, int]:
        if record.owner_pid is None:
            return {}
        lifeline = lifeline_to(record.owner_pid, record.owner_start_time)
        if lifeline < 0:
            raise CannotCopy(record.name, [f"it belongs to process {record.owner_pid}, which has ended"])
        return {"lifeline": closed_by(self._stack, lifeline)}

    def _open_kernel(self, place: Place) -> dict[str, int]:
        """Opens what makes a copy a kernel: new files in a new directory, or beside those of the process before."""
        heir = self.plan.heir
        if not heir:
            with self.plan.source_directory.open() as source:
                carry_over(source, place)
        groups = self.plan.record.groups if self._joins_groups else []
        return open_kernel_files(self._stack, place, groups, ending=UNBORN if heir else "", has_door=not heir)

    def fileno(self) -> int:
        return self._keeper.fileno()

    def wait(self) -> Spawned:
        """Waits until the keeper has adopted the copy; raises CannotCopy."""
        spawned = self._expect(Spawned)
        assert isinstance(spawned, Spawned)
        return spawned

    def settle(self) -> None:
        """Confirms the copy; waits until an heir has taken its place."""
        os.write(self._settling, SETTLED)
        if self.plan.heir:
            self._expect(Agreed)

    def _expect(self, kind: type[Message]) -> Message:
        try:
            while not self._received:
                data = self._keeper.recv(65536)
                if not data:
                    raise ConnectionResetError("its keeper has ended")
                self._received += self._decoder.feed(data)
        except OSError as exc:
            raise CannotCopy(self.plan.source.name, [f"its keeper does not answer ({exc}); {_ADVICE}"]) from exc
        message = self._received.pop(0)
        if isinstance(message, Refused) and self.plan.thaw and message.reason.endswith("is gone"):
            raise CheckpointNotFound(self.plan.source.name, self.plan.thaw)
        if isinstance(message, Refused):
            raise CannotCopy(self.plan.source.name, [message.reason])
        assert isinstance(message, kind)
        return message


def release_checkpoints(directory: KernelDirectory, release: Release) -> None:
    """Asks a keeper to end checkpoints. Checkpoints end with their keeper."""
    with contextlib.suppress(CannotCopy, OSError), _call_keeper(directory, "") as keeper:
        keeper.sendall(encode(release))
        keeper.recv(65536)


def measure_checkpoints(directory: KernelDirectory, limit: int) -> list[Checkpoint]:
    """Returns the checkpoints of a kernel, oldest first, and the memory that each shares with no other process."""
    found, private = read_checkpoints(directory), dict[str, int]()
    if not found:
        return []
    with contextlib.suppress(CannotCopy, OSError), _call_keeper(directory, "") as keeper:
        keeper.sendall(encode(Measure(found[0].kernel_id, limit)))
        for message in Decoder().feed(keeper.recv(65536)):
            if isinstance(message, Measured):
                private = message.private
        found = read_checkpoints(directory)
    return [Checkpoint(**{**each.to_dict(), "private_bytes": private.get(str(each.number), 0)}) for each in found]


def _call_keeper(directory: KernelDirectory, name: str) -> socket.socket:
    """Connects to the keeper of a kernel."""
    try:
        with directory.open() as place:
            sock = dial(place, DOOR)
    except (FileNotFoundError, ConnectionRefusedError) as exc:
        raise CannotCopy(name, [f"its keeper is gone, and only a keeper can adopt copies; {_ADVICE}"]) from exc
    sock.settimeout(_PATIENCE)
    return sock

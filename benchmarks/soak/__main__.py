"""Runs the soak: `python -m benchmarks.soak --minutes N --processes P --kills K --seed S`.

P client processes do random operations on shared and own kernels, while K times a minute a client, a kernel or a
template is killed (SIGKILL) or stopped for a while (SIGSTOP). The exit status is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kernelbox
from benchmarks.soak import _processes
from benchmarks.soak._ledger import Ledger

# What is struck, and how often compared with the rest.
_KINDS = {
    "client killed": 4,
    "client stopped": 2,
    "kernel killed": 4,
    "kernel stopped": 2,
    "template killed": 1,
    "template stopped": 1,
}

# Seconds that a stopped process stays so: shorter than the ladder of a timeout, so that no cell is given up for it.
_LONGEST_STOP = 1.2

# Seconds in which what was ended has ended, and what was started has come up.
_SETTLING = 60.0

# A kernel that nobody is connected to has some twenty descriptors open; a template has less.
_DESCRIPTORS = 40


class Client:
    """A client process, what it is doing, and until when it must have done it."""

    def __init__(self, number: int, arguments: list[str], log: Path) -> None:
        self.number = number
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.soak._client", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        self.pid = self.process.pid
        self.doing = self.name = ""
        self.due = time.monotonic() + _SETTLING
        self.ended = False
        self._unread = b""

    def read(self) -> list[dict[str, object]]:
        """Returns the reports that have come; None are left when the pipe is at its end."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self.ended = not data
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


class Soak:
    """Keeps clients at work, strikes processes, and looks at what is left."""

    def __init__(self, home: Path, *, processes: int, kills: float, seed: str) -> None:
        self.ledger = Ledger()
        self._home = home
        self._processes = processes
        self._kills = kills
        self._seed = seed
        self._rng = random.Random(seed)
        self._numbers = itertools.count()
        self._clients: dict[int, Client] = {}
        self._abandoned: list[str] = []
        self._stopped: dict[int, float] = {}
        self._statuses: dict[int, int] = {}

    def run(self, seconds: float) -> None:
        """Soaks for some time, ends the clients and checks what there is; leaves nothing."""
        kernelbox.destroy(kernelbox.get_or_create("first"))  # what is opened once, and kept, is open now
        before = set(_processes.list_descriptors(os.getpid()))
        end, strike = time.monotonic() + seconds, time.monotonic()
        while (now := time.monotonic()) < end:
            while len(self._clients) < self._processes:
                self._start_client()
            self._step()
            if self._kills and now >= strike:
                self._strike()
                strike = now + self._rng.expovariate(self._kills / 60)
        self._finish()
        self._check_kernels()
        self._check_the_end()
        if more := set(_processes.list_descriptors(os.getpid())) - before:
            self.ledger.breach(f"the soak itself has more descriptors open than before: {sorted(more)}")

    # -- clients -----------------------------------------------------------------------------------------------

    def _start_client(self) -> None:
        number = next(self._numbers)
        shared = max(2, self._processes // 2)
        arguments = [self._seed, str(number), str(shared), *self._abandoned]
        self._abandoned = []
        client = Client(number, arguments, self._home / "clients.log")
        self._clients[client.pid] = client

    def _step(self) -> None:
        """Reads what clients report, and continues who was stopped long enough."""
        by_pipe = {client.process.stdout: client for client in self._clients.values()}
        for pipe in select.select(list(by_pipe), [], [], 0.02)[0]:
            self._hear(by_pipe[pipe])
        now = time.monotonic()
        for pid in [pid for pid, until in self._stopped.items() if now >= until]:
            self._continue(pid)
        for client in self._clients.values():
            if now > client.due:
                self._give_up(client)
                break
        self._statuses |= _processes.reap()

    def _hear(self, client: Client) -> None:
        for report in client.read():
            match report["kind"]:
                case "begin":
                    client.doing, client.name = str(report["what"]), str(report["name"])
                    client.due = time.monotonic() + float(str(report["bound"]))
                case "end":
                    client.doing = ""
                case "ended":
                    client.doing, client.name = "", "ended"
            self.ledger.take(client.number, report)
        if client.ended:
            if client.name != "ended":
                self.ledger.breach(f"client {client.number} ended by itself while it did {client.doing or 'nothing'}")
            self._drop(client)

    def _give_up(self, client: Client) -> None:
        """Kills a client that does not come back, after it has written down where it is."""
        self.ledger.breach(f"client {client.number} did not come back from {client.doing} on {client.name}")
        os.kill(client.pid, signal.SIGUSR1)
        time.sleep(0.5)
        os.kill(client.pid, signal.SIGKILL)
        self._drop(client)

    def _drop(self, client: Client) -> None:
        del self._clients[client.pid]
        self._stopped.pop(client.pid, None)
        client.close()
        _await(lambda: client.pid in self._statuses or self._reaped(client.pid))
        client.process.returncode = os.waitstatus_to_exitcode(self._statuses.pop(client.pid))

    def _reaped(self, pid: int) -> bool:
        self._statuses |= _processes.reap()
        return pid in self._statuses

    # -- kills -------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        kind = self._rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        who, how = kind.split()
        kernels, templates = _processes.guests()
        victims = {"client": self._clients, "kernel": kernels, "template": templates}[who]
        if not victims:
            return
        pid = self._rng.choice(sorted(victims))
        self.ledger.kill(kind, pid)
        if how == "stopped":
            self._signal(pid, signal.SIGSTOP)
            self._stopped[pid] = time.monotonic() + self._rng.uniform(0.05, _LONGEST_STOP)
            return
        self._signal(pid, signal.SIGKILL)
        if who == "client":
            client = self._clients[pid]
            while not client.ended:
                for report in client.read():
                    if report["kind"] == "begin":
                        client.doing, client.name = str(report["what"]), str(report["name"])
                    elif report["kind"] == "end":
                        client.doing = ""
                    self.ledger.take(client.number, report)
            if client.doing:
                self.ledger.excuse(client.name)
            self._abandoned += [f"own-{client.number}-{letter}" for letter in "ab"]
            self._drop(client)

    def _continue(self, pid: int) -> None:
        del self._stopped[pid]
        self._signal(pid, signal.SIGCONT)

    def _signal(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    # -- the end -----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Has the clients end in their own time."""
        for pid in list(self._stopped):
            self._continue(pid)
        for client in self._clients.values():
            assert client.process.stdin is not None
            client.process.stdin.close()
        while self._clients:
            self._step()
        self.ledger.compare_lives()

    def _check_kernels(self) -> None:
        """Compares the kernels there are with those that are listed; each must answer."""
        self._await("every kernel that runs is listed, and no other", self._is_listing_exact)
        for record in kernelbox.list_kernels():
            if not record.alive:
                continue
            said = kernelbox.execute(record, "6 * 7", timeout=_SETTLING)
            if said.state == "lost":  # told once: a cell of a killed client held it until the ladder ended it
                said = kernelbox.execute(record.name, "6 * 7", timeout=_SETTLING)
            if said.return_value != "42":
                self.ledger.breach(f"{record.name} does not answer: {said.text}")
        kernels, templates = _processes.guests()
        for pid in (*kernels, *templates):
            if len(opened := _processes.list_descriptors(pid)) > _DESCRIPTORS:
                self.ledger.breach(f"descriptors are left open in {_processes.describe(pid)}: {opened}")

    def _is_listing_exact(self) -> bool:
        listed = {record.pid: record.kernel_id for record in kernelbox.list_kernels() if record.alive}
        return listed == _processes.guests()[0]

    def _check_the_end(self) -> None:
        """Wipes, and looks for what is left: processes, sockets, files."""
        kernelbox.wipe()
        runtime = self._home / "home" / "runtime"
        for half_made in runtime.rglob("*.new"):
            os.utime(half_made, (0, 0))  # by a client that was killed; while it is young, it may be one at work
        kernelbox.wipe()
        self._await("every process has ended", lambda: not _processes.descendants())
        left = [path for path in runtime.rglob("*") if path not in (runtime / "names", runtime / "locks")]
        left += (self._home / "tmp").iterdir()
        if left:
            self.ledger.breach(f"files are left: {sorted(map(str, left))}")

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            self._statuses |= _processes.reap()
            return condition()

        if not _await(holds):
            kernels, templates = _processes.guests()
            listed = [repr(record) for record in kernelbox.list_kernels()]
            rest = [_processes.describe(pid) for pid in _processes.descendants() - kernels.keys() - templates]
            self.ledger.breach(
                f"it is not so that {what}: kernels {kernels}, templates {templates}, others {rest}, listed {listed}"
            )


def _await(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _SETTLING
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (1)")
    parser.add_argument("--processes", type=int, default=4, help="clients at a time (4)")
    parser.add_argument("--kills", type=float, default=60.0, help="processes struck per minute (60)")
    parser.add_argument("--seed", default=os.urandom(4).hex(), help="what the operations are chosen by (random)")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    place = Path(tempfile.mkdtemp(prefix="kbs-"))
    (place / "tmp").mkdir()
    os.environ |= {"KERNELBOX_HOME": f"{place}/home", "KERNELBOX_KEY_FILE": f"{place}/key", "TMPDIR": f"{place}/tmp"}
    _processes.keep_orphans()
    soak = Soak(place, processes=options.processes, kills=options.kills, seed=options.seed)
    soak.run(options.minutes * 60)
    print(soak.ledger.summary())
    if soak.ledger.broken:
        print(f"what the processes wrote is in {place}")
        return 1
    shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())

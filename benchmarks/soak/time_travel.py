"""The soak of time travel: `python -m benchmarks.soak.time_travel --operations 1000 --seed S`.

It branches, checkpoints, rolls back, promotes, kills and restores kernels at random, kills clients in the middle, and
compares every kernel with a model of what it must hold. The exit status is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import kernelbox
from benchmarks.soak import _processes

# How often each operation is chosen, compared with the rest.
_WEIGHTS = {
    "run a cell": 6,
    "branch": 3,
    "checkpoint": 5,
    "roll back": 5,
    "drop": 1,
    "promote": 1,
    "destroy": 1,
    "kill a kernel": 3,
    "die in a cell": 3,
    "kill a checkpoint": 1,
    "kill a client": 5,
}

# Kernels at a time. Seconds that a cell or a settling may take, and that a client lives before it is killed.
_MOST = 6
_DEADLINE = 60.0
_LONGEST_LIFE = 0.03

# What a kernel, a checkpoint or a template has open, with room for one connection.
_DESCRIPTORS = 45


@dataclass
class Model:
    """What a kernel must hold: the value of `x`, None if it has none, and the values that its checkpoints hold."""

    x: int | None = None
    parent: str | None = None
    checkpoints: dict[int, int | None] = field(default_factory=dict)


class TravelSoak:
    """Does random operations, and compares kernels with their models."""

    def __init__(self, seed: str) -> None:
        self.broken: list[str] = []
        self.done: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._models: dict[str, Model] = {}
        self._number = 0

    def run(self, operations: int) -> None:
        while (count := sum(self.done.values())) < operations:
            while len(self._models) < 2:
                self._open()
            what = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            name = self._rng.choice(sorted(self._models))
            try:
                if self._operate(what, name):
                    self.done[what] += 1
                if name in self._models:
                    self._compare(name, what)
            except kernelbox.KernelBoxError as exc:
                self._breach(f"operation {count}, {what} of {name}: {type(exc).__name__}: {exc}")
                self.done["failed"] += 1
                self._forget(name)
                kernelbox.destroy(name)
            if what == "destroy":
                self._compare_all()
        self._compare_all()

    def _operate(self, what: str, name: str) -> bool:
        """Does an operation if the kernel allows it; returns whether it did."""
        model = self._models[name]
        match what:
            case "run a cell":
                self._set(name)
            case "branch" if len(self._models) < _MOST:
                other = self._new_name()
                kernelbox.branch(name, other)
                self._models[other] = Model(model.x, name)
                self._compare(other, what)
            case "checkpoint":
                self._keep(model, kernelbox.checkpoint(name))
            case "roll back" if model.checkpoints:
                number = self._rng.choice(sorted(model.checkpoints))
                kernelbox.rollback(name, number)
                model.x = model.checkpoints[number]
            case "drop" if model.checkpoints:
                number = self._rng.choice(sorted(model.checkpoints))
                found = {each.number: each for each in kernelbox.checkpoints(name)}
                kernelbox.drop(found[number])
                del model.checkpoints[number]
            case "promote" if model.parent in self._models:
                assert model.parent is not None
                kernelbox.promote(name)
                self._models[model.parent].x = model.x
                self._forget(name)
                self._compare(model.parent, what)
            case "destroy" if len(self._models) > 2:
                kernelbox.destroy(name)
                self._forget(name)
            case "kill a kernel":
                self._kill(kernelbox.status(name).pid)
                self._restore(name, model, "x")
            case "die in a cell":
                self._set(name)
                self._restore(name, model, "import os; os._exit(3)")
            case "kill a checkpoint" if model.checkpoints:
                chosen = self._rng.choice(kernelbox.checkpoints(name))
                self._kill(chosen.pid)
                del model.checkpoints[chosen.number]
            case "kill a client":
                self._kill_client(name, model)
            case _:
                return False
        return True

    # -- operations --------------------------------------------------------------------------------------------

    def _open(self) -> None:
        name = self._new_name()
        kernelbox.get_or_create(name)
        self._models[name] = Model()

    def _new_name(self) -> str:
        self._number += 1
        return f"kernel-{self._number}"

    def _set(self, name: str) -> None:
        """Has a cell change the value, and memory that copies share."""
        x = self._rng.randrange(10**9)
        result = kernelbox.execute(name, f"x = {x}; data = bytearray(100_000)", timeout=_DEADLINE)
        if not result.ok:
            self._breach(f"a cell of {name} failed: {result.text}")
        self._models[name].x = x

    def _keep(self, model: Model, made: kernelbox.Checkpoint) -> None:
        model.checkpoints[made.number] = model.x
        for number in made.evicted:
            model.checkpoints.pop(number, None)

    def _restore(self, name: str, model: Model, code: str) -> None:
        """Runs a cell that meets or causes the death of its kernel, and looks at what it says."""
        newest = max(model.checkpoints, default=None)
        result = kernelbox.execute(name, code, timeout=_DEADLINE)
        wanted = ("rolled back", newest) if newest is not None else ("lost", None)
        if (result.state, result.restored_from) != wanted:
            self._breach(f"{name} died, and said {result.state!r}, {result.restored_from}, not {wanted}: {result.text}")
        model.x = None if newest is None else model.checkpoints[newest]
        if newest is None:  # the name has another kernel now, which has neither parent nor branches
            model.parent = None
            self._orphan(name)

    def _kill(self, pid: int | None) -> None:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self._await(f"process {pid} ends", lambda: pid not in _processes.descendants())

    def _kill_client(self, name: str, model: Model) -> None:
        """Kills a client in the middle of an operation: that is done or not done, and nothing else is changed."""
        what = self._rng.choice(["checkpoint", "roll back", "branch"])
        other = self._new_name()
        known = {each.number for each in kernelbox.checkpoints(name)}
        operations: dict[str, Callable[[], object]] = {
            "checkpoint": lambda: kernelbox.checkpoint(name),
            "roll back": lambda: kernelbox.rollback(name),
            "branch": lambda: kernelbox.branch(name, other),
        }
        if what == "roll back" and not known:
            return
        before = kernelbox.status(name).pid
        self._run_and_kill(operations[what])
        if is_done := kernelbox.status(name).pid != before:  # the keeper finishes what the record says
            self._await(f"process {before} ends", lambda: before not in _processes.descendants())
        told = kernelbox.execute(name, "1", timeout=_DEADLINE)
        if not told.ok and told.ending != "rolled back":
            self._breach(f"{name} after a killed {what}: {told.text}")
        if what == "roll back" and is_done:
            model.x = model.checkpoints[max(known)]
        found = {each.number for each in kernelbox.checkpoints(name)}
        for number in found - known:
            model.checkpoints[number] = model.x
        if what == "checkpoint" and len(found - known) == 1:  # the oldest may have been dropped for it
            for number in sorted(known - found)[:1]:
                del model.checkpoints[number]
        record = next((each for each in kernelbox.list_kernels() if each.name == other), None)
        if record is not None and record.alive:
            self._models[other] = Model(model.x, name)
        elif record is not None:
            kernelbox.destroy(other)

    def _run_and_kill(self, operation: Callable[[], object]) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                operation()
            finally:
                os._exit(0)
        time.sleep(self._rng.uniform(0, _LONGEST_LIFE))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    # -- comparing ---------------------------------------------------------------------------------------------

    def _value(self, name: str) -> str | None:
        return kernelbox.execute(name, "globals().get('x')", timeout=_DEADLINE).return_value

    def _compare(self, name: str, what: str) -> None:
        model = self._models[name]
        found, wanted = self._value(name), _shown(model.x)
        if found != wanted:
            self._breach(f"after {what}, {name} holds {found}, not {wanted}")
        listed = [each.number for each in kernelbox.checkpoints(name)]
        if listed != sorted(model.checkpoints):
            self._breach(f"after {what}, {name} has checkpoints {listed}, not {sorted(model.checkpoints)}")

    def _compare_all(self) -> None:
        """Compares each kernel, and what there is of processes and descriptors."""
        for name in list(self._models):
            self._compare(name, "all operations")
        listed = sorted(record.name for record in kernelbox.list_kernels())
        if listed != sorted(self._models):
            self._breach(f"kernels {listed} are listed, not {sorted(self._models)}")
        wanted = 1 + len(self._models) + sum(len(model.checkpoints) for model in self._models.values())
        self._await(f"there are {wanted} processes", lambda: _processes.count_but_spares() == wanted)
        for pid in _processes.descendants():
            if len(opened := _processes.list_descriptors(pid)) > _DESCRIPTORS + 3 * wanted:
                self._breach(f"{len(opened)} descriptors are open in {_processes.describe(pid)}: {sorted(opened)}")

    def finish(self, home: Path) -> None:
        """Destroys all, and looks for what is left."""
        for name in self._models:
            kernelbox.destroy(name)
        runtime = home / "runtime"
        for half_made in runtime.rglob("*.new"):
            os.utime(half_made, (0, 0))  # by a client that was killed; while it is young, it may be one at work
        kernelbox.wipe()
        self._await("every process has ended", lambda: not _processes.descendants())
        left = [path for path in runtime.rglob("*") if path not in (runtime / "names", runtime / "locks")]
        if left:
            self._breach(f"files are left: {sorted(map(str, left))}")

    def _forget(self, name: str) -> None:
        self._models.pop(name, None)
        self._orphan(name)

    def _orphan(self, name: str) -> None:
        for model in self._models.values():
            if model.parent == name:
                model.parent = None

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            _processes.reap()
            if time.monotonic() > deadline:
                found = [f"{pid} {_processes.describe(pid)[-60:]}" for pid in sorted(_processes.descendants())]
                self._breach(f"it is not so that {what}: {found}")
                return
            time.sleep(0.005)

    def _breach(self, sentence: str) -> None:
        self.broken.append(sentence)
        print(f"BROKEN: {sentence}", flush=True)


def _shown(x: int | None) -> str | None:
    """Returns what a cell shows of a value."""
    return None if x is None else repr(x)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak.time_travel")
    parser.add_argument("--operations", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", default=os.urandom(4).hex(), help="what the operations are chosen by (random)")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    place = Path(tempfile.mkdtemp(prefix="kbs-"))
    os.environ |= {"KERNELBOX_HOME": f"{place}/home", "KERNELBOX_KEY_FILE": f"{place}/key"}
    _processes.keep_orphans()
    soak = TravelSoak(options.seed)
    kernelbox.destroy(kernelbox.get_or_create("first"))  # what is opened once, and kept, is open now
    before = set(_processes.list_descriptors(os.getpid()))
    soak.run(options.operations)
    soak.finish(place / "home")
    if more := set(_processes.list_descriptors(os.getpid())) - before:
        soak.broken.append(f"descriptors are left open: {sorted(more)}")
    print(f"{sum(soak.done.values()):,} operations: {', '.join(f'{n} {c}' for n, c in sorted(soak.done.items()))}")
    print(f"{len(soak.broken)} broken invariants")
    if soak.broken:
        print(f"what the processes wrote is in {place}")
        return 1
    shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One client process of the soak: does random operations, checks what comes of each, and reports it line by line.

    python -m benchmarks.soak._client SEED NUMBER SHARED [ABANDONED …]

NUMBER is the client's own; SHARED is how many names all clients share; ABANDONED are names of clients that were killed.
It goes on until its stdin is closed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import kernelbox
from benchmarks.soak import _cells
from benchmarks.soak._cells import Cell, Sign
from kernelbox import ExecutionResult

# Seconds that a call may take beyond its timeout: the ladder, a start, a stopped process, a machine that is busy.
_BEYOND = 45.0

# Descriptors of a client: a few of the interpreter's, and connections to each of its kernels.
_DESCRIPTORS = 100


@dataclass
class View:
    """What a client knows of a kernel: the life it saw last, its count there, and cells that may have come since."""

    life: str = ""
    pid: int = 0
    count: int = 0
    unsure: int = 0
    told: bool = False


class Client:
    """Does operations until it is told to end."""

    def __init__(self, seed: str, number: int, shared: int, abandoned: list[str]) -> None:
        self._number = number
        self._rng = random.Random(f"{seed}-{number}")
        self._own = [f"own-{number}-{letter}" for letter in "ab"]
        self._shared = [f"shared-{which}" for which in range(shared)]
        self._views: dict[str, View] = {}
        self._abandoned = abandoned
        self._operations: list[tuple[int, Callable[[str], str]]] = [
            (30, self._execute),
            (10, self._stream),
            (3, self._flood),
            (6, self._fail),
            (6, self._bash),
            (6, self._time_out),
            (1, self._time_out_stubbornly),
            (4, self._interrupt),
            (4, self._leave_a_stream),
            (4, self._in_threads),
            (6, self._get_or_create),
            (3, self._restart),
            (3, self._destroy),
            (5, self._list),
            (3, self._session),
            (3, self._command_line),
        ]

    def run(self) -> None:
        for name in self._abandoned:
            self._do("destroy", name, lambda name: "destroyed" if kernelbox.destroy(name) else "absent")
        weights, operations = zip(*self._operations, strict=True)
        while not select.select([0], [], [], 0)[0]:
            operation = self._rng.choices(operations, weights)[0]
            name = self._rng.choice(self._own if self._rng.random() < 0.5 else self._shared)
            self._do(operation.__name__.strip("_"), name, operation)
        for name in self._own:
            self._do("destroy", name, self._destroy)
        if (count := len(os.listdir("/proc/self/fd"))) > _DESCRIPTORS:
            self._broken(f"{count} descriptors are open in a client")
        _report(kind="ended")

    def _do(self, what: str, name: str, operation: Callable[[str], str]) -> None:
        _report(kind="begin", what=what, name=name, bound=_BEYOND + _cells.PATIENCE)
        began = time.monotonic()
        try:
            outcome = operation(name)
        except kernelbox.StartFailed as exc:
            outcome = "not started"
            _report(kind="not started", name=name, cause=str(exc)[:1000])
        except Exception:  # noqa: BLE001  # whatever it is, it should not have been raised
            outcome = "raised"
            self._broken(f"{what} on {name} raised: {traceback.format_exc()[-2500:]}")
        _report(kind="end", what=what, outcome=outcome, seconds=time.monotonic() - began)

    # -- operations: each returns how it went ------------------------------------------------------------------

    def _execute(self, name: str) -> str:
        cell = _cells.counted(self._number, self._rng)
        return self._settle(name, cell, kernelbox.execute(name, cell.code, timeout=cell.timeout))

    def _fail(self, name: str) -> str:
        cell = _cells.failing(self._number, self._rng)
        return self._settle(name, cell, kernelbox.execute(name, cell.code, timeout=cell.timeout))

    def _stream(self, name: str) -> str:
        return self._follow(name, _cells.counted(self._number, self._rng))

    def _flood(self, name: str) -> str:
        return self._follow(name, _cells.flood(self._number, self._rng))

    def _follow(self, name: str, cell: Cell) -> str:
        """Streams a cell; what was yielded is all that it wrote, whatever the result keeps of it."""
        written = []
        for item in kernelbox.stream(name, cell.code, timeout=cell.timeout):
            if isinstance(item, ExecutionResult):
                item.output = "".join(written)
                return self._settle(name, cell, item)
            if item.kind == "stream" and item.name == "stdout":
                written.append(item.text or "")
        self._broken(f"a stream on {name} ended without a result")
        return "no result"

    def _bash(self, name: str) -> str:
        code, expected = _cells.bash(self._rng)
        result = kernelbox.execute(name, code, language="bash", timeout=_cells.PATIENCE)
        if not expected.startswith(result.output) or (result.ok and result.output != expected):
            self._broken(
                f"bash on {name} wrote {result.output[-300:]!r}, not {expected[-300:]!r}: {result.text[-300:]}"
            )
        return self._conclude(name, result)

    def _time_out(self, name: str) -> str:
        cell = _cells.endless(self._number, self._rng)
        return self._settle(name, cell, kernelbox.execute(name, cell.code, timeout=cell.timeout))

    def _time_out_stubbornly(self, name: str) -> str:
        cell = _cells.endless(self._number, self._rng, stubborn=True)
        return self._settle(name, cell, kernelbox.execute(name, cell.code, timeout=cell.timeout))

    def _interrupt(self, name: str) -> str:
        """Interrupts a cell of ours from another thread, or whatever a shared kernel is running."""
        if name in self._shared:
            try:
                return "interrupted" if kernelbox.interrupt(name) else "idle"
            except kernelbox.KernelNotFound:
                return "absent"
        cell = _cells.endless(self._number, self._rng)
        outcome = ""
        for item in kernelbox.stream(name, cell.code, timeout=_cells.PATIENCE):
            if isinstance(item, ExecutionResult):
                outcome = self._settle(name, cell, item)
            elif item.kind == "stream":
                kernelbox.interrupt(name)
        return outcome

    def _leave_a_stream(self, name: str) -> str:
        """Goes away from a running cell, which is interrupted."""
        cell = _cells.endless(self._number, self._rng)
        for item in kernelbox.stream(name, cell.code, timeout=_cells.PATIENCE):
            if isinstance(item, ExecutionResult):
                return self._settle(name, cell, item)  # it was interrupted by others, or has died
            if item.kind == "stream":
                self._check(name, cell, item.text or "")
                return "left"
        return "no result"

    def _in_threads(self, name: str) -> str:
        """Runs cells at the same moment; each gets its own output."""
        results: list[tuple[str, ExecutionResult]] = []
        words = [f"t{self._rng.getrandbits(64):016x}" for _ in range(4)]

        def run(word: str) -> None:
            results.append((word, kernelbox.execute(name, f"print('{word}' * 10)", timeout=_cells.PATIENCE)))

        threads = [threading.Thread(target=run, args=(word,)) for word in words]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(results) != len(words):
            self._broken(f"of {len(words)} threads on {name} {len(results)} returned")
        for word, result in results:
            expected = word * 10 + "\n"
            if not expected.startswith(result.output) or (result.ok and result.output != expected):
                self._broken(f"a thread on {name} got {result.output[-300:]!r}, not {expected!r}")
        return ", ".join(sorted({self._conclude(name, result) for _, result in results}))

    def _get_or_create(self, name: str) -> str:
        record = kernelbox.get_or_create(name)
        view = self._views.setdefault(name, View())
        if record.lost and record.pid != view.pid and not view.told:
            self._tell(name, record.lost)
        return "ok"

    def _restart(self, name: str) -> str:
        try:
            kernelbox.restart(name)
        except kernelbox.KernelNotFound:
            return "absent"
        self._end_life(name)
        return "ok"

    def _destroy(self, name: str) -> str:
        if not kernelbox.destroy(name):
            return "absent"
        self._end_life(name)
        return "ok"

    def _list(self, name: str) -> str:
        records = kernelbox.list_kernels()
        for what in ("name", "kernel_id"):
            values = [getattr(record, what) for record in records]
            if len(values) != len(set(values)):
                self._broken(f"a {what} is listed twice: {sorted(values)}")
        return "ok"

    def _session(self, name: str) -> str:
        """Uses an executor with a private kernel, whose variables must last until it dies or is reset."""
        return asyncio.run(self._in_session())

    async def _in_session(self) -> str:
        async with kernelbox.CodeExecutor() as executor:
            for count in range(self._rng.randrange(1, 5)):
                word = f"t{self._rng.getrandbits(64):016x}"
                code = f"n = globals().get('n', -1) + 1\nprint('{word}', n)"
                try:
                    result = await executor.execute(code, timeout=_cells.PATIENCE)
                except kernelbox.CodeExecutionError as exc:
                    return self._end_session(exc)
                if result.text is None or result.text.strip() != f"{word} {count}":
                    self._broken(f"a session's cell {count} wrote {result.text!r}, not '{word} {count}'")
            if self._rng.random() < 0.3:
                await executor.reset()
                try:
                    fresh = await executor.execute("globals().get('n', 'none')", timeout=_cells.PATIENCE)
                except kernelbox.CodeExecutionError as exc:
                    return self._end_session(exc)
                if (fresh.text or "").strip("'\n") != "none":
                    self._broken(f"a variable outlived reset(): {fresh.text!r}")
        return "ok"

    def _end_session(self, exc: kernelbox.CodeExecutionError) -> str:
        """Looks at why a session's cell failed: the soak can have killed its kernel, and nothing else."""
        if exc.ename != "KernelDied" or ("SIGKILL" not in str(exc) and "unknown" not in str(exc)):
            self._broken(f"a session's cell failed: {exc}")
        return "died"

    def _command_line(self, name: str) -> str:
        cell = _cells.counted(self._number, self._rng)
        command = [sys.executable, "-m", "kernelbox", "exec", "--name", name, "--timeout", str(cell.timeout), "-"]
        done = subprocess.run(command, input=cell.code, capture_output=True, text=True, check=False)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            self._broken(f"the command line printed {done.stdout!r} and {done.stderr!r}")
            return "no result"
        if "status" not in answer:
            _report(kind="not started", name=name, cause=str(answer)[:1000])
            return "not started"
        error = answer["error"] and kernelbox.ErrorInfo(
            answer["error"]["ename"], answer["error"]["evalue"], answer["error"]["traceback"]
        )
        result = ExecutionResult(
            answer["status"],
            output=answer["output"],
            error=error,
            text=answer["text"],
            state=answer["state"],
            ending=answer["ending"],
        )
        return self._settle(name, cell, result)

    # -- what must hold ----------------------------------------------------------------------------------------

    def _settle(self, name: str, cell: Cell, result: ExecutionResult) -> str:
        """Checks the result of a counted cell."""
        sign = self._check(name, cell, result.output)
        finished = result.ok or (bool(cell.error) and result.error is not None and result.error.evalue == cell.error)
        if finished and (sign is None or not cell.is_complete(result.output)):
            self._broken(f"a cell on {name} finished, and wrote only {result.output[-300:]!r}")
        if result.ok and not cell.ends:
            self._broken(f"an endless cell on {name} succeeded")
        return "failed as it should" if finished and cell.error else self._conclude(name, result, ends=cell.ends)

    def _check(self, name: str, cell: Cell, output: str) -> Sign | None:
        sign, wrong = cell.read(output)
        if wrong:
            self._broken(f"{wrong} on {name}: {output[-500:]!r}, for {cell.token}")
        if sign is None:
            self._views.setdefault(name, View()).unsure += 1  # it may have been stopped after it had counted
        else:
            self._see(name, sign)
        return sign

    def _see(self, name: str, sign: Sign) -> None:
        """Compares what a cell has found with what we know of the kernel."""
        view = self._views.setdefault(name, View())
        before = view.count if sign.life == view.life else 0
        if not before < sign.count <= before + view.unsure + 1:
            self._broken(f"{name} counted {sign.count} cells of ours, not {before + 1} to {before + view.unsure + 1}")
        if sign.life == view.life and view.told:
            self._broken(f"{name} was said to be lost, and pid {sign.pid} lives on")
        if sign.life != view.life:
            if view.life and not view.told and name in self._own:
                self._broken(f"{name} has lost its state (pid {view.pid}, now {sign.pid}), and nobody was told")
            _report(kind="life", name=name, life=sign.life)
        self._views[name] = View(sign.life, sign.pid, sign.count)

    def _conclude(self, name: str, result: ExecutionResult, *, ends: bool = True) -> str:
        """Returns how a cell ended; reports a loss, and what cannot have happened to a kernel of our own."""
        if result.state == "lost":
            self._tell(name, result.error.evalue if result.error else "")
            return f"lost: {result.ending}"
        if result.ok:
            return "ok"
        assert result.error is not None
        if ends and name in self._own:
            self._broken(f"a cell on {name}, which is ours alone, ended so: {result.error.evalue[-500:]}")
        return result.ending if result.status == "timeout" else result.error.ename

    def _tell(self, name: str, cause: str) -> None:
        view = self._views.setdefault(name, View())
        pid = 0 if view.told else view.pid  # of a life that none of our cells has seen we do not know it
        view.told = True
        _report(kind="told", name=name, own=name in self._own, pid=pid, cause=cause[:1000])

    def _end_life(self, name: str) -> None:
        self._views.setdefault(name, View()).told = True
        _report(kind="ended life", name=name)

    def _broken(self, sentence: str) -> None:
        _report(kind="broken", sentence=sentence[:3000])


def _report(**what: object) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")  # less than PIPE_BUF: no line is torn by a kill


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    Client(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]).run()

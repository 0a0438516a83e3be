"""The HTTP service, with the load from this process: against the synchronous API, and KernelBox 0.1.2's own service.

That one is measured if KERNELBOX_PEER_PYTHON is an interpreter that has `kernelbox==0.1.2`, ipykernel and uvicorn.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import kernelbox
from benchmarks._measure import Row, interleaved, percentile, scaled, show, times
from benchmarks._service import Client, Server, our_server, peer_server

_EACH = 10

Load = Callable[[], int]


def rows() -> Iterator[Row]:
    """Yields the latency of one connection, the throughput of many, and when the first byte of a stream arrives.

    Each row has a new peer: after some hundred executions that one has too many sockets open, and becomes slower.
    """
    with our_server() as ours:
        with peer_server() as peer:
            yield from _one_connection(ours, peer)
        with peer_server() as peer:
            yield from _many_connections(ours, peer)
        yield _first_byte(ours)
        yield from _journal(ours)
        yield _creation(ours)


def _one_connection(ours: Server, peer: Server | None) -> Iterator[Row]:
    client, kernel = Client(ours, "http"), kernelbox.get_or_create("sync")
    actions: dict[str, Callable[[], object]] = {
        "sync": lambda: kernelbox.execute(kernel, "1+1"),
        "http": lambda: client.execute("1+1"),
    }
    if peer is not None:
        other = Client(peer, "http")
        actions["peer"] = lambda: other.execute("1+1")
    taken = interleaved(actions, rounds=20, batch=25)
    ratio = percentile(taken["http"], 50) / percentile(taken["sync"], 50)
    what = "`POST …/execute` of `1+1`, one kept-alive connection"
    yield Row(what, show(taken["http"]), f"sync API {show(taken['sync'])}", f"{ratio:.2f} ×", "≤ 4 ×", ratio <= 4)
    if peer is not None:
        ratio = percentile(taken["peer"], 50) / percentile(taken["http"], 50)
        slower = f"KernelBox 0.1.2 {show(taken['peer'])}"
        yield Row(what, show(taken["http"]), slower, f"{ratio:.1f} ×", "≥ 5 ×", ratio >= 5)


def _many_connections(ours: Server, peer: Server | None) -> Iterator[Row]:
    """Sends cells to the same kernels from as many threads of this one process, by the API and over HTTP, in turns."""
    count = scaled(32)
    names = [f"load-{number}" for number in range(count)]
    with ThreadPoolExecutor(count) as pool:
        loads = {
            "api": list(pool.map(_sync_load, names)),
            "http": list(pool.map(_http_load, [ours] * count, names)),
        }
        rates = _rates(pool, loads, rounds=scaled(10))
        what = f"executions per second, {count} connections over {count} kernels"
        ratio = rates["http"] / rates["api"]
        shown = f"{rates['http']:,.0f}"
        yield Row(what, shown, f"Python API {rates['api']:,.0f}", f"{ratio:.0%}", "≥ 60 %", ratio >= 0.6)
        if peer is not None:
            slower = _rates(pool, {"peer": list(pool.map(_http_load, [peer] * count, names))}, rounds=1)["peer"]
            ratio = rates["http"] / slower
            yield Row(what, shown, f"KernelBox 0.1.2 {slower:,.0f}", f"{ratio:.1f} ×", "≥ 10 ×", ratio >= 10)


def _first_byte(ours: Server) -> Row:
    client = Client(ours, "stream")
    taken = sorted(client.first_byte() for _ in range(scaled(50)))
    reached = percentile(taken, 50) <= 0.010
    return Row("first byte of a stream after it was printed", show(taken), "", "", "≤ 10 ms", reached)


def _journal(ours: Server) -> Iterator[Row]:
    """Runs a cell with an Idempotency-Key and as a stream: both write it into the journal, which is full of others."""
    client, numbers = Client(ours, "journal"), itertools.count()
    path = "/kernels/journal"

    def keyed() -> None:
        client.send("POST", f"{path}/execute", {"code": "1+1"}, f"\r\nIdempotency-Key: {next(numbers)}")

    def streamed() -> None:
        assert len(list(client.follow("POST", f"{path}/stream", {"code": "1+1"}))) > 1

    for _ in range(scaled(1000)):
        keyed()
    actions = {"plain": lambda: client.execute("1+1"), "keyed": keyed, "stream": streamed}
    taken = interleaved(actions, rounds=30, batch=10)
    for kind, what, most in (("keyed", "with an Idempotency-Key", 1.5), ("stream", "as a stream", 2.0)):
        # The mean: jobs of long ago are looked for now and then, and that counts too.
        ratio = sum(taken[kind]) / sum(taken["plain"])
        reference = f"plain {show(taken['plain'])}"
        yield Row(
            f"`1+1` over HTTP {what}", show(taken[kind]), reference, f"{ratio:.2f} ×", f"≤ {most:g} ×", ratio <= most
        )


def _creation(ours: Server) -> Row:
    """Opens kernels over HTTP when there are few, and when there are many."""
    client, numbers = Client(ours, "creation"), itertools.count()

    def create() -> None:
        client.send("POST", "/kernels", {"name": f"created-{next(numbers)}"})

    few = times(create, 20)
    many = scaled(300)
    for _ in range(many):
        create()
    more = times(create, 20)
    ratio = percentile(more, 50) / percentile(few, 50)
    what = f"`POST /kernels` beside {many:,} kernels"
    return Row(what, show(more), f"beside few {show(few)}", f"{ratio:.2f} ×", "≤ 1.2 ×", ratio <= 1.2)


def _rates(pool: ThreadPoolExecutor, loads: dict[str, list[Load]], *, rounds: int) -> dict[str, float]:
    """Returns how many executions per second each kind of load comes to, in turns."""
    counts, seconds = dict.fromkeys(loads, 0), dict.fromkeys(loads, 0.0)
    for _ in range(rounds):
        for kind, running in loads.items():
            began = time.perf_counter()
            counts[kind] += sum(pool.map(lambda run: run(), running))
            seconds[kind] += time.perf_counter() - began
    return {kind: counts[kind] / seconds[kind] for kind in loads}


def _sync_load(name: str) -> Load:
    kernel = kernelbox.get_or_create(name)

    def run() -> int:
        for _ in range(_EACH):
            assert kernelbox.execute(kernel, "1+1").ok
        return _EACH

    return run


def _http_load(server: Server, name: str) -> Load:
    client = Client(server, name)

    def run() -> int:
        for _ in range(_EACH):
            client.execute("1+1")
        return _EACH

    return run

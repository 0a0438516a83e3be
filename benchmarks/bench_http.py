"""The HTTP service, with the load from this process: against the synchronous API, and KernelBox 0.1.2's own service.

That one is measured if KERNELBOX_PEER_PYTHON is an interpreter that has `kernelbox==0.1.2`, ipykernel and uvicorn.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import kernelbox
from benchmarks._measure import Row, interleaved, percentile, show, times
from benchmarks._service import Client, Server, our_server, peer_server

_CONNECTIONS = 32
_EACH = 50


def rows() -> Iterator[Row]:
    """Yields the latency of one connection, the throughput of many, and when the first byte of a stream arrives."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_server())
        peer = stack.enter_context(peer_server())
        yield from _one_connection(ours, peer)
        yield from _many_connections(ours, peer)
        yield _first_byte(ours)


def _one_connection(ours: Server, peer: Server | None) -> Iterator[Row]:
    client, kernel = Client(ours, "http"), kernelbox.get_or_create("sync")
    actions = {"sync": lambda: kernelbox.execute(kernel, "1+1"), "http": lambda: client.execute("1+1")}
    taken = interleaved(actions, rounds=20, batch=25)  # type: ignore[arg-type]  # what they return is of no interest
    ratio = percentile(taken["http"], 50) / percentile(taken["sync"], 50)
    what = "`POST …/execute` of `1+1`, one kept-alive connection"
    yield Row(what, show(taken["http"]), f"sync API {show(taken['sync'])}", f"{ratio:.2f} ×", "≤ 4 ×", ratio <= 4)
    if peer is not None:
        other = Client(peer, "http")
        slower = times(lambda: other.execute("1+1"), 50)
        ratio = percentile(slower, 50) / percentile(taken["http"], 50)
        yield Row(what, show(taken["http"]), f"KernelBox 0.1.2 {show(slower)}", f"{ratio:.1f} ×", "≥ 5 ×", ratio >= 5)


def _many_connections(ours: Server, peer: Server | None) -> Iterator[Row]:
    api = _throughput(lambda number: _sync_load(f"load-{number}"))
    http_rate = _throughput(lambda number: _http_load(ours, f"load-{number}"))
    what = f"executions per second, {_CONNECTIONS} connections over {_CONNECTIONS} kernels"
    ratio = http_rate / api
    yield Row(what, f"{http_rate:,.0f}", f"Python API {api:,.0f}", f"{ratio:.0%}", "≥ 60 %", ratio >= 0.6)
    if peer is not None:
        slower = _throughput(lambda number: _http_load(peer, f"load-{number % 4}", count=5))
        ratio = http_rate / slower
        yield Row(what, f"{http_rate:,.0f}", f"KernelBox 0.1.2 {slower:,.0f}", f"{ratio:.1f} ×", "≥ 10 ×", ratio >= 10)


def _first_byte(ours: Server) -> Row:
    client = Client(ours, "stream")
    taken = sorted(client.first_byte() for _ in range(50))
    reached = percentile(taken, 50) <= 0.010
    return Row("first byte of a stream after it was printed", show(taken), "", "", "≤ 10 ms", reached)


def _throughput(load: object) -> float:
    assert callable(load)
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        prepared = list(pool.map(load, range(_CONNECTIONS)))
        began = time.perf_counter()
        count = sum(pool.map(lambda run: run(), prepared))
        return count / (time.perf_counter() - began)


def _sync_load(name: str) -> object:
    kernel = kernelbox.get_or_create(name)

    def run() -> int:
        for _ in range(_EACH):
            assert kernelbox.execute(kernel, "1+1").ok
        return _EACH

    return run


def _http_load(server: Server, name: str, count: int = _EACH) -> object:
    client = Client(server, name)

    def run() -> int:
        for _ in range(count):
            client.execute("1+1")
        return count

    return run

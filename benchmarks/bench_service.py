"""The HTTP service as a whole: many streams, many idle kernels, health under load, memory over many executions."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks._measure import Row, percentile, scaled, show, times
from benchmarks._service import Client, Server, our_server

# Seconds that idle kernels are watched.
_IDLE = 10.0

# A cell that goes on once all have heard that it has begun.
_WAITING = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('end')"


def rows() -> Iterator[Row]:
    """Yields what a server takes that has much to do, or nothing."""
    with our_server() as server:
        yield _memory(server)  # first: what many threads have used at once is not all given back
        yield _streams(server)
        yield _health(server)
        yield _idle(server)
        with contextlib.closing(Client(server)) as client:
            client.send("DELETE", "/kernels")


def _streams(server: Server) -> Row:
    """Follows jobs by many connections, all of which are open at one moment."""
    streams, kernels, jobs = scaled(200), scaled(20), []
    with contextlib.closing(Client(server)) as client:
        for number in range(kernels):
            begun = json.loads(client.send("POST", f"/sessions/stream-{number}/jobs", {"code": _WAITING}))
            jobs.append(begun["events"])
    everyone = threading.Barrier(streams + 1, timeout=60)

    def follow(number: int) -> bool:
        text, last = "", {}
        with contextlib.closing(Client(server)) as client:
            for last in client.follow("GET", jobs[number % kernels]):
                text += str(last.get("text") or "")
                if text == "begun\n":
                    everyone.wait()
        return text == "begun\nend\n" and "result" in last

    with ThreadPoolExecutor(streams) as pool:
        following = [pool.submit(follow, number) for number in range(streams)]
        everyone.wait()
        with contextlib.closing(Client(server, "go")) as client:
            client.execute("open('go', 'w').close()")
        complete = sum(each.result() for each in following)
    return Row("streams open at once", f"{streams}, {complete} complete", "", "", "all", complete == streams)


def _health(server: Server) -> Row:
    """Asks for health while as many clients as the benchmark of throughput has run code."""
    clients = scaled(32)
    begun, ended = threading.Barrier(clients + 1, timeout=60), threading.Event()

    def load(number: int) -> None:
        with contextlib.closing(Client(server, f"load-{number}")) as client:
            begun.wait()
            while not ended.is_set():
                client.execute("1+1")

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(load, number) for number in range(clients)]
        begun.wait()
        with contextlib.closing(Client(server)) as client:
            taken = times(lambda: client.send("GET", "/health"), 300)
        ended.set()
        for each in running:
            each.result()
    reached = percentile(taken, 95) <= 0.050
    return Row(f"`/health` while {clients} clients run code", show(taken), "", "", "≤ 50 ms", reached)


def _memory(server: Server) -> Row:
    """Runs code often, after a tenth of it for the server to have made what it keeps."""
    count = scaled(100_000)
    with contextlib.closing(Client(server, "memory")) as client:

        def run(times: int) -> int:
            for _ in range(times):
                client.execute("1+1")
            return server.memory()

        before = run(scaled(10_000))
        grown = run(count) - before
    what = f"memory that {count:,} executions leave in the server"
    return Row(what, f"{grown / 1e6:+.1f} MB of {before / 1e6:.0f}", "", "", "flat", grown < 4e6)


def _idle(server: Server) -> Row:
    """Opens kernels, each of which has run a cell, and then asks for nothing; before, and with them."""
    with contextlib.closing(Client(server)) as client:
        client.send("DELETE", "/kernels")
        without, count = _share_of_cpu(server), scaled(1000)
        for number in range(count):
            client.send("POST", f"/sessions/idle-{number}/execute", {"code": "1+1"})
        share = _share_of_cpu(server)
    what = f"CPU of the server with {count:,} idle kernels"
    return Row(what, f"{share:.2%}", f"without {without:.2%}", "", "the same", share - without < 0.003)


def _share_of_cpu(server: Server) -> float:
    """Returns how much of the time the server works while nobody asks for anything."""
    time.sleep(1.0)  # for what the last request has left to do
    began = server.cpu_seconds()
    time.sleep(_IDLE)
    return (server.cpu_seconds() - began) / _IDLE

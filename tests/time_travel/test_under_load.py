"""Copies of a kernel while other clients use it: each of their cells ends, and says truly what happened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tests.support.cells import DEADLINE, run, value

from kernelbox import ExecutionResult, KernelRecord, branch, checkpoint, destroy, execute, promote, rollback

CLIENTS = 3
ROUNDS = 8

# The state and the ending of a cell that was run, and of one that a rollback ended or kept from running.
WHAT_HAPPENS = {("kept", "finished"), ("rolled back", "rolled back")}


def test_every_cell_of_other_clients_ends_while_a_kernel_is_copied_and_rolled_back(kernel: KernelRecord) -> None:
    run(kernel, "counts = {}")
    over = Event()

    def work(client: int) -> list[ExecutionResult]:
        told = []
        while not over.is_set():
            told.append(execute(kernel.name, f"counts[{client}] = counts.get({client}, 0) + 1", timeout=DEADLINE))
        return told

    with ThreadPoolExecutor(CLIENTS) as pool:
        working = [pool.submit(work, client) for client in range(CLIENTS)]
        try:
            for number in range(ROUNDS):
                checkpoint(kernel)
                copy = branch(kernel, f"{kernel.name}-{number}")
                rollback(kernel)
                if number % 2:
                    promote(copy)
                else:
                    assert value(copy, "all(count > 0 for count in counts.values())") == "True"
                    destroy(copy)
        finally:
            over.set()
        results = [told for each in working for told in each.result(timeout=DEADLINE)]
    for told in results:
        by_branch = told.error is not None and "took its place" in told.error.evalue
        assert (told.state, told.ending) in WHAT_HAPPENS or by_branch, told.text
    assert any(told.ok for told in results)
    run(kernel, "counts = 'over'")
    assert value(kernel, "counts") == "'over'"

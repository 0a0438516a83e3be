"""Retries: an attempt that ends the kernel does not cost the attempts that follow it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelbox import ExecutionResult, KernelRecord, destroy, execute, execute_with_retry, restart, status
from kernelbox.api._configured import kernels

DIE = "import os; os._exit(3)"


@pytest.mark.parametrize("by", ["record", "id", "name"])
@pytest.mark.parametrize("dies", ["in the first attempt", "before the first attempt"])
def test_an_attempt_after_the_kernel_died_runs_in_a_new_process(kernel: KernelRecord, by: str, dies: str) -> None:
    meant = kernel if by == "record" else kernel.kernel_id if by == "id" else kernel.name
    if dies == "before the first attempt":
        execute(kernel, "import os, threading; threading.Timer(0.01, os._exit, [3]).start()")
        execute(kernel, "import time; time.sleep(100)")
    asked: list[int] = []

    def fix(result: ExecutionResult, attempt: int) -> str:
        asked.append(attempt)
        return "1 / 0" if attempt == 1 else "6 * 7"

    result = execute_with_retry(meant, DIE, fix, max_attempts=4)
    assert result.return_value == "42"
    assert [attempt.status for attempt in result.attempts] == ["error", "error", "success"]
    assert asked == [1, 2]
    if by != "name":
        assert execute(kernel, "1 + 1").return_value == "2"  # the record that the caller has means the new process


def test_a_kernel_that_was_destroyed_ends_the_attempts_at_once(kernel: KernelRecord) -> None:
    destroy(kernel)
    result = execute_with_retry(kernel, "1", lambda result, attempt: pytest.fail("there is nothing to repair"))
    assert (result.status, result.state, len(result.attempts)) == ("error", "lost", 1)
    assert result.error is not None
    assert "destroyed" in result.error.evalue


def test_a_kernel_that_every_attempt_ends_is_started_anew_each_time(kernel: KernelRecord, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); {DIE}"
    result = execute_with_retry(kernel, code, lambda result, attempt: None, max_attempts=3)
    assert result.status == "max_attempts_exceeded"
    assert (tmp_path / "runs").read_text() == "xxx"


def test_a_retry_uses_the_process_that_another_client_has_started_since_it_saw_the_death(kernel: KernelRecord) -> None:
    execute(kernel, DIE)
    dead = status(kernel)
    fresh = restart(kernel)
    assert kernels().revive(dead).pid == fresh.pid
    assert status(kernel).pid == fresh.pid


def test_clients_that_retry_on_one_dead_kernel_start_it_once(
    kernel: KernelRecord, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = home / "starts"
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", f"open({str(starts)!r}, 'a').write('x')")

    def retry(_: int) -> str | None:
        return execute_with_retry(kernel, "import os; os.getpid()", lambda *_: None, max_attempts=2).return_value

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            execute(kernel, DIE)
            starts.write_text("")
            pids = set(pool.map(retry, range(4)))
            assert pids == {str(status(kernel).pid)}
            assert starts.read_text() == "x"
    starts.unlink()

"""`result.more`: what a budget or the output limit cut is read from the log of the kernel."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.colours import Colour
from tests.support.executor import run

from kernelbox import CodeExecutor, OutputNotKept, destroy, execute, execute_with_retry, restart
from kernelbox.wire._cell_log import FULL

LONG = "for n in range(3_000): print('line', n)"
WHOLE = "\n".join(f"line {n}" for n in range(3_000))


@pytest.fixture(params=[False, True], ids=["Kernel", "AsyncKernel"])
def colour(request: pytest.FixtureRequest, home: Path) -> Iterator[Colour]:
    colour = Colour(request.param)
    yield colour
    colour.close()


@pytest.mark.parametrize("cut", [{"budget": 500}, {"output_char_limit": 500}, {}], ids=["budget", "limit", "default"])
def test_more_reads_any_part_of_what_was_cut(colour: Colour, cut: dict[str, int]) -> None:
    kernel = colour.open("worker")
    result = colour.call(kernel.execute, LONG, **cut)
    assert result.truncated
    assert len(result.text) < len(WHOLE)
    assert result.more() == WHOLE
    assert (result.more(10, 30), result.more(-9)) == (WHOLE[10:30], "line 2999")


def test_more_of_a_short_result_is_a_part_of_its_text(home: Path) -> None:
    result = execute("worker", "print('hello')")
    destroy("worker")
    assert (result.more(), result.more(1, 3)) == ("hello", "el")


@pytest.mark.parametrize("code", ["'x' * 50_000", "display('x' * 50_000)"], ids=["value", "display"])
def test_more_reads_long_values_and_displays(home: Path, code: str) -> None:
    result = execute("worker", code)
    assert result.truncated
    assert result.more().count("x") == 50_000


def test_more_reads_the_cells_of_a_bash(home: Path) -> None:
    result = execute("worker", "seq 5000", language="bash", budget=300)
    assert result.more() == "\n".join(map(str, range(1, 5001)))


def test_more_still_reads_after_a_restart_a_death_and_a_new_kernel(home: Path) -> None:
    result = execute("worker", LONG, budget=500)
    restart("worker")
    assert result.more() == WHOLE
    died = execute("worker", f"{LONG}\nimport os; os._exit(3)", budget=500)
    assert (result.more(), died.ending) == (WHOLE, "died")
    assert died.more().startswith(WHOLE)
    execute("worker", "1")  # opens the next kernel of the name
    assert result.more() == WHOLE


def test_copies_and_other_processes_read_it_too(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = execute("worker", LONG, budget=500)
    assert copy.deepcopy(result).more(0, 6) == "line 0"
    stored = tmp_path / "result"
    stored.write_bytes(pickle.dumps(result))
    program = f"import pickle; print(pickle.load(open({str(stored)!r}, 'rb')).more(7, 13))"
    monkeypatch.delenv("KERNELBOX_HOME", raising=False)
    monkeypatch.delenv("KERNELBOX_RUNTIME_DIR", raising=False)
    done = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout == "line 1\n"


def test_more_of_a_destroyed_kernel_says_that_nothing_is_kept(home: Path) -> None:
    result = execute("worker", LONG, budget=500)
    destroy("worker")
    with pytest.raises(OutputNotKept, match="'worker' is not kept: the kernel was destroyed"):
        result.more()


def test_more_of_a_cell_that_newer_ones_replaced_in_the_log_says_so(home: Path) -> None:
    result = execute("worker", LONG, budget=500)
    for _ in range(2 * FULL // 1_000_000 + 6):
        execute("worker", "print('x' * 1_000_000)")
    with pytest.raises(OutputNotKept, match="newer cells have taken its place"):
        result.more()


def test_a_retry_can_read_what_its_last_attempt_wrote(home: Path) -> None:
    result = execute_with_retry("worker", f"{LONG}\n1 / 0", lambda result, attempt: LONG, budget=500)
    assert result.ok
    assert result.more() == WHOLE


def test_an_executor_has_results_with_more(home: Path) -> None:
    async def scenario() -> str:
        async with CodeExecutor() as executor:
            return (await executor.execute(LONG, budget=500)).more()

    assert run(scenario) == WHOLE

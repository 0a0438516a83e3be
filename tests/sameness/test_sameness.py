"""A cell gives the same outputs in our kernel as in ipykernel, except where the corpus says why not."""

from __future__ import annotations

import difflib
import os
import sys
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernelbox import OutputItem, destroy, execute, get_or_create

from .corpus import FIELDS, SESSIONS, Cell, Session
from .oracle import CELL_S, Observation, Output, mask, observe, observe_ipykernel

# So many ipykernels work ahead of the tests, which mostly wait for them.
AHEAD = 2


@pytest.fixture(scope="module")
def same_surroundings(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Gives both kernels one environment, with homes of their own and no limit on what a cell may show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(shared_home))
        patch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        # As `activate` has it: ours would put it there, so that `%%python` is the kernel's own; ipykernel would not.
        patch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def expectations(
    request: pytest.FixtureRequest, same_surroundings: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Session, Future[list[Observation]]]]:
    """Has ipykernels run the sessions that were selected, in the order of their tests."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    selected = [call.params["session"] for call in calls if call is not None]
    # Under this variable ipykernel leaves the descriptors 1 and 2 alone, as no notebook does.
    env = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    with ThreadPoolExecutor(AHEAD) as pool:
        yield {
            session: pool.submit(observe_ipykernel, session.cells, tmp_path_factory.mktemp("theirs"), env)
            for session in selected
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.name.replace(" ", "_"))
def test_the_cells_of_a_session_give_the_same_outputs_as_in_ipykernel(
    session: Session,
    expectations: dict[Session, Future[list[Observation]]],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = [module for module in session.needs if find_spec(module) is None]
    assert not missing, f"two kernels without {missing} would agree about nothing but the ImportError"
    cwd = tmp_path_factory.mktemp("ours")
    monkeypatch.chdir(cwd)
    actual = observe_kernelbox(session.cells, cwd)
    expected = expectations[session].result()

    complaints = [
        f"cell {number} {complaint}\n{cell.code}\n\n{_difference(theirs, ours)}"
        for number, (cell, theirs, ours) in enumerate(zip(session.cells, expected, actual, strict=True))
        if (complaint := _complaint(cell, theirs, ours))
    ]
    if complaints:
        pytest.fail(f"\n\n{'=' * 80}\n".join([f"{len(complaints)} cells", *complaints]), pytrace=False)


def test_the_corpus_is_as_large_as_promised_and_gives_a_reason_for_every_difference() -> None:
    cells = [cell for session in SESSIONS for cell in session.cells]
    assert len(cells) >= 170
    assert len({session.name for session in SESSIONS}) == len(SESSIONS) <= 25
    assert all(cell.reason for cell in cells if cell.differs_in)


def observe_kernelbox(cells: Iterable[Cell], cwd: Path) -> list[Observation]:
    """Runs the cells in one fresh kernel of ours."""
    name = f"sameness-{uuid.uuid4().hex}"
    get_or_create(name)
    try:
        return [_run(name, cell, cwd) for cell in cells]
    finally:
        destroy(name)


def _run(name: str, cell: Cell, cwd: Path) -> Observation:
    result = execute(name, cell.code, timeout=CELL_S)
    error = (result.error.ename, result.error.evalue) if result.error else None
    seen = observe(map(_from_item, result.outputs), cwd, count=result.execution_count, error=error)

    # The summary fields are views of the outputs.
    assert result.status == seen.status, result
    assert mask(result.output, cwd) == seen.stream("stdout")
    assert mask(result.stderr, cwd) == seen.stream("stderr")
    assert (None if result.return_value is None else mask(result.return_value, cwd)) == seen.value
    return seen


def _from_item(item: OutputItem) -> Output:
    if item.kind in ("stream", "error"):
        return Output(item.kind, item.readable, item.name or "")
    return Output(item.kind, data=item.data, metadata=item.metadata, display_id=item.display_id or "")


def _complaint(cell: Cell, theirs: Observation, ours: Observation) -> str:
    raised = theirs.error.partition(":")[0]
    if raised != cell.raises:
        return f"raises {raised or 'nothing'} in ipykernel, the corpus says {cell.raises or 'nothing'}"
    differs_in = {name for name in FIELDS if getattr(theirs, name) != getattr(ours, name)}
    if differs_in == cell.differs_in:
        return ""
    said = ", ".join(sorted(cell.differs_in)) or "nothing"
    return f"differs in {', '.join(sorted(differs_in)) or 'nothing'}, the corpus says in {said}"


def _difference(theirs: Observation, ours: Observation) -> str:
    before, after = str(theirs).splitlines(), str(ours).splitlines()
    return "\n".join(difflib.unified_diff(before, after, "ipykernel", "kernelbox", lineterm="", n=2))

"""Kernel and AsyncKernel: the same methods with the same results."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import PICTURE
from tests.support.colours import Colour

from kernelbox import (
    ApprovalPolicy,
    AsyncKernel,
    ExecutionResult,
    InvalidInput,
    Job,
    Kernel,
    KernelExists,
    KernelNotFound,
    KernelRecord,
    OutputItem,
    execute,
    list_kernels,
)

CELLS = {
    "an expression": "1 + 1",
    "prints and a value": "print('a')\nimport sys\nprint('b', file=sys.stderr)\n'value'",
    "an error": "def f():\n    raise ValueError('no')\nf()",
    "a syntax error": "1 +",
    "nothing": "x = 1",
    "an exit": "exit()",
    "a table": "from IPython.display import HTML\nHTML('<table></table>')",
    "an await": "import asyncio\nawait asyncio.sleep(0, 'slept')",
    "a shell command": "!echo from a shell",
    "a death": "import ctypes; ctypes.string_at(0)",
    "a timeout": "import time; time.sleep(60)",
}


@pytest.fixture(params=[False, True], ids=["Kernel", "AsyncKernel"])
def colour(request: pytest.FixtureRequest, home: Path) -> Iterator[Colour]:
    colour = Colour(request.param)
    yield colour
    colour.close()


def seen(result: ExecutionResult) -> dict[str, Any]:
    """What two results of the same cell have in common: not the time, and not what the kernel is called."""
    told = result.to_dict()
    for name in ("duration_ms", "execution_count", "kernel_id", "name", "execution_id"):
        told.pop(name, None)
    return told


@pytest.mark.parametrize("code", CELLS.values(), ids=CELLS)
def test_a_cell_has_the_same_result_in_both_colours(code: str, home: Path) -> None:
    results = []
    for asynchronous in (False, True):
        colour = Colour(asynchronous)
        kernel = colour.open("the-same")
        timeout = 0.3 if "sleep(60)" in code else 30
        results.append(seen(colour.call(kernel.execute, code, timeout=timeout)))
        colour.call(kernel.destroy)
        colour.close()
    assert results[0] == results[1]


def test_variables_stay_from_cell_to_cell(colour: Colour) -> None:
    kernel = colour.open()
    colour.call(kernel.execute, "x = [1, 2]")
    assert colour.call(kernel.execute, "x").return_value == "[1, 2]"
    assert [v.name for v in colour.call(kernel.variables)] == ["x"]
    colour.call(kernel.stop)


def test_the_object_has_every_field_of_its_record(colour: Colour) -> None:
    kernel = colour.open("recorded", tags={"team": "a"})
    assert isinstance(kernel, KernelRecord)
    [listed] = list_kernels()
    assert (kernel.kernel_id, kernel.pid, kernel.tags) == (listed.kernel_id, listed.pid, {"team": "a"})
    assert repr(kernel) == f"<{type(kernel).__name__} 'recorded' idle pid={kernel.pid}>"


def test_a_private_kernel_ends_with_the_last_stop(colour: Colour) -> None:
    kernel = colour.open()
    colour.call(kernel.start)
    colour.call(kernel.stop)
    assert colour.call(kernel.execute, "1").ok
    colour.call(kernel.stop)
    assert list_kernels() == []


def test_a_named_kernel_stays_after_stop_unless_it_is_to_be_destroyed(colour: Colour) -> None:
    colour.call(colour.open("stays").stop)
    colour.call(colour.open("goes", destroy=True).stop)
    assert [record.name for record in list_kernels()] == ["stays"]


def test_a_destroyed_kernel_is_not_opened_again_by_a_cell(colour: Colour) -> None:
    kernel = colour.open("gone")
    assert colour.call(kernel.destroy) is True
    with pytest.raises(KernelNotFound, match="gone"):
        colour.call(kernel.execute, "1")
    assert list_kernels() == []
    colour.call(kernel.start)
    assert colour.call(kernel.execute, "1").ok


def test_a_death_is_reported_once_and_the_next_cell_has_a_fresh_kernel(colour: Colour) -> None:
    kernel = colour.open("mortal", tags={"kept": "yes"})
    died = colour.call(kernel.execute, "import os; os._exit(3)")
    assert (died.ending, died.state) == ("died", "lost")
    assert colour.call(kernel.execute, "'fresh'").return_value == "'fresh'"
    assert colour.call(kernel.refresh).tags == {"kept": "yes"}


def test_a_restart_loses_variables_and_keeps_the_id(colour: Colour) -> None:
    kernel = colour.open()
    before = kernel.kernel_id, kernel.pid
    colour.call(kernel.execute, "x = 1")
    colour.call(kernel.restart)
    assert kernel.kernel_id == before[0]
    assert kernel.pid != before[1]
    assert colour.call(kernel.execute, "'x' in dir()").return_value == "False"
    colour.call(kernel.stop)


def test_the_defaults_of_the_object_hold_for_its_cells(colour: Colour, tmp_path: Path) -> None:
    kernel = colour.open(timeout=0.3, images_dir=tmp_path / "pictures", output_char_limit=100)
    assert colour.call(kernel.execute, "while True: pass").status == "timeout"
    assert len(colour.call(kernel.execute, "print('x' * 5000)").output) < 300
    [image] = colour.call(kernel.execute, PICTURE, timeout=30).images
    assert Path(image).parent == tmp_path / "pictures"
    colour.call(kernel.stop)


def test_a_stream_yields_outputs_and_the_result_last(colour: Colour) -> None:
    kernel = colour.open()
    items = colour.call(kernel.stream, "print('one')\nprint('two')\n3")
    assert "".join(item.text for item in items[:-1] if item.kind == "stream") == "one\ntwo\n"
    assert isinstance(items[-1], ExecutionResult)
    assert all(isinstance(item, OutputItem) for item in items[:-1])
    colour.call(kernel.stop)


def test_bash_keeps_its_variables(colour: Colour) -> None:
    kernel = colour.open()
    colour.call(kernel.bash, "where=here")
    assert colour.call(kernel.bash, "echo $where").output == "here\n"
    colour.call(kernel.stop)


def test_approve_decides_each_command(colour: Colour) -> None:
    asked = []

    def approve(request: Any) -> bool | str:
        asked.append(request.tool_args["cmd"])
        return True if "yes" in asked[-1] else "not that one"

    kernel = colour.open(approve=approve)
    assert colour.call(kernel.execute, "!echo yes").output.strip() == "yes"
    refused = colour.call(kernel.execute, "!echo other")
    assert not refused.ok
    assert "not that one" in refused.text
    assert asked == ["echo yes", "echo other"]
    colour.call(kernel.stop)


def test_what_approve_raises_reaches_the_caller(colour: Colour) -> None:
    def approve(request: Any) -> bool:
        raise LookupError("the approver is broken")

    kernel = colour.open()
    with pytest.raises(LookupError, match="the approver is broken"):
        colour.call(kernel.execute, "!echo", approve=approve)
    assert colour.call(kernel.execute, "1").ok
    colour.call(kernel.stop)


def test_a_retry_asks_for_better_code(colour: Colour) -> None:
    kernel = colour.open()
    result = colour.call(kernel.retry, "y + 1", lambda result, attempt: "y = 1\ny + 1")
    assert (result.status, result.return_value, len(result.attempts)) == ("success", "2", 2)
    given_up = colour.call(kernel.retry, "1 / 0", lambda result, attempt: None, max_attempts=2)
    assert (given_up.status, len(given_up.attempts)) == ("max_attempts_exceeded", 2)
    with pytest.raises(RuntimeError, match="no idea") as raised:
        colour.call(kernel.retry, "1 / 0", _raise)
    assert len(raised.value.attempts) == 1  # type: ignore[attr-defined]  # left there for the caller
    colour.call(kernel.stop)


def _raise(result: ExecutionResult, attempt: int) -> str:
    raise RuntimeError("no idea")


def test_a_job_has_events_a_result_and_can_be_cancelled(colour: Colour) -> None:
    kernel = colour.open()
    job = colour.call(kernel.submit, "print('begun')\n'value'")
    assert colour.call(job.result).return_value == "'value'"
    assert [item.text for item in colour.call(job.events) if item.kind == "stream"] == ["begun\n"]
    endless = colour.call(kernel.submit, "import time\nprint('on')\nwhile True: time.sleep(0.01)", timeout=600)
    assert colour.call(lambda: first(endless)).text == "on\n"
    assert not endless.done
    cancelled = colour.call(endless.cancel)
    assert (cancelled.ending, cancelled.state) == ("interrupted", "kept")
    assert colour.call(kernel.execute, "1").ok
    colour.call(kernel.stop)


def test_a_job_is_refused_what_no_one_can_be_asked_about(colour: Colour) -> None:
    kernel = colour.open(policy=ApprovalPolicy(default="ask"), timeout=20)
    refused = colour.call(lambda: submit_and_wait(kernel, "!echo no"))
    assert (refused.status, refused.ending) == ("error", "finished"), refused.text
    assert "no approve= was passed" in refused.text
    colour.call(kernel.stop)


def submit_and_wait(kernel: Any, code: str) -> Any:
    """The result of a job, or what can be awaited for it."""
    return kernel.submit(code).result()


def test_false_for_approve_leaves_the_decision_to_the_object(colour: Colour) -> None:
    kernel = colour.open(approve=lambda request: "never")
    assert "never" in colour.call(kernel.stream, "!echo ran", approve=False)[-1].text
    colour.call(kernel.stop)


def first(job: Any) -> Any:
    """The first event of a job, or what can be awaited for it."""
    events = job.events()
    return next(events) if isinstance(job, Job) else anext(events)


def test_completions_come_from_live_objects(colour: Colour) -> None:
    kernel = colour.open()
    colour.call(kernel.execute, "frame = 'text'")
    assert "frame.upper" in colour.call(kernel.complete, "frame.upp")
    colour.call(kernel.stop)


def test_an_object_goes_on_in_the_home_where_it_was_made(
    colour: Colour, own_home: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(own_home))
    kernel = colour.open("at-home")
    colour.call(kernel.execute, "x = 1")
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    assert colour.call(kernel.execute, "x").return_value == "1"
    assert list_kernels() == []
    colour.call(kernel.destroy)


def test_other_options_than_those_of_the_live_kernel_are_refused(colour: Colour) -> None:
    colour.open("taken", tags={"a": "1"})
    with pytest.raises(KernelExists, match="tags"):
        colour.open("taken", tags={"a": "2"})


@pytest.mark.parametrize(
    "options",
    [{"timeout": "soon"}, {"approve": "yes"}, {"policy": "deny"}, {"output_char_limit": "many"}, {"destroy": 1}],
    ids=lambda options: next(iter(options)),
)
def test_what_cannot_be_used_is_refused_before_a_kernel_is_opened(colour: Colour, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        colour.open("refused", **options)
    assert list_kernels() == []


def test_a_copy_is_the_object_itself_and_a_pickle_is_its_record(colour: Colour) -> None:
    kernel = colour.open("copied")
    assert copy.copy(kernel) is kernel
    assert copy.deepcopy([kernel])[0] is kernel
    record = pickle.loads(pickle.dumps(kernel))
    assert type(record) is KernelRecord
    assert record == kernel
    assert execute(record, "1").ok


def test_the_methods_and_their_options_have_the_same_names_in_both_colours() -> None:
    import inspect

    for name, method in vars(Kernel).items():
        if not name.startswith("_") and inspect.isfunction(method):
            twin = getattr(AsyncKernel, name)
            assert list(inspect.signature(twin).parameters) == list(inspect.signature(method).parameters), name
    options = [list(inspect.signature(kind.__init__).parameters) for kind in (Kernel, AsyncKernel)]
    assert options[0] == options[1]

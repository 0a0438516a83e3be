"""The errors: each carries its sentence and fields through pickle and copy, as a process pool needs."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path

import pytest

import kernelbox
from kernelbox import ErrorInfo, ExecutionResult, KernelBoxError

FAILED = ExecutionResult("error", error=ErrorInfo("ValueError", "bad", ["line", "ValueError: bad"]), text="so far")

ERRORS: list[KernelBoxError] = [
    kernelbox.InvalidInput("code", 1, "use a string"),
    kernelbox.KernelNotFound("demo"),
    kernelbox.KernelExists("demo"),
    kernelbox.KernelDied("demo", "killed by SIGKILL"),
    kernelbox.StartFailed("no"),
    kernelbox.StoreFailed.because(OSError(28, "No space left on device", "/x"), "/x"),
    kernelbox.ApprovalClosed("shell", "accepted"),
    kernelbox.ToolServerFailed("server", "it is gone"),
    kernelbox.ExecutorStopped(),
    kernelbox.InheritedStream(),
    kernelbox.CodeExecutionError.of(FAILED, [Path("a.png")]),
    kernelbox.ExecutionTimeout.of(FAILED, []),
]


def test_every_error_is_tried_here() -> None:
    public = (getattr(kernelbox, name) for name in kernelbox.__all__)
    ours = {cls for cls in public if isinstance(cls, type) and issubclass(cls, KernelBoxError)}
    assert {type(error) for error in ERRORS} | {KernelBoxError} == ours


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle_and_copy(error: KernelBoxError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.__dict__ == error.__dict__


def fail(_: int) -> None:
    raise kernelbox.KernelDied("demo", "killed by SIGKILL")


def test_an_error_comes_back_from_a_process_pool() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(kernelbox.KernelDied, match="kernel 'demo' died: killed by SIGKILL"):
            pool.map(fail, [1])

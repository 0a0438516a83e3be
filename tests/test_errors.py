"""The errors: each carries its sentence and fields through pickle and copy, as a process pool needs."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import pytest

import kernelbox
from kernelbox import (
    CodeExecutor,
    ErrorInfo,
    ExecutionResult,
    InvalidInput,
    KernelBoxConfig,
    KernelBoxError,
    destroy,
    execute,
    interrupt,
    restart,
    status,
)

FAILED = ExecutionResult("error", error=ErrorInfo("ValueError", "bad", ["line", "ValueError: bad"]), text="so far")

ERRORS: list[KernelBoxError] = [
    kernelbox.InvalidInput("code", 1, "use a string"),
    kernelbox.KernelNotFound("demo"),
    kernelbox.KernelExists("demo"),
    kernelbox.KernelDied("demo", "killed by SIGKILL"),
    kernelbox.KernelBusy("demo"),
    kernelbox.CannotCopy("demo", ["a thread runs"]),
    kernelbox.CheckpointNotFound("demo", 3),
    kernelbox.OutputNotKept("demo", "0f1e", "the kernel was destroyed"),
    kernelbox.StartFailed("no"),
    kernelbox.StoreFailed.because(OSError(28, "No space left on device", "/x"), "/x"),
    kernelbox.ApprovalClosed("shell", "accepted"),
    kernelbox.ToolServerFailed("server", "it is gone"),
    kernelbox.ExecutorStopped(),
    kernelbox.InheritedStream(),
    kernelbox.MissingExtra("mcp", "tools", "mcp"),
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


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({}, "have neither a command nor a url: use"),
        ({"comand": "x"}, "have neither a command nor a url, and 'comand', which cannot be used: use"),
        ({"command": "x", "url": "http://x"}, "have both a command and a url: use"),
        ({"command": "x", "headers": {"a": "secret"}}, "have a command, and 'headers', which cannot be used: use"),
        ({"url": "http://x", 5: "secret"}, "have a url, and 5, which cannot be used: use"),
    ],
)
def test_parameters_of_a_server_that_do_not_fit_together_are_named(parameters: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        CodeExecutor(mcp_servers={"a": parameters})
    assert str(refused.value).startswith(f"the parameters of server 'a' {sentence}")
    assert "secret" not in str(refused.value)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


@pytest.mark.parametrize("use", [execute, interrupt, restart, destroy, status])
def test_what_is_no_kernel_is_refused_with_all_that_would_be_one(use: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^the kernel cannot be 5: use a KernelRecord, a name or an id$"):
        use(5, *(["1"] if use is execute else []))


def test_a_number_without_an_end_is_refused_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_EXECUTION_TIMEOUT", "inf")
    with pytest.raises(InvalidInput, match="use a finite number above 0"):
        KernelBoxConfig.from_env()


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


UNUSABLE: dict[str, Any] = {
    "not a number": float("nan"),
    "infinite": float("inf"),
    "no float": 10**400,
    "too many digits": 10**5000,
    "text": "5",
    "a switch": True,
    "unshowable": Unshowable(),
}


@pytest.mark.parametrize("timeout", UNUSABLE.values(), ids=UNUSABLE)
def test_a_timeout_that_cannot_be_used_is_refused_whatever_it_is(timeout: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^timeout cannot be .*: use a number of seconds"):
        execute("never opened", "1", timeout=timeout)


def test_a_name_that_is_too_long_is_refused_with_its_length() -> None:
    with pytest.raises(InvalidInput, match=r"\(1,001 characters\)"):
        execute("x" * 1001, "1")

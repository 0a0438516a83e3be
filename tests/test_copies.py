"""Copies of what the package hands out: a handle is copied as itself, and no copy closes a file of the process."""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import importlib
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.executor import run

import kernelbox
from kernelbox import (
    ApprovalRequest,
    AsyncJob,
    AsyncKernel,
    AsyncPool,
    CodeExecutionResult,
    CodeExecutor,
    ExecutionResult,
    Job,
    Kernel,
    KernelRecord,
    Pool,
    SyncApprovalRequest,
    execute,
    stream,
)
from kernelbox.base._unique_objects import Owner, close_own, identify
from kernelbox.gateway import KernelClient, KernelGateway
from kernelbox.host.files._place import Place
from kernelbox.host.process._process import Process, read_start_time
from kernelbox.usage._disk_usage import Walk

SOURCE = Path(kernelbox.__file__).parent

# What an agent framework does to the objects in its tools.
COPYING: list[Callable[[Any], object]] = [copy.copy, copy.deepcopy, pickle.dumps, lambda thing: copy.deepcopy([thing])]

VALUES = [
    kernelbox.ApprovalPolicy(kernelbox.ApprovalRule(server="shell", action="allow")),
    kernelbox.ApprovalRule(server="shell", action="deny"),
    ExecutionResult("success", text="1").snapshot(1, "1"),
    kernelbox.Checkpoint("id", 1, "label", "2026-01-01T00:00:00.000000+00:00", 3, 41, 5, "boot"),
    kernelbox.CodeExecutionChunk("text"),
    CodeExecutionResult("text", [Path("a.png")]),
    kernelbox.ErrorInfo("ValueError", "bad", []),
    ExecutionResult("success", text="1"),
    kernelbox.FileInfo("a.txt", 1, False, 0.0),
    kernelbox.KernelBoxConfig(),
    kernelbox.Limits(memory="100MB"),
    kernelbox.OutputItem("stream", text="x"),
    kernelbox.PastCell("id", 1, "x", "python", "success"),
    kernelbox.ToolEvent("log", "server", "tool", "text"),
    kernelbox.Variable("x", "int", 28, "1"),
]

# The live ones, each tried in a test below; errors are tried in test_errors.py.
TRIED_LIVE = {
    *(CodeExecutor, ApprovalRequest, SyncApprovalRequest, KernelRecord),
    *(Kernel, AsyncKernel, Job, AsyncJob, Pool, AsyncPool),
}


def test_every_public_class_is_tried_here() -> None:
    public = (getattr(kernelbox, name) for name in kernelbox.__all__)
    ours = {cls for cls in public if isinstance(cls, type) and not issubclass(cls, Exception)}
    assert ours == {type(value) for value in VALUES} | TRIED_LIVE


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_equal_to_its_copies(value: object) -> None:
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(twin) is type(value)
        assert repr(twin) == repr(value)


def test_a_record_is_equal_to_its_copies(kernel: KernelRecord) -> None:
    for twin in (copy.copy(kernel), copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert twin == kernel
        assert execute(twin, "1 + 1").return_value == "2"


def test_a_running_executor_is_its_own_copy_and_goes_on(home: Path) -> None:
    async def check() -> None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            assert (await executor.execute("x = 1; x")).text == "1"
            assert copy.copy(executor) is executor
            assert copy.deepcopy({"tools": [executor]})["tools"][0] is executor
            copied_without_harm(executor)
            assert (await executor.execute("x + 1")).text == "2"
            async for item in executor.stream("!true"):
                if isinstance(item, ApprovalRequest):
                    assert copy.deepcopy(item) is item
                    copied_without_harm(item)
                    await item.accept()
            assert (await executor.execute("x + 2")).text == "3"
        copied_without_harm(executor)

    run(check)


@pytest.mark.slow
def test_kernel_objects_jobs_and_pools_are_their_own_copies(home: Path, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    os.mkfifo(go_on)
    with Kernel() as kernel, Pool(1) as pool:
        # The thread of jobs opens files until the cell runs, and closes them when it has ended.
        job = kernel.submit(f"print('running', flush=True); open({str(go_on)!r}).read()\n1 + 1")
        assert next(job.events()) is not None
        for handle in (kernel, job, pool, kernel.files):
            assert copy.deepcopy(handle) is handle
            copied_without_harm(handle)
        go_on.write_text("")
        assert job.result().return_value == "2"
        assert kernel.execute("2").return_value == "2"


@pytest.mark.slow
def test_asynchronous_kernel_objects_jobs_and_pools_are_their_own_copies(home: Path) -> None:
    async def check() -> None:
        async with AsyncKernel() as kernel, AsyncPool(1) as pool:
            job = kernel.submit("1 + 1")
            for handle in (kernel, job, pool, kernel.files):
                assert copy.deepcopy(handle) is handle
                copied_without_harm(handle)
            assert (await job.result()).return_value == "2"
            assert (await kernel.execute("2")).return_value == "2"

    run(check)


@pytest.mark.slow
def test_a_stream_and_its_requests_survive_being_copied(kernel: KernelRecord) -> None:
    items = stream(kernel, "!echo here", approve=True)
    for item in items:
        copied_without_harm(items)
        if isinstance(item, SyncApprovalRequest):
            assert copy.deepcopy(item) is item
            copied_without_harm(item)
            item.accept()
    assert isinstance(item, ExecutionResult)
    assert item.output == "here\n"


@pytest.mark.slow
def test_a_gateway_and_its_client_are_their_own_copies(home: Path) -> None:
    async def check() -> None:
        async with KernelGateway() as gateway, KernelClient(port=gateway.port) as client:
            assert (await client.execute("1")).text == "1"
            for handle in (gateway, client):
                assert copy.deepcopy(handle) is handle
                copied_without_harm(handle)
            assert (await client.execute("2")).text == "2"

    run(check)


def test_an_executor_says_why_it_cannot_be_pickled(home: Path) -> None:
    with pytest.raises(TypeError, match="a CodeExecutor belongs to its process and cannot be pickled"):
        pickle.dumps(CodeExecutor())


def test_whatever_closes_a_descriptor_refuses_to_be_copied() -> None:
    copyable = [
        f"{module}.{name}"
        for module, name in closing_classes()
        if "__reduce_ex__" not in vars(cls := getattr(importlib.import_module(module), name))
        and not issubclass(cls, Owner)
    ]
    assert copyable == []


def test_owners_of_descriptors_survive_being_copied(tmp_path: Path) -> None:
    process = Process(os.getpid(), read_start_time(os.getpid()) or 0)
    process.fileno()
    with Place.open_any(str(tmp_path)) as place:
        for owner in (place, process, Walk(str(tmp_path))):
            copied_without_harm(owner)
    process.close()


def test_a_descriptor_that_has_become_another_file_is_left_open(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    identity = identify(fd)
    other = os.open(__file__, os.O_RDONLY)
    os.dup2(other, fd)
    os.close(other)
    close_own(fd, identity)
    assert identify(fd) != identity
    close_own(fd, identify(fd))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    close_own(fd, identity)  # already closed


def test_a_pinned_directory_closes_nothing_of_a_program_that_closed_everything(kernel: KernelRecord) -> None:
    code = (
        "import os, kernelbox\n"
        "kernelbox.list_kernels()\n"
        "os.closerange(3, 1000)\n"
        "files = [os.open('/dev/null', os.O_RDONLY) for _ in range(20)]\n"
        "kernelbox.api._configured._kernels.clear(); kernelbox.api._configured._latest = None\n"
        "import gc; gc.collect()\n"
        "[os.fstat(fd) for fd in files]\n"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


def copied_without_harm(thing: object) -> None:
    """Tries to copy an object in every way; asserts that each open file of this process is the one it was."""
    gc.collect()
    before = open_files()
    for copied in COPYING:
        with contextlib.suppress(TypeError):
            copied(thing)
    gc.collect()
    assert open_files() == before


def open_files() -> dict[int, tuple[int, int]]:
    """Returns what each descriptor of this process leads to."""
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the listing's own
            found[fd] = identify(fd)
    return found


def closing_classes() -> list[tuple[str, str]]:
    """Returns the classes of the host's side that close descriptors of their own, or do something when they go."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] == "guest":
            continue
        found += [
            (".".join(("kernelbox", *parts)), node.name)
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.ClassDef) and any(map(closes, ast.walk(node)))
        ]
    return found


def closes(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name="__del__"):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="close"), args=[ast.Attribute()]):
            return True
    return False

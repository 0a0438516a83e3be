"""The gate: who decides about a call, and what is remembered for how long."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from kernelbox import ApprovalPolicy, ApprovalRequest, KernelRecord
from kernelbox.core.approvals._approval_gate import Gate
from kernelbox.core.approvals._memory import Memory, Sessions
from kernelbox.host.process._process import boot_id, read_start_time
from kernelbox.wire._messages import Answer, Ask


def shell(command: str, *, tool: str = "shell", number: int = 1, **args: object) -> Ask:
    return Ask("cell", number, "kernelbox", tool, {"cmd": command, **args})


def record_of(pid: int, kernel_id: str = "k") -> KernelRecord:
    """Makes the record of a kernel whose process is this one."""
    start_time = read_start_time(pid)
    assert start_time is not None
    return KernelRecord(kernel_id, "", "name", "", "", pid=pid, start_time=start_time, boot_id=boot_id())


def make_gate(
    policy: ApprovalPolicy | None = None,
    sessions: Sessions | None = None,
    *,
    record: KernelRecord | None = None,
    shell: Literal["ask", "accept"] = "ask",
    tools: Literal["ask", "accept"] = "ask",
) -> Gate:
    return Gate(
        record or record_of(os.getpid()), policy or ApprovalPolicy(), sessions or Sessions(), shell=shell, tools=tools
    )


def decide(gate: Gate, ask: Ask, answer: Callable[[ApprovalRequest], Awaitable[None]] | None = None) -> Answer:
    """Has a gate decide; a call that it asks for without an `answer` fails the test."""

    async def fail(request: ApprovalRequest) -> None:
        raise AssertionError(f"asked for {request}")

    return asyncio.run(gate.decide(ask, answer or fail, call))


async def call(ask: Ask) -> Answer:
    """Stands for a tool's server."""
    return Answer(ask.id, ask.ask, True, payload=b"called")


def accept(**options: Any) -> Callable[[ApprovalRequest], Awaitable[None]]:
    return lambda request: request.accept(**options)


# -- the order of decisions --------------------------------------------------------------------------------------


def test_what_the_policy_allows_or_denies_is_not_asked() -> None:
    gate = make_gate(ApprovalPolicy().allow(args={"cmd": "ls"}).deny(args={"cmd": "rm"}, reason="no"))
    assert decide(gate, shell("ls")) == Answer("cell", 1, True)
    assert decide(gate, shell("rm")) == Answer("cell", 1, False, "no")


def test_what_the_policy_leaves_open_is_decided_by_the_habit_of_its_kind() -> None:
    shell_asks, tools_ask = make_gate(tools="accept"), make_gate(shell="accept")
    assert decide(shell_asks, shell("ls"), accept()).accepted
    assert decide(tools_ask, shell("ls")).accepted
    assert decide(shell_asks, Ask("c", 1, "s", "t", {})).payload == b"called"
    with pytest.raises(AssertionError, match=r"asked for s\.t"):
        decide(tools_ask, Ask("c", 1, "s", "t", {}))
    with pytest.raises(AssertionError, match=r"asked for kernelbox\.shell"):
        decide(shell_asks, shell("ls"))


def test_a_rule_that_asks_asks_although_the_habit_is_to_accept() -> None:
    gate = make_gate(ApprovalPolicy().ask("shell"), shell="accept")
    assert decide(gate, shell("ls"), lambda request: request.reject("no")) == Answer("cell", 1, False, "no")


def test_a_remembered_answer_wins_over_a_rule_that_asks_and_loses_to_one_that_denies() -> None:
    policy = ApprovalPolicy().ask("shell")
    gate = make_gate(policy)
    assert decide(gate, shell("ls"), accept(remember="execution")).accepted
    assert decide(gate, shell("ls")).accepted
    policy.deny("shell")
    assert not decide(gate, shell("ls")).accepted


def test_a_request_that_is_left_unanswered_is_rejected() -> None:
    requests: list[ApprovalRequest] = []

    async def ignore(request: ApprovalRequest) -> None:
        requests.append(request)

    answer = decide(make_gate(), shell("ls"), ignore)
    assert answer == Answer("cell", 1, False, "it was not answered while the cell waited")
    assert not requests[0].open


def test_a_decision_that_is_cancelled_closes_its_request() -> None:
    async def scenario() -> ApprovalRequest:
        shown: asyncio.Future[ApprovalRequest] = asyncio.get_running_loop().create_future()

        async def wait(request: ApprovalRequest) -> None:
            shown.set_result(request)
            await asyncio.Event().wait()

        task = asyncio.create_task(make_gate().decide(shell("ls"), wait, call))
        request = await shown
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return request

    assert not asyncio.run(scenario()).open


def test_a_cell_that_asks_for_more_at_once_than_a_host_keeps_is_refused_until_there_are_answers() -> None:
    gate, answered = make_gate(), asyncio.Event()

    async def later(request: ApprovalRequest) -> None:
        await answered.wait()
        await request.accept()

    async def scenario() -> list[bool]:
        first = asyncio.ensure_future(gate.decide(shell("x" * 40_000_000), later, call))
        await asyncio.sleep(0)
        refused = await gate.decide(shell("y" * 40_000_000), later, call)
        assert "too much at once" in refused.reason
        small = asyncio.ensure_future(gate.decide(shell("ls", number=2), later, call))
        answered.set()
        afterwards = gate.decide(shell("y" * 40_000_000, number=3), later, call)
        return [(await decision).accepted for decision in (first, small, afterwards)]

    assert asyncio.run(scenario()) == [True, True, True]


def test_an_accepted_call_of_a_tool_is_answered_by_its_server_and_a_rejected_one_is_not_made() -> None:
    called: list[Ask] = []

    async def call(ask: Ask) -> Answer:
        called.append(ask)
        return Answer(ask.id, ask.ask, True, payload=b"from the server")

    async def reject(request: ApprovalRequest) -> None:
        await request.reject("no")

    async def decided(present: Callable[[ApprovalRequest], Awaitable[None]]) -> Answer:
        return await make_gate().decide(Ask("c", 1, "hub", "t", {}), present, call)

    assert asyncio.run(decided(accept())).payload == b"from the server"
    assert asyncio.run(decided(reject)) == Answer("c", 1, False, "no")
    assert called == [Ask("c", 1, "hub", "t", {})]


def test_decisions_are_logged_escaped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kernelbox"):
        decide(make_gate(), shell("echo \x1b[2K"), lambda request: request.reject("no\n"))
    assert caplog.messages == ["kernelbox.shell(cmd='echo \\x1b[2K'): rejected: no\\n"]


# -- what a remembered answer covers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accepted", "next_call", "covered"),
    [
        (shell("git status"), shell("git status"), True),
        (shell("git status"), shell("git log -1"), False),
        (shell("git status"), shell("git status "), False),
        (shell("git status"), shell("git"), False),
        (shell("git status"), shell("git status", env={"A": "b"}), False),
        (shell("git status"), shell("git status", program="sh"), False),
        (shell("git status"), shell("git status", tool="shell_magic"), False),
        (shell("make", env={"A": "b"}), shell("make", env={"A": "b"}), True),
        (shell("make", env={"A": "b"}), shell("make", env={"A": None}), False),
        (shell("make", env={"A": "b"}), shell("make"), False),
        (shell("ls | wc"), shell("ls | wc"), True),
        (shell("ls | wc"), shell("ls | sh"), False),
        (shell("echo *"), shell("echo *"), True),
        (shell("echo *"), shell("echo x"), False),
        (shell("ls [a]"), shell("ls a"), False),
        (shell("print 1", tool="shell_magic", program="perl"), shell("print 1", tool="shell_magic"), False),
        (
            shell("print 1", tool="shell_magic", program="perl"),
            shell("print 1", tool="shell_magic", program="perl"),
            True,
        ),
        (
            shell("print 1", tool="shell_magic", program="perl"),
            shell("print 1", tool="shell_magic", program="sh"),
            False,
        ),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "git", "get", {"x": 1}), True),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "git", "get", {"x": 2}), False),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "git", "get", {"x": True}), False),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "git", "get", {"x": 1.0}), False),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "git", "get", {"x": "1"}), False),
        (Ask("c", 1, "git", "get", {"x": [0]}), Ask("c", 2, "git", "get", {"x": [False]}), False),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "git", "get", {"x": 1, "y": 2}), False),
        (Ask("c", 1, "git", "get", {"x": 1, "y": 2}), Ask("c", 2, "git", "get", {"y": 2, "x": 1}), True),
        (Ask("c", 1, "git", "get", {"x": float("nan")}), Ask("c", 2, "git", "get", {"x": float("nan")}), True),
        (Ask("c", 1, "git", "get", {}), Ask("c", 2, "git", "put", {}), False),
        (Ask("c", 1, "git", "get", {}), Ask("c", 2, "hub", "get", {}), False),
        (Ask("c", 1, "g*", "*", {}), Ask("c", 2, "git", "get", {}), False),
    ],
)
def test_a_remembered_answer_covers_exactly_the_same_call(accepted: Ask, next_call: Ask, covered: bool) -> None:
    memory = Memory()
    memory.keep(accepted, None)
    assert memory.covers(next_call) is covered


@pytest.mark.parametrize(
    ("patterns", "next_call", "covered"),
    [
        ({"cmd": "git *"}, shell("git log -1"), True),
        ({"cmd": "git *"}, shell("git log; rm x"), False),
        ({"cmd": "git *"}, shell("rm x"), False),
        ({"cmd": "git *"}, shell("git log", env={"PATH": "/tmp"}), False),
        ({"cmd": "git *", "env": "*"}, shell("git log", env={"PATH": "/tmp"}), True),
        ({"cmd": "git *"}, shell("git log", tool="shell_magic"), False),
        ({}, shell("rm -rf x; echo", env={"A": "b"}, program="sh"), True),
        ({}, shell("echo", tool="shell_magic"), False),
        ({}, Ask("c", 1, "other", "shell", {"cmd": "echo"}), False),
    ],
)
def test_what_to_remember_can_be_said_in_patterns_for_the_same_tool(
    patterns: dict[str, object], next_call: Ask, covered: bool
) -> None:
    memory = Memory()
    memory.keep(shell("git status"), patterns)
    assert memory.covers(next_call) is covered


def test_patterns_cover_the_calls_of_a_tool_whatever_glob_its_name_would_be() -> None:
    memory = Memory()
    memory.keep(Ask("c", 1, "[s]", "*", {"path": "/tmp/a"}), {"path": "/tmp/*"})
    assert memory.covers(Ask("c", 2, "[s]", "*", {"path": "/tmp/b"}))
    assert not memory.covers(Ask("c", 3, "[s]", "*", {"path": "/etc/b"}))
    assert not memory.covers(Ask("c", 4, "s", "write", {"path": "/tmp/b"}))


def test_remembering_the_same_again_takes_no_more_room() -> None:
    memory = Memory()
    for _ in range(3):
        memory.keep(shell("ls"), None)
        memory.keep(shell("ls"), {"cmd": "ls *"})
    assert repr(memory) == "<Memory of 1 calls, 1 rules>"


def test_patterns_that_python_takes_for_equal_are_remembered_each() -> None:
    memory = Memory()
    for value in (1, True):
        memory.keep(Ask("c", 1, "s", "t", {"x": value}), {"x": value})
    assert memory.covers(Ask("c", 2, "s", "t", {"x": 1, "y": 2}))
    assert memory.covers(Ask("c", 3, "s", "t", {"x": True, "y": 2}))
    assert not memory.covers(Ask("c", 4, "s", "t", {"x": 1.0, "y": 2}))


# -- for how long it is remembered --------------------------------------------------------------------------------


def test_what_is_accepted_without_remember_is_asked_again() -> None:
    gate = make_gate()
    assert decide(gate, shell("ls"), accept()).accepted
    assert not decide(gate, shell("ls"), lambda request: request.reject()).accepted


def test_a_rejection_is_not_remembered_as_accepted() -> None:
    gate = make_gate()
    assert not decide(gate, shell("ls"), lambda request: request.reject()).accepted
    assert decide(gate, shell("ls"), accept()).accepted


def test_what_is_remembered_for_the_execution_ends_with_its_gate() -> None:
    sessions = Sessions()
    gate = make_gate(sessions=sessions)
    assert decide(gate, shell("ls"), accept(remember="execution")).accepted
    assert decide(gate, shell("ls")).accepted
    with pytest.raises(AssertionError, match="asked for"):
        decide(make_gate(sessions=sessions), shell("ls"))


def test_what_is_remembered_for_the_session_covers_the_next_executions_in_the_same_process() -> None:
    sessions = Sessions()
    assert decide(make_gate(sessions=sessions), shell("ls"), accept(remember="session")).accepted
    assert decide(make_gate(sessions=sessions), shell("ls")).accepted


@pytest.mark.parametrize("other", [{"kernel_id": "other"}, {"pid": 1}, {"start_time": 1}])
def test_what_is_remembered_for_one_kernel_process_does_not_cover_another(other: dict[str, Any]) -> None:
    sessions = Sessions()
    assert decide(make_gate(sessions=sessions), shell("ls"), accept(remember="session")).accepted
    record = record_of(os.getpid())
    for name, value in other.items():
        setattr(record, name, value)
    with pytest.raises(AssertionError, match="asked for"):
        decide(make_gate(sessions=sessions, record=record), shell("ls"))


def test_the_memories_of_processes_that_have_ended_are_dropped() -> None:
    sessions, ours = Sessions(), record_of(os.getpid())
    sessions.keep(ours, shell("ls"), None)
    for number in range(5):
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            sessions.keep(record_of(process.pid, f"k{number}"), shell("ls"), None)
    assert repr(sessions) == "<Sessions of 2 kernels>"  # ours, and the last one
    assert sessions.covers(ours, shell("ls"))

"""Many processes at once, and processes that are killed between any two steps."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from tests.support.store import in_many_processes, kernel_directories, read_registry, run_python

from kernelbox import destroy, execute, get_or_create, list_kernels


def test_fifty_processes_that_ask_for_one_name_get_one_kernel(home: Path) -> None:
    answers = in_many_processes(50, "record = get_or_create('same'); answer = [record.kernel_id, record.pid]")
    assert len({tuple(answer) for answer in answers}) == 1, answers
    assert [record.name for record in list_kernels()] == ["same"]


def test_eight_threads_that_ask_for_one_name_get_one_kernel(home: Path) -> None:
    barrier, found = threading.Barrier(8), list[str]()

    def ask() -> None:
        barrier.wait()
        found.append(get_or_create("same").kernel_id)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_no_record_of_many_processes_is_lost(home: Path) -> None:
    code = "answer = [get_or_create(f'k{number}-{turn}').kernel_id for turn in range(3)]"
    ids = {kernel_id for answer in in_many_processes(6, code) for kernel_id in answer}
    assert len(ids) == 18
    assert {record.kernel_id for record in list_kernels()} == ids
    assert set(read_registry(home)) == ids


def test_creating_and_destroying_one_name_at_once_leaves_a_sound_store(home: Path) -> None:
    code = """
answer = []
for turn in range(8):
    if number % 2:
        answer.append(destroy('contested'))
    else:
        answer.append(get_or_create('contested').status)
"""
    answers = in_many_processes(8, code)
    outcomes = {str(outcome) for answer in answers for outcome in answer}
    assert outcomes <= {"True", "False", "idle", "unknown"}, answers
    assert len(list_kernels()) <= 1
    destroy("contested")
    assert list_kernels() == []
    assert kernel_directories(home) == []
    assert read_registry(home) == {}


def test_listing_while_others_create_and_destroy_never_fails(home: Path) -> None:
    code = """
if number == 0:
    answer = max(len(list_kernels()) for _ in range(200))
else:
    for turn in range(5):
        get_or_create(f'k{number}')
        destroy(f'k{number}')
    answer = 0
"""
    answers = in_many_processes(5, code)
    assert all(isinstance(answer, int) and answer <= 4 for answer in answers), answers


def test_listing_ends_no_kernel_that_another_process_is_opening_for_itself(home: Path) -> None:
    code = """
if number < 2:
    wrong = ('its owner has ended', 'its start was cut short')
    answer = [record.death for _ in range(200) for record in list_kernels() if record.death in wrong]
else:
    answer = []
    for turn in range(8):
        record = create(f'k{number}-{turn}', lifetime='process')
        answer += [result.text for result in [execute(record, '1 + 1')] if not result.ok]
        destroy(record)
"""
    assert in_many_processes(4, code) == [[], [], [], []]


def test_restarting_from_many_processes_at_once_leaves_one_live_kernel(home: Path) -> None:
    before = get_or_create("again")
    answers = in_many_processes(6, "record = restart('again'); answer = [record.kernel_id, record.status]")
    assert {tuple(answer) for answer in answers} <= {(before.kernel_id, "idle")}
    [record] = list_kernels()
    assert record.pid != before.pid
    assert execute("again", "1 + 1").return_value == "2"


# Kills itself at the n-th step that touches the file system, a socket or another process.
_CRASH = """
import json, os, signal, sys
import kernelbox
from kernelbox import *
from kernelbox.api import _sync

STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "socket.bind", "socket.connect",
         "subprocess.Popen", "fcntl.flock"}
prepare, operation = sys.argv[1:]
get_or_create("warm")  # so that every victim finds a template
step, survived = 0, False
while not survived:
    step += 1
    exec(prepare)
    victim = os.fork()
    if victim == 0:
        count = 0

        def hook(event, args):
            global count
            if event in STEPS:
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        exec(operation)
        os._exit(0)
    _, status = os.waitpid(victim, 0)
    survived = os.waitstatus_to_exitcode(status) == 0
    records = [record for record in list_kernels() if record.name == "victim"]
    assert len(records) <= 1, (step, records)
    assert get_or_create("victim").status == "idle", step
    assert execute("victim", "1 + 1").return_value == "2", step
    assert destroy("victim"), step
    assert not destroy("victim"), step
    with open(os.path.join(os.environ["KERNELBOX_HOME"], "registry.json")) as file:
        assert list(json.load(file)["kernels"]) == [get_or_create("warm").kernel_id], step
print(json.dumps(step))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prepare", "operation"),
    [
        pytest.param("pass", "get_or_create('victim')", id="open"),
        pytest.param("get_or_create('victim')", "restart('victim')", id="restart"),
        pytest.param("get_or_create('victim')", "destroy('victim')", id="destroy"),
    ],
)
def test_a_crash_between_any_two_steps_leaves_a_store_that_works(home: Path, prepare: str, operation: str) -> None:
    steps = json.loads(run_python(_CRASH, prepare, operation).stdout)
    assert steps > 5, "the operation must have steps to be killed at"

"""`python3` on ipykernel over ZeroMQ: the same API, the same promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, Running, run
from tests.support.jupyter import Gate

from kernelbox import ExecutionResult, KernelRecord, OutputItem, execute, get_or_create, interrupt, list_kernels, stream
from kernelbox.api._configured import kernels


def test_output_arrives_while_the_cell_runs(ipython: KernelRecord, tmp_path: Path) -> None:
    with Gate(tmp_path) as gate:
        seen = ""
        for event in stream(ipython, f"print('one', flush=True); {gate.wait}; print('two')"):
            if isinstance(event, ExecutionResult):
                assert event.output == "one\ntwo\n"
            elif isinstance(event, OutputItem):
                seen += event.text or ""  # a busy ipykernel sends the end of a line by itself
                if seen == "one\n":
                    gate.let_pass()
    assert seen == "one\ntwo\n"


def test_a_result_says_what_the_cell_wrote_showed_and_returned(ipython: KernelRecord) -> None:
    result = run(ipython, "import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
    assert (result.output, result.stderr, result.return_value) == ("out\n", "err\n", "42")
    assert result.execution_count
    assert (result.state, result.ending) == ("kept", "finished")
    assert result.text.endswith("42")


def test_variables_last_from_cell_to_cell(ipython: KernelRecord) -> None:
    run(ipython, "kept = 'still here'")
    assert run(ipython, "kept").return_value == "'still here'"


def test_an_error_is_a_result_with_a_clean_traceback(ipython: KernelRecord) -> None:
    result = execute(ipython, "def f():\n    return 1 / 0\nf()")
    assert result.status == "error"
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("ZeroDivisionError", "division by zero")
    assert any("return 1 / 0" in line for line in result.error.traceback)
    assert "\x1b" not in "".join(result.error.traceback)
    assert not any("\n" in line for line in result.error.traceback)
    assert run(ipython, "1 + 1").return_value == "2"


def test_displays_are_shown_updated_and_cleared(ipython: KernelRecord) -> None:
    code = (
        "from IPython.display import HTML, clear_output, display\n"
        "print('gone'); clear_output()\n"
        "handle = display('before', display_id=True); handle.update('after'); display(HTML('<b>x</b>'))"
    )
    result = run(ipython, code)
    text, html = result.outputs
    assert (text.kind, text.text) == ("display_data", "'after'")
    assert html.data["text/html"] == "<b>x</b>"


def test_a_plot_becomes_an_image_file(ipython: KernelRecord, tmp_path: Path) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()"
    result = execute(ipython, code, images_dir=tmp_path, timeout=DEADLINE)
    assert result.ok, result.text
    (image,) = result.images
    assert Path(image).read_bytes().startswith(b"\x89PNG")


def test_long_texts_are_bounded_and_say_so(ipython: KernelRecord) -> None:
    limit = kernels().config.output_char_limit
    result = run(ipython, "print('p' * 1_000_000); 'r' * 1_000_000")
    assert result.truncated
    assert result.return_value is not None
    assert len(result.output) <= limit
    assert limit < len(result.return_value) <= 1_000_000
    assert len(result.text) <= limit
    assert "characters cut" in result.output


def test_help_that_would_go_to_a_pager_is_shown(ipython: KernelRecord) -> None:
    assert "Print" in run(ipython, "print?").text


def test_a_timeout_interrupts_the_cell_and_keeps_the_state(ipython: KernelRecord) -> None:
    run(ipython, "precious = 1")
    result = execute(ipython, "print('begun'); import time; time.sleep(100)", timeout=BEGUN)
    assert (result.status, result.ending, result.state) == ("timeout", "interrupted", "kept")
    assert result.output == "begun\n"
    assert run(ipython, "precious").return_value == "1"


def test_a_command_that_ignores_interrupts_is_killed_and_the_state_kept(ipython: KernelRecord) -> None:
    run(ipython, "precious = 2")
    # Formatting a traceback can take longer than an overloaded machine has before the kernel would be killed.
    code = "import os\ntry: os.system(\"trap '' INT; sleep 100\")\nexcept KeyboardInterrupt: pass"
    result = execute(ipython, code, timeout=BEGUN)
    assert (result.status, result.state) == ("timeout", "kept")
    assert run(ipython, "precious").return_value == "2"


def test_input_fails_at_once(ipython: KernelRecord) -> None:
    result = execute(ipython, "input('name? ')", timeout=DEADLINE)
    assert result.status == "error"
    assert result.error is not None
    assert result.error.ename == "StdinNotImplementedError"


def test_another_client_can_interrupt_a_cell(ipython: KernelRecord) -> None:
    running = Running(ipython, "print('begun', flush=True)\nimport time\ntime.sleep(100)").wait_for_output()
    assert interrupt(ipython)
    result = running.result()
    assert (result.ending, result.state) == ("interrupted", "kept")
    assert result.error is not None
    assert result.error.ename == "KeyboardInterrupt"


def test_interrupting_an_idle_kernel_does_nothing(ipython: KernelRecord) -> None:
    assert not interrupt(ipython)
    assert run(ipython, "1 + 1").return_value == "2"


def test_leaving_a_stream_stops_the_cell(ipython: KernelRecord) -> None:
    run(ipython, "steps = 0")
    code = "import time\nprint('begun', flush=True)\nwhile True:\n    steps += 1\n    time.sleep(0.01)"
    events = stream(ipython, code)
    next(iter(events))
    events.close()  # type: ignore[attr-defined]  # it is a generator
    assert run(ipython, "steps").return_value == run(ipython, "steps").return_value


def test_no_output_of_many_executions_is_lost(ipython: KernelRecord) -> None:
    for number in range(300):
        result = run(ipython, f"print('line {number}'); {number}")
        assert (result.output, result.return_value) == (f"line {number}\n", str(number))


def test_each_of_several_clients_gets_its_own_output(ipython: KernelRecord) -> None:
    def work(client: int) -> list[tuple[str, str | None]]:
        results = [run(ipython, f"print('client {client}'); ({client}, {step})") for step in range(15)]
        return [(result.output, result.return_value) for result in results]

    with ThreadPoolExecutor(4) as pool:
        for client, got in enumerate(pool.map(work, range(4))):
            assert got == [(f"client {client}\n", f"({client}, {step})") for step in range(15)]


def test_another_process_uses_the_same_kernel(ipython: KernelRecord) -> None:
    run(ipython, "shared = 41")
    code = "import kernelbox; print(kernelbox.execute('ipython', 'shared + 1').return_value)"
    argv = [sys.executable, "-X", "dev", "-c", code]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=DEADLINE)
    assert (answer.stdout, answer.stderr) == ("42\n", "")


def test_running_a_cell_imports_zmq_but_not_jupyter_client(ipython: KernelRecord) -> None:
    code = (
        "import kernelbox, sys; kernelbox.execute('ipython', '1')\n"
        "print('zmq' in sys.modules, 'jupyter_client' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "True False\n"


def test_a_cell_queued_behind_a_failing_one_runs(ipython: KernelRecord, tmp_path: Path) -> None:
    with Gate(tmp_path) as gate:
        failing = Running(ipython, f"print('in', flush=True)\n{gate.wait}\nraise ValueError").wait_for_output()
        queued = Running(ipython, "'I ran'")
        gate.let_pass()
        assert failing.result().status == "error"
        assert queued.result().return_value == "'I ran'"


def test_a_cell_that_times_out_in_the_queue_never_runs_and_disturbs_nobody(
    ipython: KernelRecord, tmp_path: Path
) -> None:
    with Gate(tmp_path) as gate:
        running = Running(ipython, f"print('in', flush=True)\n{gate.wait}\n'undisturbed'").wait_for_output()
        queued = execute(ipython, "intruder = True", timeout=0.2)
        assert (queued.status, queued.ending) == ("timeout", "never ran")
        gate.let_pass()
        assert running.result().return_value == "'undisturbed'"
    assert run(ipython, "'intruder' in globals()").return_value == "False"


def test_records_say_whether_a_cell_runs(ipython: KernelRecord, tmp_path: Path) -> None:
    before = find(ipython)
    with Gate(tmp_path) as gate:
        running = Running(ipython, f"print('in', flush=True)\n{gate.wait}").wait_for_output()
        during = find(ipython)
        gate.let_pass()
        running.result()
    after = find(ipython)
    assert (before.status, during.status, after.status) == ("idle", "running", "idle")
    assert during.busy_since is not None
    assert after.busy_since is None
    assert after.attempt_count == before.attempt_count + 1
    assert after.last_used_at > before.last_used_at


def test_the_cell_of_a_client_that_was_killed_is_waited_for(ipython: KernelRecord, tmp_path: Path) -> None:
    with Gate(tmp_path) as gate:
        cell = f"print('in', flush=True)\n{gate.wait}\nfinished = True"
        client = f"import kernelbox\nfor event in kernelbox.stream('ipython', {cell!r}): print('begun', flush=True)"
        run(ipython, "finished = False")
        with subprocess.Popen([sys.executable, "-c", client], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            process.send_signal(signal.SIGKILL)
        assert find(ipython).status == "running"
        assert execute(ipython, "intruder = True", timeout=0.2).ending == "never ran"
        gate.let_pass()
        assert run(ipython, "finished, 'intruder' in globals()").return_value == "(True, False)"
    assert find(ipython).status == "idle"


def test_a_jupyter_client_can_share_the_kernel_and_is_not_disturbed(ipython: KernelRecord, tmp_path: Path) -> None:
    run(ipython, "from_us = 20")
    with jupyter_client_of(ipython) as client, Gate(tmp_path) as gate:
        request = client.execute(f"print('in', flush=True)\n{gate.wait}\nfrom_them = from_us + 1")
        while client.get_iopub_msg(timeout=DEADLINE)["msg_type"] != "stream":
            pass
        code = "import kernelbox; print(kernelbox.execute('ipython', 'intruder = True', timeout=0.2).ending)"
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert answer.stdout == "never ran\n"
        gate.let_pass()
        reply = client.get_shell_msg(timeout=DEADLINE)
        assert (reply["parent_header"]["msg_id"], reply["content"]["status"]) == (request, "ok")
    assert run(ipython, "from_us + from_them, 'intruder' in globals()").return_value == "(41, False)"


def test_what_a_thread_prints_between_cells_comes_with_the_next(ipython: KernelRecord, tmp_path: Path) -> None:
    done = tmp_path / "done"
    os.mkfifo(done)
    with Gate(tmp_path) as gate:
        code = (
            f"import threading\ndef late():\n    {gate.wait}\n    print('late', flush=True)\n"
            f"    open({str(done)!r}, 'w').close()\nthreading.Thread(target=late).start()"
        )
        run(ipython, code)
        gate.let_pass()
        done.read_bytes()
    assert run(ipython, "print('next')").output.splitlines() == ["late", "next"]


def test_bash_cells_run_as_a_cell_magic(ipython: KernelRecord) -> None:
    result = run(ipython, "echo $((6 * 7))\necho oops >&2", language="bash")
    assert (result.output, result.stderr) == ("42\n", "oops\n")
    failed = execute(ipython, "exit 3", language="bash")
    assert failed.error is not None
    assert failed.error.ename == "CalledProcessError"


def test_a_kernel_completes_code(ipython: KernelRecord) -> None:
    run(ipython, "completable = 1\n%config Completer.use_jedi = False")  # or it imports jedi, for seconds
    answer = kernels().kernel(ipython).ask("complete", {"code": "completab", "cursor_pos": 9}, patience=DEADLINE)
    assert answer is not None
    assert answer["matches"] == ["completable"]


def test_what_only_our_own_kernels_can_do_is_refused(ipython: KernelRecord) -> None:
    result = execute(ipython, "!echo unseen", timeout=DEADLINE, approve=lambda request: True)
    assert result.status == "error"
    assert result.error is not None
    assert "approval" in result.error.evalue
    assert "unseen" not in result.text


def test_the_engine_of_a_kernel_is_kept_when_the_setting_changes(
    ipython: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_ENGINE", "kernelbox")
    assert (get_or_create("ipython").engine, get_or_create("ipython").kernel_id) == ("jupyter", ipython.kernel_id)
    assert run("ipython", "type(get_ipython().kernel).__module__").return_value == "'ipykernel.ipkernel'"


@pytest.mark.parametrize("code", ["exit()", "quit()", "exit()\nraise ValueError"])
def test_a_cell_that_calls_exit_ends_the_kernel_and_loses_its_state(code: str, ipython: KernelRecord) -> None:
    run(ipython, "precious = 3")
    result = execute(ipython, f"print('last words')\n{code}", timeout=DEADLINE)
    assert (result.status, result.ending, result.state) == ("error", "died", "lost"), result.text
    assert result.error is not None
    assert result.error.ename == "KernelDied"
    assert result.error.evalue.startswith("the cell called exit()")
    assert result.output == "last words\n"
    dead = find(ipython)
    assert (dead.status, dead.death) == ("dead", "the cell called exit()")
    again = get_or_create("ipython")
    assert run(again, "'precious' in globals()").return_value == "False"


def test_exit_needs_no_brackets_in_a_line_of_its_own(ipython: KernelRecord) -> None:
    result = execute(ipython, "exit", timeout=DEADLINE)
    assert (result.ending, result.state) == ("died", "lost"), result.text


def test_an_exit_that_keeps_the_kernel_ends_nothing(ipython: KernelRecord) -> None:
    run(ipython, "precious = 4\nexit(keep_kernel=True)")
    assert run(ipython, "precious").return_value == "4"


def test_clients_that_queue_behind_a_cell_that_calls_exit_hear_of_it_too(ipython: KernelRecord, tmp_path: Path) -> None:
    with Gate(tmp_path) as gate:
        exiting = Running(ipython, f"print('in', flush=True)\n{gate.wait}\nexit()").wait_for_output()
        queued = Running(ipython, "'I ran'")
        gate.let_pass()
        assert [running.result().ending for running in (exiting, queued)] == ["died", "died"]
    assert get_or_create("ipython").pid != ipython.pid


@contextmanager
def jupyter_client_of(kernel: KernelRecord) -> Iterator[BlockingKernelClient]:
    client = BlockingKernelClient()
    client.load_connection_file(kernel.connection_file)
    client.start_channels()
    try:
        client.wait_for_ready(timeout=DEADLINE)
        yield client
    finally:
        client.stop_channels()
        client.context.term()


def find(kernel: KernelRecord) -> KernelRecord:
    (record,) = [record for record in list_kernels() if record.kernel_id == kernel.kernel_id]
    return record

"""Output: everything written arrives, in order and in bounded memory, and says what was cut."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, eventually, run, value

from kernelbox import ExecutionResult, KernelRecord, OutputItem, execute, stream

LIMIT = 10_000  # the default of KERNELBOX_OUTPUT_CHAR_LIMIT


def is_cut(text: str, *, head: str, tail: str) -> bool:
    """Tells whether a text is within the limit, shows both ends and says that something is missing."""
    return len(text) <= LIMIT and text.startswith(head) and text.endswith(tail) and "characters cut" in text


def test_200_mb_of_stdout_are_cut_to_head_and_tail_in_bounded_memory(kernel: KernelRecord) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "print('head')\nfor _ in range(2000): print('x' * 99_999)\nprint('tail')"
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.ok
    assert result.truncated
    assert is_cut(result.output, head="head\nxxx", tail="xxx\ntail\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kilobytes"
    assert int(value(kernel, "import resource; resource.getrusage(resource.RUSAGE_SELF).ru_maxrss")) < 200_000


def test_100_000_tiny_prints_arrive(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    result = execute(kernel, "for n in range(100_000): print(n)", timeout=DEADLINE)
    assert result.output == "".join(f"{n}\n" for n in range(100_000))
    assert not result.truncated


def test_one_line_of_50_mb_arrives(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    result = execute(kernel, "print('ä' * 25_000_000)", timeout=DEADLINE)
    assert len(result.output) == 25_000_001
    assert set(result.output) == {"ä", "\n"}


def test_the_output_of_a_child_arrives_whole(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    result = execute(kernel, "!seq 300000", timeout=DEADLINE)
    assert result.output == "".join(f"{n}\n" for n in range(1, 300_001))


def test_10_000_displays_keep_the_first_and_the_last(kernel: KernelRecord) -> None:
    result = run(kernel, "for n in range(10_000): display(n)")
    assert result.truncated
    assert [item.text for item in result.outputs[:3]] == ["0", "1", "2"]
    assert [item.text for item in result.outputs[-2:]] == ["9998", "9999"]
    assert any("outputs cut" in (item.text or "") for item in result.outputs)


def test_200_figures_arrive_as_pictures(kernel: KernelRecord, tmp_path: Path) -> None:
    code = (
        "import matplotlib.pyplot as plt\nfor n in range(200):\n"
        "    plt.figure(figsize=(0.4, 0.4), dpi=20); plt.plot([0, n]); plt.axis('off'); plt.show()"
    )
    result = execute(kernel, code, timeout=DEADLINE, images_dir=tmp_path)
    assert result.ok, result.text
    pictures = [item for item in result.outputs if "image/png" in item.data]
    assert len(pictures) == len(result.images) == len(list(tmp_path.iterdir())) == 200


FOOTPRINTS = {
    "closes them": "import os\nfor fd in (0, 1, 2): os.close(fd)",
    "closes stdout": "import sys; sys.stdout.close(); sys.stderr.close()",
    "redirects them to a file": "import os, tempfile\nf = tempfile.TemporaryFile()\nos.dup2(f.fileno(), 1)",
    "redirects stdout": "import io, sys; sys.stdout = io.StringIO(); print('into the void')",
    "duplicates them": "import os; a = os.dup(1); os.write(a, b'via dup\\n'); os.dup2(a, 2)",
    "deletes sys.stdout": "import sys; del sys.stdout",
    "sets sys.stdout to None": "import sys; sys.stdout = None",
    "makes them non-blocking": "import os; os.set_blocking(1, False); os.set_blocking(2, False)",
    "detaches the buffer": "import sys; sys.stdout.buffer.close()",
}


@pytest.mark.parametrize("what", FOOTPRINTS)
def test_a_cell_that_tampers_with_its_descriptors_does_not_silence_the_next(what: str, kernel: KernelRecord) -> None:
    execute(kernel, FOOTPRINTS[what], timeout=DEADLINE)
    run(kernel, "import sys; sys.stdout = sys.__stdout__; sys.stderr = sys.__stderr__")
    assert run(kernel, "print('heard')").output == "heard\n"
    assert run(kernel, "import sys; print('heard', file=sys.stderr)").stderr == "heard\n"
    assert value(kernel, "1 + 1") == "2"


def test_a_cell_that_prints_our_own_frames_prints_bytes_like_any_other(kernel: KernelRecord) -> None:
    code = (
        "import os, sys, struct, json\n"
        "h = json.dumps(['Done', 'x', 'ok', 1, '', '', [], False, False, None, None]).encode()\n"
        "f = struct.pack('!II', len(h), 0) + h\nos.write(1, f * 3)\nsys.stdout.write(f.decode('latin1'))\n'after'"
    )
    result = run(kernel, code)
    assert result.return_value == "'after'"
    assert result.output.count('["Done", "x"') == 4


def test_a_cell_that_writes_to_the_kernels_own_socket_breaks_only_its_own_result(kernel: KernelRecord) -> None:
    code = (
        "import os, stat\nfor fd in map(int, os.listdir('/proc/self/fd')):\n    try:\n"
        "        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, b'\\xff' * 100)\n    except OSError: pass"
    )
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.error is not None
    assert result.error.ename == "KernelDied"
    assert "not a message" in result.error.evalue
    assert execute(kernel.name, "1 + 1", timeout=DEADLINE).return_value == "2"


def test_a_slow_consumer_gets_everything_and_nobody_stores_it(kernel: KernelRecord) -> None:
    total, paused = 0, False
    for event in stream(kernel, "for _ in range(500): print('x' * 99_999)", timeout=DEADLINE):
        if isinstance(event, OutputItem):
            total += len(event.text or "")
            if not paused:
                paused = True
                # The kernel comes to a halt instead of storing what nobody reads.
                eventually(lambda: state_of(kernel) == "S")
                size = int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{kernel.pid}/status").read_text())[0])
                assert size < 200_000, "kilobytes"
    assert total == 50_000_000


def state_of(kernel: KernelRecord) -> str:
    return Path(f"/proc/{kernel.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_what_a_child_wrote_stays_with_its_cell_however_slow_the_consumer(kernel: KernelRecord, tmp_path: Path) -> None:
    marker = tmp_path / "written"
    # As much as socket and pipe take together, so that some of it is still in the pipe when the cell ends.
    code = (
        "import pathlib, subprocess\nsubprocess.run('head -c 250000 /dev/zero | tr \"\\\\0\" x', shell=True)\n"
        f"pathlib.Path({str(marker)!r}).touch()"
    )
    total = 0
    for event in stream(kernel, code, timeout=DEADLINE):
        if isinstance(event, OutputItem):
            total += len(event.text or "")
            eventually(marker.exists)
    assert total == 250_000
    assert run(kernel, "pass").output == ""


def test_a_consumer_that_leaves_the_loop_interrupts_the_cell(kernel: KernelRecord) -> None:
    run(kernel, "n = 0")
    for event in stream(kernel, "while True:\n    n += 1\n    print(n)", timeout=DEADLINE):
        assert isinstance(event, OutputItem)
        break
    assert int(value(kernel, "n")) > 0
    assert run(kernel, "print('own')").output == "own\n"


def test_a_generator_that_is_never_advanced_runs_nothing(kernel: KernelRecord) -> None:
    events = stream(kernel, "ran = True", timeout=DEADLINE)
    del events
    assert value(kernel, "'ran' in globals()") == "False"


CLIENT = """
import sys
from kernelbox import stream
for event in stream(sys.argv[1], sys.argv[2], timeout=1000):
    print("event", flush=True)
"""


@pytest.mark.parametrize("code", ["print('in')\nwhile True: pass", "while True: print('x' * 1000)"])
def test_a_client_killed_in_the_middle_leaves_a_kernel_that_answers(code: str, kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    client = subprocess.Popen([sys.executable, "-c", CLIENT, kernel.name, code], stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == b"event\n"
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    assert value(kernel, "kept") == "1"
    assert run(kernel, "print('own')").output == "own\n"


def test_2_000_executions_each_give_their_own_result(kernel: KernelRecord) -> None:
    for n in range(2_000):
        result = execute(kernel, f"print('out {n}')\n{n}", timeout=DEADLINE)
        assert (result.output, result.return_value, result.execution_count) == (f"out {n}\n", str(n), n + 1)


def test_every_part_of_a_result_is_cut_to_head_and_tail_and_says_so(kernel: KernelRecord) -> None:
    out = run(kernel, "print('head' + 'x' * 50_000 + 'tail')")
    assert is_cut(out.output, head="head", tail="tail\n")
    err = run(kernel, "import sys; print('head' + 'x' * 50_000 + 'tail', file=sys.stderr)")
    assert is_cut(err.stderr, head="head", tail="tail\n")
    shown = run(kernel, "class R:\n    def __repr__(self): return 'head' + 'x' * 50_000 + 'tail'\nR()")
    assert is_cut(shown.outputs[0].text or "", head="head", tail="tail")
    failed = execute(kernel, "raise ValueError('head' + 'x' * 50_000 + 'tail')", timeout=DEADLINE)
    assert failed.error is not None
    assert sum(map(len, failed.error.traceback)) <= LIMIT
    assert failed.error.traceback[-1].endswith("tail")
    for result in (out, err, shown, failed):
        assert result.truncated
        assert len(result.text) <= LIMIT
        assert len(json.dumps(result.to_dict())) < 5 * LIMIT + 2 * 50_100  # what an error says is whole, in two places
    assert not run(kernel, "print('x')").truncated


def test_a_recursion_error_is_told_in_a_few_lines(kernel: KernelRecord) -> None:
    result = execute(kernel, "def f(n): return g(n + 1)\ndef g(n): return f(n + 1)\nf(0)", timeout=DEADLINE)
    assert result.error is not None
    assert result.error.ename == "RecursionError"
    assert len(result.error.traceback) < 30
    assert "[… these 2 frames " in "\n".join(result.error.traceback)


def test_an_error_without_limits_still_arrives(kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    result = execute(kernel, "raise ValueError('x' * 80_000_000)", timeout=DEADLINE)
    assert result.error is not None
    assert result.error.ename == "ValueError"
    result = execute(kernel, "'x' * 80_000_000", timeout=DEADLINE)
    assert result.ending == "finished"
    assert value(kernel, "1 + 1") == "2"


def test_a_child_that_never_stops_writing_does_not_hold_up_the_cells(kernel: KernelRecord) -> None:
    run(kernel, "import subprocess; p = subprocess.Popen(['yes'])")
    for n in range(5):
        result = execute(kernel, f"print('cell {n}')\n{n}", timeout=DEADLINE)
        assert result.return_value == str(n)
    run(kernel, "p.kill(); p.wait()")
    eventually(lambda: "y" not in run(kernel, "pass").output)


def test_streams_yield_text_while_the_cell_still_runs(kernel: KernelRecord, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    code = f"print('first', end='')\nopen({str(gate)!r}).read()\nprint(' second')"
    texts: list[str] = []
    for event in stream(kernel, code, timeout=DEADLINE):
        if isinstance(event, ExecutionResult):
            assert event.output == "first second\n"
            break
        assert isinstance(event, OutputItem)
        texts.append(event.text or "")
        if len(texts) == 1:
            gate.open("w").close()  # the cell waits for this
    assert texts == ["first", " second\n"]


SHOWN = {
    "an object that is no JSON": "display({'application/json': object()}, raw=True)",
    "numbers that are no JSON": "display({'application/json': {'x': float('nan')}}, raw=True)",
    "bytes": "display({'image/png': b'not a picture', 'text/plain': 'text'}, raw=True)",
    "keys that are no strings": "display({'application/json': {1: 2}}, raw=True)",
    "a circle": "x = []; x.append(x); display({'application/json': x}, raw=True)",
    "a bundle of None": "display({'text/plain': None}, raw=True)",
    "metadata that is no JSON": "display({'text/plain': 'x'}, raw=True, metadata={'m': object()})",
    "much HTML": "from IPython.display import HTML; display(HTML('<b>x</b>' * 5_000_000))",
    "a picture of 100 MB": "from IPython.display import Image; display(Image(bytes(100_000_000), format='png'))",
    "a method that raises": "class R:\n    def _repr_html_(self): raise KeyError\ndisplay(R())",
    "a bundle that is no dictionary": "class R:\n    def _repr_mimebundle_(self, **k): return 5\ndisplay(R())",
    "a mime type that is no string": "display({5: 'x'}, raw=True)",
}


@pytest.mark.parametrize("what", SHOWN)
def test_whatever_a_cell_displays_harms_only_itself(what: str, kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    result = execute(kernel, SHOWN[what] + "\nprint('on')", timeout=DEADLINE)
    assert (result.ending, result.state) == ("finished", "kept"), result.text
    assert result.ok == (result.output == "on\n")
    json.dumps(result.to_dict())
    assert value(kernel, "kept") == "1"


@pytest.mark.parametrize("limit", ["0", "100000000"])
def test_an_error_of_any_size_fits_its_message(limit: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", limit)
    result = execute("errors without a limit", "raise ValueError('\N{GRINNING FACE}' * 9_000_000)", timeout=DEADLINE)
    assert result.error is not None
    assert result.error.ename == "ValueError"
    assert result.truncated


def test_what_threads_print_between_cells_in_turns_is_bounded_too(kernel: KernelRecord, tmp_path: Path) -> None:
    first = run(
        kernel,
        "import asyncio, pathlib, sys, threading\n"
        "go = threading.Event()\n"
        "def talk():\n"
        "    go.wait()\n"
        "    for n in range(1000): print(n); print(n, file=sys.stderr)\n"
        f"    pathlib.Path({str(tmp_path)!r}, 'done').touch()\n"
        "threading.Thread(target=talk).start()\n"
        "asyncio.get_running_loop().call_later(0.01, go.set)",  # when the cell has ended
    )
    eventually((tmp_path / "done").exists)
    result = run(kernel, "pass")
    lines = "".join(f"{n}\n" for n in range(1000))
    assert (first.output + result.output, first.stderr + result.stderr) == (lines, lines)
    assert len(result.outputs) <= 101

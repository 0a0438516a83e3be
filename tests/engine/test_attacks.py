"""Attacks of cells on the host that once succeeded, as they were made."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, is_running, parent_of, run, stopped, value, wait_for_end
from tests.support.store import run_python

from kernelbox import KernelBoxError, KernelRecord, destroy, execute, get_or_create, list_kernels, restart, wipe


@pytest.fixture
def kernel(own_home: Path) -> KernelRecord:
    """Opens a kernel in a home of its own: what these cells leave is not for other tests to find."""
    return get_or_create("hostile")


def directory_of(kernel: KernelRecord) -> str:
    return str(Path(kernel.connection_file).parent)


@pytest.mark.slow
def test_a_cell_that_removes_its_record_and_hangs_is_killed_and_replaced(kernel: KernelRecord) -> None:
    code = f"import os, itertools\nos.unlink({directory_of(kernel)!r} + '/connection.json')\nall(itertools.repeat(1))"
    result = execute(kernel, code, timeout=BEGUN)
    assert (result.state, result.ending) == ("lost", "restarted")
    assert kernel.pid is not None
    wait_for_end(kernel.pid)
    assert value(kernel.name, "1 + 1") == "2"


def test_a_cell_that_names_another_process_in_its_record_harms_only_itself(kernel: KernelRecord) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as innocent:
        code = (
            "import itertools, json\n"
            f"path = {directory_of(kernel)!r} + '/connection.json'\n"
            f"record = json.load(open(path)); record['pid'] = {innocent.pid}\n"
            f"record['start_time'] = int(open('/proc/{innocent.pid}/stat').read().rpartition(')')[2].split()[19])\n"
            "json.dump(record, open(path, 'w'))\nall(itertools.repeat(1))"
        )
        execute(kernel, code, timeout=BEGUN)
        assert kernel.pid is not None
        wait_for_end(kernel.pid)
        assert innocent.poll() is None


@pytest.mark.parametrize("plant", ["os.mkdir(S)", "os.mkfifo(S)", "os.symlink('/dev/zero', S)"])
def test_what_a_cell_plants_at_its_state_file_does_not_end_the_keeper(plant: str, own_home: Path) -> None:
    kernel, other = get_or_create("planter"), get_or_create("other")
    keeper = parent_of(other.pid or 0)
    result = execute(
        kernel,
        f"import os\nS = {directory_of(kernel)!r} + '/state'\nos.unlink(S)\n{plant}\nos._exit(3)",
        timeout=DEADLINE,
    )
    assert result.error is not None
    assert "exited with status 3" in result.error.evalue
    assert is_running(keeper)
    assert value(other, "1 + 1") == "2"


@pytest.mark.parametrize("name", ["log", "cells-0", "state", "death.json", "ending.json", "connection.json", "socket"])
@pytest.mark.parametrize("end", [restart, destroy, lambda name: execute(name, "import os; os._exit(3)")])
def test_a_link_that_a_cell_plants_in_its_directory_is_not_written_through(
    end: Callable[[str], object], name: str, own_home: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    precious.chmod(0o644)
    kernel = get_or_create("planter")
    link = f"{directory_of(kernel)}/{name}"
    run(
        kernel, f"import os\nif os.path.lexists({link!r}): os.unlink({link!r})\nos.symlink({str(precious)!r}, {link!r})"
    )
    with contextlib.suppress(KernelBoxError):  # it may be lost by now
        end("planter")
    execute("planter", "1", timeout=DEADLINE)
    assert (precious.read_text(), precious.stat().st_mode & 0o777) == ("precious", 0o644)


def test_a_link_at_a_kernels_socket_leads_to_no_other_kernel(kernel: KernelRecord) -> None:
    victim = get_or_create("victim")
    run(victim, "secret = 'victim state'")
    S, V = f"{directory_of(kernel)}/socket", f"{directory_of(victim)}/socket"
    code = (
        f"import kernelbox\ntry: print(kernelbox.execute({kernel.name!r}, 'secret').text)\n"
        "except kernelbox.StoreFailed as exc: print('is not a socket' in str(exc))"
    )
    with stopped(parent_of(kernel.pid or 0)):
        run(kernel, f"import os\nos.unlink({S!r}); os.symlink({V!r}, {S!r})")
        assert run_python(code).stdout == "True\n"


def test_an_update_of_a_thousand_displays_is_weighed_once(kernel: KernelRecord) -> None:
    code = (
        "from IPython.display import display\n"
        "for _ in range(1000): display({'text/plain': 'a'}, raw=True, display_id='x')\n"
        "for _ in range(3): get_ipython().display_pub.publish(\n"
        "    {'application/json': list(range(20000))}, transient={'display_id': 'x'}, update=True)"
    )
    assert execute(kernel, code, timeout=DEADLINE).ok


def test_forged_numbers_in_the_state_file_are_not_believed(kernel: KernelRecord) -> None:
    state = f"{directory_of(kernel)}/state"
    run(kernel, f"import struct\nwith open({state!r}, 'r+b') as f: f.seek(8); f.write(struct.pack('<Q', 2**64 - 1))")
    again = restart(kernel)
    assert value(again, "1 + 1") == "2"
    assert [record.kernel_id for record in list_kernels() if record.name == kernel.name] == [kernel.kernel_id]


GIVEN = {"PATH": os.environ["PATH"], "GIVEN": "yes"}


@pytest.mark.parametrize("by", ["restart", "death"])
def test_a_kernel_with_an_environment_of_its_own_never_gets_that_of_another_process(by: str, home: Path) -> None:
    get_or_create("given", env=GIVEN)
    code = f"""
import os, kernelbox
os.environ["SECRET_OF_OTHER"] = "o"
if {by!r} == "restart":
    kernelbox.restart("given")
else:
    os.kill(kernelbox.status("given").pid, 9)
    kernelbox.execute("given", "1")  # tells of the death
result = kernelbox.execute("given", "import os; os.environ.get('SECRET_OF_OTHER'), 'PATH' in os.environ")
print(result.return_value)
"""
    assert run_python(code).stdout == "(None, True)\n"


def test_a_planted_module_is_not_imported_by_a_cold_kernel_itself(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("glob", "shutil", "getpass", "hashlib", "difflib", "html", "IPython", "zmq", "traitlets"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")
    get_or_create("cold", cwd=tmp_path)
    for code in ("1 + 1", "pritn", "def f(: pass", "len?", "print('x')", "await __import__('asyncio').sleep(0)"):
        execute("cold", code)
    assert not (tmp_path / "ran").exists()
    destroy("cold")
    wipe()

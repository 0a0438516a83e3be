"""Systems that lack what Linux has: the same client and the same kernel, in interpreters without these functions.

What is missing on macOS is taken away before anything of ours is imported, in every process that starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TAKEN_AWAY = """
import _socket, os, select, signal, socket, sys, time
credentials = ("SO_PEERCRED", "SO_PASSCRED", "SCM_CREDENTIALS")
for module, names in (
    (os, ("pidfd_open", "memfd_create", "waitid", "O_PATH", "sched_getaffinity")),
    (select, ("epoll",)),
    (signal, ("SIGRTMIN", "SIGRTMAX", "pidfd_send_signal")),
    (socket, credentials),
    (_socket, credentials),
    (time, ("CLOCK_BOOTTIME",)),
):
    for name in names:
        delattr(module, name)
os.process_cpu_count = os.cpu_count  # as Python 3.13 has it where there is no sched_getaffinity
sys.modules.pop("selectors", None)  # which has looked already
"""

USED = """
import asyncio, os
from kernelbox import ApprovalPolicy, CodeExecutor, execute, get_or_create, wipe
assert not hasattr(os, "pidfd_open")

async def run(code):
    async with CodeExecutor(kernel_env={"PYTHONPATH": os.environ["PYTHONPATH"]}) as executor:
        return (await executor.execute(code)).text

record = get_or_create("other")
policy = ApprovalPolicy().allow()
try:
    print(execute(record, "x = 20\\nx + 1").return_value)
    print(execute(record, "import time\\ntime.sleep(60)", timeout=0.5).ending)
    print(execute(record, "%%sh\\necho approved", policy=policy).text)
    print(execute(record, "import os\\nos.kill(os.getpid(), 9)").error.evalue.partition(";")[0])
    print(asyncio.run(run("40 + 2")))
finally:
    wipe()
"""


def test_a_system_without_linux_s_descriptors_runs_cells_and_tells_deaths(own_home: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(TAKEN_AWAY)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "KERNELBOX_TEMPLATE": "0"}
    command = [sys.executable, "-c", USED]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == ["21", "interrupted", "approved", "killed by SIGKILL", "42"], ended.stderr


@pytest.mark.skipif(shutil.which("ps") is None, reason="asks ps")
def test_where_there_is_no_proc_a_process_is_known_by_the_same_number_in_every_time_zone() -> None:
    code = f"from kernelbox.usage._processes import ask_start_time\nprint(ask_start_time({os.getpid()}))"
    told: set[str] = set()
    for zone in ("UTC", "Asia/Tokyo"):
        environment = {**os.environ, "TZ": zone}
        told.update(subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).split())
    (number,) = told
    assert int(number) > 0

"""A template keeps a spare process. It becomes the next kernel, which is like any other, and ends with its template."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.support.cells import eventually, parent_of, run, value, wait_for_end

from kernelbox import CodeExecutionError, CodeExecutor, get_or_create, list_kernels, wipe
from kernelbox.guest._process_tree import children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no spares")


@pytest.fixture
def template(own_home: Path) -> int:
    """Opens a kernel and returns its template, which has learned from the kernel what a spare needs."""
    kernel = get_or_create("first", env={**os.environ})
    run(kernel, "pass")
    return parent_of(kernel.pid or 0)


def spare_of(template: int) -> int:
    """Waits for the spare of a template, and returns it."""

    def find() -> list[int]:
        kernels = {kernel.pid for kernel in list_kernels()}
        return [pid for pid in children(template) if pid not in kernels]

    eventually(find)
    (spare,) = find()
    return spare


def test_a_kernel_made_of_a_spare_is_like_any_other(template: int, tmp_path: Path) -> None:
    code = f"import os; (os.getcwd() == {str(tmp_path)!r}, os.environ['NUMBER'], os.getsid(0) == os.getpid(), len(In))"
    for number in ("0", "1"):
        spare = spare_of(template)
        kernel = get_or_create(f"next-{number}", cwd=tmp_path, env={**os.environ, "NUMBER": number})
        assert kernel.pid == spare
        assert value(kernel, code) == repr((True, number, True, 2))
    random = {value(kernel, "import random; random.random()") for kernel in list_kernels()}
    assert len(random) == 3


def test_a_spare_holds_nothing_of_its_template_or_of_other_kernels(template: int) -> None:
    spare = spare_of(template)

    def opened() -> list[str]:
        return [name for name in os.listdir(f"/proc/{spare}/fd") if int(name) > 2]

    eventually(lambda: len(opened()) == 1)  # where its request arrives; a fresh fork has yet to close the rest


def test_a_kernel_with_limits_is_not_made_of_a_spare(template: int) -> None:
    for name in ("loads what such kernels need", "limited"):
        spare = spare_of(template)
        assert get_or_create(name, env={**os.environ}, limits={"memory": "1GB"}).pid != spare
    assert spare_of(template) == spare


def test_a_guarded_kernel_is_made_of_a_spare(own_home: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        spare = 0
        for name in ("first", "loads what such kernels need", "guarded"):
            guarded = name != "first"
            async with CodeExecutor(
                working_dir=tmp_path, name=name, approve_shell_cmds=guarded, require_shell_escape=guarded
            ) as executor:
                pid = get_or_create(name).pid or 0
                with pytest.raises(CodeExecutionError) if guarded else nullcontext():
                    await executor.execute("import os; os.system('true')")
                expected, spare = spare, spare_of(parent_of(pid))
        assert pid == expected

    asyncio.run(scenario())


def test_a_spare_that_was_killed_is_not_missed(template: int) -> None:
    os.kill(spare_of(template), signal.SIGKILL)
    assert value(get_or_create("next", env={**os.environ}), "1 + 1") == "2"


def test_a_spare_that_is_killed_when_it_has_been_chosen_is_not_missed(template: int) -> None:
    spare, files = spare_of(template), Path(f"/proc/{template}/fd")
    before = len(list(files.iterdir()))
    os.kill(spare, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        opened = thread.submit(get_or_create, "next", env={**os.environ})
        eventually(lambda: len(list(files.iterdir())) > before + 5)  # it holds what belongs to the next kernel
        os.kill(spare, signal.SIGKILL)
        assert value(opened.result(), "1 + 1") == "2"


def test_a_spare_ends_with_its_template(template: int) -> None:
    spare = spare_of(template)
    os.kill(template, signal.SIGKILL)
    wait_for_end(spare)


def test_wipe_ends_a_spare(template: int) -> None:
    spare = spare_of(template)
    wipe()
    wait_for_end(spare)

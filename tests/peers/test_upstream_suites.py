"""ipykernel's and nbclient's own tests, from their source distributions, with our kernel in the place of `python3`.

The tests that must fail are named here, each with the difference that it is about, and so are the files that are left
out. This test fails when another one fails, when one of these passes, and when there is a file that is not named.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from tests.support.browser import give_up

from kernelbox.server.jupyter._kernelspec import install

FOLDER = Path(__file__).parents[2] / ".cache" / "upstream"

# What the suites import, beside what the tests here do.
PACKAGES = ("flaky", "nbconvert", "pytest-asyncio", "testpath", "xmltodict")

# Seconds for one of their tests; the longest waits for a few kernels to start.
TIMEOUT = 60


class Suite(NamedTuple):
    """The tests of a package: those that must fail, by the difference that they are about, and those left out.

    `other_files` are not run, by the reason.
    """

    package: str
    files: tuple[str, ...]
    accepted: dict[str, tuple[str, ...]]
    left_out: tuple[str, ...]
    other_files: dict[str, tuple[str, ...]]


IPYKERNEL = Suite(
    "ipykernel",
    ("test_kernel.py", "test_message_spec.py", "test_async.py", "test_subshells.py", "test_debugger.py"),
    {
        "there are no subshells, and kernel_info says so: cells run one at a time": (
            "test_message_spec::test_kernel_info_request",
            "test_message_spec::test_subshell",
            "test_subshells::test_comm_close_on_deleted_subshell",
            "test_subshells::test_comm_reply_follows_requesting_subshell",
            "test_subshells::test_create_while_execute",
            "test_subshells::test_execute_stop_on_error[are_subshells0]",
            "test_subshells::test_execute_stop_on_error[are_subshells1]",
            "test_subshells::test_execute_stop_on_error[are_subshells2]",
            "test_subshells::test_idle_message_parent_headers[are_subshells0]",
            "test_subshells::test_idle_message_parent_headers[are_subshells1]",
            "test_subshells::test_idle_message_parent_headers[are_subshells2]",
            "test_subshells::test_run_concurrently_sequence[False-are_subshells0]",
            "test_subshells::test_run_concurrently_sequence[False-are_subshells1]",
            "test_subshells::test_run_concurrently_sequence[False-are_subshells2]",
            "test_subshells::test_run_concurrently_sequence[True-are_subshells0]",
            "test_subshells::test_run_concurrently_sequence[True-are_subshells1]",
            "test_subshells::test_run_concurrently_sequence[True-are_subshells2]",
            "test_subshells::test_shutdown_with_subshell",
            "test_subshells::test_silent_flag_in_subshells",
            "test_subshells::test_subshell_id_lifetime",
            "test_subshells::test_supported",
            "test_subshells::test_thread_counts",
            "test_subshells::test_thread_ids",
            "test_subshells::test_unknown_subshell_id",
        ),
        "there is no debugger for editors, and kernel_info says so": (
            "test_debugger::test_attach_debug",
            "test_debugger::test_breakpoint_in_cell_with_leading_empty_lines",
            "test_debugger::test_copy_to_globals",
            "test_debugger::test_debug_initialize",
            "test_debugger::test_debug_requests_sequential",
            "test_debugger::test_rich_inspect_at_breakpoint",
            "test_debugger::test_rich_inspect_not_at_breakpoint",
            "test_debugger::test_set_breakpoints",
            "test_debugger::test_stop_on_breakpoint",
            "test_debugger::test_supported_features",
        ),
        "it uses ipykernel's private parts: OutStream._is_master_process, Kernel._parent_ident": (
            "test_kernel::test_parent_header_and_ident",
            "test_kernel::test_simple_print",
            "test_kernel::test_subprocess_error",
            "test_kernel::test_subprocess_noprint",
            "test_kernel::test_subprocess_print",
        ),
        "requests are served one after the other, so a message to a widget waits also for a cell that awaits it": (
            "test_kernel::test_async_cell_waiting_for_comm_reply",
        ),
        "connect_request, which Jupyter has deprecated, is refused": ("test_message_spec::test_connect_request",),
    },
    # They take it for granted that what a thread shows first comes before its cell has ended, and race with that.
    ("test_print_to_correct_cell_from_thread",),
    {
        "they test ipykernel's own modules, and no kernel that is started by its kernelspec": (
            "inprocess/test_kernel.py",
            "inprocess/test_kernelmanager.py",
            "test_comm.py",
            "test_connect.py",
            "test_curve.py",
            "test_displayhook.py",
            "test_embed_kernel.py",
            "test_eventloop.py",
            "test_heartbeat.py",
            "test_io.py",
            "test_ipkernel_direct.py",
            "test_jsonutil.py",
            "test_kernel_direct.py",
            "test_kernelapp.py",
            "test_kernelspec.py",
            "test_parentpoller.py",
            "test_start_kernel.py",
            "test_subshell_wedge.py",
            "test_zmq_shell.py",
        ),
        "its windows need a screen": ("test_matplotlib_eventloops.py",),
    },
)
NBCLIENT = Suite(
    "nbclient",
    ("test_client.py", "test_cli.py", "test_util.py"),
    {
        "tracebacks are short and plain, and these compare them with ipykernel's": (
            "test_client::test_run_all_notebooks[Interrupt.ipynb-opts6]",
            "test_client::test_run_all_notebooks[Skip Exceptions with Cell Tags.ipynb-opts8]",
            "test_client::test_run_all_notebooks[Skip Exceptions.ipynb-opts9]",
        ),
        "it sends by ipykernel's own socket, Kernel.iopub_socket": (
            "test_client::test_run_all_notebooks[update-display-id.ipynb-opts14]",
        ),
        "input() raises ipykernel's error, but says what to do instead, and this compares the words": (
            "test_client.TestExecute::test_disable_stdin",
        ),
    },
    (),
    {},
)

# Loaded by pytest as a plugin: ipykernel's tests want a version of 2.1 or more in kernel_info, which is ipykernel's.
PLUGIN = """
import sys

def pytest_collection_finish():
    spec = sys.modules.get("tests.test_message_spec")
    if spec is not None:
        spec.KernelInfoReply.class_traits()["implementation_version"].min = "0"
"""


@pytest.fixture(scope="module")
def sources() -> Path:
    """Downloads the source distributions and what they need, once for a checkout; returns the folder."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}=={version(name)}" for name in ("ipykernel", "nbclient")]
    done = FOLDER / f"downloaded {' '.join(wanted)}"
    if not done.exists():
        pip = [str(FOLDER / "venv/bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        names = ",".join(name.partition("==")[0] for name in wanted)
        for words in (
            [sys.executable, "-m", "venv", str(FOLDER / "venv")],
            [*pip, "install", "--no-deps", "--upgrade", "--target", str(FOLDER / "packages"), *PACKAGES],
            [*pip, "download", "--no-deps", "--no-binary", names, "--dest", str(FOLDER), *wanted],
            *(["tar", "-xf", f"{name.replace('==', '-')}.tar.gz", "-C", str(FOLDER)] for name in wanted),
        ):
            ran = subprocess.run(words, cwd=FOLDER, capture_output=True, text=True, check=False)
            if ran.returncode:
                give_up(f"the source distributions cannot be had here: {ran.stderr[-500:]}")
        done.touch()
    return FOLDER


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("suite", [IPYKERNEL, NBCLIENT], ids=lambda suite: suite.package)
def test_the_suite_fails_in_what_is_accepted_and_in_nothing_else(
    suite: Suite, sources: Path, users_directory: Path, home: Path, tmp_path: Path
) -> None:
    install("python3", prefix=str(tmp_path))
    (users_directory / ".ipython/profile_default").mkdir(parents=True, exist_ok=True)  # one of them looks for it
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=short"]
    command += ["-o", "addopts=", "-o", "asyncio_default_fixture_loop_scope=function", "--timeout", str(TIMEOUT)]
    (tmp_path / "lower_version.py").write_text(PLUGIN)
    command += ["-p", "lower_version", "-k", " and ".join(f"not {name}" for name in suite.left_out)]
    command += [f"--junitxml={report}", *(f"tests/{file}" for file in suite.files)]
    environment = {
        **os.environ,
        "JUPYTER_PATH": str(tmp_path / "share/jupyter"),
        "JUPYTER_PLATFORM_DIRS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{sources / 'packages'}{os.pathsep}{tmp_path}",
    }
    folder = sources / f"{suite.package}-{version(suite.package)}"
    found = {str(path.relative_to(folder / "tests")) for path in folder.glob("tests/**/test_*.py")}
    assert found == {*suite.files, *(file for files in suite.other_files.values() for file in files)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert report.exists(), ran.stdout[-3000:] + ran.stderr[-3000:]
    accepted = {name for names in suite.accepted.values() for name in names}
    assert failures(report) == accepted, ran.stdout[-6000:]


def failures(report: Path) -> set[str]:
    """Returns the tests of a report that did not pass, and were not skipped, without their folder."""
    return {
        f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}"
        for case in ElementTree.parse(report).getroot().iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    }

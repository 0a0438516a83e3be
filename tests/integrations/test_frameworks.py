"""Each framework at its newest version, in an environment of its own: the examples of its page, and its own suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.cells import eventually
from tests.support.frameworks import environment, installed_in, is_older, told_versions
from tests.support.pages import DOCS, blocks, run_block

import kernelbox.integrations
from kernelbox import list_kernels

PAGES = ("adk", "dspy", "fastmcp", "langchain", "openai-agents", "pydantic-ai", "smolagents")
EXAMPLES = [(page, number) for page in PAGES for number in range(len(blocks(f"integrations/{page}.md")))]

# The tests of each suite that must fail. This one fails when another one fails, and when one of these passes.
SUITES: dict[str, set[str]] = {
    "adapter_behaviour": set(),
    "pydantic_workspace": set(),
    # The suite is older than deepagents 0.7, whose own glob and write we inherit. Its glob returns absolute paths of
    # files, because deny rules are checked against them, and its write replaces a file. What the suite wants would open
    # what an agent may not read. These seven fail for a backend of a few lines of subprocess too.
    "deepagents_sandbox": {
        "test_glob",
        "test_glob_basic_pattern",
        "test_glob_hidden_files_explicitly",
        "test_glob_with_character_class",
        "test_glob_with_directories",
        "test_glob_with_question_mark",
        "test_write_existing_file_fails",
    },
}

# What is imported, and what is to be installed for it.
MODULES = {
    "adk": "google-adk",
    "deepagents": "deepagents",
    "dspy": "dspy",
    "fastmcp": "fastmcp",
    "langchain": "langchain",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai",
    "smolagents": "smolagents",
}


@pytest.fixture(scope="module")
def python() -> Path:
    """Makes the environment."""
    return environment("adapted")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("page", "number"), EXAMPLES)
def test_an_example_of_a_page_prints_what_it_says(
    page: str, number: int, python: Path, home: Path, tmp_path: Path
) -> None:
    run_block(blocks(f"integrations/{page}.md")[number], tmp_path, python)
    eventually(lambda: list_kernels() == [])  # a private kernel ends just after its process


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_of_a_framework_fails_in_what_is_accepted_and_in_nothing_else(
    suite: str, python: Path, home: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    command = [str(python), "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "--timeout", "200"]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "work")]
    if suite == "deepagents_sandbox":
        command += ["-o", "asyncio_mode=auto"]
    command += [f"--junitxml={report}", str(Path(__file__).parent / "inside" / f"{suite}.py")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert report.exists(), ran.stdout[-3000:] + ran.stderr[-3000:]
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = {
        str(case.get("name")) for case in cases if case.find("failure") is not None or case.find("error") is not None
    }
    assert failed == SUITES[suite], ran.stdout[-6000:]
    assert len(cases) >= {"adapter_behaviour": 4}.get(suite, 30)
    eventually(lambda: list_kernels() == [])  # a private kernel ends just after its process


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_pages_name_versions_that_were_tested(python: Path) -> None:
    versions = installed_in(python)
    versions["pydantic-ai"] = versions["pydantic-ai-slim"]
    for page in PAGES:
        told = told_versions(f"integrations/{page}.md")
        assert told, page
        assert [name for name in told if is_older(versions[name], told[name])] == [], page


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_smolagents_finds_the_executor_by_its_entry_point(python: Path) -> None:
    program = (
        "from importlib.metadata import entry_points\n"
        "(found,) = entry_points(group='smolagents.executors')\nprint(found.name, found.load().__name__)"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "kernelbox KernelboxExecutor\n"


@pytest.mark.parametrize("page", [*PAGES, "more-frameworks"])
def test_a_page_says_to_install_what_its_examples_plot_with(page: str) -> None:
    (line,) = re.findall(r"^\$ pip install .*$", (DOCS / "integrations" / f"{page}.md").read_text(), re.MULTILINE)
    if any("matplotlib" in block for block in blocks(f"integrations/{page}.md")):
        assert line.endswith(" matplotlib")


def test_each_integration_is_short_enough_to_be_read_whole() -> None:
    files = Path(kernelbox.integrations.__file__).parent.glob("*.py")
    lengths = {file.name: len(file.read_text().splitlines()) for file in files}
    assert lengths.keys() >= {f"{module}.py" for module in MODULES}
    assert {name: length for name, length in lengths.items() if length >= 80} == {}


@pytest.mark.parametrize("module", MODULES)
def test_a_missing_framework_is_one_sentence_with_what_to_install(module: str) -> None:
    program = f"try: import kernelbox.integrations.{module}\nexcept ImportError as exc: print(exc)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"this integration needs {MODULES[module]} (")
    assert " is missing): " in done.stdout
    assert done.stdout.endswith(f" {MODULES[module]}\n")
    assert done.stdout.count("\n") == 1

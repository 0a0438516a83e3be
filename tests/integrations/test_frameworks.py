"""Each framework at its newest version, in an environment of its own: the examples of its page, and its own suite."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.browser import give_up
from tests.support.pages import DOCS, blocks, run_block

from kernelbox import list_kernels

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "frameworks"

# Their newest versions resolve together, so one environment has them all.
FRAMEWORKS = (
    *("deepagents", "dspy", "fastmcp", "google-adk", "langchain", "langchain-tests", "openai-agents"),
    *("pydantic-ai-slim", "smolagents"),
)
BESIDE = ("matplotlib", "pytest", "pytest-asyncio", "pytest-timeout")

PAGES = ("adk", "dspy", "fastmcp", "langchain", "openai-agents", "pydantic-ai", "smolagents")
EXAMPLES = [(page, number) for page in PAGES for number in range(len(blocks(f"integrations/{page}.md")))]

# The tests of each suite that must fail. This one fails when another one fails, and when one of these passes.
SUITES: dict[str, set[str]] = {
    "pydantic_workspace": set(),
    # The suite wants relative paths of glob, and a write that refuses a file that exists; deepagents decides otherwise.
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
    """Makes the environment, once for these versions in a checkout; kernelbox in it is the checkout's."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    wanted = uv("pip", "compile", "--quiet", "--no-header", "-", asked="\n".join([*ours, *FRAMEWORKS, *BESIDE]))
    place = FOLDER / hashlib.sha256(f"{sys.version}{wanted}".encode()).hexdigest()[:16]
    if not (place / "complete").exists():
        shutil.rmtree(FOLDER, ignore_errors=True)  # what is there has older versions
        uv("venv", "--quiet", "--python", sys.executable, str(place))
        program = ("--python", str(place / "bin" / "python"))
        uv("pip", "install", "--quiet", *program, "--requirement", "-", asked=wanted)
        uv("pip", "install", "--quiet", *program, "--no-deps", "--editable", str(ROOT))
        (place / "complete").touch()
    return place / "bin" / "python"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("page", "number"), EXAMPLES)
def test_an_example_of_a_page_prints_what_it_says(
    page: str, number: int, python: Path, home: Path, tmp_path: Path
) -> None:
    run_block(blocks(f"integrations/{page}.md")[number], tmp_path, python)
    assert list_kernels() == []


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
    assert len(cases) > 30
    assert list_kernels() == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_pages_name_versions_that_were_tested(python: Path) -> None:
    listed = uv("pip", "list", "--python", str(python), "--format", "freeze")
    versions = dict(line.split("==") for line in listed.splitlines() if "==" in line)
    versions["pydantic-ai"] = versions["pydantic-ai-slim"]
    for page in PAGES:
        text = (DOCS / "integrations" / f"{page}.md").read_text(encoding="utf-8")
        told = re.findall(r"([a-z-]+) (\d+(?:\.\d+)+)", text.partition("```")[0])
        assert told, page
        # Pages are tested with the newest versions, which may have come out since.
        assert [name for name, version in told if numbers(versions[name]) < numbers(version)] == [], page


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_smolagents_finds_the_executor_by_its_entry_point(python: Path) -> None:
    program = (
        "from importlib.metadata import entry_points\n"
        "(found,) = entry_points(group='smolagents.executors')\nprint(found.name, found.load().__name__)"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "kernelbox KernelboxExecutor\n"


@pytest.mark.parametrize("module", MODULES)
def test_a_missing_framework_is_one_sentence_with_what_to_install(module: str) -> None:
    program = f"try: import kernelbox.integrations.{module}\nexcept ImportError as exc: print(exc)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"this integration needs {MODULES[module]} (")
    assert done.stdout.endswith(f" is missing): pip install {MODULES[module]}\n")
    assert done.stdout.count("\n") == 1


def uv(*words: str, asked: str | None = None) -> str:
    """Runs uv: the one on PATH, or the one that the bootstrap has installed."""
    found = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".bootstrap" / "bin"))
    assert found is not None, "run scripts/bootstrap.py first"
    done = subprocess.run([found, *words], input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        give_up(f"the frameworks cannot be installed here: {done.stderr[-500:]}")
    return done.stdout

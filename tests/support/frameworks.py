"""Environments with agent frameworks at their newest versions, made once in a checkout."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from tests.support.browser import give_up
from tests.support.pages import DOCS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "frameworks"

# What resolves together, at the newest versions, is in one environment.
ENVIRONMENTS = {
    "adapted": (
        *("deepagents", "dspy", "fastmcp", "google-adk", "langchain", "langchain-tests", "openai-agents"),
        *("pydantic-ai-slim", "smolagents", "pytest", "pytest-asyncio", "pytest-timeout"),
    ),
    "others": (
        *("ag2", "agent-framework-core", "agno", "haystack-ai", "inspect-ai", "llama-index-core", "strands-agents"),
        *("anthropic", "openai"),
    ),
    # They want older versions of mcp and openai. In another order uv chooses old versions of theirs.
    "behind": ("crewai", "camel-ai", "autogen-core"),
    "claude": ("claude-agent-sdk", "mcp>=2"),
}


@cache
def environment(name: str) -> Path:
    """Returns the interpreter of an environment; makes it if newer versions came out. kernelbox is the checkout's."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    asked = "\n".join([*ENVIRONMENTS[name], "matplotlib", *ours])  # uv decides about the first ones first
    wanted = uv("pip", "compile", "--quiet", "--no-header", "-", asked=asked)
    folder = FOLDER / name
    place = folder / hashlib.sha256(f"{sys.version}{wanted}".encode()).hexdigest()[:16]
    if not (place / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)  # what is there has older versions
        uv("venv", "--quiet", "--python", sys.executable, str(place))
        program = ("--python", str(place / "bin" / "python"))
        uv("pip", "install", "--quiet", *program, "--requirement", "-", asked=wanted)
        uv("pip", "install", "--quiet", *program, "--no-deps", "--editable", str(ROOT))
        (place / "complete").touch()
    return place / "bin" / "python"


def uv(*words: str, asked: str | None = None) -> str:
    """Runs uv: the one on PATH, or the one that the bootstrap has installed."""
    found = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".bootstrap" / "bin"))
    assert found is not None, "run scripts/bootstrap.py first"
    done = subprocess.run([found, *words], input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        give_up(f"the frameworks cannot be installed here: {done.stderr[-500:]}")
    return done.stdout


def installed_in(python: Path) -> dict[str, str]:
    """Returns the versions of all packages in an environment."""
    listed = uv("pip", "list", "--python", str(python), "--format", "freeze")
    return dict(line.split("==") for line in listed.splitlines() if "==" in line)


def told_versions(page: str) -> dict[str, str]:
    """Returns the versions that a page says it was tested with."""
    text = (DOCS / page).read_text(encoding="utf-8")
    told = " ".join(re.findall(r"^Tested with (.*?)\n\n", text, re.MULTILINE | re.DOTALL))
    return dict(re.findall(r"([a-z][a-z0-9-]+) (\d+(?:\.\d+)+)", told))


def is_older(version: str, than: str) -> bool:
    """Tells whether a version is older; tests run with the newest ones, which may have come out since."""
    return [int(part) for part in re.findall(r"\d+", version)] < [int(part) for part in re.findall(r"\d+", than)]

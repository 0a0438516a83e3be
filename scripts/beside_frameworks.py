#!/usr/bin/env python3
"""Resolves kernelbox beside the newest agent frameworks, and fails if one of them gets an older version than alone.

`pip install kernelbox X` must not bring an old X: resolvers do that without a word when two packages disagree about a
third. uv resolves each framework twice, alone and beside the default install, for Python 3.12; nothing is installed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = "3.12"
FRAMEWORKS = (
    *("ag2", "agent-framework", "agno", "camel-ai", "claude-agent-sdk", "crewai", "deepagents", "dspy", "fastmcp"),
    *("google-adk", "haystack-ai", "inspect-ai", "langchain", "langgraph", "llama-index", "openai-agents"),
    *("pydantic-ai", "smolagents", "strands-agents"),
)


def main() -> int:
    uv = shutil.which("uv") or str(ROOT / ".bootstrap" / "bin" / "uv")
    options = parse_arguments()
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    ours += options.beside
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda name: compare(uv, name, ours), options.frameworks or FRAMEWORKS))
    for name, alone, beside, changed in results:
        print(f"{name}: {alone} alone, {beside} beside kernelbox{' DOWNGRADED' if changed else ''}")
    return int(any(changed for *_, changed in results))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("frameworks", nargs="*", help="packages to resolve; all known ones by default")
    parser.add_argument("--with", dest="beside", action="append", default=[], help="one more requirement of kernelbox")
    return parser.parse_args()


def compare(uv: str, framework: str, ours: list[str]) -> tuple[str, str, str, bool]:
    """Returns a framework, its version alone and beside kernelbox, and whether these differ."""
    alone, beside = resolve(uv, framework, []), resolve(uv, framework, ours)
    return framework, alone, beside, alone != beside


def resolve(uv: str, framework: str, others: list[str]) -> str:
    """Returns the version of a framework that uv chooses beside other requirements, or why there is none."""
    with tempfile.NamedTemporaryFile("w", suffix=".in") as wanted:
        wanted.write("\n".join([framework, *others]))
        wanted.flush()
        command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", PYTHON]
        done = subprocess.run([*command, wanted.name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"no version ({' '.join(done.stderr.split())[:300]})"
    found = re.search(rf"^{re.escape(framework)}(?:\[[^\]]*\])?==(\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else "no version"


if __name__ == "__main__":
    sys.exit(main())

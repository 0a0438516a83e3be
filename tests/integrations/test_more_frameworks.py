"""The frameworks without an adapter: each example of their page, with the newest version of its framework."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.support.cells import eventually
from tests.support.frameworks import environment, installed_in, is_older, told_versions
from tests.support.pages import DOCS, run_block

from kernelbox import list_kernels

from .scripted_anthropic import serving

PAGE = "integrations/more-frameworks.md"
PARTS = re.split(r"^## (.*)\n", (DOCS / PAGE).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
EXAMPLES = {
    framework: re.findall(r"^```python\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    for framework, part in zip(PARTS[::2], PARTS[1::2], strict=True)
}
SECTIONS: dict[str, str] = {framework: found[0] for framework, found in EXAMPLES.items()}
# What passes plots on, where a framework can.
PICTURES: dict[str, str] = {framework: found[1] for framework, found in EXAMPLES.items() if found[1:]}

# Where each framework is installed.
PLACES = {
    **dict.fromkeys(("AG2", "Agent Framework", "Agno", "Haystack", "Inspect", "LlamaIndex", "Strands"), "others"),
    **dict.fromkeys(("AutoGen", "CAMEL", "CrewAI"), "behind"),
    "Claude Agent SDK": "claude",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("framework", SECTIONS)
def test_an_example_of_the_page_prints_what_it_says(
    framework: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment(PLACES[framework])
    for name in os.environ:
        if name.startswith(("ANTHROPIC", "CLAUDE", "OPENAI")):
            monkeypatch.delenv(name)
    for name in ("CREWAI_DISABLE_TELEMETRY", "AGNO_TELEMETRY_OFF", "OTEL_SDK_DISABLED"):
        monkeypatch.setenv(name, "true")
    with serving() as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
        run_block(SECTIONS[framework], tmp_path, python)
    eventually(lambda: list_kernels() == [])  # a private kernel ends just after its process


@pytest.mark.parametrize("framework", PICTURES)
def test_the_model_is_shown_a_plot(framework: str, home: Path, tmp_path: Path) -> None:
    program = f"""{PICTURES[framework]}

from kernelbox import Kernel

with Kernel() as kernel:
    result = kernel.execute("import matplotlib.pyplot as plt; plt.plot([1]); plt.show()")
    parts = shown(result) if isinstance(shown(result), list) else [shown(result)]
    fields = [getattr(part, "__dict__", part) for part in parts]
    print(len(result.images), "png" in repr(fields).lower())  # 1 True
"""
    run_block(program, tmp_path, environment(PLACES[framework]))


@pytest.mark.parametrize("framework", SECTIONS)
def test_an_example_is_short(framework: str) -> None:
    assert 10 <= len(SECTIONS[framework].splitlines()) <= 30


def test_the_page_names_versions_that_were_tested() -> None:
    versions = {
        name: version for place in set(PLACES.values()) for name, version in installed_in(environment(place)).items()
    }
    told = told_versions(PAGE)
    assert len(told) == len(SECTIONS) == len(PLACES)
    assert [name for name in told if is_older(versions[name], told[name])] == []

"""The frameworks without an adapter: each example of their page, with the newest version of its framework."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.support.frameworks import environment, installed_in, is_older, told_versions
from tests.support.pages import DOCS, run_block

from kernelbox import list_kernels

from .scripted_anthropic import serving

PAGE = "integrations/more-frameworks.md"
SECTIONS: dict[str, str] = dict(
    re.findall(
        r"^## (.*?)\n.*?^```python\n(.*?)^```$", (DOCS / PAGE).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
)

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
    assert list_kernels() == []


def test_the_page_names_versions_that_were_tested() -> None:
    versions = {
        name: version for place in set(PLACES.values()) for name, version in installed_in(environment(place)).items()
    }
    told = told_versions(PAGE)
    assert len(told) == len(SECTIONS) == len(PLACES)
    assert [name for name in told if is_older(versions[name], told[name])] == []

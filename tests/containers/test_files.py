"""What the Dockerfile and the compose file say, checked by the linter and the schema made for them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kernelbox.cli._command_table import COMMANDS
from kernelbox.cli._parser import parse

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def service() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["kernelbox"]
    return found


def last(instruction: str) -> str:
    """Returns the argument of the last such instruction, which counts for the image."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    found: list[str] = re.findall(rf"^{instruction} (.*)$", text, flags=re.MULTILINE)
    return found[-1]


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    done = run(BIN / "hadolint", "--no-color", "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_the_compose_file_fits_the_schema_of_compose_files() -> None:
    done = run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml")
    assert done.returncode == 0, done.stdout


def test_the_container_is_confined() -> None:
    confined = service()
    assert confined["user"] == last("USER") == "10001:10001"
    assert confined["read_only"] is True
    assert confined["cap_drop"] == ["ALL"]
    assert "cap_add" not in confined
    assert "privileged" not in confined
    assert confined["security_opt"] == ["no-new-privileges:true"]
    assert [entry.partition(":")[0] for entry in confined["tmpfs"]] == ["/tmp", "/home/kernelbox"]
    assert all("size=" in entry for entry in confined["tmpfs"])
    assert confined.keys() >= {"mem_limit", "memswap_limit", "cpus", "pids_limit"}


def test_the_api_is_at_port_8080_of_this_machine_only() -> None:
    assert service()["ports"] == ["127.0.0.1:8080:8080"]
    assert last("EXPOSE") == "8080"
    assert "127.0.0.1:8080/health" in last("HEALTHCHECK")


def test_there_is_no_container_without_a_token() -> None:
    assert service()["environment"]["KERNELBOX_TOKEN"].startswith("${KERNELBOX_TOKEN:?")
    program, serve, *words = json.loads(last("CMD"))
    assert (program, serve) == ("kernelbox", "serve")
    options = parse(next(command for command in COMMANDS if command.name == "serve"), words)
    assert (options.require_token, options.host, options.port) == (True, "0.0.0.0", 8080)
    assert options.workspace == last("WORKDIR") == service()["volumes"][0].partition(":")[2]


def test_the_image_is_built_from_nothing_but_what_it_needs() -> None:
    rules = (ROOT / ".dockerignore").read_text().split()
    sent = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = re.findall(r"^COPY ((?!--from).*) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert "*" in rules
    assert sent == {name for names in copied for name in names.split()}
    assert all((ROOT / name).exists() for name in sent)

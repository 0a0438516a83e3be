"""The schema: what it promises holds, and its pages need no other server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from tests.support.homes import new_home
from tests.support.server import Served, serving

# Characters of what a failed run says.
_TAIL = 6000


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_the_pages_load_nothing_from_other_servers(served: Served, page: str) -> None:
    html = served.http.get(page).text
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', html)
    assert loaded
    for address in loaded:
        assert urljoin(f"{served.url}{page}", address).startswith(served.url), address
        assert served.http.get(address).status_code == 200, address


def test_every_failure_in_the_schema_has_a_model_and_every_route_a_summary(served: Served) -> None:
    schema = served.http.get("/openapi.json").json()
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            assert route.get("summary"), path
            for status, answer in route["responses"].items():
                if int(status) >= 400:
                    assert answer["content"]["application/json"]["schema"], (method, path, status)


def test_no_list_or_object_in_a_request_has_more_than_a_few_entries(served: Served) -> None:
    schema = served.http.get("/openapi.json").json()
    models = schema["components"]["schemas"]
    bodies = {name for name in models if any(name in text for text in _request_bodies(schema))}
    assert {"KernelCreate", "RetryExecute", "KernelRequest"} <= bodies
    for name in bodies:
        for field, described in models[name].get("properties", {}).items():
            for kind in (described, *described.get("anyOf", [])):
                assert kind.get("type") not in ("array", "object") or {"maxItems", "maxProperties"} & kind.keys(), field


def _request_bodies(schema: dict[str, Any]) -> Iterator[str]:
    for methods in schema["paths"].values():
        for route in methods.values():
            yield json.dumps(route.get("requestBody", {}))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/kernels", {"tags": dict.fromkeys(map(str, range(20_000)), 1)}),
        ("/sessions/x", {"limits": dict.fromkeys(map(str, range(20_000)), True)}),
        ("/sessions/x/execute_with_retry", {"code": "1", "replacement_codes": [1] * 20_000}),
        ("/api/kernels", {"env": dict.fromkeys(map(str, range(20_000)), 1)}),
    ],
)
def test_of_a_request_that_is_wrong_in_thousands_of_places_not_all_are_told(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    refusal = served.post(path, body)
    assert refusal.status_code == 422
    assert [problem["msg"] for problem in refusal.json()["detail"]] == ["use at most 1,000 entries"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_schemathesis_finds_nothing(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        words = ["--max-kernels", "20", "--log-level", "ERROR"]
        with serving(tmp_path, *words, KERNELBOX_HOME=str(home), KERNELBOX_EXECUTION_TIMEOUT="2") as served:
            served.post("/sessions/known")
            # WebSockets are not in a schema; the events of a job that runs have no end.
            command = [
                str(Path(sys.executable).parent / "schemathesis"),
                "run",
                f"{served.url}/openapi.json",
                "--seed",
                "1",
            ]
            command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "15", "--request-timeout", "60"]
            command += ["--exclude-path-regex", "/stream$|/events$|^/api", "--workers", "1"]
            # Names and paths have rules that a schema cannot say, such as no character that cannot be shown.
            command += ["--exclude-checks", "positive_data_acceptance"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            served.http.delete("/kernels")
    assert done.returncode == 0, (done.stdout + done.stderr)[-_TAIL:]

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
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has none
from tests.support.homes import new_home
from tests.support.server import Served, read_events, serving

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


def test_every_event_of_a_stream_is_as_the_schema_says(served: Served) -> None:
    schema = served.http.get("/openapi.json").json()
    stream = schema["paths"]["/sessions/{name}/stream"]["post"]["responses"]["200"]["content"]["text/event-stream"]
    kinds = {
        item["properties"]["event"]["const"]: item["properties"]["data"]["contentSchema"]
        for item in stream["itemSchema"]["oneOf"]
    }
    code = "from IPython.display import Image, display\nprint(1)\ndisplay({'a': 1}, display_id='x')\n!echo 2\n1 / 0"
    seen = set()
    with served.http.stream("POST", "/sessions/seen/stream", json={"code": code, "approve": "ask"}) as answer:
        for event in read_events(answer):
            kind, data = event.pop("type"), event
            seen.add(kind)
            Draft202012Validator({**kinds[kind], "components": schema["components"]}).validate(data)
            if kind == "approval":
                job = answer.headers["Location"]
                token = f"Bearer {served.token}"
                answered = served.post(f"{job}/approvals/{data['id']}", {"accept": True}, Authorization=token)
                assert answered.status_code == 200
    assert seen == {"started", "output", "approval", "decision", "result"}
    served.http.delete("/kernels/seen")


def test_a_number_without_a_fraction_is_a_whole_number(served: Served) -> None:
    assert served.post("/sessions/whole/execute", {"code": "1", "output_char_limit": 100.0}).json()["output"] == ""
    assert served.post("/sessions/whole/execute", {"code": "1", "output_char_limit": 0.5}).status_code == 422
    assert served.post("/sessions/whole/execute", {"code": "1", "output_char_limit": True}).status_code == 422
    served.http.delete("/kernels/whole")


# What a schema cannot say: which characters can be shown, from which amount a limit can be used, what is allowed.
UNSAID = (
    *("a kernel's name cannot be", "the limit ", "a tag", "tags", "a session name", "the path", "a path"),
    *("python cannot be", "requirements cannot be"),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_the_schema_allows_is_refused_only_for_what_a_schema_cannot_say(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        words = ["--max-kernels", "20", "--log-level", "ERROR"]
        with serving(tmp_path, *words, KERNELBOX_HOME=str(home), KERNELBOX_EXECUTION_TIMEOUT="2") as served:
            command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{served.url}/openapi.json"]
            command += ["--seed", "1", "--phases", "examples,coverage,fuzzing", "--max-examples", "10"]
            command += ["--request-timeout", "60", "--exclude-path-regex", "/stream$|/events$|^/api"]
            command += ["--checks", "positive_data_acceptance", "--header", f"Authorization: Bearer {served.token}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            served.http.delete("/kernels")
    assert "generated" in done.stdout, (done.stdout + done.stderr)[-_TAIL:]
    refusals = re.findall(r'`\{"detail":"?(.*)', done.stdout)
    assert [said for said in refusals if not said.startswith(UNSAID)] == []


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


@pytest.mark.slow
def test_the_schema_says_how_a_token_is_sent(served: Served, tmp_path: Path, key_file: Path) -> None:
    secret = "a-secret-of-the-schema"
    with new_home() as home, serving(tmp_path, KERNELBOX_HOME=str(home), KERNELBOX_TOKEN=secret) as guarded:
        for server, alternatives in ((guarded, ["token"]), (served, ["", "token"])):
            schema = server.http.get("/openapi.json").json()
            assert schema["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in schema["paths"].items():
                is_open = path in ("/", "/health", "/ready")
                for operation in operations.values():
                    named = ["".join(each) for each in operation.get("security", [])]
                    assert named == ([] if is_open else alternatives), path


def test_a_browser_gets_a_page_at_the_root_and_other_clients_json(served: Served) -> None:
    accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    page = served.http.get("/", headers={"Accept": accept})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["vary"] == "Accept"
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for address in re.findall(r'href="([^"]+)"', page.text):
        assert served.http.get(f"/{address}").status_code == 200
    for others in ("*/*", "application/json", ""):
        links = served.http.get("/", headers={"Accept": others}).json()["links"]
        assert [link["href"] for link in links.values()] == ["/docs", "/redoc", "/openapi.json"]

"""The life of kernels over HTTP, route by route as KernelBox 0.1 has them."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.support.server import Served

import kernelbox
from kernelbox import KernelBoxError, StartFailed, StoreFailed
from kernelbox.server.http._failures import answer_to

FIELDS = {
    *("kernel_id", "connection_file", "name", "created_at", "last_used_at", "status", "session_name"),
    *("attempt_count", "tags", "age_seconds"),
}


def test_the_root_leads_to_the_documentation(served: Served) -> None:
    answer = served.http.get("/")
    assert answer.json()["service"] == "kernelbox"
    assert {name: link["href"] for name, link in answer.json()["links"].items()} == {
        "swagger": "/docs",
        "redoc": "/redoc",
        "openapi": "/openapi.json",
    }


def test_health_tells_the_version(served: Served) -> None:
    assert served.http.get("/health").json() == {
        "status": "ok",
        "service": "kernelbox",
        "version": kernelbox.__version__,
    }


def test_a_kernel_is_created_once_under_its_name(served: Served) -> None:
    created = served.post("/kernels", {"name": "twice", "tags": {"a": "b"}})
    assert created.status_code == 201
    assert created.json().keys() >= FIELDS
    assert (created.json()["name"], created.json()["session_name"]) == ("twice", "twice")
    assert created.json()["tags"] == {"a": "b"}
    again = served.post("/kernels", {"name": "twice"})
    assert (again.status_code, again.json()["code"]) == (409, "kernel_exists")
    assert served.http.delete("/kernels/twice").json() == {"destroyed": True}


def test_tags_that_a_request_does_not_name_stay_when_a_kernel_follows_a_dead_one(served: Served) -> None:
    served.post("/kernels", {"name": "tagged", "tags": {"a": "b"}})
    for path, body, tags in (
        ("/sessions/tagged", {}, {"a": "b"}),
        ("/kernels", {"name": "tagged"}, {"a": "b"}),
        ("/kernels", {"name": "tagged", "tags": {}}, {}),
    ):
        served.post("/kernels/tagged/execute", {"code": "import os; os._exit(1)"})
        assert served.post(path, body).json()["tags"] == tags
    served.http.delete("/kernels/tagged")


def test_callers_choose_neither_python_nor_packages_unless_the_operator_allows_it(served: Served) -> None:
    for path in ("/kernels", "/sessions/any"):
        for field, given in (("python", "3"), ("python", "/usr/bin/python3"), ("requirements", [])):
            answer = served.post(path, {field: given})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
            assert f"{field} cannot be " in answer.json()["detail"]
            assert "(--allow-" in answer.json()["detail"]


def test_a_kernel_without_a_name_gets_one(served: Served) -> None:
    one, other = (served.post("/kernels", {}).json() for _ in range(2))
    assert one["name"] != other["name"]
    for kernel in (one, other):
        assert served.http.delete(f"/kernels/{kernel['name']}").json() == {"destroyed": True}


def test_a_kernel_is_found_by_id_name_and_session_name(served: Served) -> None:
    made = served.post("/kernels", {"name": "by-name", "session_name": "by-session"}).json()
    try:
        in_jupyter = {kernel["id"] for kernel in served.http.get("/api/kernels").json()}
        [dashed] = {each for each in in_jupyter if each.replace("-", "") == made["kernel_id"]}
        for key in (made["kernel_id"], "by-name", "by-session", dashed):
            found = served.http.get(f"/kernels/{key}").json()
            assert found["alive"] is True
            assert found["kernel"]["kernel_id"] == made["kernel_id"]
        assert served.post("/kernels", {"name": "other", "session_name": "by-session"}).status_code == 409
    finally:
        served.http.delete("/kernels/by-session")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/kernels/none"),
        ("DELETE", "/kernels/none"),
        ("POST", "/kernels/none/restart"),
        ("POST", "/kernels/none/interrupt"),
        ("GET", "/kernels/0123456789abcdef0123456789abcdef"),
        ("GET", "/kernels/what%0Ais%00no%80name"),
    ],
)
def test_what_is_not_there_is_not_found(served: Served, method: str, path: str) -> None:
    answer = served.http.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (404, "kernel_not_found")
    assert "there is no kernel" in answer.json()["detail"]


@pytest.mark.parametrize("refresh", ["", "?refresh=true", "?refresh=false"])
def test_the_list_has_every_kernel(served: Served, key: str, refresh: str) -> None:
    kernels = served.http.get(f"/kernels{refresh}").json()["kernels"]
    assert [kernel["status"] for kernel in kernels if kernel["name"] == key] == ["idle"]


def test_a_kernel_that_does_not_answer_is_unknown_when_all_are_asked(served: Served, key: str) -> None:
    pid = int(served.execute(key, "import os; os.getpid()")["return_value"])
    os.kill(pid, signal.SIGSTOP)
    kernels = served.http.get("/kernels?refresh=true").json()["kernels"]
    alive = served.http.get(f"/kernels/{key}").json()["alive"]
    os.kill(pid, signal.SIGCONT)
    assert [kernel["status"] for kernel in kernels if kernel["name"] == key] == ["unknown"]
    assert alive is False


def test_all_kernels_are_destroyed_at_once(served: Served, key: str) -> None:
    ids = {kernel["kernel_id"] for kernel in served.http.get("/kernels").json()["kernels"]}
    assert set(served.http.delete("/kernels").json()["destroyed"]) == ids != set()
    assert served.http.get("/kernels").json() == {"kernels": []}


def test_the_age_of_a_kernel_is_told(served: Served, key: str) -> None:
    young = served.http.get(f"/kernels/{key}").json()["kernel"]["age_seconds"]
    while served.http.get(f"/kernels/{key}").json()["kernel"]["age_seconds"] <= young:
        pass
    assert young >= 0


def test_a_session_is_opened_once_and_found_again(served: Served) -> None:
    first = served.post("/sessions/mine", {"tags": {"task": "eda"}})
    second = served.post("/sessions/mine")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["kernel_id"] == second.json()["kernel_id"]
    assert second.json()["tags"] == {"task": "eda"}
    served.http.delete("/kernels/mine")


def test_a_restart_keeps_the_id_and_says_what_was_lost(served: Served, key: str) -> None:
    before = served.http.get(f"/kernels/{key}").json()["kernel"]
    after = served.post(f"/kernels/{key}/restart").json()
    assert after["kernel_id"] == before["kernel_id"]
    assert after["lost"] == "nothing: no cell had run"


def test_an_idle_kernel_has_nothing_to_interrupt(served: Served, key: str) -> None:
    assert served.post(f"/kernels/{key}/interrupt").json() == {"interrupted": False}


def test_a_kernel_is_the_same_for_every_face(
    served: Served, key: str, service_home: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(service_home))
    assert kernelbox.execute(key, "41 + 1").return_value == "42"
    kernelbox.get_or_create("from-python")
    assert "from-python" in {kernel["name"] for kernel in served.http.get("/kernels").json()["kernels"]}
    kernelbox.destroy("from-python")
    assert served.http.get("/kernels/from-python").status_code == 404


def test_an_answer_names_no_path_outside_the_workspace(served: Served, key: str, service_home: object) -> None:
    assert str(service_home) not in json.dumps(served.http.get("/kernels").json())


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 10_000, "\0", 5, ["a"], {}])
def test_a_name_that_none_can_have_is_refused(served: Served, name: object) -> None:
    answer = served.post("/kernels", {"name": name})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize("tags", [5, {"a": 1}, ["a"], {"a": "x" * 20_000}])
def test_tags_that_are_none_are_refused(served: Served, tags: object) -> None:
    assert served.post("/kernels", {"name": "tagged", "tags": tags}).status_code == 422
    assert served.post("/sessions/tagged", {"tags": tags}).status_code == 422


def test_a_body_that_is_no_json_is_refused_in_the_same_shape(served: Served) -> None:
    answer = served.http.post("/kernels", content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["detail"][0].keys() == {"loc", "msg", "type"}


@pytest.mark.parametrize("kind", [StoreFailed, StartFailed])
def test_a_failure_that_names_paths_of_the_operators_is_not_told(kind: type[KernelBoxError]) -> None:
    answer = answer_to(kind("cannot write '/secret/place': the command was /secret/program"))
    assert answer.status_code == 500
    assert b"secret" not in answer.body


def test_an_unknown_route_is_refused_in_the_same_shape(served: Served) -> None:
    answer = served.http.get("/nowhere")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    answer = served.http.put("/kernels")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, POST"

"""Jupyter's REST routes, as clients of a gateway use them."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.server import Served, serving

OURS = '{"argv": ["python", "-m", "kernelbox.server.jupyter"], "display_name": "Ours", "language": "python"}'


def test_the_server_says_its_version(served: Served) -> None:
    assert served.http.get("/api").json()["version"]


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_is_json_whatever_its_content_type_says(served: Served, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    opened = served.http.post("/api/kernels", content=b'{"name": "python3"}', headers=headers)
    assert (opened.status_code, opened.json()["name"]) == (201, "python3")
    kernel = {"kernel": {"id": opened.json()["id"]}, "path": f"a {kind} notebook.ipynb"}
    session = served.http.post("/api/sessions", content=json.dumps(kernel).encode(), headers=headers)
    assert (session.status_code, session.json()["kernel"]["id"]) == (201, opened.json()["id"])
    assert served.http.post("/kernels", content=b"{}", headers=headers).status_code == 422  # our own are strict
    assert served.http.delete(f"/api/sessions/{session.json()['id']}").status_code == 204


@pytest.mark.parametrize("name", ["python", "python3", "", None])
def test_python_is_our_own_kernel(served: Served, name: str | None) -> None:
    opened = served.post("/api/kernels", {"name": name})
    assert (opened.status_code, opened.json()["name"]) == (201, "python3")
    session = served.post("/api/sessions", {"path": f"{name}.ipynb", "kernel": {"name": name}})
    assert (session.status_code, session.json()["kernel"]["name"]) == (201, "python3")
    for kernel in (opened.json(), session.json()["kernel"]):
        assert served.http.delete(f"/api/kernels/{kernel['id']}").status_code == 204


def test_our_kernel_is_the_default_among_the_installed_ones(key_file: Path, service_home: Path, tmp_path: Path) -> None:
    for name, text in (
        ("toy", '{"argv": ["toy"], "display_name": "Toy", "language": "toy"}'),
        ("broken", "{"),
        ("ours", OURS),
    ):
        (tmp_path / "kernels" / name).mkdir(parents=True)
        (tmp_path / "kernels" / name / "kernel.json").write_text(text)
    with serving(tmp_path, KERNELBOX_HOME=str(service_home), JUPYTER_PATH=str(tmp_path)) as served:
        found = served.http.get("/api/kernelspecs").json()
        assert found["default"] == "python3"
        assert found["kernelspecs"]["python3"]["spec"]["display_name"] == "Python 3 (kernelbox)"
        assert found["kernelspecs"]["toy"]["spec"]["language"] == "toy"
        assert not {"broken", "ours"} & set(found["kernelspecs"])
        assert served.http.get("/api/kernelspecs/toy").json()["spec"]["display_name"] == "Toy"
        assert served.http.get("/api/kernelspecs/nothing").status_code == 404
        assert served.http.get("/kernelspecs/toy/kernel.json").status_code == 404


@pytest.mark.slow
def test_kernelspecs_show_their_pictures_and_no_other_files(key_file: Path, service_home: Path, tmp_path: Path) -> None:
    toy = tmp_path / "kernels" / "toy"
    toy.mkdir(parents=True)
    (toy / "kernel.json").write_text('{"argv": ["toy"], "display_name": "Toy", "language": "toy"}')
    (toy / "logo-64x64.png").write_bytes(b"picture")
    (toy / "secret.png").write_bytes(b"secret")
    with serving(tmp_path, KERNELBOX_HOME=str(service_home), JUPYTER_PATH=str(tmp_path)) as served:
        found = served.http.get("/api/kernelspecs").json()["kernelspecs"]
        assert found["toy"]["resources"] == {"logo-64x64": "/kernelspecs/toy/logo-64x64.png"}
        answer = served.http.get(found["toy"]["resources"]["logo-64x64"])
        assert (answer.content, answer.headers["content-type"]) == (b"picture", "image/png")
        for path in (
            "toy/secret.png",
            "toy/kernel.json",
            "toy/logo-32x32.png",
            "toy/..%2Ftoy%2Flogo-64x64.png",
            "no/a",
        ):
            assert served.http.get(f"/kernelspecs/{path}").status_code == 404
        ours = served.http.get(found["python3"]["resources"]["logo-svg"])
        assert (ours.status_code, ours.headers["content-type"]) == (200, "image/svg+xml")
        assert ours.text.startswith("<svg")
        assert "sandbox" in ours.headers["content-security-policy"]


def test_a_front_end_gives_a_kernel_variables_that_begin_with_kernel(served: Served) -> None:
    body = {"name": "python3", "env": {"KERNEL_USERNAME": "ann", "LD_PRELOAD": "x", "PATH": "/nowhere"}}
    kernel_id = served.post("/api/kernels", body).json()["id"]
    ours = uuid.UUID(kernel_id).hex
    code = "from os import environ as e; e['KERNEL_USERNAME'], e.get('LD_PRELOAD'), 'nowhere' in e['PATH']"
    for _ in range(2):
        assert served.execute(ours, code)["return_value"] == "('ann', None, False)"
        assert served.post(f"/api/kernels/{kernel_id}/restart").status_code == 200
    assert "ann" not in served.http.get(f"/kernels/{ours}").text
    served.http.delete(f"/api/kernels/{kernel_id}")


def test_a_kernel_is_opened_seen_by_all_faces_and_ended(served: Served) -> None:
    answer = served.post("/api/kernels", {"name": "python3", "path": "n.ipynb", "env": {"KERNEL_X": "1"}})
    assert answer.status_code == 201
    model = answer.json()
    assert str(uuid.UUID(model["id"])) == model["id"]
    assert answer.headers["location"] == f"/api/kernels/{model['id']}"
    datetime.strptime(model["last_activity"], "%Y-%m-%dT%H:%M:%S.%fZ").astimezone(UTC)
    assert (model["name"], model["execution_state"], model["connections"]) == ("python3", "idle", 0)
    assert model["id"] in [each["id"] for each in served.http.get("/api/kernels").json()]
    ours = uuid.UUID(model["id"]).hex
    assert served.http.get(f"/kernels/{ours}").json()["alive"]
    assert served.execute(ours, "1 + 1")["return_value"] == "2"
    assert served.http.delete(f"/api/kernels/{model['id']}").status_code == 204
    assert served.http.get(f"/api/kernels/{model['id']}").status_code == 404
    assert served.http.delete(f"/api/kernels/{model['id']}").status_code == 404


def test_a_kernel_of_another_face_is_seen_by_front_ends(served: Served, key: str) -> None:
    record = served.http.get(f"/kernels/{key}").json()["kernel"]
    assert str(uuid.UUID(record["kernel_id"])) in [model["id"] for model in served.http.get("/api/kernels").json()]


def test_a_kernel_opened_without_a_body_is_ours(served: Served) -> None:
    model = served.http.post("/api/kernels").json()
    assert model["name"] == "python3"
    served.http.delete(f"/api/kernels/{model['id']}")


def test_a_kernelspec_that_is_not_there_is_refused(served: Served) -> None:
    answer = served.post("/api/kernels", {"name": "no-such-language"})
    assert answer.status_code == 422
    assert "no-such-language" in answer.text


def test_interrupt_and_restart_answer_as_jupyter_does(served: Served, kernel_id: str) -> None:
    assert served.post(f"/api/kernels/{kernel_id}/interrupt").status_code == 204
    answer = served.post(f"/api/kernels/{kernel_id}/restart")
    assert (answer.status_code, answer.json()["id"]) == (200, kernel_id)
    nobody = uuid.uuid4()
    assert served.post(f"/api/kernels/{nobody}/interrupt").status_code == 404
    assert served.post(f"/api/kernels/{nobody}/restart").status_code == 404


def test_a_session_is_a_kernel_with_the_path_of_its_notebook(served: Served) -> None:
    body = {"path": "a/b.ipynb", "type": "notebook", "name": "", "kernel": {"name": "python3"}}
    answer = served.post("/api/sessions", body)
    assert answer.status_code == 201
    session = answer.json()
    assert (session["path"], session["type"]) == ("a/b.ipynb", "notebook")
    assert served.post("/api/sessions", body).json()["id"] == session["id"]
    assert session["id"] in [each["id"] for each in served.http.get("/api/sessions").json()]
    assert served.http.get(f"/api/sessions/{session['id']}").json()["kernel"]["id"] == session["kernel"]["id"]
    assert served.http.delete(f"/api/sessions/{session['id']}").status_code == 204
    assert served.http.get(f"/api/sessions/{session['id']}").status_code == 404
    assert served.http.get(f"/api/kernels/{session['kernel']['id']}").status_code == 404


def open_session(served: Served, path: str, **kernel: str) -> dict[str, Any]:
    answer = served.post("/api/sessions", {"path": path, "type": "notebook", "kernel": kernel or {"name": "python3"}})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"].startswith("/api/sessions/")
    session: dict[str, Any] = answer.json()
    return session


def patch(served: Served, session: dict[str, Any], body: object) -> dict[str, Any]:
    answer = served.http.patch(f"/api/sessions/{session['id']}", json=body)
    assert answer.status_code == 200, answer.text
    changed: dict[str, Any] = answer.json()
    assert served.http.get(f"/api/sessions/{session['id']}").json()["path"] == changed["path"]
    return changed


def test_a_session_can_use_a_kernel_that_there_is(served: Served, kernel_id: str) -> None:
    one = open_session(served, "one.ipynb", id=kernel_id)
    other = open_session(served, "other.ipynb", id=kernel_id)
    assert one["id"] != other["id"]
    assert one["kernel"]["id"] == other["kernel"]["id"] == kernel_id
    assert served.post("/api/sessions", {"path": "x", "kernel": {"id": str(uuid.uuid4())}}).status_code == 404
    assert served.http.delete(f"/api/sessions/{one['id']}").status_code == 204
    assert served.http.get(f"/api/sessions/{other['id']}").status_code == 404


def test_a_session_follows_its_notebook_when_that_is_renamed(served: Served) -> None:
    session = open_session(served, "before.ipynb")
    changed = patch(served, session, {"path": "a/after.ipynb", "name": "after"})
    assert (changed["path"], changed["name"], changed["type"]) == ("a/after.ipynb", "after", "notebook")
    assert changed["kernel"]["id"] == session["kernel"]["id"]
    assert open_session(served, "a/after.ipynb")["id"] == session["id"]
    assert patch(served, session, {})["path"] == "a/after.ipynb"
    served.http.delete(f"/api/sessions/{session['id']}")


def test_a_session_that_gets_another_kernel_ends_the_one_before(served: Served, kernel_id: str) -> None:
    session = open_session(served, "moved.ipynb")
    first = session["kernel"]["id"]
    moved = patch(served, session, {"kernel": {"name": "python3"}})
    assert moved["kernel"]["id"] != first
    assert served.http.get(f"/api/kernels/{first}").status_code == 404
    again = patch(served, session, {"kernel": {"id": kernel_id}})
    assert (again["kernel"]["id"], again["path"]) == (kernel_id, "moved.ipynb")
    assert served.http.get(f"/api/kernels/{moved['kernel']['id']}").status_code == 404
    assert patch(served, session, {"kernel": {"id": kernel_id}})["kernel"]["id"] == kernel_id
    assert served.http.get(f"/api/kernels/{kernel_id}").status_code == 200


def test_a_kernel_that_another_session_uses_stays_when_one_leaves_it(served: Served, kernel_id: str) -> None:
    leaving = open_session(served, "leaving.ipynb", id=kernel_id)
    staying = open_session(served, "staying.ipynb", id=kernel_id)
    moved = patch(served, leaving, {"kernel": {"name": "python3"}})
    assert served.http.get(f"/api/sessions/{staying['id']}").json()["kernel"]["id"] == kernel_id
    served.http.delete(f"/api/sessions/{moved['id']}")


def test_changes_of_a_session_that_cannot_be_are_refused(served: Served) -> None:
    session = open_session(served, "fixed.ipynb")
    url = f"/api/sessions/{session['id']}"
    assert served.http.patch(url, json={"kernel": {"id": str(uuid.uuid4())}}).status_code == 404
    assert served.http.patch(url, json={"kernel": {"name": "no-such-language"}}).status_code == 422
    assert served.http.patch(url, json={"path": "x" * 100_000}).status_code == 422
    assert served.http.patch(f"/api/sessions/{uuid.uuid4()}", json={"path": "x"}).status_code == 404
    assert served.http.get(url).json()["kernel"]["id"] == session["kernel"]["id"]
    served.http.delete(url)


def test_requests_for_one_notebook_at_once_open_one_kernel_at_whatever_server(served: Served, other: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(lambda server: open_session(server, "same.ipynb"), [served, other] * 4))
    assert len({session["kernel"]["id"] for session in sessions}) == 1
    served.http.delete(f"/api/sessions/{sessions[0]['id']}")


def test_the_session_of_a_restarted_kernel_stays(served: Served) -> None:
    session = open_session(served, "restarted.ipynb")
    assert served.post(f"/api/kernels/{session['kernel']['id']}/restart").status_code == 200
    assert served.http.get(f"/api/sessions/{session['id']}").json()["path"] == "restarted.ipynb"
    served.http.delete(f"/api/sessions/{session['id']}")


def test_a_kernel_that_no_session_was_opened_for_is_no_session(served: Served, kernel_id: str) -> None:
    assert kernel_id not in [each["id"] for each in served.http.get("/api/sessions").json()]
    assert served.http.get(f"/api/sessions/{kernel_id}").status_code == 404


def test_kernelspecs_tell_no_commands_no_variables_and_no_paths(
    key_file: Path, service_home: Path, tmp_path: Path
) -> None:
    spec = '{"argv": ["/opt/own/toy"], "display_name": "Toy", "language": "toy", "env": {"API_KEY": "a-secret"},'
    (tmp_path / "kernels" / "toy").mkdir(parents=True)
    (tmp_path / "kernels" / "toy" / "kernel.json").write_text(spec + '"metadata": {"path": "/opt/own", "rank": 1}}')
    with serving(tmp_path, KERNELBOX_HOME=str(service_home), JUPYTER_PATH=str(tmp_path)) as served:
        told = served.http.get("/api/kernelspecs/toy").json()["spec"]
        assert (told["argv"], told["env"]) == ([], {})
        assert told["metadata"] == {"rank": 1, "debugger": False}
        assert (told["display_name"], told["language"]) == ("Toy", "toy")
        failed = served.post("/api/kernels", {"name": "toy"})
        assert (failed.status_code, failed.json()["code"]) == (500, "start_failed")
        for text in (served.http.get("/api/kernelspecs").text, failed.text):
            assert "/opt/own" not in text
            assert "a-secret" not in text

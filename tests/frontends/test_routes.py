"""Jupyter's REST routes, as clients of a gateway use them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path

from tests.server.support import Served, serving

OURS = '{"argv": ["python", "-m", "kernelbox.frontends"], "display_name": "Ours", "language": "python"}'


def test_the_server_says_its_version(served: Served) -> None:
    assert served.http.get("/api").json()["version"]


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
        assert served.http.get("/kernelspecs/python3/logo-svg.svg").status_code == 404


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


def test_a_kernel_that_no_session_was_opened_for_is_no_session(served: Served, kernel_id: str) -> None:
    assert kernel_id not in [each["id"] for each in served.http.get("/api/sessions").json()]
    assert served.http.get(f"/api/sessions/{kernel_id}").status_code == 404

"""What can be looked at over HTTP: variables, completions, history, files, pictures, metrics."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx2
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.bounded import BEGUN
from tests.support.cells import eventually
from tests.support.server import DEADLINE, PICTURE, Served, events_of, serving


def test_variables_are_listed(served: Served, key: str) -> None:
    served.execute(key, "x = [1, 2, 3]; name = 'ann'")
    found = served.http.get(f"/kernels/{key}/variables").json()["variables"]
    assert [(each["name"], each["type"], each["preview"]) for each in found] == [
        ("name", "str", "'ann'"),
        ("x", "list", "[1, 2, 3]"),
    ]


def test_code_is_completed_by_what_lives_in_the_kernel(served: Served, key: str) -> None:
    served.execute(key, "particular_name = 1")
    for body in ({"code": "particular_n"}, {"code": "particular_n + 1", "cursor_pos": 12}):
        found = served.post(f"/kernels/{key}/complete", body).json()
        assert found == {"matches": ["particular_name"], "cursor_start": 0, "cursor_end": 12}
    assert served.post(f"/kernels/{key}/complete", {"code": "x", "cursor_pos": 99}).status_code == 200


def test_history_has_the_code_that_was_run(served: Served, key: str) -> None:
    for code in ("a = 1", "a + 1"):
        served.execute(key, code)
    inputs = served.http.get(f"/kernels/{key}/history").json()["inputs"]
    assert [(each["execution_count"], each["code"], each["text"]) for each in inputs] == [
        (1, "a = 1", ""),
        (2, "a + 1", "2"),
    ]
    assert {(each["status"], each["language"], each["lost"]) for each in inputs} == {("success", "python", "")}
    assert served.http.get(f"/kernels/{key}/history?last=1").json()["inputs"] == inputs[1:]


def test_the_whole_text_of_a_cell_can_be_read_in_parts(served: Served, key: str) -> None:
    body = {"code": "for n in range(3_000): print('line', n)", "budget": 500}
    result = served.post(f"/kernels/{key}/execute", body).json()
    assert result["truncated"]
    assert "kept" not in result
    address = f"/kernels/{key}/outputs/{result['execution_id']}"
    whole = "\n".join(f"line {n}" for n in range(3_000))
    assert served.http.get(address).json() == {"text": whole[:10_000], "size": len(whole)}
    assert served.http.get(f"{address}?start=20000&end=20010").json()["text"] == whole[20000:20010]
    missing = served.http.get(f"/kernels/{key}/outputs/0f1e")
    assert (missing.status_code, missing.json()["code"]) == (404, "output_not_kept")


def test_history_stays_after_a_restart_and_after_a_death(served: Served, key: str) -> None:
    served.execute(key, "a = 1")
    served.post(f"/kernels/{key}/restart")
    served.execute(key, "import os; os._exit(1)")
    first, died = served.http.get(f"/kernels/{key}/history").json()["inputs"]
    assert (first["code"], first["status"], first["lost"]) == ("a = 1", "success", "restarted")
    assert (died["code"], died["status"]) == ("import os; os._exit(1)", "died")
    assert died["lost"] == "the process exited with status 1"


@pytest.mark.slow
def test_a_kernel_that_stays_busy_is_told(served: Served, key: str) -> None:
    job_id = served.post(f"/kernels/{key}/jobs", {"code": "while True: pass"}).json()["id"]
    answer = served.http.get(f"/kernels/{key}/variables")
    assert (answer.status_code, answer.json()["code"]) == (409, "kernel_busy")
    served.post(f"/jobs/{job_id}/cancel")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("complete", "get_ipython().Completer.completions = lambda *args: 1 / 0"),
    ],
)
def test_what_a_cell_has_tampered_with_is_no_answer(served: Served, key: str, path: str, code: str) -> None:
    served.execute(key, code)
    method, body = ("POST", {"code": "x"}) if path == "complete" else ("GET", None)
    answer = served.http.request(method, f"/kernels/{key}/{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "failed")
    assert "has no answer" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["variables", "complete"])
def test_a_dead_kernel_and_none_at_all_have_nothing_to_look_at(served: Served, key: str, path: str) -> None:
    method, body = ("POST", {"code": "x"}) if path == "complete" else ("GET", None)
    assert served.http.request(method, f"/kernels/nobody/{path}", json=body).status_code == 404
    served.execute(key, "import os; os._exit(1)")
    answer = served.http.request(method, f"/kernels/{key}/{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "kernel_died")
    assert answer.json()["detail"].startswith(
        "the kernel died: the process exited with status 1; restart it, or execute"
    )


# -- files -----------------------------------------------------------------------------------------------------


def test_a_file_is_written_listed_and_fetched(served: Served) -> None:
    data = os.urandom(1_000_000)
    written = served.http.put("/files/in/deep/data é.bin", content=data)
    assert (written.status_code, written.json()) == (201, {"path": "in/deep/data é.bin", "size": len(data)})
    assert (served.workspace / "in/deep/data é.bin").read_bytes() == data
    listed = served.http.get("/files/in/deep").json()
    assert listed["entries"] == [{"name": "data é.bin", "kind": "file", "size": len(data)}]
    fetched = served.http.get("/files/in/deep/data é.bin")
    assert fetched.content == data
    assert fetched.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in fetched.headers["content-security-policy"]
    assert fetched.headers["x-content-type-options"] == "nosniff"
    (served.workspace / ".env").write_text("SECRET=1")
    (served.workspace / ".kernelbox").mkdir(exist_ok=True)
    listed = served.http.get("/files").json()
    assert "in" in {entry["name"] for entry in listed["entries"]}
    assert not {".env", ".kernelbox"} & {entry["name"] for entry in listed["entries"]}


@pytest.mark.parametrize("name", ["a\nb", "a\n", "tab\there", "#?%", "C:\\x", "-rf", " "])
def test_a_file_of_an_odd_name_is_written_listed_and_fetched(served: Served, name: str) -> None:
    path = f"/files/odd/{quote(name)}"
    assert served.http.put(path, content=b"x").json() == {"path": f"odd/{name}", "size": 1}
    assert {"name": name, "kind": "file", "size": 1} in served.http.get("/files/odd").json()["entries"]
    assert served.http.get(path).content == b"x"


def test_a_file_is_replaced_whole_and_a_kernel_reads_it(served: Served, key: str) -> None:
    for text in ("first", "second"):
        served.http.put("/files/replaced.txt", content=text.encode())
    assert served.execute(key, "open('replaced.txt').read()")["return_value"] == "'second'"
    served.execute(key, "open('made.txt', 'w').write('by a cell')")
    assert served.http.get("/files/made.txt").content == b"by a cell"


@pytest.mark.parametrize(
    "path",
    [
        *("%2e%2e/outside", "a/%2e%2e/%2e%2e/outside", "%2fetc%2fpasswd", "..%2f..%2fetc%2fpasswd", "link/passwd"),
        *("linked", ".env", ".kernelbox/x", "in%00side", "fifo", "%2e%2e%5coutside/%2e%2e/%2e%2e/x"),
    ],
)
def test_no_path_leads_outside(served: Served, path: str) -> None:
    (served.workspace / ".env").write_text("SECRET=1")
    for name, target in (("link", "/etc"), ("linked", "/etc/passwd")):
        with contextlib.suppress(FileExistsError):
            (served.workspace / name).symlink_to(target)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(served.workspace / "fifo")
    host, port = served.url.removeprefix("http://").split(":")
    for method in ("GET", "PUT"):
        with socket.create_connection((host, int(port)), timeout=DEADLINE) as client:
            head = f"{method} /files/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
            client.sendall(head.encode())
            answer = b""
            while piece := client.recv(10_000):
                answer += piece
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 422")), answer
        assert b"root:" not in answer
        assert b"SECRET" not in answer
    assert not (served.workspace.parent / "outside").exists()


def test_an_upload_that_breaks_off_leaves_nothing(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as client:
        client.sendall(f"PUT /files/broken/off HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\nx".encode())
        while not list((served.workspace / "broken").glob(".off*")):
            pass
    while list((served.workspace / "broken").glob(".off*")):
        pass
    assert list((served.workspace / "broken").iterdir()) == []


def test_a_directory_is_no_file_and_a_file_no_directory(served: Served) -> None:
    served.http.put("/files/folder/file", content=b"x")
    assert served.http.put("/files/folder", content=b"x").status_code == 422
    assert served.http.put("/files/", content=b"x").status_code == 422
    assert served.http.get("/files/folder/file/inner").status_code == 404
    assert served.http.get("/files/none").status_code == 404


def test_an_empty_file_is_a_file(served: Served) -> None:
    assert served.http.put("/files/empty", content=b"").json()["size"] == 0
    assert served.http.get("/files/empty").content == b""


def test_pictures_of_a_result_are_fetched_by_their_addresses(served: Served, key: str) -> None:
    code = f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode('{PICTURE}'))"
    (address,) = served.execute(key, code)["images"]
    picture = served.http.get(address)
    assert picture.headers["content-type"] == "image/png"
    assert picture.content.startswith(b"\x89PNG")
    assert "sandbox" in picture.headers["content-security-policy"]
    for name in ("none.png", "%2e%2e%2fregistry.json", "..%2fseal", "20260101-000000-0123456789abcdef-1.png"):
        assert served.http.get(f"/images/{name}").status_code == 404


@pytest.mark.parametrize("name", ["planted.png", "secret", "20260101-000000-0123456789abcdef-1.html", "{}.png", "x{}"])
def test_what_is_no_picture_of_a_cell_is_not_fetched_as_one(
    served: Served, key: str, service_home: Path, name: str
) -> None:
    code = f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode('{PICTURE}'))"
    (address,) = served.execute(key, code)["images"]
    planted = service_home / "images" / name.format(address.rpartition("/")[2])
    planted.write_text("<script>")
    assert served.http.get(f"/images/{planted.name}").status_code == 404
    planted.unlink()


def test_no_answer_says_where_a_picture_could_not_be_written(served: Served, key: str, service_home: Path) -> None:
    images, away = service_home / "images", service_home / "away"
    served.execute(
        key, f"import base64\nfrom IPython.display import Image\nIt = Image(base64.b64decode('{PICTURE}'))\nIt"
    )
    images.rename(away)
    images.write_text("no directory")
    result = served.execute(key, "It")
    images.unlink()
    away.rename(images)
    assert "[kernelbox] images could not be written: " in result["stderr"]
    assert str(service_home) not in str(result)


# -- metrics ---------------------------------------------------------------------------------------------------


def read_metrics(served: Served) -> dict[tuple[str, str], float]:
    text = served.http.get("/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, next(iter(sample.labels.values()), "")): sample.value for sample in samples}


def test_metrics_count_executions_and_failures_by_cause(served: Served, key: str) -> None:
    before = read_metrics(served)
    served.execute(key, "1")
    served.execute(key, "1 / 0")
    served.execute(key, "while True: pass", timeout=BEGUN)
    jobs = [served.post(f"/kernels/{key}/jobs", {"code": "while True: pass"}).json()["id"] for _ in range(2)]
    eventually(lambda: served.http.get(f"/kernels/{key}").json()["kernel"]["status"] == "running")  # the first of them
    for job_id in reversed(jobs):
        served.post(f"/jobs/{job_id}/cancel")
        list(events_of(served, job_id))
    doomed = served.post("/kernels", {}).json()["name"]
    served.execute(doomed, "import os; os._exit(1)")
    after = read_metrics(served)

    def grown(name: str, label: str) -> float:
        return after.get((name, label), 0) - before.get((name, label), 0)

    assert grown("kernelbox_executions_total", "success") == 1
    assert grown("kernelbox_failures_total", "exception") == 1
    assert grown("kernelbox_failures_total", "timeout") == 1
    assert grown("kernelbox_failures_total", "interrupt") == 1
    assert grown("kernelbox_failures_total", "not run") == 1
    assert grown("kernelbox_failures_total", "death") == 1
    assert grown("kernelbox_execution_seconds_count", "") == 6
    assert after["kernelbox_kernels", "idle"] >= 1
    assert grown("kernelbox_kernels", "dead") == 1
    assert after["kernelbox_kernel_memory_bytes", key] > 1_000_000
    assert after["kernelbox_start_time_seconds", ""] == pytest.approx(
        psutil.Process(served.process.pid).create_time(), abs=DEADLINE
    )
    served.http.delete(f"/kernels/{doomed}")


def test_metrics_tell_nothing_of_kernels_that_are_gone(served: Served) -> None:
    gone = served.post("/kernels", {}).json()["name"]
    assert ("kernelbox_kernel_memory_bytes", gone) in read_metrics(served)
    served.http.delete(f"/kernels/{gone}")
    assert not [name for name, label in read_metrics(served) if label == gone]


def test_health_is_told_while_many_cells_run(served: Served, key: str) -> None:
    jobs = [served.post(f"/kernels/{key}/jobs", {"code": "while True: pass"}).json()["id"] for _ in range(20)]
    assert {httpx2.get(f"{served.url}{path}").status_code for path in ("/health", "/ready")} == {200}
    for job_id in reversed(jobs):
        served.post(f"/jobs/{job_id}/cancel")


def test_files_of_callers_are_apart(key_file: Path, service_home: Path, tmp_path: Path) -> None:
    ann, bob = "anns-own-secret-word", "bobs-own-secret-word"
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[[token]]\nname = "ann"\nsecret = "{ann}"\n[[token]]\nname = "bob"\nsecret = "{bob}"\n')
    tokens.chmod(0o600)
    folder = tmp_path / "workspace"
    folder.mkdir()
    log = tmp_path / "log"
    with serving(folder, "--tokens", str(tokens), KERNELBOX_HOME=str(service_home), LOG=str(log)) as served:
        as_ann, as_bob = ({"Authorization": f"Bearer {secret}"} for secret in (ann, bob))
        assert served.http.put("/files/mine.txt", content=b"ann", headers=as_ann).status_code == 201
        assert (folder / "ann/mine.txt").read_text() == "ann"
        assert served.http.get("/files/mine.txt", headers=as_bob).status_code == 404
        assert served.http.get("/files/..%2fann%2fmine.txt", headers=as_bob).status_code == 422
        code = {"code": "open('mine.txt').read()"}
        read = served.http.post("/sessions/s/execute", json=code, headers=as_ann)
        assert read.json()["return_value"] == "'ann'"
        assert served.http.get("/metrics", headers=as_ann).status_code == 403
        job = served.http.post("/kernels/s/jobs", json={"code": "1"}, headers=as_ann).json()["id"]
        assert served.http.get(f"/jobs/{job}", headers=as_bob).status_code == 404
        assert served.http.get(f"/jobs/{job}/events", headers=as_bob).status_code == 404
        assert served.http.post(f"/jobs/{job}/cancel", headers=as_bob).status_code == 404
        assert served.http.get("/jobs", headers=as_bob).json() == {"jobs": []}
        served.http.delete("/kernels", headers=as_ann)
        (folder / "bob").rmdir()
        (folder / "bob").symlink_to(folder / "ann")
        replaced = served.http.get("/files/mine.txt", headers=as_bob)
        assert (replaced.status_code, replaced.json()["code"]) == (409, "folder_replaced")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["caller"] for line in lines if line.get("path") == "/files/mine.txt"] == ["ann", "bob", "bob"]


def test_the_documentation_may_load_nothing_from_elsewhere(served: Served) -> None:
    for path in ("/docs", "/redoc"):
        assert served.http.get(path).headers["content-security-policy"].startswith("default-src 'self'")


def test_no_refusal_of_a_path_names_the_directory_of_the_workspace(served: Served) -> None:
    for path in ("/etc/passwd", "../x", ".env", "x" * 300, "no/such"):
        for method in ("GET", "PUT"):
            assert str(served.workspace) not in served.http.request(method, f"/files/{path}").text


def test_metrics_that_are_asked_for_at_the_same_time_are_whole(served: Served, key: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: served.http.get("/metrics").text, range(40)))
    assert all(f'kernelbox_kernel_memory_bytes{{kernel="{key}"}}' in text for text in told)

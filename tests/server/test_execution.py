"""Running code over HTTP: the result, whatever the code does, and what becomes of the kernel."""

from __future__ import annotations

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import wait_for_end
from tests.support.front_ends import attached
from tests.support.server import DEADLINE, Served

import kernelbox
from kernelbox.server.jobs._answers import JsonAnswer

TEN = {
    *("status", "output", "stderr", "error", "return_value", "execution_count", "duration_ms", "outputs"),
    *("attempts", "truncated"),
}


def test_a_result_has_the_fields_of_the_python_api(served: Served, key: str) -> None:
    result = served.execute(key, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert result.keys() >= TEN
    assert (result["status"], result["return_value"], result["error"]) == ("success", "42", None)
    assert (result["output"], result["stderr"]) == ("out\n", "err\n")
    assert [item["kind"] for item in result["outputs"]] == ["stream", "stream", "execute_result"]
    assert result["attempts"] == []
    assert (result["state"], result["ending"]) == ("kept", "finished")


def test_state_stays_between_requests(served: Served, key: str) -> None:
    served.execute(key, "x = [1, 2, 3]")
    served.execute(key, "x.append(4)")
    assert served.execute(key, "sum(x)")["return_value"] == "10"


def test_an_exception_is_a_result(served: Served, key: str) -> None:
    result = served.execute(key, "1 / 0")
    assert (result["status"], result["error"]["ename"]) == ("error", "ZeroDivisionError")
    assert "1 / 0" in "\n".join(result["error"]["traceback"])


def test_a_timeout_is_a_result_and_the_kernel_keeps_its_state(served: Served, key: str) -> None:
    served.execute(key, "x = 1")
    result = served.execute(key, "while True: pass", timeout=0.3)
    assert (result["status"], result["error"]["ename"]) == ("timeout", "TimeoutError")
    assert served.execute(key, "x")["return_value"] == "1"


def test_the_result_of_a_death_says_which_checkpoint_the_kernel_is_back_at_as_the_schema_has_it(
    served: Served, key: str, service_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(service_home))
    served.execute(key, "x = 1")
    kernelbox.checkpoint(served.http.get(f"/kernels/{key}").json()["kernel"]["name"])
    result = served.execute(key, "x = 2; import os; os._exit(3)")
    assert (result["state"], result["restored_from"], result["lost_executions"]) == ("rolled back", 1, [2])
    assert "restored from checkpoint 1" in result["error"]["evalue"]
    assert served.execute(key, "x")["return_value"] == "1"
    schemas = served.http.get("/openapi.json").json()["components"]["schemas"]
    assert result.keys() <= schemas["ResultModel"]["properties"].keys()


def test_a_kernel_that_dies_between_requests_reports_it_once_and_is_back_at_its_checkpoint(
    served: Served, key: str, service_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(service_home))
    pid = int(served.execute(key, "x = 1; import os; os.getpid()")["return_value"])
    kernelbox.checkpoint(served.http.get(f"/kernels/{key}").json()["kernel"]["name"])
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    result = served.execute(key, "x = 3")
    assert (result["ending"], result["restored_from"]) == ("never ran", 1)
    assert "killed by SIGKILL; the kernel was restored from checkpoint 1" in result["error"]["evalue"]
    assert served.execute(key, "x")["return_value"] == "1"


def test_no_answer_says_where_a_kernel_was_that_cannot_be_started_again(
    served: Served, tmp_path: Path, service_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(service_home))
    (tmp_path / "vanishing").mkdir()
    kernel = kernelbox.get_or_create("vanishing", cwd=tmp_path / "vanishing")
    (tmp_path / "vanishing").rmdir()
    result = served.execute("vanishing", "sum(range(10**13))", timeout=BEGUN)
    assert (result["status"], result["state"]) == ("timeout", "lost")
    assert "the server's log says why" in result["error"]["evalue"]
    with attached(served, kernel.kernel_id) as front_end:
        told = front_end.ask("complete_request", code="x", cursor_pos=1).content["evalue"]
    answers = [
        served.http.get("/kernels").text,
        served.http.get("/kernels/vanishing").text,
        served.http.get("/kernels/vanishing/variables").text,
        served.post("/kernels/vanishing/execute", {"code": "1"}).text,
    ]
    assert all("its restart failed" in text for text in (told, *answers))
    assert "is gone" in (kernelbox.status("vanishing").death or ""), "the owner of the home learns why"
    (tmp_path / "vanishing").mkdir()
    restarted = served.post("/kernels/vanishing/restart").text
    assert "its restart failed" in restarted
    kernelbox.destroy("vanishing")
    for text in (str(result), told, *answers, restarted):
        assert "FileNotFoundError" not in text
        assert str(tmp_path) not in text


def test_no_answer_says_where_a_kernel_is_kept_that_cannot_be_reached(
    served: Served, key: str, service_home: Path
) -> None:
    place = service_home / "runtime" / served.http.get(f"/kernels/{key}").json()["kernel"]["kernel_id"]
    place.rename(place.with_name("moved"))
    place.symlink_to("moved")
    told = [served.http.get("/kernels").text, served.http.get(f"/kernels/{key}").text]
    place.unlink()
    place.with_name("moved").rename(place)
    assert all("its directory can no longer be used" in text for text in told)
    assert not any(str(service_home) in text for text in told)


def test_bash_runs_in_the_same_kernel(served: Served, key: str) -> None:
    assert served.execute(key, "echo hello; cd /; pwd", language="bash")["output"] == "hello\n/\n"


def test_a_death_is_told_with_its_cause_until_the_kernel_is_restarted(served: Served, key: str) -> None:
    result = served.execute(key, "import os; os._exit(3)")
    assert (result["error"]["ename"], result["state"], result["ending"]) == ("KernelDied", "lost", "died")
    assert "restart it" in result["error"]["evalue"]
    again = served.execute(key, "1")
    assert (again["status"], again["ending"]) == ("error", "never ran")
    assert "exit" in again["error"]["evalue"]
    assert served.http.get(f"/kernels/{key}").json()["alive"] is False
    assert served.post(f"/kernels/{key}/restart").json()["status"] == "idle"
    assert served.execute(key, "1 + 1")["return_value"] == "2"


def test_a_session_tells_of_a_death_once_and_goes_on_in_a_fresh_kernel(served: Served, key: str) -> None:
    def run(code: str) -> dict[str, Any]:
        result: dict[str, Any] = served.post(f"/sessions/{key}/execute", {"code": code}).json()
        return result

    run("x = 1")
    assert run("import os; os.kill(os.getpid(), 9)")["ending"] == "died"
    assert run("1 + 1")["return_value"] == "2"
    assert run("x")["error"]["ename"] == "NameError"


def test_a_session_opens_its_kernel(served: Served) -> None:
    answer = served.post("/sessions/opened/execute", {"code": "40 + 2"})
    assert (answer.status_code, answer.json()["return_value"]) == (200, "42")
    assert served.execute("opened", "1")["execution_count"] == 2
    served.http.delete("/kernels/opened")


@pytest.mark.parametrize("path", ["execute", "execute/retry"])
def test_code_for_a_kernel_that_is_not_there_creates_none(served: Served, path: str) -> None:
    answer = served.post(f"/kernels/nobody/{path}", {"code": "1"})
    assert (answer.status_code, answer.json()["code"]) == (404, "kernel_not_found")
    assert served.http.get("/kernels/nobody").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"code": 1},
        {"code": None},
        {"code": "1", "language": "perl"},
        {"code": "1", "timeout": 0.05},
        {"code": "1", "timeout": "soon"},
        {"code": "1", "timeout": -1},
        {"code": "1", "output_char_limit": -1},
        {"code": "1", "output_char_limit": True},
        {"code": "1", "approve": "maybe"},
        [],
        "1",
        None,
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_anything_runs(served: Served, key: str, body: object) -> None:
    for path in (f"/kernels/{key}/execute", f"/kernels/{key}/execute/retry", "/sessions/unmade/execute"):
        assert served.post(path, body).status_code == 422
    assert served.http.get("/kernels/unmade").status_code == 404
    assert served.execute(key, "1")["execution_count"] == 1


@pytest.mark.parametrize("field", [{"max_attempts": 0}, {"max_attempts": 1001}, {"replacement_codes": "x"}])
def test_a_retry_that_makes_no_sense_is_refused(served: Served, key: str, field: dict[str, Any]) -> None:
    assert served.post(f"/kernels/{key}/execute/retry", {"code": "1", **field}).status_code == 422


def test_code_that_is_too_long_is_refused(served: Served, key: str) -> None:
    answer = served.post(f"/kernels/{key}/execute", {"code": "#" * 9_000_000})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert len(answer.text) < 1000


def test_replacements_are_run_after_failures_and_the_last_again(served: Served, key: str) -> None:
    body = {"code": "a", "replacement_codes": ["b", "c"], "max_attempts": 4}
    result = served.post(f"/kernels/{key}/execute/retry", body).json()
    assert result["status"] == "max_attempts_exceeded"
    assert [attempt["code"] for attempt in result["attempts"]] == ["a", "b", "c", "c"]
    assert [attempt["attempt"] for attempt in result["attempts"]] == [1, 2, 3, 4]


def test_a_retry_ends_with_the_first_success(served: Served, key: str) -> None:
    body = {"code": "x + 1", "replacement_codes": ["x = 41\nx + 1", "0"]}
    result = served.post(f"/kernels/{key}/execute/retry", body).json()
    assert (result["status"], result["return_value"], len(result["attempts"])) == ("success", "42", 2)


def test_a_retry_tries_as_often_as_is_configured(served: Served, key: str) -> None:
    result = served.post(f"/kernels/{key}/execute/retry", {"code": "nothing"}).json()
    assert len(result["attempts"]) == kernelbox.KernelBoxConfig().max_retries


def test_a_retry_in_a_session_runs_the_code_for_errors(served: Served) -> None:
    body = {"code": "y + 1", "on_error_code": "y = 1\ny + 1"}
    answer = served.post("/sessions/repaired/execute_with_retry", body)
    assert (answer.status_code, answer.json()["return_value"]) == (200, "2")
    served.http.delete("/kernels/repaired")


@pytest.mark.parametrize("route", ["kernels/{}/execute/retry", "sessions/{}/execute_with_retry"])
def test_a_retry_goes_on_in_a_kernel_that_an_attempt_has_ended(served: Served, key: str, route: str) -> None:
    body = {"code": "import os; os._exit(1)", "replacement_codes": ["'alive'"]}
    result = served.post("/" + route.format(key), body).json()
    assert (result["status"], result["return_value"]) == ("success", "'alive'")


@pytest.mark.parametrize(("method", "path", "ending"), [("POST", "/interrupt", "interrupted"), ("DELETE", "", "died")])
def test_a_retry_goes_no_further_when_it_is_interrupted_or_its_kernel_destroyed(
    served: Served, key: str, method: str, path: str, ending: str
) -> None:
    code = "import time\nwhile True: time.sleep(0.01)"
    with ThreadPoolExecutor() as pool:
        body = {"code": code, "max_attempts": 3}
        url = f"{served.url}/kernels/{key}/execute/retry"
        trying = pool.submit(httpx2.post, url, json=body, timeout=DEADLINE)
        while served.http.get(f"/kernels/{key}").json()["kernel"]["status"] != "running":
            pass
        served.http.request(method, f"/kernels/{key}{path}")
        result = trying.result(DEADLINE).json()
    assert (result["status"], result["ending"], len(result["attempts"])) == ("error", ending, 1)


def test_output_is_cut_where_the_request_says(served: Served, key: str) -> None:
    cut = served.execute(key, "print('x' * 50_000)")
    whole = served.execute(key, "print('x' * 5_000_000)", output_char_limit=0)
    assert (cut["truncated"], len(cut["output"]) < 11_000) == (True, True)
    assert (whole["truncated"], len(whole["output"])) == (False, 5_000_001)


def test_text_of_every_kind_arrives(served: Served, key: str) -> None:
    result = served.execute(key, r"print('é ☃ 😀 \x00 \x1b[31m'); print('\ud800')")
    assert result["output"].startswith("é ☃ 😀 \x00 \x1b[31m\n")


def test_the_name_of_a_file_that_is_no_text_can_be_in_an_answer() -> None:
    assert JsonAnswer({"notice": "no room in é\udcff"}).body == '{"notice":"no room in é\\udcff"}'.encode()


def test_numbers_that_json_has_no_word_for_arrive_as_text(served: Served, key: str) -> None:
    code = "from IPython.display import publish_display_data\n"
    code += "publish_display_data({'application/json': {'a': float('nan')}})"
    assert served.execute(key, code)["outputs"][0]["data"]["application/json"] == {"a": "nan"}


def test_shell_commands_run_unless_none_is_approved(served: Served, key: str) -> None:
    assert served.execute(key, "!echo ran")["output"] == "ran\n"
    refused = served.execute(key, "!echo ran", approve="none")
    assert refused["error"]["evalue"] == """shell 'echo ran': the request says "approve": "none\""""
    assert (refused["error"]["ename"], refused["output"]) == ("ApprovalRejectedError", "")
    assert served.execute(key, "!echo ran", approve="all")["output"] == "ran\n"


def test_kernels_do_not_get_the_environment_of_the_server(served: Served, key: str) -> None:
    names = served.execute(key, "import os; print(*os.environ)")["output"].split()
    assert "PATH" in names
    assert not [name for name in names if name in ("KERNELBOX_TOKEN", "KERNELBOX_HOME", "PYTEST_CURRENT_TEST")]


def test_kernels_work_in_the_workspace(served: Served, key: str) -> None:
    assert Path(served.execute(key, "import os; print(os.getcwd())")["output"].strip()) == served.workspace.resolve()


def test_a_client_that_goes_away_has_its_cell_interrupted(served: Served, key: str) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    body = b'{"code": "import time\\nwhile True: time.sleep(0.01)"}'
    head = f"POST /kernels/{key}/execute HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        while served.http.get(f"/kernels/{key}").json()["kernel"]["status"] != "running":
            pass
    assert served.execute(key, "'free'")["return_value"] == "'free'"


@pytest.mark.parametrize("seconds", [0, 0.1])
def test_a_death_is_noticed_though_a_child_has_the_connection_too(served: Served, key: str, seconds: float) -> None:
    code = f"import os, time\ntime.sleep({seconds})\nif os.fork(): os.kill(os.getpid(), 9)\ntime.sleep(1000)"
    result = served.execute(key, code, timeout=DEADLINE)
    assert (result["error"]["ename"], result["state"]) == ("KernelDied", "lost")

"""Jobs: begun, listed, followed, answered, cancelled, by any server on the home; and requests that come twice."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.cells import eventually
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, events_of, serving, steps_during

from kernelbox import KernelBoxConfig
from kernelbox.host.files._home import Home
from kernelbox.host.store._job_journal import Journal
from kernelbox.host.store._record import now
from kernelbox.server.jobs._job_service import Jobs

ENDLESS = "import time\nwhile True: time.sleep(0.01)"


def begin(served: Served, key: str, code: str, **fields: Any) -> str:
    answer = served.post(f"/kernels/{key}/jobs", {"code": code, **fields})
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["id"]
    return job_id


def look(served: Served, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = served.http.get(f"/jobs/{job_id}").json()
    return job


def wait_for(served: Served, job_id: str) -> dict[str, Any]:
    while (job := look(served, job_id))["state"] == "running":
        pass
    return job


def status_of_return(served: Served, job_id: str, last: dict[str, Any]) -> int:
    """Returns what a browser is answered that comes back after the end of a stream, as each does by itself."""
    headers = {"Last-Event-ID": str(last["seq"])}
    with served.http.stream("GET", f"/jobs/{job_id}/events", headers=headers) as answer:
        return answer.status_code


def wait_for_approval(served: Served, job_id: str) -> dict[str, Any]:
    while not (job := look(served, job_id)).get("approvals"):
        assert job["state"] == "running"
    request: dict[str, Any] = job["approvals"][0]
    return request


def test_a_job_is_begun_and_its_result_fetched_later(served: Served, key: str) -> None:
    job_id = begin(served, key, "print('so far')\n6 * 7")
    job = wait_for(served, job_id)
    assert (job["state"], job["kernel"], job["failed"]) == ("done", key, None)
    assert (job["result"]["return_value"], job["result"]["output"]) == ("42", "so far\n")
    assert job_id in {each["id"] for each in served.http.get("/jobs").json()["jobs"]}
    assert [each["id"] for each in served.http.get(f"/jobs?kernel={key}").json()["jobs"]] == [job_id]


def test_a_job_in_a_session_opens_its_kernel(served: Served) -> None:
    answer = served.post("/sessions/job-session/jobs", {"code": "1 + 1"})
    assert wait_for(served, answer.json()["id"])["result"]["return_value"] == "2"
    served.http.delete("/kernels/job-session")


def test_a_job_that_cannot_begin_leaves_nothing(served: Served) -> None:
    before = served.http.get("/jobs").json()
    answer = served.post("/kernels/nobody/jobs", {"code": "1"})
    assert (answer.status_code, answer.json()["code"]) == (404, "kernel_not_found")
    assert served.http.get("/jobs").json() == before


@pytest.mark.parametrize("job_id", ["x", "0" * 32, "%2e%2e%2fx", "job"])
@pytest.mark.parametrize("path", ["", "/events", "/cancel", "/approvals/1"])
def test_a_job_that_is_not_there_is_not_found(served: Served, job_id: str, path: str) -> None:
    method = "POST" if path in ("/cancel", "/approvals/1") else "GET"
    body = {"accept": True} if method == "POST" else None
    answer = served.http.request(method, f"/jobs/{job_id}{path}", json=body, headers=served.proof)
    assert answer.status_code == 404


def test_a_job_is_cancelled_and_its_kernel_keeps_its_variables(served: Served, key: str) -> None:
    job_id = begin(served, key, f"x = 1\nprint('begun')\n{ENDLESS}")
    next(event for event in events_of(served, job_id) if event["type"] == "output")
    assert served.post(f"/jobs/{job_id}/cancel").status_code == 200
    result = wait_for(served, job_id)["result"]
    assert (result["error"]["ename"], result["output"], result["state"]) == ("Cancelled", "begun\n", "kept")
    assert served.execute(key, "x")["return_value"] == "1"
    assert served.post(f"/jobs/{job_id}/cancel").json()["state"] == "done"


def test_a_job_that_waits_for_its_turn_never_runs_once_it_is_cancelled(served: Served, key: str) -> None:
    first, second = begin(served, key, ENDLESS), begin(served, key, "ran = True")
    served.post(f"/jobs/{second}/cancel")
    assert wait_for(served, second)["result"]["ending"] == "never ran"
    served.post(f"/jobs/{first}/cancel")
    wait_for(served, first)
    assert served.execute(key, "ran")["error"]["ename"] == "NameError"


def test_another_server_tells_of_a_job_follows_it_and_cancels_it(served: Served, other: Served, key: str) -> None:
    job_id = begin(served, key, f"print('first')\n{ENDLESS}")
    waiting = begin(served, key, "1")
    assert look(other, job_id)["state"] == "running"
    followed = events_of(other, job_id)
    assert next(event for event in followed if event["type"] == "output")["text"] == "first\n"
    other.post(f"/jobs/{job_id}/cancel")
    assert list(followed)[-1]["result"]["ending"] == "interrupted"
    assert wait_for(other, waiting)["result"]["status"] == "success"


def test_another_server_cancels_a_job_of_whose_events_the_first_are_dropped(
    served: Served, other: Served, key: str
) -> None:
    flood = "for _ in range(200): print('x' * 100_000)"
    job_id = begin(served, key, f"{flood}\nprint('end')\n{ENDLESS}")
    followed = events_of(served, job_id)
    assert any("end" in event.get("text", "") for event in followed)
    eventually(lambda: next(events_of(other, job_id))["type"] == "dropped")
    other.post(f"/jobs/{job_id}/cancel")
    assert wait_for(other, job_id)["result"]["ending"] == "interrupted"


def test_a_job_that_is_cancelled_before_its_kernel_has_started_never_runs(tmp_path: Path, key_file: Path) -> None:
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    slow = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    with new_home() as home, serving(tmp_path, KERNELBOX_HOME=str(home), KERNELBOX_STARTUP_CODE=slow) as served:
        with ThreadPoolExecutor() as pool:
            code = {"code": f"open({str(ran)!r}, 'w').close()"}
            beginning = pool.submit(served.post, "/sessions/slow/jobs", code)
            while not (jobs := served.http.get("/jobs").json()["jobs"]):
                pass
            assert served.post(f"/jobs/{jobs[0]['id']}/cancel").status_code == 200
            refusal = beginning.result(DEADLINE)
            gate.touch()
        assert (refusal.status_code, refusal.json()["code"]) == (409, "job_cancelled")
        assert served.http.get("/jobs").json()["jobs"] == []
        assert served.post("/sessions/slow/execute", {"code": "'goes on'"}).json()["return_value"] == "'goes on'"
        served.http.delete("/kernels")
    assert not ran.exists()


def test_a_retry_that_is_cancelled_while_its_kernel_is_started_anew_is_stopped_when_it_goes_on(
    tmp_path: Path, key_file: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    slow = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    with new_home() as home, serving(tmp_path, KERNELBOX_HOME=str(home), KERNELBOX_STARTUP_CODE=slow) as served:
        served.post("/sessions/slow")
        code = {
            "code": f"import os\nos.remove({str(gate)!r})\nos._exit(1)",
            "replacement_codes": [ENDLESS],
        }
        with ThreadPoolExecutor() as pool:
            retrying = pool.submit(served.post, "/kernels/slow/execute/retry", code, **{"Idempotency-Key": "retry"})
            while [kernel["status"] for kernel in served.http.get("/kernels").json()["kernels"]] != ["unknown"]:
                pass
            (job,) = served.http.get("/jobs").json()["jobs"]
            assert served.post(f"/jobs/{job['id']}/cancel").status_code == 200
            gate.touch()
            result = retrying.result(DEADLINE).json()
        assert (result["error"]["ename"], len(result["attempts"])) == ("Cancelled", 2)
        served.http.delete("/kernels")


def test_a_job_that_another_server_has_not_begun_to_run_cannot_be_cancelled_and_that_is_said(
    served: Served, service_home: Path
) -> None:
    job_id, journal = os.urandom(16).hex(), Journal(Home(str(service_home), KernelBoxConfig.from_env().key_file))
    entry = journal.claim(job_id, {"id": job_id, "state": "running", "caller": "", "created_at": now()})
    refusal = served.post(f"/jobs/{job_id}/cancel")
    assert (refusal.status_code, refusal.json()["code"]) == (409, "job_starting")
    assert entry is not None
    journal.withdraw(entry)


def test_an_answer_that_comes_to_another_server_reaches_the_cell(served: Served, other: Served, key: str) -> None:
    job_id = begin(served, key, "!echo ran", approve="ask")
    request = wait_for_approval(other, job_id)
    address = f"/jobs/{job_id}/approvals/{request['id']}"
    assert other.post(address, {"accept": True}, **other.proof).json() == {"accepted": True}
    assert wait_for(other, job_id)["result"]["output"] == "ran\n"
    late = other.post(address, {"accept": True}, **other.proof)
    assert (late.status_code, late.json()["code"]) == (409, "approval_closed")


def test_the_jobs_of_a_server_that_was_killed_are_lost_and_say_so(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as first:
            first.post("/sessions/s")
            job_id = begin(first, "s", f"print('begun')\n{ENDLESS}")
            keyed = threading.Thread(target=_forget_failure, args=(first,))
            keyed.start()
            while len(first.http.get("/jobs").json()["jobs"]) < 2:
                pass
            first.process.kill()
            keyed.join(DEADLINE)
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as second:
            assert look(second, job_id)["state"] == "lost"
            *_, lost = events_of(second, job_id)
            assert lost["type"] == "lost"
            assert status_of_return(second, job_id, lost) == 204
            again = second.post("/kernels/s/execute", {"code": "1"}, **{"Idempotency-Key": "lost-one"})
            assert (again.status_code, again.json()["code"]) == (409, "job_lost")
            second.http.delete("/kernels")


def _forget_failure(served: Served) -> None:
    headers = {"Idempotency-Key": "lost-one"}
    with pytest.raises(httpx2.TransportError):
        httpx2.post(f"{served.url}/kernels/s/execute", json={"code": "1"}, headers=headers, timeout=DEADLINE)


# -- approvals -------------------------------------------------------------------------------------------------


def test_a_command_waits_for_its_answer(served: Served, key: str) -> None:
    job_id = begin(served, key, "!echo ran", approve="ask")
    request = wait_for_approval(served, job_id)
    assert (request["tool_name"], request["tool_args"]) == ("shell", {"cmd": "echo ran"})
    served.post(f"/jobs/{job_id}/approvals/{request['id']}", {"accept": False, "reason": "not today"}, **served.proof)
    job = wait_for(served, job_id)
    assert job["result"]["error"]["ename"] == "ApprovalRejectedError"
    assert "not today" in job["result"]["error"]["evalue"]
    decision = next(event for event in events_of(served, job_id) if event["type"] == "decision")
    assert (decision["accepted"], decision["reason"]) == (False, "not today")


def test_an_approval_is_answered_only_with_the_token_of_the_server(
    served: Served, key: str, service_home: Path
) -> None:
    job_id = begin(served, key, "!echo ran", approve="ask")
    request = wait_for_approval(served, job_id)
    address, accepting = f"/jobs/{job_id}/approvals/{request['id']}", {"accept": True}
    for headers in ({}, {"Authorization": "Bearer of-something-else"}):
        refusal = served.post(address, accepting, **headers)
        assert (refusal.status_code, refusal.json()["code"]) == (401, "token_required")
        assert refusal.headers["www-authenticate"] == "Bearer"
    assert (service_home / "token").stat().st_mode & 0o777 == 0o600
    assert served.post(address, accepting, **served.proof).status_code == 200
    assert wait_for(served, job_id)["result"]["output"] == "ran\n"


def test_the_token_of_the_server_is_good_for_its_requests_and_no_cell_in_a_sandbox_finds_it(
    tmp_path: Path, key_file: Path
) -> None:
    with new_home() as home, serving(tmp_path, "--sandbox", KERNELBOX_HOME=str(home)) as served:
        assert served.token == (home / "token").read_text().strip()
        assert served.http.get("/kernels", headers=served.proof).json() == {"kernels": []}
        code = f"open({str(home / 'token')!r}).read()"
        result = served.post("/sessions/curious/execute", {"code": code}).json()
        assert result["error"]["ename"] in ("FileNotFoundError", "PermissionError")
        served.http.delete("/kernels")


def test_what_is_not_answered_in_time_is_rejected_and_the_policy_of_the_server_decides_first(
    tmp_path: Path, key_file: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\naction = "allow"\ntool = "shell"\nargs = { cmd = "echo known*" }\n')
    words = ["--approval-timeout", "0.1", "--policy", str(policy)]
    with new_home() as home, serving(tmp_path, *words, KERNELBOX_HOME=str(home)) as served:
        body = {"code": "!echo known\n!echo unknown", "approve": "ask"}
        job = wait_for(served, served.post("/sessions/asks/jobs", body).json()["id"])
        served.http.delete("/kernels")
    assert job["result"]["output"] == "known\n"
    assert "expired: no answer within 0.1 s" in job["result"]["error"]["evalue"]


def test_an_answer_can_be_remembered(served: Served, key: str) -> None:
    job_id = begin(served, key, "for _ in range(3):\n    !echo ran", approve="ask")
    request = wait_for_approval(served, job_id)
    answer = {"accept": True, "remember": "execution"}
    assert served.post(f"/jobs/{job_id}/approvals/{request['id']}", answer, **served.proof).status_code == 200
    assert wait_for(served, job_id)["result"]["output"] == "ran\n" * 3


@pytest.mark.parametrize("body", [{}, {"accept": "yes!"}, {"accept": True, "remember": "for ever"}, [], None])
def test_an_answer_that_is_none_is_refused_and_the_question_stays(served: Served, key: str, body: object) -> None:
    job_id = begin(served, key, "!echo ran", approve="ask")
    request = wait_for_approval(served, job_id)
    assert served.post(f"/jobs/{job_id}/approvals/{request['id']}", body, **served.proof).status_code == 422
    assert served.post(f"/jobs/{job_id}/approvals/none", {"accept": True}, **served.proof).status_code == 409
    assert wait_for_approval(served, job_id) == request
    served.post(f"/jobs/{job_id}/cancel")
    assert wait_for(served, job_id)["result"]["error"]["ename"] == "Cancelled"


# -- the same request twice ------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["kernels/{}/execute", "sessions/{}/execute", "kernels/{}/execute/retry"])
def test_a_request_that_comes_twice_runs_once(served: Served, other: Served, key: str, route: str) -> None:
    body = {"code": "globals().setdefault('ran', []).append(1); len(ran)"}
    path = "/" + route.format(key)
    once = {"Idempotency-Key": f"twice-{key}"}
    first, second, third = (server.post(path, body, **once) for server in (served, served, other))
    assert first.json()["return_value"] == "1"
    assert first.json() == second.json() == third.json()
    assert served.execute(key, "len(ran)")["return_value"] == "1"


def test_requests_that_come_at_once_run_once(served: Served, other: Served, key: str) -> None:
    answers: list[Any] = []

    def send(server: Served) -> None:
        body = {"code": "import time; time.sleep(0.2); globals().setdefault('ran', []).append(1); len(ran)"}
        headers = {"Idempotency-Key": f"at-once-{key}"}
        answer = httpx2.post(f"{server.url}/kernels/{key}/execute", json=body, headers=headers, timeout=DEADLINE)
        answers.append(answer.json()["return_value"])

    threads = [threading.Thread(target=send, args=(server,)) for server in (served, other) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert answers == ["1"] * 8


def test_a_request_whose_answer_was_lost_runs_once(served: Served, key: str) -> None:
    body, once = {"code": "import time; time.sleep(0.3); x = globals().get('x', 0) + 1; x"}, {"Idempotency-Key": key}
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(f"{served.url}/kernels/{key}/execute", json=body, headers=once, timeout=0.1)
    assert served.post(f"/kernels/{key}/execute", body, **once).json()["return_value"] == "1"
    assert served.execute(key, "x")["return_value"] == "1"


def test_a_key_is_for_one_request(served: Served, key: str) -> None:
    once = {"Idempotency-Key": f"one-{key}"}
    served.post(f"/kernels/{key}/execute", {"code": "1"}, **once)
    for path, body in (("execute", {"code": "2"}), ("execute/retry", {"code": "1"}), ("jobs", {"code": "1"})):
        answer = served.post(f"/kernels/{key}/{path}", body, **once)
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_key_reused")


def test_a_request_that_was_refused_does_not_use_up_its_key(served: Served) -> None:
    once = {"Idempotency-Key": "refused-first"}
    assert served.post("/kernels/later/execute", {"code": "1"}, **once).status_code == 404
    served.post("/sessions/later")
    assert served.post("/kernels/later/execute", {"code": "1"}, **once).json()["return_value"] == "1"
    served.http.delete("/kernels/later")


@pytest.mark.parametrize("value", ["", "a b", "x" * 256])
def test_a_key_that_is_none_is_refused(served: Served, key: str, value: str) -> None:
    answer = served.post(f"/kernels/{key}/execute", {"code": "1"}, **{"Idempotency-Key": value})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Names a file that cells wait for."""
    return tmp_path / "gate"


def wait_at(gate: Path, *, before: str, after: str) -> str:
    return f"import os\n{before}\nwhile not os.path.exists({str(gate)!r}): pass\n{after}"


# What a cell may put behind the events of a job: a line, one without end, and the beginning of what was signed.
def test_a_job_followed_from_beyond_its_last_event_while_it_ends_does_not_hold_up_the_server(
    served: Served, key: str
) -> None:
    for _ in range(200):  # in some of them the follower looks just when the job has ended
        answer = served.http.get(f"/jobs/{begin(served, key, '1')}/events?after=3")
        assert (answer.status_code in (200, 204), answer.content) == (True, b"")
    assert served.http.get("/health").status_code == 200


PLANTED = ["{zeros} 99 output forged\n", "forged", "\n{copy}", "{zeros} " * 10_000]


@pytest.mark.parametrize("planted", PLANTED)
def test_what_a_cell_writes_into_the_journal_is_not_believed(
    served: Served, key: str, service_home: Path, gate: Path, planted: str
) -> None:
    job_id = begin(served, key, wait_at(gate, before="print('before')", after="print('after')"))
    file = service_home / "jobs" / job_id
    eventually(lambda: "before" in file.read_text())
    with file.open("r+") as events:
        copy = events.read()
        events.write(planted.format(zeros="0" * 32, copy=copy[: len(copy) // 2]))
    gate.touch()
    wait_for(served, job_id)
    followed = list(events_of(served, job_id))
    assert [event.get("text") for event in followed if event["type"] == "output"] == ["before\n", "after\n"]
    assert followed[-1]["type"] == "result"
    assert [event["seq"] for event in followed] == list(range(1, len(followed) + 1))


def test_a_record_that_a_cell_writes_into_the_journal_is_none(served: Served, key: str, service_home: Path) -> None:
    job_id = begin(served, key, "1")
    wait_for(served, job_id)
    record = service_home / "jobs" / job_id
    text = record.read_text()
    _, head, data = text.split("\n")[:3]
    for forged in (f"\n{'0' * 32} {data}", f"\n{head}\n{data.replace('running', 'failed!')}", f"\n{head}", ""):
        record.write_text(forged)
        assert served.http.get(f"/jobs/{job_id}").status_code == 404
    for forged in (text.replace('"state":"done"', '"state":"lost"'), text[: len(text) // 2]):
        record.write_text(forged)
        assert look(served, job_id)["state"] == "lost"  # how it ended is not in the file any more


@pytest.mark.parametrize("name", ["2", "999999"])
def test_a_file_of_events_that_a_cell_makes_hides_no_event(
    served: Served, key: str, service_home: Path, gate: Path, name: str
) -> None:
    last_gate = gate.with_name("last")
    end = wait_at(last_gate, before="print('middle')", after="print('y' * 3_000_000, 'at the end')")
    job_id = begin(served, key, wait_at(gate, before="print('true')", after=end))
    following = events_of(served, job_id)
    followed = [next(following), next(following)]
    (service_home / "jobs" / f"{job_id}.{name}").write_text("\nforged\n")
    gate.touch()
    followed.append(next(following))
    assert served.http.get("/health").status_code == 200  # the server has looked for more, and waits
    last_gate.touch()
    followed += following
    texts = "".join(event["text"] for event in followed if event["type"] == "output")
    assert (texts[:12], texts[-11:]) == ("true\nmiddle\n", "at the end\n")
    assert followed[-1]["type"] == "result"


@pytest.mark.parametrize("planted", [b"", b"\n" * 4_000_000, b"x\n" * 2_000_000], ids=["a hole", "blanks", "lines"])
def test_events_behind_megabytes_that_a_cell_has_written_are_given_up(
    served: Served, key: str, service_home: Path, planted: bytes
) -> None:
    job_id = begin(served, key, "print('true')")
    wait_for(served, job_id)
    with (service_home / "jobs" / job_id).open("r+b") as events:
        *beginning, rest = events.read().split(b"\n", 5)  # the first record, and that the cell has started
        events.seek(len(b"\n".join(beginning)))
        events.truncate()
        events.write(planted)
        events.truncate(None if planted else 64 * 1024**3)
        events.seek(0, os.SEEK_END)
        events.write(b"\n" + rest)
    first, lost = events_of(served, job_id)
    assert (first["type"], lost["type"]) == ("started", "lost")
    assert "has overwritten the events" in lost["detail"]
    assert look(served, job_id)["state"] == "done"


def test_a_browser_that_was_told_that_events_are_lost_is_told_to_stop(
    served: Served, other: Served, key: str, service_home: Path
) -> None:
    job_id = begin(served, key, f"print('begun', flush=True)\n{ENDLESS}")
    next(event for event in events_of(other, job_id) if event["type"] == "output")
    with (service_home / "jobs" / job_id).open("ab") as events:
        events.write(b"x\n" * 2_000_000)
    *_, lost = events_of(other, job_id)
    assert lost["type"] == "lost"
    assert [status_of_return(server, job_id, lost) for server in (served, other)] == [204, 204]
    served.post(f"/jobs/{job_id}/cancel")
    assert wait_for(served, job_id)["result"]["error"]["ename"] == "Cancelled"
    assert status_of_return(served, job_id, lost) == 204


def test_a_job_among_whose_files_a_cell_has_put_thousands_is_followed(
    served: Served, key: str, service_home: Path
) -> None:
    job_id = begin(served, key, "1")
    wait_for(served, job_id)
    planted = [service_home / "jobs" / f"{job_id}.{number}" for number in range(2, 10_000)]
    for path in planted:
        path.touch()
    assert [event["seq"] for event in events_of(served, job_id)] == [1, 2, 3]
    for path in planted:
        path.unlink(missing_ok=True)


def test_a_long_journal_is_followed_in_steps_between_which_others_are_served(
    served: Served, key: str, service_home: Path
) -> None:
    job_id = begin(served, key, "for n in range(3000): print(n, flush=True); display(n)")
    wait_for(served, job_id)
    journal = Journal(Home(str(service_home), KernelBoxConfig.from_env().key_file))
    assert asyncio.run(count_steps(Jobs(journal, kernels=None), job_id)) > 5  # type: ignore[arg-type]  # none is needed


async def count_steps(jobs: Jobs, job_id: str) -> int:
    """Follows a job; returns how often another task was served meanwhile."""
    kinds: list[str] = []

    async def follow() -> None:
        kinds.extend([kind async for _, kind, _ in jobs.events(job_id, 0)])

    steps = await steps_during(follow())
    assert kinds[-1] == "result"
    return steps


def test_records_of_any_size_that_a_cell_makes_are_not_read(served: Served, key: str, service_home: Path) -> None:
    job_id = begin(served, key, "1")
    planted = [service_home / "jobs" / f"{number:032x}" for number in range(20)]
    for record in planted:
        with record.open("wb") as file:
            file.truncate(64 * 1024**3)
    listed = [job["id"] for job in served.http.get("/jobs").json()["jobs"]]
    for record in planted:
        record.unlink(missing_ok=True)
    assert job_id in listed
    assert not {record.name for record in planted} & set(listed)


def test_what_is_no_job_is_removed_when_jobs_of_its_age_are(key_file: Path) -> None:
    with new_home() as home:
        journal = Journal(Home(str(home), str(key_file)))
        assert journal.claim(f"{1:032x}", {"state": "running"}) is not None
        old, young, folder = (home / "jobs" / f"{number:032x}" for number in (2, 3, 4))
        folder.mkdir(mode=0o700)
        parts = [home / "jobs" / f"{number:032x}.2" for number in (1, 2, 3)]
        for path in (old, young, *parts):
            path.write_text("forged")
            os.utime(path, (0, 0))
        os.utime(young)
        os.utime(folder, (0, 0))
        journal.sweep()
        kept = [f"{1:032x}", parts[0].name, young.name, parts[2].name]
        assert sorted(path.name for path in (home / "jobs").iterdir()) == kept


def test_jobs_that_ended_a_day_ago_and_the_oldest_of_too_many_are_neither_listed_nor_kept(key_file: Path) -> None:
    with new_home() as home:
        journal = Journal(Home(str(home), str(key_file)))
        ids, running = [f"{number:032x}" for number in range(1004)], None
        for job_id in ids:
            record = {"id": job_id, "created_at": job_id}
            entry = journal.claim(job_id, {**record, "state": "running"})
            assert entry is not None
            running = running or entry
            if entry is not running:
                entry.finish({**record, "state": "done", "last": 1}, (1, "result", b"{}"))
        os.utime(home / "jobs" / ids[-1], (0, 0))
        kept = [ids[0], *ids[4:-1]]
        assert [record["id"] for record in journal.records()] == kept
        journal.sweep()
        assert sorted(path.name for path in (home / "jobs").iterdir()) == kept


def test_a_server_removes_what_is_no_longer_kept(served: Served, key: str, service_home: Path) -> None:
    old = service_home / "jobs" / begin(served, key, "1")
    wait_for(served, old.name)
    os.utime(old, (0, 0))

    def is_removed() -> bool:
        wait_for(served, begin(served, key, "1"))
        return not old.exists()

    eventually(is_removed)


def test_a_request_whose_job_a_cell_has_damaged_is_refused(served: Served, key: str, service_home: Path) -> None:
    once = {"Idempotency-Key": f"damaged-{key}"}
    job_id = served.post(f"/kernels/{key}/jobs", {"code": "1"}, **once).json()["id"]
    wait_for(served, job_id)
    (service_home / "jobs" / job_id).write_text("forged")
    again = served.post(f"/kernels/{key}/jobs", {"code": "1"}, **once)
    assert (again.status_code, again.json()["code"]) == (409, "job_damaged")


@pytest.mark.parametrize(
    "plant", ["open(J, 'w').close()", "os.symlink('/tmp', J)", "os.mkdir(J, 0o777); os.chmod(J, 0o777)"]
)
def test_what_a_cell_puts_in_the_place_of_the_journal_is_refused_and_cells_run_on(
    tmp_path: Path, key_file: Path, plant: str
) -> None:
    with new_home() as home, serving(tmp_path, KERNELBOX_HOME=str(home)) as server:
        code = f"import os, shutil\nJ = {str(home / 'jobs')!r}\nshutil.rmtree(J, ignore_errors=True)\n{plant}"
        assert server.post("/sessions/s/execute", {"code": code}).json()["status"] == "success"
        for answer in (server.http.get("/jobs"), server.post("/kernels/s/jobs", {"code": "1"})):
            assert (answer.status_code, answer.json()["code"]) == (500, "store_failed")
        assert server.execute("s", "6 * 7")["return_value"] == "42"
        server.http.delete("/kernels")


def test_an_answer_arrives_behind_what_a_cell_has_put_there(
    served: Served, other: Served, key: str, service_home: Path
) -> None:
    job_id = begin(served, key, "!echo accepted", approve="ask")
    request = wait_for_approval(served, job_id)
    for number in range(20):
        os.mkfifo(service_home / "jobs" / f"{job_id}.answer-{number}", 0o600)
    answer = other.post(f"/jobs/{job_id}/approvals/{request['id']}", {"accept": True}, **other.proof)
    assert answer.status_code == 200, answer.text
    assert wait_for(served, job_id)["result"]["output"] == "accepted\n"


def test_a_job_whose_events_were_deleted_holds_neither_the_server_nor_its_followers(
    served: Served, service_home: Path, key: str
) -> None:
    flood = "for _ in range(20): print('x' * 100_000)"
    job_id = begin(served, key, f"{flood}\nprint('begun', flush=True)\n{ENDLESS}")
    eventually(lambda: b"begun" in (service_home / "jobs" / job_id).read_bytes())
    parts = list((service_home / "jobs").glob(f"{job_id}.*"))
    for file in parts:
        file.unlink()
    assert parts
    followed: list[dict[str, Any]] = []
    following = threading.Thread(target=lambda: followed.extend(events_of(served, job_id)))
    following.start()
    assert served.http.get("/health").status_code == 200
    assert served.post(f"/jobs/{job_id}/cancel").status_code in (200, 202)
    assert wait_for(served, job_id)["state"] == "done"
    following.join(DEADLINE)
    assert (followed[0]["type"], followed[-1]["type"]) == ("dropped", "result")


def test_a_running_job_whose_file_was_deleted_is_known_and_cancelled_where_it_runs_and_then_is_gone(
    served: Served, other: Served, service_home: Path, key: str
) -> None:
    job_id = begin(served, key, f"print('begun', flush=True)\n{ENDLESS}")
    following = events_of(served, job_id)
    assert [next(following)["type"], next(following)["type"]] == ["started", "output"]
    (service_home / "jobs" / job_id).unlink()
    assert other.http.get(f"/jobs/{job_id}").status_code == 404
    assert served.post(f"/jobs/{job_id}/cancel").status_code == 200
    assert next(following)["result"]["error"]["ename"] == "Cancelled"
    eventually(lambda: served.http.get(f"/jobs/{job_id}").status_code == 404)


def test_a_request_that_is_refused_is_refused_to_all_who_sent_it_at_once(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home, serving(tmp_path, "--max-queue", "1", KERNELBOX_HOME=str(home)) as served:
        served.post("/sessions/busy")
        served.post("/kernels/busy/jobs", {"code": "import time; time.sleep(100)"})

        def send(number: int) -> int:
            route = "jobs" if number % 2 else "execute"
            return served.post(f"/kernels/busy/{route}", {"code": "1"}, **{"Idempotency-Key": route}).status_code

        with ThreadPoolExecutor(10) as pool:
            assert set(pool.map(send, range(40))) == {429}
        served.http.delete("/kernels")

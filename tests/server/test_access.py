"""Who may send requests at all, and what each caller sees."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, fill, operations, serving
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

import kernelbox
from kernelbox import InvalidInput
from kernelbox.server.http._access import _hostname
from kernelbox.server.http._callers import Caller, Token, find_caller
from kernelbox.server.http._token_file import read_tokens

SECRET = "a-secret-of-the-tests"
ANN, BOB, EVE = "anns-own-secret-word", "bobs-own-secret-word", "eves-own-secret-word"

# Tokens of Ann's that lack one scope each.
LACKING = {scope: f"a-token-without-{scope}" for scope in ("read", "run", "manage")}


@pytest.fixture(scope="module")
def guarded(key_file: Path, service_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Starts a server that asks for tokens: its own, Ann's, Bob's, and Eve's, who may only look; and some of Ann's."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    tokens.write_text(
        f'[[token]]\nname = "ann"\nsecret = "{ANN}"\n'
        f'[[token]]\nname = "bob"\nsha256 = "{hashlib.sha256(BOB.encode()).hexdigest()}"\n'
        f'[[token]]\nname = "ann"\nsecret = "{EVE}"\nscopes = ["read"]\n'
        + "".join(
            f'[[token]]\nname = "ann"\nsecret = "{secret}"\nscopes = {json.dumps(sorted(LACKING.keys() - {scope}))}\n'
            for scope, secret in LACKING.items()
        )
    )
    tokens.chmod(0o600)
    env = {"KERNELBOX_HOME": str(service_home), "KERNELBOX_TOKEN": SECRET, "KERNEL_ENV_GIVEN": "given"}
    with serving(tmp_path_factory.mktemp("workspace"), "--tokens", str(tokens), **env) as server:
        yield server
        server.http.delete("/kernels", headers={"Authorization": f"Bearer {SECRET}"})


def ask(served: Served, secret: str, path: str, method: str = "GET", body: object = None) -> httpx2.Response:
    return served.http.request(method, path, json=body, headers={"Authorization": f"Bearer {secret}"})


# -- web pages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.0.0.1"]
)
def test_a_request_for_another_host_is_refused_on_loopback(served: Served, host: str) -> None:
    answer = served.http.get("/kernels", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:99", "[::1]", "[::1]:8080"])
def test_a_request_for_this_machine_is_answered(served: Served, host: str) -> None:
    assert served.http.get("/kernels", headers={"Host": host}).status_code == 200


def test_two_hosts_are_none(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as client:
        client.sendall(b"GET /kernels HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert client.recv(100).startswith((b"HTTP/1.1 421", b"HTTP/1.1 400"))


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost:1.evil.example", "http://localhost:1", "file://", "x"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_request_from_a_web_page_is_refused(served: Served, origin: str, method: str) -> None:
    answer = served.http.request(method, "/kernels", headers={"Origin": origin, "Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_origin")
    assert "access-control-allow-origin" not in answer.headers


def test_two_origins_are_none(served: Served) -> None:
    headers = httpx2.Headers([("Origin", served.url), ("Origin", "https://evil.example")])
    assert served.http.get("/kernels", headers=headers).status_code == 403


def test_the_servers_own_pages_may_send_requests(served: Served) -> None:
    assert served.http.get("/kernels", headers={"Origin": served.url}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_web_page_embeds_is_refused_and_a_link_to_a_page_is_followed(served: Served, site: str) -> None:
    embedded = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
    assert served.http.get("/kernels", headers=embedded).status_code == 403
    followed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert served.http.get("/", headers=followed).status_code == 200


def test_pages_of_an_origin_that_is_allowed_may_send_requests(tmp_path: Path, key_file: Path) -> None:
    page = "https://app.example"
    with new_home() as home, serving(tmp_path, "--cors-origin", page, KERNELBOX_HOME=str(home)) as served:
        asked = {"Origin": page, "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "authorization,content-type"
        assert served.http.options("/kernels", headers=asked).headers["access-control-allow-origin"] == page
        answer = served.http.get("/kernels", headers={"Origin": page})
        assert answer.headers["access-control-allow-origin"] == page
        assert served.http.get("/kernels", headers={"Origin": "https://other.example"}).status_code == 403


def test_pages_of_every_origin_may_send_requests_where_that_is_wanted(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home, serving(tmp_path, "--cors-origin", "*", KERNELBOX_HOME=str(home)) as served:
        answer = served.http.get("/kernels", headers={"Origin": "https://any.example"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")


def test_a_name_that_is_allowed_is_answered(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home, serving(tmp_path, "--allow-host", "box.example", KERNELBOX_HOME=str(home)) as served:
        for host, status in (("box.example", 200), ("box.example:8080", 200), ("other.example", 421)):
            assert served.http.get("/kernels", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("a", "a"),
        ("a:1", "a"),
        ("[::1]", "::1"),
        ("[::1]:80", "::1"),
        ("", ""),
        ("[", ""),
        ("[::1].evil.example", ""),
        ("localhost:1@evil.example", ""),
        ("localhost:1:2", ""),
        ("localhost/", ""),
    ],
)
def test_a_host_is_read_without_its_port(host: str, name: str) -> None:
    assert _hostname(host) == name


# -- tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer wrong", f"Basic {SECRET}", SECRET, f"Bearer {SECRET}x", f"Bearer {SECRET[:-1]}", "Bearer é"],
)
def test_a_request_without_a_token_is_refused(guarded: Served, given: str) -> None:
    headers = httpx2.Headers({"Authorization": given}, "latin-1")
    answer = guarded.http.get("/kernels", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_required")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert SECRET not in answer.text


@pytest.mark.parametrize("given", [f"Bearer {SECRET}", f"bearer {SECRET}", f"token {SECRET}", f"Bearer  {SECRET}"])
def test_a_request_with_the_token_is_answered(guarded: Served, given: str) -> None:
    assert guarded.http.get("/kernels", headers={"Authorization": given}).status_code == 200


def test_two_tokens_are_none(guarded: Served) -> None:
    headers = httpx2.Headers([("Authorization", f"Bearer {SECRET}"), ("Authorization", "Bearer other")])
    assert guarded.http.get("/kernels", headers=headers).status_code == 401


def test_a_token_in_the_url_is_taken_for_browsers(guarded: Served) -> None:
    assert guarded.http.get(f"/kernels?token={SECRET}&refresh=true").status_code == 200
    assert guarded.http.get("/kernels?token=wrong").status_code == 401
    assert guarded.http.get(f"/kernels?token={SECRET}&token=other").status_code == 401


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/docs", "/redoc", "/openapi.json"])
def test_what_tells_nothing_needs_no_token(guarded: Served, path: str) -> None:
    answer = guarded.http.get(path)
    assert answer.status_code == 200
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', answer.text):
        assert guarded.http.get(address).status_code == 200


@pytest.mark.parametrize("path", ["/kernels", "/kernels/x", "/nowhere", "/health/", "/healthy", "/static"])
def test_everything_else_needs_one(guarded: Served, path: str) -> None:
    assert guarded.http.get(path).status_code == 401


def test_a_server_for_other_machines_makes_a_token_and_prints_it(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home, serving(tmp_path, "--host", "0.0.0.0", KERNELBOX_HOME=str(home)) as served:
        port = served.url.rpartition(":")[2]
        url = f"http://127.0.0.1:{port}/kernels"
        assert httpx2.get(url, timeout=DEADLINE).status_code == 401
        headers = {"Authorization": f"Bearer {served.token}"}
        assert httpx2.get(url, headers=headers, timeout=DEADLINE).status_code == 200


@pytest.mark.parametrize("value", ["", None])
def test_a_server_that_requires_a_token_does_not_start_without_one(tmp_path: Path, value: str | None) -> None:
    command = [sys.executable, "-m", "kernelbox", "serve", "--port", "0", "--workspace", str(tmp_path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KERNELBOX_TOKEN", raising=False)
        if value is not None:
            patch.setenv("KERNELBOX_TOKEN", value)
        words = [*command, "--require-token"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"error": "there is no token; set KERNELBOX_TOKEN, or name a file with --tokens"}


def test_a_server_at_a_unix_socket_needs_no_token_and_is_its_users_alone(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        path = home.with_suffix(".sock")
        with serving(tmp_path, "--uds", str(path), KERNELBOX_HOME=str(home)) as served:
            assert served.url == f"unix:{path}"
            assert path.stat().st_mode & 0o077 == 0
            with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), base_url="http://any") as client:
                assert client.get("/kernels").json() == {"kernels": []}
        assert not path.exists()


def test_a_socket_that_nobody_serves_is_replaced_and_a_file_is_not(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        path = home.with_suffix(".sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
            left.bind(str(path))
        with serving(tmp_path, "--uds", str(path), KERNELBOX_HOME=str(home)):
            pass
        path.write_text("mine")
        command = [sys.executable, "-m", "kernelbox", "serve", "--uds", str(path), "--workspace", str(tmp_path)]
        environment = {**os.environ, "KERNELBOX_HOME": str(home)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == 1
        assert "cannot listen at" in json.loads(done.stdout)["error"]
        assert path.read_text() == "mine"
        path.unlink()


def test_an_application_that_another_program_serves_asks_for_a_token_too(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(home))
        patch.setenv("KERNELBOX_TOKEN", SECRET)
        command = [sys.executable, "-m", "uvicorn", "kernelbox.server.app:app", "--uds", str(tmp_path / "s")]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "Uvicorn running" in line:
                    break
            with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(tmp_path / "s")), base_url="http://a") as client:
                assert client.get("/kernels").status_code == 401
                assert client.get(f"/kernels?token={SECRET}").status_code == 200
            process.terminate()
            said = process.stdout.read()
            assert "GET /kernels" in said  # it logs requests, with their queries
            assert SECRET not in said


# -- callers ---------------------------------------------------------------------------------------------------


def test_each_caller_sees_only_its_own_kernels(guarded: Served) -> None:
    made = ask(guarded, ANN, "/kernels", "POST", {"name": "work", "session_name": "second"})
    assert (made.status_code, made.json()["name"], made.json()["session_name"]) == (201, "work", "second")
    assert ask(guarded, BOB, "/kernels", "POST", {"name": "work"}).status_code == 201
    kernel_id = made.json()["kernel_id"]
    assert kernel_id in {each["kernel_id"] for each in ask(guarded, ANN, "/kernels").json()["kernels"]}
    assert kernel_id not in {each["kernel_id"] for each in ask(guarded, BOB, "/kernels").json()["kernels"]}
    assert {each["name"] for each in ask(guarded, SECRET, "/kernels").json()["kernels"]} >= {"ann:work", "bob:work"}
    for method, path in [
        ("GET", f"/kernels/{kernel_id}"),
        ("DELETE", f"/kernels/{kernel_id}"),
        ("POST", f"/kernels/{kernel_id}/restart"),
        ("POST", f"/kernels/{kernel_id}/interrupt"),
        ("POST", f"/kernels/{kernel_id}/execute"),
        ("POST", f"/kernels/{kernel_id}/execute/retry"),
        ("GET", "/kernels/ann:work"),
        ("GET", "/kernels/second"),
    ]:
        answer = ask(guarded, BOB, path, method, {"code": "1"} if "execute" in path else None)
        assert (answer.status_code, answer.json()["code"]) == (404, "kernel_not_found"), path
        assert ask(guarded, ANN, f"/kernels/{kernel_id}").json()["alive"] is True


def test_wiping_leaves_the_kernels_of_others(guarded: Served) -> None:
    mine = ask(guarded, ANN, "/sessions/mine", "POST").json()["kernel_id"]
    ask(guarded, BOB, "/sessions/other", "POST")
    assert mine in ask(guarded, ANN, "/kernels", "DELETE").json()["destroyed"]
    assert ask(guarded, BOB, "/kernels/other").json()["alive"] is True
    assert ask(guarded, ANN, "/kernels").json()["kernels"] == []


def test_the_same_session_of_two_callers_is_two_kernels(guarded: Served) -> None:
    for secret, value in ((ANN, "'ann'"), (BOB, "'bob'")):
        ask(guarded, secret, "/sessions/same/execute", "POST", {"code": f"x = {value}"})
    for secret, value in ((ANN, "'ann'"), (BOB, "'bob'")):
        assert ask(guarded, secret, "/sessions/same/execute", "POST", {"code": "x"}).json()["return_value"] == value


def test_a_kernel_of_a_caller_has_its_name_for_every_face(
    guarded: Served, service_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(service_home))
    ask(guarded, ANN, "/sessions/shown/execute", "POST", {"code": "x = 5"})
    assert kernelbox.execute("ann:shown", "x").return_value == "5"


def test_a_caller_that_may_only_look_can_change_nothing(guarded: Served) -> None:
    ask(guarded, ANN, "/sessions/looked-at", "POST")
    assert ask(guarded, EVE, "/kernels/looked-at").json()["alive"] is True
    for method, path in [
        ("POST", "/kernels"),
        ("DELETE", "/kernels"),
        ("DELETE", "/kernels/looked-at"),
        ("POST", "/kernels/looked-at/restart"),
        ("POST", "/kernels/looked-at/interrupt"),
        ("POST", "/kernels/looked-at/execute"),
        ("POST", "/sessions/looked-at"),
        ("POST", "/sessions/looked-at/execute"),
        ("POST", "/sessions/looked-at/execute_with_retry"),
    ]:
        answer = ask(guarded, EVE, path, method, {"code": "1"} if "execute" in path else {})
        assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing"), path


def scope_of(method: str, path: str) -> str | None:
    """Returns the scope that a route needs: to look, to run code and write files, or to open and end kernels."""
    if path in ("/", "/health", "/ready", "/api"):
        return None
    if method == "GET":
        return "read"
    opens = (method, path) in [("POST", "/kernels"), ("POST", "/sessions/{name}"), ("POST", "/api/kernels")]
    ends = method == "DELETE" or path.endswith("/restart")
    return "manage" if opens or ends or path.startswith("/api/sessions") else "run"


def test_every_route_needs_its_scope_whatever_the_body(guarded: Served) -> None:
    tried = []
    for method, path in operations(guarded):
        if (scope := scope_of(method, path)) is not None:
            answer = ask(guarded, LACKING[scope], fill(path), method, {"no such field": [1]})
            assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing"), (method, path)
            tried.append(scope)
    assert {scope: tried.count(scope) > 5 for scope in LACKING} == dict.fromkeys(LACKING, True)


def test_who_may_only_look_runs_no_code_by_completing(guarded: Served) -> None:
    ask(guarded, ANN, "/sessions/completed", "POST")
    workspace = guarded.workspace / "ann"
    (workspace / "telltale.py").write_text("open('imported', 'w')")
    body = {"code": "from telltale import "}
    answer = ask(guarded, EVE, "/kernels/completed/complete", "POST", body)
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    assert not (workspace / "imported").exists()
    assert ask(guarded, ANN, "/kernels/completed/complete", "POST", body).status_code == 200


def test_every_websocket_needs_its_scope(guarded: Served) -> None:
    ask(guarded, ANN, "/sessions/socket", "POST")
    job_id = ask(guarded, ANN, "/sessions/socket/jobs", "POST", {"code": "1"}).json()["id"]
    for path, scope in (("/sessions/socket/stream", "run"), (f"/jobs/{job_id}/events", "read")):
        with dial(guarded, path, LACKING[scope]) as client:
            assert json.loads(client.recv(DEADLINE))["code"] == "scope_missing"
    kernel_id = ask(guarded, ANN, "/kernels/socket").json()["kernel"]["kernel_id"]
    with pytest.raises(InvalidStatus) as refused, dial(guarded, f"/api/kernels/{kernel_id}/channels", LACKING["run"]):
        pass
    assert refused.value.response.status_code == 403


def test_who_may_follow_a_job_and_not_run_code_can_neither_answer_nor_cancel(guarded: Served) -> None:
    body = {"code": "!echo ran", "approve": "ask"}
    job_id = ask(guarded, ANN, "/sessions/followed/jobs", "POST", body).json()["id"]
    for message in ({"type": "cancel"}, {"type": "answer", "id": "x", "accept": True}):
        with dial(guarded, f"/jobs/{job_id}/events", LACKING["run"]) as client:
            assert json.loads(client.recv(DEADLINE))["type"] == "started"
            client.send(json.dumps(message))
            while (said := json.loads(client.recv(DEADLINE)))["type"] == "approval":
                pass
            assert said["code"] == "scope_missing"
    assert ask(guarded, ANN, f"/jobs/{job_id}").json()["state"] == "running"
    ask(guarded, ANN, f"/jobs/{job_id}/cancel", "POST")


@pytest.mark.parametrize("path", ["execute", "execute_with_retry", "jobs", "stream"])
def test_who_may_not_open_kernels_runs_code_in_those_that_are_there(guarded: Served, path: str) -> None:
    address, body = f"/sessions/opened-{path}/{path}", {"code": "6 * 7"}
    refusal = ask(guarded, LACKING["manage"], address, "POST", body)
    assert (refusal.status_code, refusal.json()["code"]) == (403, "scope_missing")
    ask(guarded, ANN, f"/sessions/opened-{path}", "POST")
    assert ask(guarded, LACKING["manage"], address, "POST", body).status_code in (200, 202)


def test_a_front_end_that_may_not_end_kernels_cannot_shut_one_down(guarded: Served) -> None:
    kernel_id = ask(guarded, ANN, "/sessions/kept", "POST").json()["kernel_id"]
    with dial(guarded, f"/api/kernels/{kernel_id}/channels", LACKING["manage"]) as client:
        for restart in (False, True):
            header = {"msg_id": f"shutdown-{restart}", "msg_type": "shutdown_request"}
            parts = {"parent_header": {}, "metadata": {}, "content": {"restart": restart}, "channel": "control"}
            client.send(json.dumps({"header": header, **parts}))
            while (said := json.loads(client.recv(DEADLINE)))["msg_type"] != "shutdown_reply":
                pass
            assert (said["content"]["status"], said["content"]["ename"]) == ("error", "NotAllowed")
    assert ask(guarded, ANN, f"/kernels/{kernel_id}").json()["alive"] is True


def dial(served: Served, path: str, secret: str) -> ClientConnection:
    headers = {"Authorization": f"Bearer {secret}"}
    url = f"{served.url.replace('http:', 'ws:')}{path}"
    return connect(url, open_timeout=DEADLINE, additional_headers=headers, proxy=None)


def test_the_token_is_not_in_the_environment_of_kernels_and_what_is_meant_for_them_is(guarded: Served) -> None:
    code = "import os; [name for name, value in os.environ.items() if 'secret' in value or 'given' in value]"
    assert ask(guarded, ANN, "/sessions/env/execute", "POST", {"code": code}).json()["return_value"] == "['GIVEN']"


# -- the file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "write one \\[\\[token\\]\\] for each"),
        ("token = 5", "write one"),
        ("secret = 'x", "it is not TOML"),
        ("[[token]]\nsecret = 'short'", "the secret of token 1 in .* needs 16 or more"),
        (f"token = {'[' * 100_000}", "it is not TOML"),
        (f"#{'x' * 1024 * 1024}\n[[token]]\nsecret = 'long-enough-to-be-one'", "more than 1,048,576 bytes"),
        ("[[token]]\nname = 'a'", "needs a secret, or its sha256"),
        ("[[token]]\nsecret = 'short'", "16 or more"),
        ("[[token]]\nsecret = 'long enough, but with blanks'", "without spaces"),
        ("[[token]]\nsecret = 'long-enough-to-be-one'\nsha256 = 'a'", "and not both"),
        ("[[token]]\nsha256 = 'zz'", "64 hexadecimal digits"),
        (f"[[token]]\nsha256 = '{'z' * 64}'", "64 hexadecimal digits"),
        ("[[token]]\nsecret = 'long-enough-to-be-one'\nscopes = ['all']", "the scopes of token 1 in .* can be"),
        ("[[token]]\nsecret = 'long-enough-to-be-one'\nscopes = 'read'", "the scopes of token 1"),
        ("[[token]]\nsecret = 'long-enough-to-be-one'\nname = 'a:b'", "the name of token 1"),
        ("[[token]]\nsecret = 'long-enough-to-be-one'\nname = '..'", "the name of token 1"),
        ("[[token]]\nsecret = 'long-enough-to-be-one'\nname = 5", "the name of token 1"),
        ("[[token]]\nsecret = 'long-enough-to-be-one'\nrole = 'x'", "and nothing else"),
    ],
)
def test_a_file_of_tokens_that_makes_no_sense_is_refused_without_showing_one(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidInput, match=sentence) as refused:
        read_tokens(str(path))
    assert "long-enough" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give a file away, and read it then")
def test_a_file_of_tokens_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("[[token]]\nsecret = 'long-enough-to-be-one'")
    path.chmod(0o600)
    os.chown(path, 65534, 65534)
    with pytest.raises(InvalidInput, match="belongs to another user"):
        read_tokens(str(path))


def test_a_file_of_tokens_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("[[token]]\nsecret = 'long-enough-to-be-one'")
    path.chmod(0o640)
    with pytest.raises(InvalidInput, match="chmod 600"):
        read_tokens(str(path))
    with pytest.raises(InvalidInput, match="No such file"):
        read_tokens(str(tmp_path / "none"))


def test_a_token_shows_no_secret_and_finds_its_caller() -> None:
    token = Token.of("long-enough-to-be-one", Caller("ann"))
    assert "long-enough" not in repr(token)
    assert find_caller((Token.of("another-long-token"), token), "long-enough-to-be-one") == Caller("ann")
    assert find_caller((token,), "long-enough-to-be-on") is None
    assert find_caller((), "") is None

"""Every face that opens kernels can have them sandboxed, and none uses one that is not when it was asked for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, run, value
from tests.support.command_line import fail, kernelbox, succeed
from tests.support.executor import run as run_async
from tests.support.mcp_server import call, stdio_client, text_of
from tests.support.sandbox import needs_linux
from tests.support.server import serving

from kernelbox import (
    CodeExecutionError,
    CodeExecutor,
    InvalidInput,
    KernelExists,
    create,
    destroy,
    execute,
    execute_with_retry,
    get_or_create,
    list_kernels,
    restart,
    status,
)
from kernelbox.gateway import ExecutionError, KernelClient, KernelGateway

pytestmark = [needs_linux, pytest.mark.usefixtures("home")]

WRITE_OUTSIDE = "open('/etc/kernelbox-test', 'w')"
REFUSED = "Read-only file system"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Writes a configuration in which nothing can be written."""
    path = tmp_path / "sandbox.json"
    path.write_text(json.dumps({"filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}))
    return path


def test_create_opens_a_sandboxed_kernel(workspace: Path, config: Path) -> None:
    assert create("made", sandbox=True).sandbox == "native"
    strict = create("strict", sandbox=config)
    assert REFUSED in execute(strict, "open('here', 'w')").text


def test_a_cell_cannot_change_the_rules_of_the_next_kernel(workspace: Path) -> None:
    rules = workspace / "sandbox.json"
    rules.write_text(json.dumps({"filesystem": {"denyRead": ["secret"], "allowWrite": ["."]}}))
    box = get_or_create("ruled", sandbox="sandbox.json")
    before = rules.read_text()
    for code in ("open('sandbox.json', 'w')", "import os; os.unlink('sandbox.json')", "os.rename('x', 'sandbox.json')"):
        run(box, "open('x', 'w').write('{}')")
        assert execute(box, code).error is not None
    assert rules.read_text() == before


def test_an_empty_configuration_is_one_and_an_empty_path_is_refused(workspace: Path) -> None:
    strict = get_or_create("strict", sandbox={})
    assert strict.sandbox == "native"
    assert REFUSED in execute(strict, "open('here', 'w')").text
    with pytest.raises(InvalidInput, match="sandbox"):
        get_or_create("none", sandbox="")


def test_an_executor_confines_its_kernel(workspace: Path) -> None:
    async def scenario() -> None:
        async with CodeExecutor(sandbox=True) as executor:
            with pytest.raises(CodeExecutionError, match=REFUSED):
                await executor.execute(WRITE_OUTSIDE)
            result = await executor.execute("open('here', 'w').write('x'); print('fine')")
            assert result.text == "fine"
            await executor.reset()
            with pytest.raises(CodeExecutionError, match=REFUSED):
                await executor.execute(WRITE_OUTSIDE)

    run_async(scenario)


def test_an_executor_takes_a_configuration_file(workspace: Path, config: Path) -> None:
    async def scenario() -> None:
        async with CodeExecutor(sandbox=True, sandbox_config=config) as executor:
            with pytest.raises(CodeExecutionError, match=REFUSED):
                await executor.execute("open('here', 'w')")

    run_async(scenario)


def test_an_executor_does_not_use_a_kernel_without_the_sandbox_that_it_asks_for(workspace: Path) -> None:
    get_or_create("open")

    async def scenario() -> None:
        with pytest.raises(KernelExists, match="no sandbox, where one is asked for"):
            await CodeExecutor(name="open", sandbox=True).start()

    run_async(scenario)


@pytest.mark.parametrize("make", [CodeExecutor, KernelGateway])
def test_a_configuration_without_a_sandbox_is_refused(make: type, config: Path) -> None:
    with pytest.raises(InvalidInput, match="sandbox=True"):
        make(sandbox_config=config)


@pytest.mark.parametrize("make", [CodeExecutor, KernelGateway])
def test_a_configuration_that_cannot_be_honoured_is_refused_at_once(make: type, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"network": {"allowedDomains": ["example.org"]}}')
    with pytest.raises(InvalidInput, match=r"example\.org"):
        make(sandbox=True, sandbox_config=path)


@pytest.mark.slow
def test_a_gateway_confines_its_kernels_by_the_configuration(workspace: Path, config: Path) -> None:
    async def scenario() -> None:
        async with (
            KernelGateway(host="127.0.0.1", port=0, sandbox=True, sandbox_config=config) as gateway,
            KernelClient(host="127.0.0.1", port=gateway.port) as client,
        ):
            for code in (WRITE_OUTSIDE, "open('here', 'w')"):
                with pytest.raises(ExecutionError, match=REFUSED):
                    await client.execute(code)
            assert (await client.execute("print(6 * 7)")).text == "42"

    asyncio.run(scenario())


def test_servers_whose_kernels_cannot_be_confined_do_not_start_and_say_why(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace))
    why = "contains your home directory"
    assert why in fail("serve", "--port", "0", "--sandbox", "--workspace", str(workspace))
    assert list_kernels() == []
    with pytest.raises(RuntimeError, match=why):
        asyncio.run(KernelGateway(port=0, sandbox=True, working_dir=workspace).start())
    with serving(workspace) as served:
        assert served.http.get("/ready").status_code == 200


def test_the_command_line_opens_sandboxed_kernels(workspace: Path, config: Path) -> None:
    assert succeed("create", "--name", "made", "--sandbox")["sandbox"] == "native"
    done = kernelbox("exec", "--name", "ran", "--sandbox", "--sandbox-config", str(config), "open('here', 'w')")
    assert REFUSED in done.stdout
    assert succeed("status", "--name", "ran")["kernel"]["sandbox"] == "native"
    assert succeed("exec", "--name", "made", "--sandbox", "6 * 7")["return_value"] == "42"


def test_the_command_line_does_not_run_code_in_a_kernel_without_the_sandbox(workspace: Path, config: Path) -> None:
    get_or_create("open")
    assert "no sandbox, where one is asked for" in fail("exec", "--name", "open", "--sandbox", "x = 1")
    assert "without sandbox=True" in fail("exec", "--name", "open", "--sandbox-config", str(config), "1", status=2)
    identity = status("open").kernel_id
    assert "--with are for a kernel that --name opens" in fail("exec", "--id", identity, "--sandbox", "1", status=2)


def test_the_doctor_says_which_level_can_be_armed(workspace: Path) -> None:
    checks = {check["name"]: check for check in kernelbox("doctor").json["checks"]}
    assert checks["sandbox"]["verdict"] == "ok"
    assert checks["sandbox"]["found"].startswith("native")


def test_the_http_service_confines_its_kernels_and_uses_no_others(workspace: Path) -> None:
    plain = get_or_create("plain")
    with serving(workspace, "--sandbox") as served:
        made = served.post("/kernels", {"name": "boxed"}).json()
        assert status("boxed").sandbox == "native"
        result = served.execute(made["name"], WRITE_OUTSIDE)
        assert REFUSED in json.dumps(result)
        for key in (plain.name, plain.kernel_id):
            answer = served.post(f"/kernels/{key}/execute", {"code": "x = 1"})
            assert answer.status_code == 409, answer.text
            assert "no sandbox, where one is asked for" in answer.text
    assert "NameError" in execute(plain, "x").text


def test_the_http_service_reads_and_writes_no_file_that_its_kernels_could_not(workspace: Path) -> None:
    (workspace / ".git/hooks").mkdir(parents=True)
    with serving(workspace, "--sandbox") as served:
        refused = served.http.put("/files/.git/hooks/pre-commit", content=b"evil")
        assert refused.status_code == 422, refused.text
        assert "the rules of the sandbox" in refused.text
        assert served.http.put("/files/data.txt", content=b"fine").is_success
    assert list((workspace / ".git/hooks").iterdir()) == []


@pytest.mark.slow
def test_kernels_of_the_http_service_neither_read_its_tokens_nor_write_its_policy(workspace: Path) -> None:
    tokens, policy = workspace / "tokens.toml", workspace / "policy.json"
    tokens.write_text('[[token]]\nsecret = "0123456789abcdef0123456789abcdef"\n')
    tokens.chmod(0o600)
    policy.write_text('{"rules": []}')
    with serving(workspace, "--sandbox", "--tokens", str(tokens), "--policy", str(policy)) as served:
        served.http.headers["Authorization"] = "Bearer 0123456789abcdef0123456789abcdef"
        name = served.post("/kernels", {"name": "boxed"}).json()["name"]
        assert "PermissionError" in json.dumps(served.execute(name, f"open({str(tokens)!r}).read()"))
        assert REFUSED in json.dumps(served.execute(name, "open('policy.json', 'w')"))
        assert "Device or resource busy" in json.dumps(served.execute(name, "import os; os.unlink('policy.json')"))
        assert served.http.get("/files/tokens.toml").status_code == 422
        assert served.http.put("/files/policy.json", content=b"{}").status_code == 422
        restart(status(name))
        assert "PermissionError" in json.dumps(served.execute(name, f"open({str(tokens)!r}).read()"))


def test_the_mcp_server_confines_its_kernels(workspace: Path) -> None:
    async def scenario() -> None:
        async with stdio_client(workspace, "--sandbox") as client:
            result = await call(client, "execute_ipython_cell", code=WRITE_OUTSIDE)
            assert REFUSED in text_of(result)

    asyncio.run(scenario())


@pytest.mark.parametrize("death", ["import os; os._exit(1)", "import os; os.kill(os.getpid(), 9)", "exit()"])
def test_a_kernel_that_a_cell_ends_is_followed_by_one_in_the_same_sandbox(workspace: Path, death: str) -> None:
    box = get_or_create("mortal", sandbox=True)
    execute(box, death, timeout=DEADLINE)
    result = execute("mortal", WRITE_OUTSIDE)
    assert result.error is not None
    assert REFUSED in execute("mortal", WRITE_OUTSIDE).text
    assert status("mortal").sandbox == "native"


def test_a_dead_kernel_that_is_opened_again_keeps_its_sandbox_until_it_is_destroyed(workspace: Path) -> None:
    box = get_or_create("mortal", sandbox=True)
    execute(box, "import os; os._exit(1)", timeout=DEADLINE)
    again = get_or_create("mortal")
    assert (again.sandbox, again.sandbox_config) == ("native", box.sandbox_config)
    execute(again, "import os; os._exit(1)", timeout=DEADLINE)
    with pytest.raises(KernelExists, match=r"that died had a sandbox \(native\), where none is asked for"):
        get_or_create("mortal", sandbox=False)
    destroy("mortal")
    assert get_or_create("mortal", sandbox=False).sandbox is None


def test_a_retry_after_a_death_is_sandboxed(workspace: Path) -> None:
    box = get_or_create("mortal", sandbox=True)
    result = execute_with_retry(box, "import os; os._exit(1)", lambda result, attempt: WRITE_OUTSIDE, max_attempts=2)
    assert REFUSED in result.text
    assert value("mortal", "1 + 1") == "2"


def test_a_name_that_is_free_again_opens_what_is_asked_for(workspace: Path) -> None:
    destroy(get_or_create("reused", sandbox=True))
    assert get_or_create("reused").sandbox is None
    run("reused", "x = 1")

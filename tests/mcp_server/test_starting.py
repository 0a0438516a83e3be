"""How a server is started: its options, the files it reads, and what to paste into a client."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from tests.support.command_line import kernelbox
from tests.support.mcp_server import command, run

from kernelbox import ApprovalRule, InvalidInput
from kernelbox.base._dotenv import parse_dotenv, read_dotenv
from kernelbox.core.approvals._policy_file import parse_policy, read_policy


@pytest.mark.parametrize(
    ("client", "key"), [("claude-desktop", "mcpServers"), ("cursor", "mcpServers"), ("vscode", "servers")]
)
def test_what_is_printed_for_a_client_is_its_configuration(tmp_path: Path, client: str, key: str) -> None:
    words = ["--workspace", str(tmp_path), "--toolset", "kernels,files", "--approve", "none"]
    words += ["--approval-timeout", "60", "--log-level", "INFO", "--keep-kernels"]
    done = kernelbox("mcp", *words, "--print-config", client)
    described = json.loads(done.stdout)[key]["kernelbox"]
    assert [described["command"], *described["args"]] == [sys.executable, "-P", "-m", "kernelbox", "mcp", *words]
    assert "merge this into" in done.stderr


def test_what_is_printed_starts_a_server_that_imports_nothing_of_its_workspace(tmp_path: Path, own_home: Path) -> None:
    for name in ("json", "kernelbox", "asyncio", "mcp"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the workspace')")
    done = kernelbox("mcp", "--workspace", str(tmp_path), "--toolset", "files", "--print-config", "cursor")
    described = json.loads(done.stdout)["mcpServers"]["kernelbox"]
    settings = {name: value for name, value in os.environ.items() if name.startswith("KERNELBOX_")}

    async def scenario() -> None:
        async with Client(StdioServerParameters(**described, env=settings, cwd=tmp_path)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["list_files", "read_file", "write_file"]

    run(scenario)


def test_what_is_printed_for_claude_code_is_a_command(tmp_path: Path) -> None:
    space = tmp_path / "with space"
    done = kernelbox("mcp", "--workspace", str(space), "--print-config", "claude-code")
    assert shlex.split(done.stdout)[:5] == ["claude", "mcp", "add", "kernelbox", "--"]
    assert shlex.split(done.stdout)[-1] == str(space)


@pytest.mark.parametrize("client", ["claude-code", "cursor", "vscode"])
def test_the_configuration_for_http_holds_no_token(client: str) -> None:
    done = kernelbox("mcp", "--http", "127.0.0.1:8765", "--print-config", client, KERNELBOX_MCP_TOKEN="s3cret")
    assert "http://127.0.0.1:8765/mcp" in done.stdout
    assert "KERNELBOX_MCP_TOKEN" in done.stdout
    assert "s3cret" not in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--toolset", "nothing"], "not a set of tools"),
        (["--approve", "some"], "invalid choice"),
        (["--workspace", "/nowhere/at/all"], "use a directory that is there"),
        (["--policy", "/nowhere.toml"], "cannot be read"),
        (["--http", "8765"], "HOST:PORT"),
        (["--http", "127.0.0.1:8765", "--print-config", "claude-desktop"], "reads no addresses from its file"),
    ],
)
def test_options_that_make_no_sense_are_told_on_stderr_alone(words: list[str], sentence: str) -> None:
    assert sentence in refused(*words)


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_server_without_stdin_or_stdout_says_what_it_needs(tmp_path: Path, own_home: Path, closed: str) -> None:
    line = f"exec {shlex.join(command(tmp_path))} {closed}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "with pipes for both" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_kernelbox_or_its_command_line_does_not_import_the_sdk() -> None:
    code = (
        "import sys, kernelbox, kernelbox.cli.commands._exec, kernelbox.cli._parser\n"
        "assert kernelbox.CodeExecutor and kernelbox.execute\n"
        "print([name for name in ('mcp', 'pydantic', 'starlette', 'PIL') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


def test_a_file_of_variables_is_read_as_it_is_written() -> None:
    text = """
# comment

A=1
export B = two words # rest
C='single $A \\n'
D="line\\nnext \\"q\\" $A"
E=
F=a#b
G='two
lines'
"""
    assert parse_dotenv(text)[0] == {
        "A": "1",
        "B": "two words",
        "C": "single $A \\n",
        "D": 'line\nnext "q" $A',
        "E": "",
        "F": "a#b",
        "G": "two\nlines",
    }


@pytest.mark.parametrize("text", ["A", "=1", "1A=2", "A='open", 'A="open', "A B=1"])
def test_a_line_that_is_no_variable_is_left_out_and_told_with_its_number(text: str) -> None:
    assert parse_dotenv(f"OK=1\n{text}") == ({"OK": "1"}, [2])


def test_a_workspace_without_a_file_of_variables_has_none(tmp_path: Path) -> None:
    assert read_dotenv(str(tmp_path / ".env")) == ({}, [])
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_dotenv(str(tmp_path / "binary"))


def test_a_policy_is_the_same_as_toml_and_as_json(tmp_path: Path) -> None:
    rules = [
        {"action": "allow", "tool": "shell", "args": {"cmd": "git status"}},
        {"action": "deny", "server": "x", "reason": "r"},
    ]
    (tmp_path / "p.json").write_text(json.dumps({"default": "ask", "rules": rules}))
    (tmp_path / "p.toml").write_text(
        'default = "ask"\n[[rules]]\naction = "allow"\ntool = "shell"\nargs = { cmd = "git status" }\n'
        '[[rules]]\naction = "deny"\nserver = "x"\nreason = "r"\n'
    )
    for name in ("p.json", "p.toml"):
        policy = read_policy(str(tmp_path / name))
        assert policy.default == "ask"
        assert policy.rules == [
            ApprovalRule(action="allow", tool="shell", args={"cmd": "git status"}),
            ApprovalRule(action="deny", server="x", reason="r"),
        ]


def test_a_file_of_variables_that_is_none_or_has_no_end_keeps_no_server_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="not a regular file"):
        read_dotenv(str(tmp_path / "pipe"))
    (tmp_path / "long").write_text('A=1\nB="\n' + "\n" * 1_000_000)
    assert read_dotenv(str(tmp_path / "long")) == ({"A": "1"}, [2])


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"rule": []},
        {"rules": {}},
        {"rules": [{}]},
        {"rules": [{"action": "maybe"}]},
        {"rules": [{"action": "allow", "tools": "x"}]},
        {"rules": ["allow"]},
        {"default": "yes"},
        {"rules": [{"action": "allow", "args": "x"}]},
    ],
)
def test_a_policy_with_words_that_mean_nothing_is_refused(content: object) -> None:
    with pytest.raises(InvalidInput):
        parse_policy(content, "p.toml")


def test_a_rule_with_a_word_that_means_nothing_is_named_with_the_words_that_do() -> None:
    rules = [{"action": "allow"}, {"action": "allow", "colour": "red"}]
    words = "it has an action, and any of action, server, tool, args, reason"
    with pytest.raises(InvalidInput, match=f"rule 2 of the policy cannot be .*{words}"):
        parse_policy({"rules": rules}, "p.toml")


@pytest.mark.parametrize("text", ["= 1", "a = ", "\x00", "[[" * 5000])
def test_a_policy_that_is_no_toml_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_policy(str(path))


@pytest.mark.parametrize("there", ["in the workspace", "in the caller's directory"])
def test_a_relative_policy_is_the_callers_and_never_the_workspaces(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    wrong = 'default = "wrong"'
    if there == "in the workspace":
        (workspace / "approvals.toml").write_text(wrong)
        assert "No such file" in refused("--workspace", "workspace", "--policy", "approvals.toml")
    else:
        (tmp_path / "approvals.toml").write_text(wrong)
        for policy in ("approvals.toml", "~/approvals.toml"):
            assert "cannot be 'wrong'" in refused("--workspace", "workspace", "--policy", policy)
            done = kernelbox("mcp", "--policy", policy, "--print-config", "cursor")
            assert json.dumps(str(tmp_path / "approvals.toml")) in done.stdout


def test_what_a_file_of_variables_sets_is_shown_and_what_it_may_not_set_is_named(tmp_path: Path, home: Path) -> None:
    text = "KERNEL_ENV_API_KEY=k\nKERNEL_ENV_MPLBACKEND=module://evil\nKERNEL_ENV_DATA=d\nTOKEN=t\nHOME=/x\n"
    (tmp_path / ".env").write_text(text)
    done = kernelbox("mcp", "--workspace", str(tmp_path), "--allow-env", "DATA")
    added, refused = done.stderr.splitlines()
    assert added == "kernelbox: .env sets KERNEL_ENV_API_KEY, KERNEL_ENV_DATA, TOKEN"
    assert refused.startswith("kernelbox: warning: .env may not set KERNEL_ENV_MPLBACKEND, HOME; set them outside, or")


def refused(*words: str) -> str:
    """Starts a server that cannot start; returns what it says, and stdout, which is its client's, has nothing of it."""
    done = kernelbox("mcp", *words)
    assert (done.stdout, done.status) == ("", 2)
    return done.stderr


@pytest.mark.parametrize("token", ["x", "fifteen-letters", "sixteen or more, blank", "sixteen-or-möre-signs"])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(home: Path, token: str) -> None:
    done = kernelbox("mcp", "--http", "127.0.0.1:0", KERNELBOX_MCP_TOKEN=token)
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        "kernelbox: KERNELBOX_MCP_TOKEN needs 16 or more ASCII letters, digits or punctuation, without spaces; "
        "`openssl rand -hex 24` makes a good one\n"
    )

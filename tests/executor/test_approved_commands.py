"""What is approved is what runs: the exact text, in the environment that was shown, answered by the client itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import eventually
from tests.support.executor import DEADLINE, accept, answer_all, reject, run, text

from kernelbox import ApprovalPolicy, ApprovalRequest, CodeExecutionError, CodeExecutor

pytestmark = pytest.mark.usefixtures("home")

GUARDED: dict[str, Any] = {"approve_shell_cmds": True, "require_shell_escape": True}

# A text that says `echo shown` to those who read its characters, and something else to those who call its methods.
SLY = """
class Sly(str):
    __str__ = __repr__ = lambda self: 'echo other'
    __format__ = lambda self, spec: 'echo other'
    __iter__ = lambda self: iter('echo other')
    __getitem__ = lambda self, key: 'echo other'[key]
    __eq__ = lambda self, other: other != ''
    __hash__ = str.__hash__
    __contains__ = lambda self, part: False
    encode = lambda self, *_: b'echo other'
    split = splitlines = lambda self, *_: ['sh']
    strip = replace = lower = lambda self, *_: 'echo other'
    endswith = startswith = lambda self, *_: True
"""


async def asked_and_shown(code: str, *, language: str = "python", **options: Any) -> tuple[list[dict[str, Any]], str]:
    """Runs a cell, accepts what it asks; returns what was asked and the text."""
    async with CodeExecutor(**{"approve_shell_cmds": True, **options}) as executor:
        requests, result = await answer_all(executor, code, accept, language=language, timeout=DEADLINE)
        assert result is not None
        return [request.tool_args for request in requests], result.text or ""


@pytest.mark.parametrize(
    "call",
    [
        "get_ipython().system(Sly('echo shown'))",
        "print(get_ipython().getoutput(Sly('echo shown'))[0])",
        "sly = Sly('echo shown')\n!{sly}",
        "get_ipython().run_cell_magic('script', 'sh', Sly('echo shown'))",
        "get_ipython().run_cell_magic('script', Sly('sh'), Sly('echo shown'))",
        "get_ipython().run_cell_magic('bash', '', Sly('echo shown'))",
    ],
)
def test_a_text_that_changes_when_it_is_used_runs_as_it_was_shown(call: str) -> None:
    (asked,), shown = run(lambda: asked_and_shown(SLY + call))
    words = asked["cmd"].split()
    assert words[0] == "echo"
    assert shown.split() == words[1:]


PATCHES = {
    "subprocess.Popen": "import subprocess\nsubprocess.Popen = lambda *_, **__: 1 / 0",
    "os.posix_spawn": "import os, posix\nos.posix_spawn = posix.posix_spawn = lambda *_, **__: 1 / 0",
    "os.fsencode": "import os\nos.fsencode = lambda text: b'echo other'",
    "shlex, one word": "import shlex\nshlex.shlex.__next__ = lambda self, parts=iter(['cat']): next(parts)",
    "shlex": "import shlex\nshlex.shlex.__next__ = lambda self, parts=iter(['sh', '-c', 'echo other']): next(parts)",
    "tempfile": "import tempfile\ntempfile.TemporaryFile = None",
    "os.environ": "import os\nos.environ = {'PATH': '/nowhere'}",
    "os.get_exec_path": "import os\nos.get_exec_path = lambda env=None: ['/nowhere']",
    "os.access": "import os\nos.access = lambda *_, **__: False\nos.memfd_create = os.pread = os.pipe = None",
    "fcntl": "import fcntl\nfcntl.fcntl = None",
}


@pytest.mark.parametrize("escape", ["!echo shown", "%%script sh\necho shown"])
@pytest.mark.parametrize("patch", PATCHES)
def test_functions_that_a_cell_has_replaced_do_not_change_what_runs(patch: str, escape: str) -> None:
    async def scenario() -> tuple[dict[str, Any], str | None]:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            await executor.execute(PATCHES[patch])
            (request,), result = await answer_all(executor, escape, accept, timeout=DEADLINE)
            assert result is not None
            return request.tool_args, result.text

    asked, shown = run(scenario)
    if "argv" in asked:  # what was made of the line is not what it says, so it is shown
        assert (asked["argv"], shown) in ((["sh", "-c", "echo other"], "other"), (["cat"], "echo shown"))
    else:
        assert (asked["cmd"].strip(), shown) == ("echo shown", "shown")


def test_an_encoder_that_a_cell_has_replaced_does_not_change_what_is_shown() -> None:
    code = """
import json
def iterencode(self, value, *args, real=json.JSONEncoder.iterencode, **more):
    return [part.replace('echo run', 'echo lie') for part in real(self, value, *args, **more)]
json.JSONEncoder.iterencode = iterencode
get_ipython().system('echo run')
"""
    (asked,), shown = run(lambda: asked_and_shown(code))
    assert (asked["cmd"], shown) == ("echo run", "run")


def test_built_in_names_that_a_cell_has_replaced_do_not_change_what_runs() -> None:
    code = """
import builtins
class Lie(dict):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self[b'LIE'] = b'told'
real, builtins.dict = dict, Lie
try: get_ipython().system('echo [$LIE]')
finally: builtins.dict = real
"""
    (asked,), shown = run(lambda: asked_and_shown(code))
    assert asked == {"cmd": "echo [$LIE]"}
    assert shown == "[]"


# What turns "rejected" into "accepted" on its way from the client to the command, if what it replaces is used.
LIES = {
    "queue": """
import queue
class Box:
    put = lambda self, item: None
    get = lambda self: type('Answer', (), {'accepted': True, 'value': None})
queue.SimpleQueue = Box
""",
    "socket": """
import socket
def recvmsg(self, *args, real=socket.socket.recvmsg):
    data, *rest = real(self, *args)
    return data.replace(b'false', b'true '), *rest
socket.socket.recvmsg = recvmsg
socket.socket.recv = lambda self, *args, real=socket.socket.recv: real(self, *args).replace(b'false', b'true ')
""",
    "json": """
import json
def raw_decode(self, text, *args, real=json.JSONDecoder.raw_decode):
    return real(self, text.replace('false', 'true '), *args)
json.JSONDecoder.raw_decode = raw_decode
""",
    "os.urandom": "import os\nos.urandom = lambda count: bytes(count)",
}


@pytest.mark.parametrize("options", [{}, GUARDED], ids=["asking", "guarded"])
@pytest.mark.parametrize("lie", LIES)
def test_a_rejected_command_does_not_run_if_the_cell_replaces_what_carries_the_answer(
    lie: str, options: dict[str, Any], tmp_path: Path
) -> None:
    made = tmp_path / "made"

    async def scenario() -> str:
        async with CodeExecutor(**{"approve_shell_cmds": True, **options}) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, f"{LIES[lie]}\n!touch {made}", reject, timeout=DEADLINE)
            return caught.value.ename

    assert run(scenario) == "ApprovalRejectedError"
    assert not made.exists()


def test_a_line_with_quotes_is_shown_with_what_is_made_of_it() -> None:
    code = "%%script sh -c 'cat; echo \"$1\"' x 'a b'\nread"
    (asked,), shown = run(lambda: asked_and_shown(code))
    assert asked["program"] == "sh -c 'cat; echo \"$1\"' x 'a b'"
    assert asked["argv"] == ["sh", "-c", 'cat; echo "$1"', "x", "a b"]
    assert shown == "read\na b"


@pytest.mark.parametrize("options", ["--no-raise-error sh -e", "--out x --err=y sh -e", "--bg --proc p sh -e"])
def test_a_line_without_quotes_says_by_itself_what_runs(options: str) -> None:
    (asked,), _ = run(lambda: asked_and_shown(f"%%script {options}\ntrue"))
    assert asked == {"cmd": "true\n", "program": options}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("echo a\0b", "bash"),
        ("get_ipython().system('echo a\\0b')", "python"),
        ("get_ipython().getoutput('echo a\\0b')", "python"),
        ("get_ipython().run_cell_magic('script', 'sh', 'echo a\\0b')", "python"),
        ("get_ipython().run_cell_magic('script', 'sh -c \"a\\0b\"', 'echo')", "python"),
    ],
)
def test_a_nul_is_an_error_before_it_is_asked_for(code: str, language: str, guarded: bool) -> None:
    async def scenario() -> tuple[list[ApprovalRequest], CodeExecutionError]:
        asked: list[ApprovalRequest] = []

        async def take(request: ApprovalRequest) -> None:
            asked.append(request)
            await request.accept()

        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=guarded) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, take, language=language, timeout=DEADLINE)
            return asked, caught.value

    asked, error = run(scenario)
    assert asked == []
    assert error.ename == "ValueError"
    assert "NUL" in error.evalue


def test_bytes_that_are_no_text_are_shown_as_what_they_are() -> None:
    (asked,), shown = run(lambda: asked_and_shown("get_ipython().system('echo \\udcc3\\udca9')"))
    assert asked["cmd"] == "echo é"
    assert shown == "é"


DIFFERENT = {
    "!X and a bash cell": (("python", "!echo 0"), ("bash", "echo 0")),
    "%%sh and %%bash": (("python", "%%sh\necho $0"), ("python", "%%bash\necho $0")),
    "%%script sh and bash": (("python", "%%script sh\necho $0"), ("python", "%%script bash\necho $0")),
    "a byte and its escape in a command": tuple(
        ("python", f"get_ipython().system({text})")
        for text in ("'echo \\udcff'", r"r'echo \udcff'", r"r'echo \xff'", r"r'echo \\xff'", r"'echo \udcff\\'")
    ),
    "a byte and its escape in a line": tuple(
        ("python", f"get_ipython().run_cell_magic('script', {text}, 'echo $1')")
        for text in ("'sh -s \\udcff'", r"r'sh -s \udcff'", r"r'sh -s \xff'", r"r'sh -s \\xff'")
    ),
    "a byte and its escape in a variable": tuple(
        ("python", f"import os\nos.environ['A'] = {text}\n!echo")
        for text in (r"'\udcff'", r"r'\udcff'", r"r'\xff'", r"r'\\xff'")
    ),
    "a byte and its escape in the name of a variable": tuple(
        (
            "python",
            f"import os\nname = {name}\nos.environ[name] = '1'\ntry:\n    !echo\nfinally:\n    del os.environ[name]",
        )
        for name in (r"'\udcff'", r"r'\udcff'", r"r'\xff'", r"r'\\xff'")
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_an_answer_that_is_remembered_covers_no_other_program(case: str) -> None:
    async def scenario() -> list[str]:
        asked: list[str] = []

        async def remember(request: ApprovalRequest) -> None:
            asked.append(str(request))
            await request.accept(remember="session")

        async with CodeExecutor(approve_shell_cmds=True, kernel_env={"SHELL": "/bin/sh"}) as executor:
            for language, code in [*DIFFERENT[case], *DIFFERENT[case]]:
                await answer_all(executor, code, remember, language=language, timeout=DEADLINE)
        return asked

    asked = run(scenario)
    assert len(asked) == len(set(asked)) == len(DIFFERENT[case])


def test_bytes_that_are_no_text_at_all_are_shown_escaped_and_said_to_be() -> None:
    code = r"get_ipython().system('printf %s \udcff\\ | od -An -tx1')"
    (asked,), shown = run(lambda: asked_and_shown(code))
    assert asked == {"cmd": r"printf %s \xff\\ | od -An -tx1", "escaped": True}
    assert "ff" in shown


def test_a_script_cannot_be_changed_by_those_who_find_it() -> None:
    code = (
        "%%bash\n"
        "for way in '>>' '>'; do eval \"echo 'echo other' $way /proc/$$/fd/0\" 2>/dev/null && echo written; done\n"
        "true\n"
    )
    _, shown = run(lambda: asked_and_shown(code))
    assert shown == ""


CARRIED = {
    "its name, signals and descriptors": "%%bash\necho $0; grep Sig[BIC] /proc/self/status; ls /proc/self/fd",
    "its environment": "%%bash\nenv | grep -v ^KERNELBOX | sort",
    "its environment without a locale": "import os\nfor n in ('LC_ALL', 'LC_CTYPE', 'LANG'): os.environ.pop(n, None)\n"
    "get_ipython().run_cell_magic('bash', '', 'env | grep -v ^KERNELBOX | sort')",
    "words that are no text": "get_ipython().run_cell_magic('script', 'bash -s \\udcff é', 'printf %s \"$@\" | od -c')",
    "megabytes": "get_ipython().run_cell_magic('bash', '', ': ' + 'x' * 3_000_000 + '\\necho read')",
    "a program that is not there": "%%script nosuch\nx",
    "a program in the background": "%%script --bg --out o --proc p sh\necho run\n",
}


@pytest.mark.parametrize("case", CARRIED)
def test_an_approved_script_runs_as_one_that_is_not_asked_for(case: str) -> None:
    async def unasked() -> str | None:
        async with CodeExecutor() as executor:
            return await text(executor, CARRIED[case])

    assert run(lambda: asked_and_shown(CARRIED[case]))[1] == (run(unasked) or "")


# -- the environment ---------------------------------------------------------------------------------------------

CHANGES = {
    "a start-up file": ("BASH_ENV", "{file}"),
    "an exported function": ("BASH_FUNC_echo%%", "() {{ command echo other; }}"),
    "the search path": ("PATH", "{directory}:/usr/bin:/bin"),
    "a library": ("LD_PRELOAD", ""),
    "a new variable": ("NEW", "value"),
}


@pytest.mark.parametrize("options", [{}, GUARDED], ids=["asking", "guarded"])
@pytest.mark.parametrize("way", ["!echo run", "x = !echo run\nprint(*x)", "%%bash\necho run", "bash"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_cell_changes_in_the_environment_is_shown(
    change: str, way: str, options: dict[str, bool], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    name, value = CHANGES[change]
    value = value.format(file=tmp_path / "file", directory=tmp_path)

    async def scenario() -> list[dict[str, Any]]:
        async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=bool(options)) as executor:
            language = "bash" if way == "bash" else "python"
            code = "echo run" if way == "bash" else way
            await executor.execute(f"import os\nos.environ[{name!r}] = {value!r}")
            requests, _ = await answer_all(executor, code, accept, language=language, timeout=DEADLINE)
            return [request.tool_args for request in requests]

    (asked,) = run(scenario)
    assert asked["env"] == {name: value}


def test_an_environment_that_has_not_changed_is_not_shown() -> None:
    code = "import os, matplotlib.pyplot, pandas\n!echo run"
    (asked,), _ = run(lambda: asked_and_shown(code, **GUARDED))
    assert asked == {"cmd": "echo run"}


def test_a_variable_that_was_removed_is_shown_as_none_and_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> tuple[dict[str, Any], str | None]:
        async with CodeExecutor(approve_shell_cmds=True, kernel_env={"GIVEN": "1"}) as executor:
            await executor.execute("import os\ndel os.environ['GIVEN']\nos.environ['NEW'] = 'b'")
            (request,), result = await answer_all(executor, "!echo [$GIVEN] [$NEW]", accept)
            assert result is not None
            return request.tool_args, result.text

    asked, shown = run(scenario)
    assert asked["env"] == {"GIVEN": None, "NEW": "b"}
    assert shown == "[] [b]"


def test_approved_commands_run_in_the_shell_that_the_kernel_was_given(tmp_path: Path) -> None:
    shell = tmp_path / "bash"
    shell.write_text("#!/bin/sh\necho other\n")
    shell.chmod(0o755)
    code = f"import os\nos.environ['SHELL'] = {str(shell)!r}\n!echo shown"
    assert run(lambda: asked_and_shown(code))[1] == "shown"

    async def unasked() -> str | None:
        async with CodeExecutor() as executor:
            return await text(executor, code)

    assert run(unasked) == "other"


# A name that a dict takes for another than the same bytes.
KEY = "class Key(bytes):\n    __hash__ = object.__hash__\n    __eq__ = object.__eq__\n"


@pytest.mark.parametrize(
    "spoil",
    [
        "os.environ._data[b'A=B'] = b'c'",
        "os.environ._data[b'A'] = b'a\\0b'",
        "os.environ._data[b'A'] = bytearray(b'ab')",
        "os.environ._data = None",
        KEY + "os.environ._data = {Key(b'PATH'): b'/elsewhere', **os.environ._data}",
        KEY + "os.environ._data[Key(b'A')] = os.environ._data[Key(b'A')] = b'same'",
    ],
)
def test_an_environment_that_no_program_can_have_is_an_error_before_it_is_asked_for(spoil: str) -> None:
    async def scenario() -> str:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await asked(executor)
            return caught.value.ename

    async def asked(executor: CodeExecutor) -> None:
        requests, _ = await answer_all(executor, f"import os\n{spoil}\n!echo run", accept)
        assert requests == []

    assert run(scenario) in ("TypeError", "ValueError")


def test_an_environment_that_changes_while_it_is_approved_runs_as_it_was_shown() -> None:
    code = "import os, threading\nos.environ['V'] = 'shown'\nget_ipython().system('echo $V')"

    async def scenario() -> str | None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            await executor.execute(
                "import os, threading, time\n"
                "def change():\n"
                "    while not get_ipython().kernel.asks.open: time.sleep(0.0005)\n"
                "    os.environ['V'] = 'other'\n"
                "    changed.set()\n"
                "changed = threading.Event()\n"
                "threading.Thread(target=change, daemon=True).start()"
            )

            async def accept_late(request: ApprovalRequest) -> None:
                assert request.tool_args["env"] == {"V": "shown"}
                await request.accept()

            _, result = await answer_all(executor, code, accept_late)
            assert result is not None
            return result.text

    assert run(scenario) == "shown"


# -- the arguments of a tool -------------------------------------------------------------------------------------

HOSTILE = {
    "endless": ("{'x': __import__('itertools').count()}", "ValueError"),
    "endless items": ("{'x': type('D', (), {'__iter__': lambda self: iter(int, 1)})()}", "ValueError"),
    "deep": ("{'x': __import__('functools').reduce(lambda x, _: [x], range(1000), 1)}", "ValueError"),
    "itself": ("(lambda x: (x.append(x), {'x': x})[1])([])", "ValueError"),
    "huge": ("{'x': 'a' * 20_000_000}", "ValueError"),
    "many": ("{'x': [0] * 200_000}", "ValueError"),
    "a huge number": ("{'x': 10 ** 6000}", "ValueError"),
    "not a number": ("{'x': float('nan')}", "ValueError"),
    "an object": ("{'x': object()}", "TypeError"),
    "a name that is no text": ("{1: 2}", "TypeError"),
    "no arguments": ("[1]", "TypeError"),
    "an object that says that it is a str": ("{'x': type('S', (), {'__class__': str})()}", "TypeError"),
    "raises": ("{'x': type('D', (), {'__iter__': lambda self: 1 / 0})()}", "ZeroDivisionError"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_arguments_that_are_not_json_fail_in_the_cell_before_they_are_asked_for(case: str) -> None:
    arguments, expected = HOSTILE[case]

    async def scenario() -> tuple[str, str | None]:
        async with CodeExecutor() as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, f"get_ipython().kernel.asks.ask('server', 'tool', {arguments})", never)
            return caught.value.ename, await text(executor, "1 + 1")

    async def never(request: ApprovalRequest) -> None:
        raise AssertionError(f"asked for {request}")

    assert run(scenario) == (expected, "2")


def test_arguments_are_made_plain_once() -> None:
    code = """
import datetime, numpy
class Sly(dict):
    items = keys = values = __iter__ = lambda self: 1 / 0
class Text(str): __str__ = lambda self: 'other'
class Many(list): __iter__ = lambda self: iter(['other'])
get_ipython().kernel.asks.ask('server', Text('tool'), Sly(
    text=Text('shown'), many=Many([1, (2, 3.5)]), none=None, yes=True, number=numpy.int64(4), real=numpy.float64(0.5),
    array=numpy.arange(2), when=datetime.date(2020, 1, 2), raw=b'ab', some={5}))
"""

    async def scenario() -> ApprovalRequest:
        asked: list[ApprovalRequest] = []

        async def refuse(request: ApprovalRequest) -> None:
            asked.append(request)
            await request.reject()

        async with CodeExecutor() as executor:
            with pytest.raises(CodeExecutionError, match="tool"):
                await answer_all(executor, code, refuse)
        return asked[0]

    request = run(scenario)
    assert request.tool_name == "tool"
    assert request.tool_args == {
        "text": "shown",
        "many": [1, [2, 3.5]],
        "none": None,
        "yes": True,
        "number": 4,
        "real": 0.5,
        "array": [0, 1],
        "when": "2020-01-02",
        "raw": "YWI=",
        "some": [5],
    }


# -- forged questions and answers --------------------------------------------------------------------------------

# How a cell sends what it likes to the client: through the kernel's own connection, whose descriptor it finds.
FORGE = """
import os, socket, threading, time
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Answer, Ask
kernel = get_ipython().kernel
client = kernel.outbox.peer.sock
def forge(number, command='echo harmless', execution=''):
    client.send(encode(Ask(execution or kernel.outbox.execution_id, number, 'kernelbox', 'shell', {'cmd': command})))
    open('SENT', 'w').close()
def forge_open(later=0.0):
    while not kernel.asks.open: time.sleep(0.0005)
    (number,) = kernel.asks.open
    time.sleep(later)
    forge(number)
"""


@pytest.mark.parametrize(
    "trick",
    [
        # The number of a question that is open.
        "threading.Thread(target=forge_open).start()\n!touch {made}",
        # The number that would come next if they were counted; the answer waits when the real question is put.
        "forge(1)\ntime.sleep(0.005)\n!touch {made}",
        # A number far above.
        "forge(2 ** 62)\ntime.sleep(0.005)\n!touch {made}",
        # The same number twice.
        "forge(5)\nforge(5)\n!touch {made}",
        # None or less.
        "forge(0)\n!touch {made}",
        "forge(-1)\n!touch {made}",
        # A question of another execution.
        "forge(1, execution='other')\n!touch {made}",
        # The number of a question that has been answered.
        "threading.Thread(target=lambda: forge_open(0.05)).start()\n!echo harmless\ntime.sleep(0.1)\n!touch {made}",
    ],
)
def test_a_forged_question_ends_the_kernel_and_answers_no_real_one(trick: str, tmp_path: Path) -> None:
    made, sent = tmp_path / "made", tmp_path / "sent"
    policy = ApprovalPolicy().allow("shell", args={"cmd": "echo harmless"})
    code = FORGE.replace("SENT", str(sent)) + trick.format(made=made)

    async def reject_later(request: ApprovalRequest) -> None:
        await asyncio.to_thread(eventually, sent.exists)  # the cell may end with the rejection
        await request.reject()

    async def scenario() -> None:
        async with CodeExecutor(approve_shell_cmds=True, approval_policy=policy) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, reject_later, timeout=DEADLINE)
            assert caught.value.ename == "KernelDied"
            assert "forged a question" in caught.value.evalue

    run(scenario)
    assert not made.exists()


def test_honest_questions_of_many_threads_arrive_in_order() -> None:
    code = (
        "import threading\n"
        "def ask():\n    for _ in range(20): get_ipython().kernel.asks.ask('kernelbox', 'shell', {'cmd': 'x'})\n"
        "threads = [threading.Thread(target=ask) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; print('all answered')"
    )
    asked, shown = run(lambda: asked_and_shown(code))
    assert len(asked) == 160
    assert shown.startswith("all answered")


def test_a_descriptor_put_in_the_place_of_the_clients_answers_nothing(tmp_path: Path) -> None:
    """The cell finds the client's descriptor among its own, and answers its own question on another socket."""
    made = tmp_path / "made"
    code = f"""
import os, socket, struct, threading
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Answer
def is_connected(fd):
    try: sock = socket.socket(fileno=os.dup(fd))
    except OSError: return False
    with sock:
        try: return bool(sock.getpeername() is not None and sock.getsockname())
        except OSError: return False
(client,) = [int(fd) for fd in os.listdir('/proc/self/fd') if is_connected(int(fd))]
ours, theirs = socket.socketpair()
theirs.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
def answer():
    decoder = Decoder()
    while True:
        for message in decoder.feed(ours.recv(65536)):
            if type(message).__name__ == 'Ask':
                ours.send(encode(Answer(message.id, message.ask, True)))
threading.Thread(target=answer, daemon=True).start()
os.dup2(theirs.fileno(), client)
!touch {made}
"""

    async def scenario() -> CodeExecutionError:
        async with CodeExecutor(**GUARDED) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await executor.execute(code, timeout=DEADLINE)
            return caught.value

    assert run(scenario).ename == "ConnectionLost"
    assert not made.exists()


# How a cell of the superuser's writes in the name of its client: on a socket that it puts in the client's place.
IMPERSONATE = """
import os, socket, struct, threading, time
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Answer, Execute
kernel = get_ipython().kernel
peer, execution = kernel.outbox.peer, kernel.outbox.execution_id
ours, theirs = socket.socketpair(); theirs.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
kept = os.dup(peer.sock.fileno())
def send(message):
    name = [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack('3i', peer.pid, os.getuid(), os.getgid()))]
    ours.sendmsg([encode(message)], name)
def impersonate():
    while not kernel.asks.open: time.sleep(0.0005)
    (number,) = kernel.asks.open
    os.dup2(theirs.fileno(), peer.sock.fileno(), False)
    FORGED
threading.Thread(target=impersonate, daemon=True).start()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can forge credentials")
@pytest.mark.parametrize(
    "forged",
    [
        "send(Answer(execution, number, True))",
        "send(Answer(execution, number, True, '', '0' * 32))",
        "send(Execute('x', 'get_ipython().system(\"touch {made}\")')); send(Answer(execution, number, False))",
        "send(Execute('x', 'touch {made}', 'bash')); send(Answer(execution, number, False))",
    ],
)
def test_what_a_cell_of_the_superuser_sends_in_the_name_of_its_client_is_of_no_use(forged: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    code = IMPERSONATE.replace("FORGED", forged.format(made=made)) + (
        f"try: get_ipython().system('touch {made}')\nfinally: os.dup2(kept, peer.sock.fileno(), False)"
    )

    async def scenario() -> None:
        async with CodeExecutor(approve_shell_cmds=True) as executor:
            with pytest.raises(CodeExecutionError) as caught:
                await answer_all(executor, code, never, timeout=DEADLINE)
            assert caught.value.ename in ("ApprovalRejectedError", "KernelDied")

    async def never(request: ApprovalRequest) -> None:
        """Leaves the question open."""

    run(scenario)
    assert not made.exists()

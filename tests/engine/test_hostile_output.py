"""Output that is meant to do harm: it costs the cell an error, or part of what it shows, and its caller nothing."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, Running, kept_bytes, run, value
from tests.support.store import read_only

from kernelbox import (
    CodeExecutionChunk,
    CodeExecutionResult,
    CodeExecutor,
    ExecutionResult,
    KernelBoxError,
    KernelRecord,
    OutputItem,
    execute,
    interrupt,
    stream,
)
from kernelbox.base._errors import InvalidInput

# What a display is made of, and what the error says; an empty text if it is shown, whole or in part.
SHOWN = {
    "base64 that is none": ("{'image/png': 'A'}", ""),
    "base64 without its end": ("{'image/png': 'abc', 'text/plain': 'x'}", ""),
    "6,000 digits": ("{'application/json': 10**6000}", "640 digits"),
    "numbers that are none": ("{'application/json': [float('nan'), float('inf')]}", ""),
    "a list in itself": ("{'application/json': circle}", "or in itself"),
    "100,000 levels": ("{'application/json': deep}", "100 levels deep"),
    "2**90 parts": ("{'application/json': doubled}", ""),
    "an endless generator": ("{'application/json': itertools.count()}", ""),
    "half a character": ("{'text/html': '\\ud800', 'application/json': {'\\udc00': '\\udfff'}}", ""),
    "numbers of numpy": ("{'application/json': [np.int64(1), np.float32(0.5), np.arange(3)]}", ""),
    "an object": ("{'application/json': object()}", "object is not JSON serializable"),
    "a string that lies": ("{'text/plain': Lie('x' * 50_000_000), Lie('text/html'): Lie('x')}", ""),
    "a dictionary that lies": ("LyingDict({'text/plain': 'x'})", ""),
    "bytes of an own class": ("{'image/png': LyingBytes(b'x')}", ""),
    "a method that raises": ("{'application/json': Raises()}", "no such luck"),
    "a type that is no text": ("{5: 'x'}", "a MIME type is a string, not 5"),
    "10,000 types": ("{f'a/{n}': n for n in range(10_000)}", ""),
    "a type of 50 MB": ("{'x' * 50_000_000: 1, 'text/plain': 'x'}", ""),
    "100 texts of 4 MB": ("{f'text/x-{n}': 'x' * 4_000_000 for n in range(100)}", ""),
    "text that is hard to escape": ("{'text/plain': '\\x00' * 40_000_000, 'text/html': '\\x00' * 4_000_000}", ""),
    "a picture of 100 MB": ("{'image/png': bytes(100_000_000)}", ""),
}

TOOLS = """
import itertools
import numpy as np
circle = []; circle.append(circle)
deep = doubled = 0
for _ in range(100_000): deep = [deep]
for _ in range(90): doubled = [doubled, doubled]
class Lie(str):
    def __len__(self): return 0
    def __str__(self): raise KeyError
    def encode(self, *a): raise KeyError
class LyingDict(dict):
    def items(self): raise KeyError
    def __iter__(self): return itertools.repeat('text/plain')
class LyingBytes(bytes):
    def __bytes__(self): raise KeyError
class Raises:
    def __iter__(self): raise ValueError('no such luck')
kept = 1
"""


@pytest.fixture
def armed(kernel: KernelRecord) -> KernelRecord:
    run(kernel, TOOLS)
    return kernel


@pytest.mark.parametrize("limit", ["10000", "0"])
def test_whatever_is_displayed_is_bounded_or_an_error_of_the_cell(
    limit: str, armed: KernelRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", limit)
    for what, (data, complaint) in SHOWN.items():
        result = execute(armed, f"display({data}, raw=True)\nprint('on')", timeout=DEADLINE, images_dir=tmp_path)
        assert_harmless(what, complaint, result)


def test_whatever_a_value_shows_itself_as_is_bounded_or_an_error_of_the_cell(
    armed: KernelRecord, tmp_path: Path
) -> None:
    for what, (data, complaint) in SHOWN.items():
        code = f"class R:\n    def _repr_mimebundle_(self, **_): return {data}\nprint('on')\nR()"
        result = execute(armed, code, timeout=DEADLINE, images_dir=tmp_path)
        assert (result.ending, result.output) == ("finished", "on\n"), what
        assert complaint in (result.error.evalue if result.error else ""), what
        json.dumps(result.to_dict(), allow_nan=False, ensure_ascii=False).encode()
    assert value(armed, "kept") == "1"


@pytest.mark.parametrize(
    "call",
    ["display({{'text/plain': 'x'}}, raw=True, metadata={0})", "import comm; comm.create_comm(data={0}, metadata={0})"],
    ids=["metadata", "comm"],
)
def test_whatever_goes_along_with_a_display_is_bounded_or_an_error_of_the_cell(call: str, armed: KernelRecord) -> None:
    for what, (data, _) in SHOWN.items():
        result = execute(armed, f"{call.format(data)}\nprint('on')", timeout=DEADLINE)
        assert_harmless(what, "", result)


def assert_harmless(what: str, complaint: str, result: ExecutionResult) -> None:
    assert (result.ending, result.state) == ("finished", "kept"), (what, result.text[:500])
    assert complaint in (result.error.evalue if result.error else ""), (what, result.text[:500])
    assert result.ok == (result.output == "on\n"), what
    json.dumps(result.to_dict(), allow_nan=False, ensure_ascii=False).encode()
    assert kept_bytes(result.outputs) <= 64 * 1024 * 1024, what


@pytest.mark.parametrize(
    "code",
    [
        "display(1, display_id='x' * 50_000_000)",
        "display(1, display_id='x' * 1001)",
        "import comm; comm.create_comm(target_name='x' * 50_000_000)",
        "import comm; comm.create_comm().publish_msg('no such type')",
        "get_ipython().execution_count = 10**6000",
        "get_ipython().execution_count = -5",
    ],
)
def test_a_name_or_number_that_no_message_takes_is_an_error_of_the_cell(code: str, kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.status, result.ending) == ("error", "finished"), result.text
    assert value(kernel, "kept") == "1"


@pytest.mark.parametrize(
    "code",
    [
        "from IPython.display import clear_output; clear_output(wait=[1])",
        "display(1, display_id=5)",
        "class I:\n    def __str__(self): return 'an id'\ndisplay(1, display_id=I())",
        "display(1, metadata={'m': 'x' * 50_000_000})",
    ],
)
def test_what_can_be_understood_is_taken_as_it_was_meant(code: str, kernel: KernelRecord) -> None:
    assert run(kernel, code + "\nprint('on')").output == "on\n"


ERRORS = {
    "a value that lies about its length": "class S(str):\n    def __len__(self): return 0\n"
    "class E(Exception):\n    def __str__(self): return S('x' * 80_000_000)\nraise E",
    "three million lines": "raise ValueError('\\n' * 3_000_000)",
    "a name that is a number": "class M(type):\n    __name__ = 5\nclass E(Exception, metaclass=M): pass\nraise E('x')",
    "a name that cannot be had": "class M(type):\n    @property\n    def __name__(cls): raise SystemExit\n"
    "class E(Exception, metaclass=M): pass\nraise E('x')",
    "a name of 50 MB": "raise type('E' * 50_000_000, (Exception,), {})('x')",
    "half a character": "raise ValueError('\\ud800')",
    "notes of 100 MB": "e = ValueError('x'); e.__notes__ = ['n' * 100_000_000]; raise e",
}


@pytest.mark.parametrize("limit", ["10000", "2000000", "0"])
def test_whatever_is_raised_is_bounded(limit: str, kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", limit)
    run(kernel, "kept = 1")
    for what, code in ERRORS.items():
        result = execute(kernel, code, timeout=DEADLINE)
        assert result.error is not None
        assert (result.ending, result.state) == ("finished", "kept"), (what, result.error.evalue[:500])
        assert len(result.error.evalue) <= 2 * 1024 * 1024
        assert len(result.error.traceback) <= 10_001
        json.dumps(result.to_dict(), ensure_ascii=False).encode()
    assert value(kernel, "kept") == "1"


@pytest.mark.parametrize("what", ["doubled", "itertools.repeat(0)", "Slow()"])
def test_an_interrupt_ends_the_conversion_of_what_is_displayed(what: str, armed: KernelRecord) -> None:
    slow = (
        "import time\nclass Slow:\n    def __iter__(self):\n        print('begun', flush=True)\n"
        "        while True: time.sleep(0.001)\n"
    )
    code = f"{slow}while True:\n    print('begun', flush=True)\n    display({{'application/json': {what}}}, raw=True)"
    running = Running(armed, code).wait_for_output()
    assert interrupt(armed)
    result = running.result()
    assert (result.ending, result.state) == ("interrupted", "kept"), result.text[-500:]
    assert value(armed, "kept") == "1"


# -- what a result keeps -----------------------------------------------------------------------------------------


FLOODS = {
    "20 pictures of 20 MB": "from IPython.display import Image\nfor _ in range(20):\n"
    "    display(Image(bytes(20 * 1024 * 1024), format='png'))",
    "40 texts of 2 M emoji": "for _ in range(40): display({'text/plain': '\\U0001f600' * 2_000_000}, raw=True)",
    "20 markups of 2 M emoji": "for _ in range(20): display({'text/html': '\\U0001f600' * 2_000_000}, raw=True)",
    "40 streams of 2 M emoji": "import sys\nfor n in range(40):\n"
    "    print('\\U0001f600' * 2_000_000, file=(sys.stdout, sys.stderr)[n % 2])",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_leaves_at_most_64_mb_in_a_result(
    what: str, kernel: KernelRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "2000000")
    result = execute(kernel, FLOODS[what], timeout=DEADLINE, images_dir=tmp_path)
    assert result.ok, result.text[-500:]
    assert result.truncated
    assert kept_bytes(result.outputs) <= 64 * 1024 * 1024
    for text in (result.output, result.stderr, result.text):
        assert len(text) <= 2_000_000


@pytest.mark.parametrize("limit", ["1", "10", "63", "64", "100"])
def test_no_text_of_a_result_is_longer_than_a_small_limit(
    limit: str, kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", limit)
    size = int(limit)
    whole = run(kernel, f"print('x' * {size - 1})")
    assert (whole.output, whole.truncated) == ("x" * (size - 1) + "\n", False)
    for code in (f"print('x' * {size})", f"print('x' * {size}, file=__import__('sys').stderr)", f"'x' * {size}"):
        result = run(kernel, code)
        texts = [result.output, result.stderr, result.text, *(item.text or "" for item in result.outputs)]
        assert max(map(len, texts)) <= size
        assert result.truncated
    failed = execute(kernel, f"raise ValueError('x' * {size + 1})", timeout=DEADLINE)
    assert failed.error is not None
    assert max(len("\n".join(failed.error.traceback)), len(failed.text)) <= size
    assert failed.truncated


def test_the_text_of_a_cell_that_was_cancelled_is_no_longer_than_the_limit(home: Path) -> None:
    code = (
        "import sys, time\nfor n in range(50): print('x' * 999, file=(sys.stdout, sys.stderr)[n % 2])\n"
        "print('last', flush=True)\ntime.sleep(1000)"
    )

    async def scenario() -> str | None:
        async with CodeExecutor(output_char_limit=10_000) as executor:
            async for item in executor.stream(code, chunks=True, timeout=DEADLINE):
                if isinstance(item, CodeExecutionResult):
                    return item.text
                if isinstance(item, CodeExecutionChunk) and "last" in item.text:
                    await executor.cancel()
        raise AssertionError("a stream ends with its result")

    text = asyncio.run(scenario())
    assert text is not None
    assert text.endswith("last")
    assert len(text) <= 10_000


# -- images ------------------------------------------------------------------------------------------------------

PICTURE = "display({'image/png': b'\\x89PNG', 'text/plain': 'a picture'}, raw=True)\n"


@pytest.mark.parametrize("data", ["'A'", "'abc'", "'====', ", "'not base64!'", "''", "5", "None", "b''"])
def test_an_image_that_is_none_leaves_no_file_and_its_text(data: str, kernel: KernelRecord, tmp_path: Path) -> None:
    code = f"display({{'image/png': {data.rstrip(', ')}, 'text/plain': 'its text'}}, raw=True)"
    result = execute(kernel, code, timeout=DEADLINE, images_dir=tmp_path)
    assert (result.ok, result.images, result.text) == (True, [], "its text")
    assert list(tmp_path.iterdir()) == []


def in_the_way(kind: str, place: Path) -> None:
    match kind:
        case "a file":
            place.write_text("mine")
        case "a link to nothing":
            place.symlink_to(place.parent / "elsewhere" / "deep")
            (place.parent / "elsewhere").write_text("mine")
        case "a parent that is a file":
            place.parent.rmdir()
            place.parent.write_text("mine")
        case "a loop":
            place.symlink_to(place)


@pytest.mark.parametrize("kind", ["a file", "a link to nothing", "a parent that is a file", "a loop"])
def test_a_directory_that_cannot_be_used_is_said_once_and_the_cell_goes_on(
    kind: str, kernel: KernelRecord, tmp_path: Path
) -> None:
    place = tmp_path / "parent" / "images"
    place.parent.mkdir()
    in_the_way(kind, place)
    events = list(stream(kernel, PICTURE * 3 + "print('on')", timeout=DEADLINE, images_dir=place))
    result = events.pop()
    assert isinstance(result, ExecutionResult)
    assert (result.ok, result.output, result.images) == (True, "on\n", [])
    assert result.stderr.count("images could not be written") == result.text.count("images could not be written") == 1
    texts = [event.text or "" for event in events if isinstance(event, OutputItem)]
    assert sum("images could not be written" in text for text in texts) == 1


def test_a_directory_that_may_not_be_written_is_said(kernel: KernelRecord, tmp_path: Path) -> None:
    with read_only(tmp_path):
        result = execute(kernel, PICTURE, timeout=DEADLINE, images_dir=tmp_path)
    assert (result.ok, result.images) == (True, [])
    assert "Read-only file system" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs procfs")
@pytest.mark.parametrize("directory", ["/proc/self/images", "/dev/full/images"])
def test_a_directory_that_the_system_refuses_is_said(directory: str, kernel: KernelRecord) -> None:
    result = execute(kernel, PICTURE + "print('on')", timeout=DEADLINE, images_dir=directory)
    assert (result.ok, result.output, result.images) == (True, "on\n", [])
    said = result.stderr.replace(f"/proc/{os.getpid()}", "/proc/self")
    assert f"images could not be written to '{directory}'" in said


CRAMPED = """
import resource, sys
from kernelbox import execute, get_or_create
kernel = get_or_create(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
result = execute(kernel, "display({'image/png': bytes(500_000)}, raw=True)\\nprint('on')", images_dir=sys.argv[2])
print(result.ok, result.output.strip(), result.images, result.stderr.strip())
"""


def test_a_file_that_could_be_written_in_part_is_not_left(kernel: KernelRecord, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CRAMPED, kernel.name, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
    assert said.startswith("True on [] [kernelbox] images could not be written to")
    assert "File too large" in said
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_images_in_our_home_is_not_followed_if_it_is_a_link(own_home: Path, tmp_path: Path) -> None:
    run("planter", f"import os; os.symlink({str(tmp_path)!r}, {str(own_home / 'images')!r})")
    result = run("planter", PICTURE)
    assert result.images == []
    assert f"{str(own_home / 'images')!r}: it is a link" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("plant", ["images", "parent"])
def test_a_link_that_a_cell_plants_on_the_way_to_its_images_is_not_followed(
    plant: str, kernel: KernelRecord, tmp_path: Path
) -> None:
    target, place = tmp_path / "target", tmp_path / "parent" / "images"
    (target / "images").mkdir(parents=True)
    link = place if plant == "images" else place.parent
    code = (
        f"import os, pathlib, shutil\nlink = pathlib.Path({str(link)!r})\nlink.parent.mkdir(exist_ok=True)\n"
        f"shutil.rmtree(link, ignore_errors=True)\nlink.symlink_to({str(target)!r})\n" + PICTURE
    )
    result = execute(kernel, code, timeout=DEADLINE, images_dir=place)
    assert (result.ok, result.images) == (True, [])
    assert "images could not be written" in result.stderr
    assert [file for file in target.rglob("*") if file.is_file()] == []


def test_a_directory_that_the_caller_names_by_a_link_is_used(kernel: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    result = execute(kernel, PICTURE, timeout=DEADLINE, images_dir=tmp_path / "link" / "new")
    (image,) = result.images
    assert Path(image).parent == tmp_path / "real" / "new"
    assert Path(image).read_bytes() == b"\x89PNG"


@pytest.mark.parametrize("images_dir", ["a\0b", 5, ["x"]])
def test_what_is_no_path_is_refused_before_anything_runs(images_dir: str, kernel: KernelRecord) -> None:
    with pytest.raises(InvalidInput, match="images_dir"):
        execute(kernel, "ran = True", images_dir=images_dir)
    with pytest.raises(InvalidInput, match="images_dir"):
        CodeExecutor(images_dir=images_dir)
    assert value(kernel, "'ran' in globals()") == "False"


def test_of_600_images_500_are_files_and_the_result_says_so(kernel: KernelRecord, tmp_path: Path) -> None:
    result = execute(kernel, f"for _ in range(600): {PICTURE}", timeout=DEADLINE, images_dir=tmp_path)
    assert len(result.images) == len(list(tmp_path.iterdir())) == 500
    assert result.truncated
    assert "only the first 500 images were written" in result.text
    assert "only the first 500 images were written" in result.stderr


def test_an_executor_says_that_images_could_not_be_written(home: Path, tmp_path: Path) -> None:
    (tmp_path / "images").write_text("mine")

    async def scenario() -> str | None:
        async with CodeExecutor(images_dir=tmp_path / "images") as executor:
            result = await executor.execute(PICTURE + "display({'image/png': 'A'}, raw=True)")
            assert result.images == []
            return result.text

    text = asyncio.run(scenario())
    assert text is not None
    assert text.startswith("a picture\n[image]\n[kernelbox] images could not be written to")


# -- what a kernel says of itself --------------------------------------------------------------------------------


def test_variables_of_any_kind_are_told_in_bounds(home: Path) -> None:
    code = (
        "class M(type):\n    def __getattribute__(cls, name): return 5\n"
        "class Big:\n    nbytes = 10**5000\n    def __repr__(self): raise GeneratorExit\n"
        "class Odd(metaclass=M):\n    nbytes = -1\n"
        "class S(str):\n    def __len__(self): return 0\n"
        "class Long:\n    def __repr__(self): return S('x' * 1_000_000)\n"
        "a, b, c, d = Big(), Odd(), Long(), type('T' * 1_000_000, (), {})()\n"
        "globals()[5] = globals()['v' * 1_000_000] = 1\n"
    )

    async def scenario() -> None:
        async with CodeExecutor() as executor:
            result = await executor.execute(code)
            assert result.changed is not None
            assert "a" in result.changed["added"]
            found = {variable.name: variable for variable in await executor.variables()}
            assert found["a"].preview == "<repr failed: GeneratorExit>"
            assert (found["a"].size, found["b"].size, found["b"].type) == (0, 0, "Odd")
            assert len(found["c"].preview) == 80
            assert len(found["d"].type) == 256
            await executor.execute("for n in range(20_000): globals()[f'x{n}'] = n")
            assert len(await executor.variables()) == 10_000

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "forged",
    ["5", "{}", "[5]", "[[]]", "[{}]", "[{'name': 1, 'type': '', 'size': 0, 'preview': ''}]"]
    + [f"[{{'name': 'a', 'type': '', 'size': {size}, 'preview': ''}}]" for size in ("None", "True", "-1", "1.5", "'1'")]
    + ["[{'name': 'a', 'type': '', 'size': 0, 'preview': '', 'more': 1}]", "[{'name': 'a', 'type': '', 'size': 0}]"]
    + ["[{'name': 'a' * 300, 'type': '', 'size': 0, 'preview': ''}]"],
)
def test_variables_that_a_cell_has_forged_are_an_error_with_a_sentence(forged: str, home: Path) -> None:
    async def scenario() -> None:
        async with CodeExecutor() as executor:
            forge = "from kernelbox.guest.serve import _queries\n_queries._variables = lambda *_: "
            await executor.execute(forge + forged)
            with pytest.raises(KernelBoxError, match="did not send a list of variables"):
                await executor.variables()
            assert (await executor.execute("1 + 1")).text == "2"

    asyncio.run(scenario())


def test_a_cell_that_makes_more_variables_than_a_result_names_says_that_some_are_missing(home: Path) -> None:
    async def scenario() -> None:
        async with CodeExecutor() as executor:
            result = await executor.execute("for n in range(50_000): globals()[f'v{n}'] = n")
            assert result.changed is not None
            assert len(result.changed["added"]) == 2_000

    asyncio.run(scenario())


# -- what a cell writes to the socket ------------------------------------------------------------------------------

FORGE = """
import json, select, struct
outbox = get_ipython().kernel.outbox
execution, sock = outbox.execution_id, outbox.peer.sock
def send(header):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    rest = memoryview(struct.pack('!II', len(raw), 0) + raw)
    with outbox.lock:  # no other frame comes between the parts of this one
        while rest:
            select.select([], [sock], [])
            try: rest = rest[sock.send(rest):]
            except BlockingIOError: pass
def show(data, metadata={}, display_id=''):
    send(['Display', execution, 'display_data', data, metadata, display_id, None, False, '', {}])
def end(evalue, lines, changed=None):
    send(['Done', execution, 'error', 1, 'E', evalue, lines, False, False, changed, None])
"""

FORGED = {
    "deep JSON in a note": "send(b'[\"Reply\",\"a\",' + b'{\"x\":' * 90_000 + b'0' + b'}' * 90_000 + b']')",
    "deep JSON in an ask": "deep = b'[' * 999 + b']' * 999\n"
    'send(b\'["Ask","%s",1,"s","t",{"x":%s}]\' % (execution.encode(), deep))',
    "many lists": 'send(b\'["Comm","a","comm_msg",{"x":[\' + b\'[],\' * 5_000_000 + b\'0]}]\')',
    "digits": "send(b'[\"Started\",\"a\",' + b'9' * 4_000 + b']')",
    "half a character": "show({}, {'m': '\\ud800'})",
    "a long id": "show({}, {}, 'x' * 1_000_000)",
    "many types": "show({f'a/{n}': 1 for n in range(999)})",
    "many changes": "end('', [], {'added': ['x'] * 99_999})",
    "another kind of comm": "send(['Comm', execution, 'x' * 1_000_000, {}])",
}


@pytest.mark.parametrize("what", FORGED)
def test_a_message_that_no_guest_sends_ends_the_kernel_with_a_sentence(what: str, kernel: KernelRecord) -> None:
    result = execute(kernel, f"{FORGE}{FORGED[what]}\nimport time; time.sleep(1000)", timeout=DEADLINE)
    assert result.error is not None
    assert result.error.ename == "KernelDied"
    assert "not a message" in result.error.evalue
    assert len(result.error.evalue) < 1_000
    assert execute(kernel.name, "1 + 1", timeout=DEADLINE).return_value == "2"


BELIEVED = {
    "a picture that is none": "show({'image/png': 'A'})",
    "an error of 10 MB": "end('x' * 10_000_000, [''] * 100_000)",
    "metadata of 10 MB": "show({}, {'m': 'x' * 10_000_000})",
}


@pytest.mark.parametrize("what", BELIEVED)
def test_a_message_that_a_guest_might_send_gives_a_bounded_result(
    what: str, kernel: KernelRecord, tmp_path: Path
) -> None:
    result = execute(kernel, FORGE + BELIEVED[what], timeout=DEADLINE, images_dir=tmp_path)
    assert result.ending == "finished", result.text[-500:]
    assert result.images == []
    assert len(result.text) <= 10_000
    assert len(result.error.evalue if result.error else "") <= 1_000_000
    json.dumps(result.to_dict())
    assert kept_bytes(result.outputs) <= 64 * 1024 * 1024

"""What a model reads when its code fails: where, why and what to do, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks._mistakes import MISTAKES
from tests.support.cells import DEADLINE, run, value

from kernelbox import KernelRecord, execute, get_or_create, restart


def fail(kernel: KernelRecord, code: str) -> str:
    """Runs a cell that must fail, and returns all that there is to read."""
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.error is not None, result.text
    assert result.text == "\n".join(result.error.traceback).rstrip()
    return result.text


def test_a_failure_is_its_place_its_line_and_its_message(kernel: KernelRecord) -> None:
    assert fail(kernel, "1 / 0") == "Cell In[1], line 1\n----> 1 1 / 0\n\nZeroDivisionError: division by zero"


def test_a_frame_of_a_library_is_a_short_line(kernel: KernelRecord, tmp_path: Path) -> None:
    lines = fail(kernel, "import json\njson.loads('{')").splitlines()
    assert lines[:3] == ["Cell In[1], line 2", "      1 import json", "----> 2 json.loads('{')"]
    assert [line.partition(":")[0] for line in lines if line.startswith("File ")] == [
        "File json/__init__.py",
        "File json/decoder.py",
        "File json/decoder.py",
    ]
    assert any(line.endswith(", in JSONDecoder.decode") for line in lines)


def test_the_users_own_modules_are_shown_with_their_lines(kernel: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(x):\n    return 1 / x\n\nf2 = f\n")
    text = fail(kernel, f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom mine import f\nf(0)")
    assert f"File {tmp_path}/mine.py:2, in f(x)\n      1 def f(x):\n----> 2     return 1 / x\n\nZero" in text


def test_only_the_lines_of_the_function_that_failed_are_shown(kernel: KernelRecord) -> None:
    code = "a = 1\ndef f():\n    return 1 / 0\nb = 2\ndef g():\n    return f()\ng()"
    text = fail(kernel, code)
    assert "Cell In[1], line 3, in f()\n      2 def f():\n----> 3     return 1 / 0\n\n" in text
    assert "Cell In[1], line 6, in g()\n      5 def g():\n----> 6     return f()\n\n" in text


def test_an_inner_function_belongs_to_its_outer_one(kernel: KernelRecord) -> None:
    text = fail(kernel, "def f():\n    1 / 0\n    def g():\n        pass\nx = 1\nf()")
    assert "----> 2     1 / 0\n      3     def g():\n      4         pass\n\nZero" in text


@pytest.mark.parametrize(
    ("code", "marks"),
    [
        ("def f(n):\n    return f(n + 1)\nf(0)", ["[… this ", " more times …]"]),
        ("def f(n):\n    return g(n)\ndef g(n):\n    return f(n)\nf(0)", ["[… these 2 frames ", " more times …]"]),
        ("def f(n):\n    if n: f(n - 1)\n    else: 1 / 0\nf(50)", ["[… this 49 more times …]"]),
    ],
)
def test_a_recursion_is_shown_once(kernel: KernelRecord, code: str, marks: list[str]) -> None:
    text = fail(kernel, code)
    assert all(mark in text for mark in marks)
    assert len(text) < 900


def test_a_deep_stack_that_does_not_repeat_itself_is_cut_in_the_middle(kernel: KernelRecord) -> None:
    calls = "\n".join(f"def f{n}(): f{n + 1}()" for n in range(40))
    text = fail(kernel, f"{calls}\ndef f40(): 1 / 0\nf0()")
    assert "[… 26 frames cut …]" in text
    assert ", in f40()" in text


@pytest.mark.parametrize(
    "code", ["def f(:\n    pass", "x = (", "  x = 1\n y = 2", "await = 1", "compile('1 +', 'x', 'exec')"]
)
def test_no_value_names_the_file_that_a_cell_is_not(kernel: KernelRecord, code: str) -> None:
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.error is not None
    assert "ipython-input" not in result.error.evalue + result.text


def test_a_syntax_error_is_in_its_cell(kernel: KernelRecord) -> None:
    run(kernel, "pass")
    result = execute(kernel, "x = = 1", timeout=DEADLINE)
    assert result.error is not None
    assert result.error.evalue == "invalid syntax (Cell In[2], line 1)"


HINTS = {
    "pritn('x')": "did you mean 'print'?",
    "value_one = 1\nvalue_two = valu_one": "did you mean 'value_one'?",
    "import math\nmath.squareroot": "",
    "import math\nmath.Pi": "did you mean 'pi'?",
    "[].appendd(1)": "did you mean 'append'?",
    "class A:\n    def __init__(self): self.colour = 1\nA().color": "did you mean 'colour'?",
    "class A:\n    size = 1\nA.sise": "did you mean 'size'?",
    "from math import sqroot": "did you mean 'sqrt'?",
    "import no_such_module_at_all": "%pip install no_such_module_at_all",
    "import json.no_such_part": "",
    "import asyncio\nasync def main(): pass\nc = main()\nasyncio.run(c)": "write `await main()`",
    "zzzzzzzz": "",
    "raise NameError('free text')": "",
    "raise ModuleNotFoundError('free text')": "",
    "raise RuntimeError('other')": "",
    "raise ModuleNotFoundError('x', name='a b; rm -rf /')": "",
}


@pytest.mark.parametrize("code", HINTS)
def test_a_hint_is_the_last_line(kernel: KernelRecord, code: str) -> None:
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.error is not None
    last = result.error.traceback[-1]
    if HINTS[code]:
        assert last.startswith("Hint: ")
        assert HINTS[code] in last
        assert "Hint" not in result.error.evalue
    else:
        assert "Hint" not in result.text


@pytest.mark.parametrize("call", ["asyncio.run(main())", "asyncio.Runner().run(main())"])
def test_a_coroutine_that_asyncio_run_refuses_is_not_told_of_in_a_later_cell(kernel: KernelRecord, call: str) -> None:
    fail(kernel, f"import asyncio, gc\nasync def main(): return 1\n{call}")
    fail(kernel, "1 / 0")  # until then the traceback before is kept
    assert run(kernel, "_ = gc.collect()").stderr == ""


def test_a_coroutine_that_asyncio_run_refuses_can_be_awaited_by_its_name(kernel: KernelRecord) -> None:
    fail(kernel, "import asyncio\nasync def main(): return 1\nrefused = main()\nasyncio.run(refused)")
    assert run(kernel, "await refused").return_value == "1"


def test_ordinary_mistakes_take_little_to_read_whenever_garbage_is_collected(kernel: KernelRecord) -> None:
    def count(before: str) -> int:
        restart(kernel)
        run(kernel, before)
        return sum(len(execute(kernel, code, timeout=DEADLINE).text) for code in MISTAKES)

    counts = {count("import gc; gc.disable()"), count("import gc; gc.set_threshold(10)"), count("pass")}
    assert len(MISTAKES) == 15
    assert len(counts) == 1
    assert max(counts) < 3_200


def test_packages_are_called_as_installers_know_them(kernel: KernelRecord) -> None:
    code = "raise ModuleNotFoundError('no', name='no_such_alias')"
    assert fail(kernel, code).endswith("Hint: if it is a package that you know: %pip install no_such_alias")
    code = "import sys\nsys.modules.pop('polars', None)\nraise ModuleNotFoundError('no', name='polars.exceptions')"
    assert fail(kernel, code).endswith("Hint: %pip install polars")
    code = "import sys\nsys.modules.pop('cv2', None)\nraise ModuleNotFoundError(\"No module named 'cv2'\", name='cv2')"
    assert fail(kernel, code).endswith("Hint: %pip install opencv-python-headless")


def test_looking_for_a_hint_calls_no_code_of_the_user(kernel: KernelRecord) -> None:
    code = """
class Loud:
    def __dir__(self): print('dir'); return ['nam']
    def __getattr__(self, name): raise AttributeError(f'no {name}', name=name, obj=self)
Loud().name
"""
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.status, result.output) == ("error", "")


def test_hostile_names_cost_a_hint_and_nothing_else(kernel: KernelRecord) -> None:
    code = """
class S(str):
    def __eq__(self, other): raise SystemError
    def __hash__(self): raise SystemError
    def lower(self): raise SystemError
    def startswith(self, *_): raise SystemError
error = NameError('x')
error.name = S('pritn')
raise error
"""
    result = execute(kernel, code, timeout=DEADLINE)
    assert (result.status, result.error.ename if result.error else "") == ("error", "NameError")
    assert run(kernel, "1 + 1").return_value == "2"


def test_a_death_says_that_the_variables_are_gone(kernel: KernelRecord) -> None:
    assert fail(kernel, "import os; os._exit(3)").endswith("; its variables are lost")
    assert "its variables are lost" in execute(kernel, "1", timeout=DEADLINE).text


WRITERS = {
    "a warning": ("import warnings\nwarnings.warn('x')", "Cell In[1]:2: UserWarning: x\n  warnings.warn('x')"),
    "a warning of the compiler": ("y = 1 is 1", "Cell In[1]:1: SyntaxWarning"),
    "a coroutine that nobody awaits": ("async def f(): pass\nf(); None", "Cell In[1]:2: RuntimeWarning"),
    "a thread": (
        "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start(); t.join()",
        'File "Cell In[1]", line 2, in <lambda>\n    t = threading.Thread(target=lambda: 1 / 0',
    ),
    "a destructor": (
        "class A:\n    def __del__(self):\n        1 / 0\nA(); None",
        'File "Cell In[1]", line 3, in __del__\n    1 / 0',
    ),
    "a traceback that is printed": (
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()",
        'File "Cell In[1]", line 3, in <module>\n    1 / 0',
    ),
    "a traceback as text": (
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    print(traceback.format_exc())",
        'File "Cell In[1]", line 3, in <module>\n    1 / 0',
    ),
    "a stack": ("import traceback\ntraceback.print_stack(limit=1)", 'File "Cell In[1]", line 2, in <module>'),
    "a log": (
        "import logging\nlogging.basicConfig(format='%(pathname)s|%(filename)s|%(lineno)s')\nlogging.error('')",
        "Cell In[1]|Cell In[1]|3",
    ),
    "a log of an exception": (
        "import logging\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('')",
        'File "Cell In[1]", line 3, in <module>',
    ),
    "a test": (
        "import unittest\nclass T(unittest.TestCase):\n def test(self):\n  1 / 0\nunittest.main(argv='x', exit=False)",
        'File "Cell In[1]", line 4, in test',
    ),
    "a forked process": (
        "import multiprocessing as m\np = m.get_context('fork').Process(target=lambda: 1 / 0)\np.start(); p.join()",
        'File "Cell In[1]", line 2, in <lambda>',
    ),
    "a group of exceptions": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as exc:\n    e = exc\nraise ExceptionGroup('g', [e])",
        'File "Cell In[1]", line 2, in <module>',
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_cell_has_one_name_whatever_writes_it(kernel: KernelRecord, writer: str) -> None:
    code, expected = WRITERS[writer]
    text = execute(kernel, code, timeout=DEADLINE).text
    assert expected in text
    assert "ipython-input" not in text


def test_libraries_know_a_cell_by_the_name_of_its_file(kernel: KernelRecord) -> None:
    run(kernel, "def f():\n    return 1")
    assert value(kernel, "f.__code__.co_filename.startswith('<ipython-input-1-')") == "True"
    assert run(kernel, "import inspect\nprint(inspect.getsource(f))").text == "def f():\n    return 1"


def test_a_thread_that_exits_says_nothing(kernel: KernelRecord) -> None:
    code = "import sys, threading\nt = threading.Thread(target=sys.exit)\nt.start(); t.join()"
    assert run(kernel, code).outputs == []


def test_what_cannot_be_described_is_ignored_aloud_all_the_same(kernel: KernelRecord) -> None:
    code = "class A:\n    def __call__(self): 1 / 0\n    def __repr__(self): 1 / 0\nimport weakref, sys\n"
    code += "class B: pass\nb = B(); r = weakref.ref(b, lambda _: A()())\ndel b"
    assert "ZeroDivisionError: division by zero" in run(kernel, code).text
    hook = "from types import SimpleNamespace as N\n"
    hook += "sys.unraisablehook(N(exc_type=ValueError, exc_value=ValueError('v'), exc_traceback=None, err_msg=None,"
    assert run(kernel, f"{hook} object=A()))").text == ("Exception ignored in: <object repr() failed>\nValueError: v")


def test_threads_and_destructors_fail_in_silence_where_there_is_no_stderr(kernel: KernelRecord) -> None:
    code = "import sys, threading\nclass A:\n    def __del__(self): 1 / 0\nkept, sys.stderr = sys.stderr, None\nA()\n"
    code += "t = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()\nsys.stderr = kept"
    assert run(kernel, code).outputs == []


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("record = {'city': 'Ulm', 'people': 1}\nrecord['ctiy']", "city"),
        ("nested = [{'place': {'city': 'Ulm'}}]\nnested[0]['place']['ctiy']", "city"),
        ("def read(row):\n    return row['poeple']\nread({'people': 1})", "people"),
        ("import pandas as pd\ndf = pd.DataFrame({'city': [1]})\ndf['ctiy']", "city"),
        ("import pandas as pd\npd.DataFrame({'city': [1]}).groupby('ctiy')", "city"),
    ],
)
def test_a_missing_key_suggests_the_one_that_was_meant_once(kernel: KernelRecord, code: str, meant: str) -> None:
    if "pandas" in code:
        pytest.importorskip("pandas")
    text = fail(kernel, code)
    assert text.endswith(f"Hint: did you mean {meant!r}?")
    assert text.count("Hint: ") == 1


def test_a_missing_file_suggests_one_of_the_same_directory(kernel: KernelRecord, tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("3")
    assert fail(kernel, f"open({str(tmp_path / 'price.csv')!r})").endswith(
        f"Hint: did you mean {str(tmp_path / 'prices.csv')!r}?"
    )
    assert fail(kernel, f"import os; os.chdir({str(tmp_path)!r})\nopen('Prices.CSV')").endswith("mean 'prices.csv'?")
    assert "Hint" not in fail(kernel, "open('other')")
    assert "Hint" not in fail(kernel, "open('no-directory/prices.csv')")


def test_a_missing_key_of_an_object_of_the_user_calls_none_of_its_code(kernel: KernelRecord) -> None:
    code = "class Keys(dict):\n    def __iter__(self): print('called'); return iter(['city'])\nKeys(city=1)['ctiy']"
    assert execute(kernel, code, timeout=DEADLINE).output == ""


DOWNLOADS = {
    "urllib": "import urllib.request\nurllib.request.urlopen('https://example.org')",
    "socket": "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)",
    "a copy instead": (
        "import urllib.request\n"
        "try: urllib.request.urlopen('https://example.org')\n"
        "except OSError: open('no-copy.html')"
    ),
}


@pytest.mark.parametrize("download", DOWNLOADS)
def test_a_download_in_a_sandbox_without_network_says_so(home: Path, tmp_path: Path, download: str) -> None:
    kernel = get_or_create("confined", cwd=tmp_path, sandbox=True)
    text = fail(kernel, DOWNLOADS[download])
    assert text.splitlines()[-1].startswith("Hint: this kernel has no network")
    assert text.count("Hint: ") == 1

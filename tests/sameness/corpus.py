"""The cells that must give the same outputs in a plain ipykernel and in ours, grouped in sessions.

A session is a text in the percent format: each `# %%` line starts a cell. What a reader of the cell must know
stands behind the marker and, line by line, behind `# |` below it:

    raises NAME                ipykernel ends the cell with this exception; if nothing is said, with success
    late                       ipykernel sends output after it says idle, so the oracle goes on listening
    differs in FIELD: REASON   we differ on purpose, in exactly these fields: status, count, error, outputs
    from 3.12: CLAUSE          the clause holds from this Python on, in place of an earlier one
    before 3.13: CLAUSE        the clause holds up to this Python

The test fails when a listed difference is gone, so the list stays true. The cells of a session run in one
fresh kernel, in order, in an empty working directory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One cell, and what is known about it."""

    code: str
    raises: str = ""
    late: bool = False
    differs_in: frozenset[str] = frozenset()
    reason: str = ""


@dataclass(frozen=True)
class Session:
    """Cells that share one kernel, and the libraries they import."""

    name: str
    cells: tuple[Cell, ...]
    needs: tuple[str, ...] = ()


_MARKER = re.compile(r"^# %%(?P<first>.*)\n(?P<more>(?:# \|.*\n)*)", re.MULTILINE)
_VERSION = re.compile(r"(?P<side>from|before) (?P<major>\d+)\.(?P<minor>\d+): (?P<clause>.+)")
_DIFFERENCE = re.compile(r"differs in (?P<fields>[a-z, ]+): (?P<reason>.+)")
FIELDS = frozenset({"status", "count", "error", "outputs"})


def session(name: str, text: str, *, needs: tuple[str, ...] = ()) -> Session:
    """Reads a session written in the percent format."""
    return Session(name, tuple(_read_cells(text)), needs)


def _read_cells(text: str) -> Iterator[Cell]:
    _before, *parts = _MARKER.split(text)
    for first, more, code in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        clauses = (clause.removeprefix("# |").strip() for clause in (first, *more.splitlines()))
        yield _annotated(code.rstrip("\n"), [clause for clause in clauses if clause])


def _annotated(code: str, clauses: list[str]) -> Cell:
    raises, late, differs_in, reason = "", False, frozenset[str](), ""
    for clause in clauses:
        if version := _VERSION.fullmatch(clause):
            is_before = sys.version_info[:2] < (int(version["major"]), int(version["minor"]))
            if is_before != (version["side"] == "before"):
                continue
            clause = version["clause"]
        if clause == "late":
            late = True
        elif clause.startswith("raises "):
            raises = clause.removeprefix("raises ")
        elif difference := _DIFFERENCE.fullmatch(clause):
            differs_in, reason = frozenset(difference["fields"].split(", ")), difference["reason"]
            assert differs_in <= FIELDS, clause
        else:
            raise ValueError(f"unknown clause {clause!r} before {code[:40]!r}")
    return Cell(code, raises, late, differs_in, reason)


VALUES = session(
    "the value of an expression of every builtin type is shown as its repr",
    r"""
# %%
1 + 1
# %%
-0.0, 1e300, float('nan'), float('-inf'), 0.1 + 0.2
# %%
3 + 4j
# %%
True
# %%
'text with \'both\' "quotes" and a\nnewline\tand tab'
# %%
b'bytes \x00\xff'
# %%
bytearray(b'abc')
# %%
memoryview(b'abc').nbytes
# %%
[1, 'two', 3.0, None, [4, [5]]]
# %%
()
# %%
(1,)
# %%
{'a': 1, 'b': {'c': [1, 2, {'d': ()}]}}
# %%
{3, 1, 2}
# %%
frozenset({'b', 'a'})
# %%
range(0, 10, 2)
# %%
slice(1, None, 2)
# %%
...
# %%
NotImplemented
# %%
int
# %%
len
# %%
object()
# %%
lambda x: x
# %%
import math
math
# %%
type('Dynamic', (), {'__module__': '__main__'})
# %%
list(range(1200))
# %%
'x' * 5000
# %%
{f'a fairly long key number {i}': list(range(i)) for i in range(30)}
# %%
a = [1]
a.append(a)
a
# %%
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
Counter('mississippi'), OrderedDict(a=1), defaultdict(list, a=[1]), deque([1, 2], maxlen=3)
# %%
namedtuple('Point', 'x y')(1, 2)
# %%
import datetime, decimal, fractions, pathlib, uuid
[datetime.date(2020, 2, 29), datetime.timedelta(days=1, seconds=3), decimal.Decimal('1.10'),
 fractions.Fraction(1, 3), pathlib.PurePosixPath('/a/b'), uuid.UUID(int=7)]
# %%
import enum
class Colour(enum.Enum):
    RED = 1
Colour.RED
# %%
import types
types.SimpleNamespace(a=1, b=[2])
# %%
iter([1]), (i for i in ()), zip(), map(str, [])
# %%
ValueError('not raised', 3)
# %%
10 ** 100
""",
)

SHOWN = session(
    "a cell shows the value of its last expression and nothing else",
    r"""
# %%
None
# %%
1;
# %%
1; 2
# %%
x = 5
# %%
1
2
3
# %%
print('first')
x
# %%
x  # a comment does not hide the value
# %%
x ;  # a semicolon does
# %%
'a ; in a string'
# %%
if x:
    x
# %%
for i in range(3):
    i
# %%
(
    x
    + 1
)
# %%
y: int = 3
# %%
assert x == 5
# %%
[print(i) for i in range(3)]
# %%
print(print('inner'))
# %%

# %%
# only a comment
# %%
pass
# %%
%config InteractiveShell.ast_node_interactivity = 'all'
# %%
1
x
'three'
# %%
%config InteractiveShell.ast_node_interactivity = 'last_expr_or_assign'
# %%
z = 42
# %%
%config InteractiveShell.ast_node_interactivity = 'none'
# %%
z
# %%
%config InteractiveShell.ast_node_interactivity = 'last_expr'
# %%
(w := 8)
# %%
    indented = 'leading blanks are forgiven'
    indented
# %%
>>> prompts = 'are forgiven too'
>>> prompts
# %%
'''a docstring-like

expression'''
""",
)

HISTORY = session(
    "earlier inputs and results can be reached by their names",
    r"""
# %%
'one'
# %%
'two'
# %%
'three'
# %%
_, __, ___
# %%
_2, Out[1], _oh[2]
# %%
In[1:3], _i1
# %%
_i, _ii, _iii
# %%
sorted(Out)
# %%
None
# %%
_
# %%
'hidden from Out';
# %%
_ == 'hidden from Out', 11 in Out
# %%
_ = 'mine'
# %%
'not kept in my _'
# %%
_
# %%
del _
# %%
'kept again'
# %%
_
# %%
len(In), len(_ih)
# %%
%history -n 1-3
# %%
%history -o 1-2
# %%
%history -l 2
# %%
%history -g 'kept *'
# %%
%history -o -g 'hidden from'
# %%
%history -u -l 3 -g "'*o*'"
# %%
%rerun 2
# %%
'again'
# %%
%rerun
# %%
%rerun -g 'kept again'
# %%
[line for _, line, _ in get_ipython().history_manager.get_tail(3, include_latest=True)]
# %% differs in outputs: the text is meant for the next input field, and our caller has none
%recall 1
# %%
%macro greet 1-2
# %%
greet
# %%
print(greet)
# %%
%reset -f out
# %%
Out
# %%
%reset -f
# %%
%who
# %%
get_ipython().execution_count
# %%
_ = 'my own'
# %%
'shown'
# %%
_, __, ___
# %%
del _
# %%
'after it was deleted'
# %%
_, __, ___
# %%
import builtins, gettext
gettext.install('x')
# %%
'while it is a function'
# %%
_('translated'), '_' in globals(), Out[max(Out)]
# %%
del builtins._
# %%
'at last'
# %%
_, __, ___
# %%
get_ipython().last_execution_succeeded, get_ipython().last_execution_result.result
# %% raises ZeroDivisionError
1 / 0
# %%
result = get_ipython().last_execution_result
get_ipython().last_execution_succeeded, result.success, result.error_in_exec, result.info.raw_cell
# %% raises SyntaxError
1 +
# %%
result = get_ipython().last_execution_result
get_ipython().last_execution_succeeded, result.success, type(result.error_before_exec).__name__
# %% raises TraitError
# | differs in error, outputs: ours says which numbers it takes
get_ipython().execution_count = 'one'
# %%
get_ipython().execution_count += 10
# %%
get_ipython().execution_count
""",
)

SYNTAX = session(
    "code that cannot be compiled is refused with the place of the mistake",
    r"""
# %% raises SyntaxError
1 +
# %% raises SyntaxError
print('before')
def f(:
    pass
# %% raises SyntaxError
'unterminated
# %% raises SyntaxError
# | from 3.13: raises _IncompleteInputError
(1, 2
# %% raises SyntaxError
# | from 3.13: raises _IncompleteInputError
'''never closed
# %% raises IndentationError
def f():
return 1
# %% raises IndentationError
if True:
    a = 1
      b = 2
# %% raises IndentationError
# | differs in error, outputs: ours names the cell, ipykernel the tokenizer that its transformers use
if True:
        a = 1
    b = 2
# %% raises TabError
# | from 3.12: differs in error, outputs: ours names the cell, ipykernel the tokenizer that its transformers use
if True:
        a = 1
	b = 2
# %% raises SyntaxError
return 5
# %% raises SyntaxError
yield 5
# %% raises SyntaxError
break
# %% raises SyntaxError
f(a=1, a=2)
# %% raises SyntaxError
print 'hello'
# %% raises SyntaxError
x = 5 = y
# %% raises SyntaxError
f'{1 + }'
# %% raises SyntaxError
nonlocal x
# %% raises SyntaxError
from __future__ import braces
# %% raises SyntaxError
import math as
# %% raises SyntaxError
# | differs in outputs: ours shows the line that raised a SyntaxError at run time with its arrow, as for any exception
eval('1 +')
# %% raises SyntaxError
# | differs in outputs: ours shows the line that raised a SyntaxError at run time with its arrow, as for any exception
exec('a = 1\nb = = 2')
# %% raises SyntaxError
a = 'héllo wörld' ?? 3
# %% differs in outputs: ipykernel compiles the cell three times and warns each time
1 is 1
# %%
# | from 3.12: differs in outputs: ipykernel's transformers tokenize a cell twice, and each time warns
'\d'
# %%
'the kernel goes on'
""",
)

EXCEPTIONS = session(
    "an exception is shown with the user's lines that led to it",
    r"""
# %% raises ZeroDivisionError
1/0
# %% raises NameError
# a comment first

undefined_name
# %% raises ValueError
print('printed before the error')
raise ValueError('with a message')
print('never printed')
# %% raises ValueError
raise ValueError
# %% raises KeyError
{'a': 1}['b']
# %% raises AssertionError
assert 1 == 2, 'they are not equal'
# %% raises ModuleNotFoundError
import no_such_module_here
# %% raises RuntimeError
# | differs in outputs: ipykernel points at the line that the frame has reached by now, ours at the line that raised
try:
    1/0
except ZeroDivisionError as error:
    raise RuntimeError('translated') from error
# %% raises RuntimeError
# | differs in outputs: ipykernel points at the line that the frame has reached by now, ours at the line that raised
try:
    1/0
except ZeroDivisionError:
    raise RuntimeError('while handling')
# %% raises RuntimeError
try:
    1/0
except ZeroDivisionError:
    raise RuntimeError('alone') from None
# %% raises ExceptionGroup
# | differs in outputs: ipykernel prints a group to stderr, ours shows it like any exception
raise ExceptionGroup('several', [ValueError('a'), ExceptionGroup('inner', [TypeError('b')])])
# %%
try:
    raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])
except* ValueError as group:
    print('values', group.exceptions)
except* TypeError as group:
    print('types', group.exceptions)
# %% raises ValueError
error = ValueError('noted')
error.add_note('first note')
error.add_note('second note\nin two lines')
raise error
# %% raises ValueError
raise ValueError('a message\nof three\nlines')
# %% raises ValueError
raise ValueError('ünïcode ☃ 🎉')
# %% raises Custom
class Custom(Exception):
    def __str__(self):
        return 'made by __str__'
raise Custom
# %% raises ValueError
# | differs in error, outputs: ipykernel reports the failure of __str__ in place of the exception
class BrokenStr(Exception):
    def __str__(self):
        raise ValueError('no text')
raise BrokenStr('hidden')
# %% raises RecursionError
def down(n):
    return down(n + 1)
down(0)
# %% raises KeyboardInterrupt
raise KeyboardInterrupt
# %% raises KeyboardInterrupt
raise KeyboardInterrupt('with a message')
# %% raises SystemExit
# | differs in outputs: ours says that the kernel goes on, not to call exit()
import sys
sys.exit(3)
# %% raises SystemExit
# | differs in outputs: ours says that the kernel goes on, not to call exit()
raise SystemExit
# %% raises SystemExit
# | differs in outputs: ours says that the kernel goes on, not to call exit()
sys.exit('a reason')
# %% raises GeneratorExit
raise GeneratorExit('odd')
# %% raises BaseException
raise BaseException('base')
# %% raises StopIteration
next(iter(()))
# %% raises JSONDecodeError
import json
json.loads('{')
# %% raises TypeError
(lambda: 1 + 'a')()
# %% raises ZeroDivisionError
[1 / n for n in (1, 0)]
# %% raises FileNotFoundError
open('no/such/file')
# %% raises UnicodeDecodeError
b'\xff'.decode()
# %%
%xmode Plain
# %% raises ZeroDivisionError
# | differs in outputs: ours has one shape of traceback, whatever %xmode says
1/0
# %%
%xmode Minimal
# %% raises ZeroDivisionError
# | differs in outputs: ours has one shape of traceback, whatever %xmode says
1/0
# %%
%xmode Context
# %%
'the kernel goes on'
""",
)

FRAMES = session(
    "an exception that crosses cells names each cell and line",
    r"""
# %%
def outer(n):
    value = n * 2
    return inner(value)
# %%
def inner(n):
    if n > 2:
        raise ValueError(f'{n} is too much')
    return n
# %%
outer(1)
# %% raises ValueError
outer(2)
# %% raises ValueError
# | differs in outputs: ipykernel points at the line that the frame has reached by now, ours at the line that raised
try:
    outer(3)
except ValueError as error:
    outer(4)
# %%
class Box:
    def __init__(self, size):
        self.size = self.check(size)
    @staticmethod
    def check(size):
        if size < 0:
            raise ValueError('negative')
        return size
    @property
    def bad(self):
        return self.missing
# %% raises ValueError
Box(-1)
# %% raises AttributeError
Box(1).bad
# %% raises RuntimeError
def numbers():
    yield 1
    raise RuntimeError('in a generator')
list(numbers())
# %% raises ZeroDivisionError
sorted([3, 0, 1], key=lambda n: 1 / n)
# %% raises ZeroDivisionError
import functools
def noisy(f):
    @functools.wraps(f)
    def wrapped(*args):
        print('calling', f.__name__)
        return f(*args)
    return wrapped
@noisy
def divide(a, b):
    return a / b
divide(1, 0)
# %% raises RuntimeError
class Guard:
    def __enter__(self):
        return self
    def __exit__(self, *details):
        print('left', details[0].__name__)
with Guard():
    raise RuntimeError('inside with')
# %% raises ZeroDivisionError
exec('a = 1\n1/0')
# %% raises ZeroDivisionError
exec(compile('a = 1\n1/0', 'made_up.py', 'exec'))
# %% raises TypeError
value = outer(
    1,
    2,
)
# %%
import traceback
try:
    outer(5)
except ValueError:
    print(len(traceback.format_exc().splitlines()), traceback.format_exc().splitlines()[-1])
# %%
# | differs in outputs: ipykernel points at the line that the frame has reached by now, ours at the line that raised
try:
    outer(6)
except ValueError:
    get_ipython().showtraceback()
# %%
try:
    outer(6)
except ValueError:
    get_ipython().showtraceback(exception_only=True)
# %% differs in outputs: ours does not advise to call exit(), which would end the kernel
get_ipython().run_cell('raise SystemExit(3)').success
# %% raises ValueError
outer(7)
# %%
%tb
# %%
import sys
sys.last_type, sys.last_value
# %% raises ValueError
import asyncio
async def fail():
    await asyncio.sleep(0)
    raise ValueError('in a coroutine')
await fail()
# %% raises ZeroDivisionError
# | differs in outputs: ipykernel points at the line that the frame has reached by now, ours at the line that raised
import threading
class Carrier(threading.Thread):
    def run(self):
        try:
            1/0
        except Exception as error:
            self.error = error
carrier = Carrier()
carrier.start()
carrier.join()
raise carrier.error
""",
)

TEXT = session(
    "text arrives as it was printed",
    r"""
# %%
print('hello')
# %%
print('no newline', end='')
# %%
print('a', 'b', 3, sep='-', end='!\n')
# %%
print()
# %%
import sys
sys.stdout.write('four')
# %%
sys.stdout.write('quiet\n');
# %%
sys.stdout.writelines(['a\n', 'b\n'])
# %%
print('to stderr', file=sys.stderr)
# %%
print('out'); print('err', file=sys.stderr); print('out again')
# %%
print('flushed', flush=True); print('and not')
# %%
print('ünïcode ☃ 漢字 العربية')
# %%
print('🎉 👩‍👩‍👧 \N{COMBINING ACUTE ACCENT}')
# %%
print('nul \0 bell \a backspace \b form \f vertical \v')
# %%
print('\x1b[31mred\x1b[0m')
# %%
print('progress 1\rprogress 2\rdone')
# %%
print('windows\r\nline')
# %%
print('   leading and trailing   \n\n')
# %% differs in outputs: ours escapes what is not text, so that nothing is lost
print('lone \udc80 surrogate')
# %%
for i in range(2000):
    print(i)
# %%
print('x' * 100_000)
# %%
'é' * 3
# %%
'\x1b[31m'
# %%
'\ud800'
# %%
sys.stdout.isatty(), sys.stderr.isatty(), sys.stdout.encoding.lower(), sys.stdout.writable(), sys.stdout.readable()
# %% differs in outputs: ours are called as CPython calls them
sys.stdout.name, sys.stderr.name
# %% raises TypeError
sys.stdout.write(b'bytes')
# %%
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as caught:
    print('caught')
caught.getvalue()
# %%
with contextlib.redirect_stderr(sys.stdout):
    print('moved', file=sys.stderr)
# %%
from pprint import pprint
pprint({'b': list(range(30)), 'a': 'x' * 90})
# %%
import threading
def say(n):
    print('thread', n)
for n in range(3):
    worker = threading.Thread(target=say, args=(n,))
    worker.start()
    worker.join()
# %%
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(lambda n: n * n, range(5))))
# %% before 3.13: differs in outputs: ours shows the line of the cell, as Python itself does from 3.13
def boom():
    raise ValueError('in a thread')
worker = threading.Thread(target=boom, name='worker')
worker.start()
worker.join()
# %% differs in outputs: ours shows the line of the cell
class Unraisable:
    def __del__(self):
        raise ValueError('in __del__')
unraisable = Unraisable()
del unraisable
# %%
print('a'); display('b'); print('c'); 'd'
# %% raises ValueError
print('a', end=''); print('b', file=sys.stderr, end=''); raise ValueError('c')
""",
)

WARNINGS = session(
    "warnings and log records go to stderr",
    r"""
# %%
import warnings
warnings.warn('take care')
# %%
warnings.warn('take care again', DeprecationWarning)
# %%
def old():
    warnings.warn('old is old', DeprecationWarning, stacklevel=2)
old()
# %%
for i in range(3):
    warnings.warn('once per place')
# %%
for i in range(3):
    warnings.warn('once per place')
# %%
warnings.warn('pending', PendingDeprecationWarning)
# %%
warnings.simplefilter('ignore')
warnings.warn('unseen')
# %% raises UserWarning
warnings.simplefilter('error')
warnings.warn('raised')
# %%
warnings.simplefilter('default')
with warnings.catch_warnings(record=True) as caught:
    warnings.warn('recorded')
len(caught), str(caught[0].message)
# %%
import logging
logging.warning('root warning')
# %%
logging.info('root info is hidden')
# %%
log = logging.getLogger('mine')
log.error('named error')
# %%
try:
    1/0
except ZeroDivisionError:
    log.error('with details: %s', 'given')
# %%
len(logging.getLogger().handlers)
# %%
logging.basicConfig(level='DEBUG', format='%(levelname)s %(message)s', force=True)
log.debug('debug is shown')
# %%
import sys
handler = logging.StreamHandler(sys.stdout)
log.addHandler(handler)
log.propagate = False
log.info('to stdout')
""",
)

DISPLAYS = session(
    "every display class publishes its mime types and metadata",
    r"""
# %%
from IPython.display import *
display(1)
# %%
display(1, 'two', [3])
# %%
display()
# %%
HTML('<b>bold</b>')
# %%
display(HTML('<i>one</i>'), HTML('<i>two</i>', metadata={'isolated': True}))
# %%
Markdown('# title\n*text*')
# %%
Latex(r'$\alpha$')
# %%
Math(r'\frac{1}{2}')
# %%
JSON({'a': [1, None, True], 'b': 'ü'})
# %%
JSON([1, 2], expanded=True, root='top')
# %%
GeoJSON({'type': 'Point', 'coordinates': [1, 2]})
# %%
SVG('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"><rect width="1" height="1"/></svg>')
# %%
Javascript('console.log(1)')
# %%
Javascript('1', lib='https://example.org/a.js', css='https://example.org/a.css')
# %%
Pretty('plain\ntext')
# %%
Code('def f():\n    return 1', language='python')
# %%
import base64
png = base64.b64decode(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')
Image(png)
# %%
Image(png, width=30, height=20, alt='a dot', metadata={'mine': 1})
# %%
Image(png, retina=True)
# %%
Image(png, unconfined=True)
# %%
Image(url='https://example.org/a.png')
# %%
import io
import PIL.Image
buffer = io.BytesIO()
PIL.Image.new('RGB', (4, 3), (200, 30, 40)).save(buffer, 'JPEG')
Image(buffer.getvalue())
# %%
PIL.Image.new('RGB', (4, 3), (200, 30, 40))
# %%
with open('dot.png', 'wb') as file:
    file.write(png)
Image('dot.png')
# %%
Image(url='dot.png', embed=False)
# %% raises NoneType
# | differs in error, outputs: ipykernel calls the error NoneType and shows it once for each format
Image('missing.png')
# %%
FileLink('dot.png')
# %%
FileLink('missing.png')
# %%
import pathlib
pathlib.Path('folder').mkdir()
pathlib.Path('folder', 'a.txt').write_text('a')
FileLinks('folder')
# %%
IFrame('https://example.org', width=200, height=100, x=1)
# %%
print(YouTubeVideo('dQw4w9WgXcQ', width=400)._repr_html_())
# %%
ScribdDocument('71048089', width=800, height=400, start_page=3)
# %%
Audio(data=b'RIFF0000', embed=True)
# %%
Audio(data=[0, 1, 0, -1], rate=8)
# %%
Audio(url='https://example.org/a.wav', autoplay=True)
# %%
Video('https://example.org/a.mp4')
# %%
Video(data=b'0000', mimetype='video/mp4', embed=True)
# %%
ProgressBar(10)
# %%
for step in ProgressBar(2):
    pass
# %%
display({'text/plain': 'raw', 'application/x-mine': {'k': 1}}, raw=True)
# %%
display({'text/plain': 'with metadata', 'text/html': '<p>'}, raw=True, metadata={'text/html': {'a': 1}})
# %%
publish_display_data({'text/plain': 'published'}, metadata={'m': 2})
# %%
display(HTML('<b>only html</b>'), include=['text/html'])
# %%
display(HTML('<b>no html</b>'), exclude=['text/html'])
# %%
display('shown', metadata={'tag': 'x'})
# %%
%config DisplayFormatter.active_types = ['text/plain']
HTML('<b>text only</b>')
# %%
%config DisplayFormatter.active_types = get_ipython().display_formatter.format_types
# %%
display_html('<p>a</p>', raw=True)
display_markdown('*b*', raw=True)
display_latex('$c$', raw=True)
display_pretty('d', raw=True)
display_json({'e': 1}, raw=True)
display_javascript('6', raw=True)
display_svg('<svg/>', raw=True)
display_png(png, raw=True)
# %%
display_html(HTML('<p>object</p>'))
# %%
TextDisplayObject('text')
# %%
DisplayObject(data='abc', metadata={'a': 1})
# %%
HTML('<iframe src="https://example.org"></iframe>')
# %% raises TypeError
HTML(5)
""",
    needs=("PIL",),
)

REPRS = session(
    "objects decide how they are shown, and may fail at it",
    r"""
# %%
class Html:
    def _repr_html_(self):
        return '<b>html</b>'
Html()
# %%
class Many:
    def __repr__(self):
        return 'many'
    def _repr_html_(self):
        return '<p>'
    def _repr_markdown_(self):
        return '*m*', {'meta': 1}
    def _repr_latex_(self):
        return '$l$'
    def _repr_json_(self):
        return {'j': 1}
    def _repr_svg_(self):
        return '<svg/>'
    def _repr_javascript_(self):
        return '1'
Many()
# %%
display(Many(), include=['text/latex', 'text/plain'])
# %%
class Binary:
    def _repr_png_(self):
        return b'\x89PNG\r\n\x1a\n'
    def _repr_jpeg_(self):
        return b'\xff\xd8\xff'
    def _repr_pdf_(self):
        return b'%PDF-1.4'
Binary()
# %%
class WithMetadata:
    def _repr_png_(self):
        return b'\x89PNG\r\n\x1a\n', {'width': 10}
WithMetadata()
# %%
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        data = {'text/plain': 'bundle', 'application/vnd.mine+json': {'a': [1]}}
        return data, {'application/vnd.mine+json': {'m': 1}}
Bundle()
# %%
class BundleOnly:
    def _repr_mimebundle_(self, **kwargs):
        return {'text/html': '<p>only'}
BundleOnly()
# %%
class Own:
    def _ipython_display_(self):
        print('I show myself')
Own()
# %%
display(Own(), 'after')
# %%
_
# %%
class NoneHtml:
    def _repr_html_(self):
        return None
NoneHtml()
# %%
class Pretty:
    def _repr_pretty_(self, p, cycle):
        with p.group(2, 'Pretty(', ')'):
            p.pretty([1, 2])
Pretty()
# %% raises NoneType
# | differs in error: ipykernel calls the error NoneType
class BrokenRepr:
    def __repr__(self):
        raise ValueError('no repr')
BrokenRepr()
# %%
display(BrokenRepr())
# %% raises NoneType
# | differs in error: ipykernel calls the error NoneType
[BrokenRepr()]
# %% raises NoneType
# | differs in error: ipykernel calls the error NoneType
print('printed'); BrokenRepr()
# %% raises ValueError
print(BrokenRepr())
# %% raises NoneType
# | differs in error, outputs: ipykernel calls the error NoneType; in ours the error ends the result
class BrokenHtml:
    def __repr__(self):
        return 'has a repr'
    def _repr_html_(self):
        raise TypeError('no html')
BrokenHtml()
# %% raises NoneType
# | differs in error, outputs: ipykernel calls the error NoneType; in ours the error ends the result
class BrokenBundle:
    def _repr_mimebundle_(self, **kwargs):
        raise KeyError('no bundle')
BrokenBundle()
# %% raises NoneType
# | differs in error, outputs: ipykernel calls the error NoneType; in ours the error ends the result
class BrokenDisplay:
    def _ipython_display_(self):
        raise RuntimeError('no display')
BrokenDisplay()
# %% raises NoneType
# | differs in error: ipykernel calls the error NoneType
class WrongType:
    def __repr__(self):
        return 5
WrongType()
# %%
class WrongHtml:
    def _repr_html_(self):
        return 5
WrongHtml()
# %%
class Chatty:
    def __repr__(self):
        print('while asked')
        return 'chatty'
Chatty()
# %%
class Multiline:
    def __repr__(self):
        return 'a\nb'
[Multiline(), Multiline()]
# %%
class Meta(type):
    def __repr__(cls):
        return 'from the metaclass'
class Made(metaclass=Meta):
    pass
Made
# %%
class AnyAttribute:
    def __getattr__(self, name):
        return lambda *args, **kwargs: name
AnyAttribute()
# %%
class Plain:
    pass
formatter = get_ipython().display_formatter.formatters
formatter['text/plain'].for_type(Plain, lambda obj, p, cycle: p.text('registered'))
formatter['text/html'].for_type(Plain, lambda obj: '<b>registered</b>')
Plain()
# %%
import dataclasses
@dataclasses.dataclass
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list)
Point(1, [2])
# %%
text = get_ipython().display_formatter.formatters['text/plain']
12, 'two\nlines\u2028\x1c', b'bytes'
# %%
12
# %%
'two\\nlines\u2028\x1c \ud800 \U0001f600' * 30
# %%
10**4000 % 7, 10**600
# %%
10**600
# %%
10**2000
# %%
text.for_type(int, lambda obj, p, cycle: p.text(f'<{obj:x}>'))
12
# %%
True
# %%
text.type_printers.pop(int)
12
# %%
text.type_printers.pop(str)
'x'
# %%
text.for_type(object, lambda obj, p, cycle: p.text('an object'))
b'x'
# %%
text.singleton_printers[id(7)] = lambda obj, p, cycle: p.text('seven')
7
# %%
text.enabled = False
b'x'
# %%
text.enabled = True
%precision 3
# %%
3.14159265, [2.71828]
# %%
%precision
# %%
%pprint
# %%
{'b': 1, 'a': list(range(40))}
# %%
%pprint
# %%
get_ipython().display_formatter.active_types
""",
)

HANDLES = session(
    "displays can be updated and cleared",
    r"""
# %%
from IPython.display import *
handle = display('first', display_id='mine')
# %%
handle.update('second')
# %%
handle, handle.display_id
# %%
auto = display(HTML('<b>auto</b>'), display_id=True)
# %%
auto.update(HTML('<b>changed</b>'))
# %%
update_display('third', display_id='mine')
# %%
display('fourth', display_id='mine', update=True)
# %%
handle.display('fifth')
# %%
print('a')
handle.update('between')
print('b')
# %%
new = DisplayHandle()
new.display(Markdown('*x*'))
new.update({'text/plain': 'raw'}, raw=True)
# %% raises TypeError
update_display('no id')
# %%
print('gone')
clear_output()
print('stays')
# %%
print('replaced')
clear_output(wait=True)
print('by this')
# %%
print('kept, because nothing follows')
clear_output(wait=True)
# %%
for i in range(3):
    clear_output(wait=True)
    display(i)
# %%
display('gone too')
clear_output()
# %%
print('a'); clear_output(wait=True); 'value'
# %% raises ValueError
print('a'); clear_output(wait=True); raise ValueError('shown')
# %%
display(1, display_id='x'); display(2, display_id='x')
""",
)

NAMESPACE = session(
    "a fresh kernel's namespace holds what a notebook's holds",
    r"""
# %%
%who
# %%
sorted(globals())
# %%
__name__, __doc__, __package__, __spec__
# %% raises NameError
__file__
# %%
import sys
sys.modules['__main__'].__dict__ is globals(), vars() is globals()
# %%
%who_ls
# %%
import __main__
value = 7
__main__.value, __main__.__name__, hasattr(__main__, '__file__')
# %%
x, text, items, mapping = 1, 'abc', [1, 2], {'k': 1}
def function(a, b=2, *args, c, **kw):
    'A docstring.'
    return a
class Thing:
    'A thing.'
# %%
%who
# %%
%whos
# %%
%who int
# %%
%who_ls str
# %%
%xdel x
# %% raises NameError
x
# %%
%reset_selective -f items
# %%
'items' in globals()
# %%
Thing.__module__, function.__module__, function.__qualname__, Thing
# %%
import inspect
print(inspect.getsource(function))
# %% raises OSError
print(inspect.getsource(Thing))
# %%
inspect.signature(function), inspect.getdoc(function), inspect.getsourcelines(function)[1]
# %%
import pickle
pickle.loads(pickle.dumps(Thing())).__class__ is Thing, pickle.loads(pickle.dumps(function)) is function
# %%
class Thing:
    'Defined again.'
pickle.loads(pickle.dumps(Thing)) is Thing
# %%
import copy
copy.deepcopy({'thing': Thing})
# %%
def counter():
    global total
    total = globals().get('total', 0) + 1
    return total
counter(), counter()
# %%
total
# %%
print = 'shadowed'
# %%
del print
print('back')
# %%
import builtins
builtins.print is print, __builtins__ is builtins, builtins.display, builtins.get_ipython is not None
# %%
import contextvars
variable = contextvars.ContextVar('variable', default='default')
variable.set('changed')
# %%
variable.get()
# %%
import typing
typing.get_type_hints(counter), counter.__annotations__
# %%
from __future__ import annotations
def annotated(a: Undefined) -> None: ...
annotated.__annotations__
# %%
def later(a: int): ...
later.__annotations__
# %% differs in outputs: ipykernel shows its own command line there
sys.argv[1:] == [], type(sys.argv)
# %%
'' in sys.path
# %%
type(sys.stdin), sys.flags.interactive, hasattr(sys, 'ps1')
# %%
import signal
signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
# %%
signal.signal(signal.SIGINT, signal.SIG_DFL), signal.getsignal(signal.SIGINT)
# %%
signal.getsignal(signal.SIGINT)
# %%
import threading
threading.current_thread() is threading.main_thread(), threading.current_thread().name
# %%
%reset -f
# %%
%who
# %%
sorted(name for name in globals() if not name.startswith('_'))
""",
)

FILES = session(
    "magics work with files and directories",
    r"""
# %%
%pwd
# %%
import os
os.getcwd() == _
# %%
pwd
# %%
cd .
# %%
%mkdir sub
# %%
%cd sub
# %%
%cd ..
# %%
%cd -q sub
# %%
os.path.basename(os.getcwd())
# %%
%cd -
# %%
%cd no_such_directory
# %%
%pushd sub
# %%
%dirs
# %%
%popd
# %%
%dhist
# %%
%bookmark here
# %%
%bookmark -l
# %%
%%writefile module.py
'A module.'
CONSTANT = 1
def f(n):
    return 1 / n
# %%
%%writefile -a module.py
EXTRA = 2
# %%
print(open('module.py').read())
# %%
import module
module.CONSTANT, module.EXTRA
# %% raises ZeroDivisionError
module.f(0)
# %%
%load_ext autoreload
# %%
%autoreload 2
# %%
with open('module.py', 'w') as file:
    file.write('CONSTANT = 99\ndef f(n):\n    return "reloaded"\n')
os.utime('module.py', (2_000_000_000, 2_000_000_000))
# %%
module.CONSTANT, module.f(0)
# %%
%load_ext autoreload
# %%
%reload_ext autoreload
# %% raises ModuleNotFoundError
# | differs in outputs: ours shows the line as the user wrote it, ipykernel what it was turned into
%load_ext no_such_extension
# %%
%%writefile script.py
import sys
print('script', __name__, sys.argv[1:])
made_by_script = 5
# %%
%run script.py one 'two three'
# %%
made_by_script, __name__
# %%
%run -n script
# %%
%%writefile showing.py
import builtins, gettext
gettext.install('x')
print(_('translated'), type(__builtins__), __builtins__ is vars(builtins))
display(get_ipython().ev('1 + 1'))
# %%
%run showing.py
# %%
get_ipython().safe_execfile('showing.py', {})
del builtins._
# %%
%%writefile failing.py
def go():
    raise ValueError('from a file')
go()
# %%
%run failing.py
# %% raises Exception
# | differs in outputs: ours shows the line as the user wrote it, ipykernel what it was turned into
%run missing.py
# %%
%%writefile script.ipy
%who_ls str
!echo from a shell
# %%
%run script.ipy
# %%
%env SAMENESS=1
# %%
%env SAMENESS
# %%
%set_env SAMENESS=2
# %%
os.environ['SAMENESS']
# %% raises UsageError
%env NO_SUCH_VARIABLE
# %%
%save saved.py 1-2
# %%
print(open('saved.py').read())
# %% differs in outputs: the text is meant for the next input field; our caller has none, and sees it
%load saved.py
# %%
# | differs in outputs: ipykernel runs commands in a pseudo-terminal, which columns and colours are for; ours in none
%ls
# %%
sorted(os.listdir()), os.listdir("sub")
# %%
%cat saved.py
# %%
%%file note.txt
note
# %%
%rm note.txt
# %%
%alias say echo said %s
# %%
%say something
# %%
%unalias say
# %%
%alias_magic here pwd
# %%
%here
""",
)

MAGICS = session(
    "magics measure, capture and configure",
    r"""
# %%
%time 1 + 1
# %%
%time x = 1
# %%
%%time
y = 2
print('timed')
y
# %% raises ZeroDivisionError
# | differs in outputs: ours shows the line as the user wrote it, ipykernel what it was turned into
%%time
1/0
# %%
%timeit -n 1 -r 1 pass
# %%
%%timeit -n 2 -r 3
pass
# %%
result = %timeit -n 1 -r 1 -q -o pass
result.loops, result.repeat
# %%
%%capture caught
print('captured')
import sys
print('error', file=sys.stderr)
display('shown')
'value'
# %%
caught.stdout, caught.stderr, len(caught.outputs)
# %%
caught.show()
# %%
%%capture --no-stderr out
print('hidden')
print('not hidden', file=sys.stderr)
# %%
%%capture
print('before')
1/0
# %% raises ValueError
# | differs in outputs: ours shows the line as the user wrote it, ipykernel what it was turned into
%config InteractiveShell.cache_size
# %%
%config NoSuchThing.x = 1
# %% raises UsageError
%magic_that_is_not_there
# %% raises UsageError
%%cell_magic_that_is_not_there
text
# %%
%autocall
# %% differs in outputs: ipykernel transforms the cell twice and shows the line each time
len [1, 2]
# %%
%autocall
# %%
who_ls int
# %%
time = 'a name is no magic'
# %%
time
# %%
del time
# %%
%automagic
# %% raises NameError
who_ls
# %%
%automagic
# %%
from IPython.core.magic import register_line_magic, register_cell_magic
@register_line_magic
def twice(line):
    return line * 2
@register_cell_magic
def shout(line, cell):
    print(line, cell.upper())
# %%
%twice ab
# %%
v = %twice cd
v
# %%
%%shout hey
quiet text
# %%
%%html
<b>html</b>
# %%
%%html --isolated
<p>isolated</p>
# %%
%%javascript
console.log(1)
# %%
%%js
1
# %%
%%latex
$\alpha$
# %%
%%markdown
*text*
# %%
%%svg
<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>
# %%
of_a_front_end = {'autosave', 'connect_info', 'qtconsole', 'subshell'}
sorted(set(get_ipython().magics_manager.magics['line']) - of_a_front_end)
# %%
sorted(set(get_ipython().magics_manager.magics['line']) & of_a_front_end)
# %%
sorted(get_ipython().magics_manager.magics['cell'])
# %%
%matplotlib --list
# %%
%logstate
# %% raises UsageError
%colors
# %%
%doctest_mode
# %%
%doctest_mode
# %%
ip = get_ipython()
ip.run_line_magic('twice', 'z')
# %%
ip.run_cell_magic('shout', 'x', 'y')
# %%
inner = ip.run_cell('print("inner"); 5')
inner.result, inner.success
# %%
ip.run_cell('1/0').error_in_exec
# %%
ip.ev('1 + 1'), ip.user_ns is globals()
# %%
ip.push({'pushed': 3})
pushed
# %%
seen = []
def note(*args):
    seen.append(type(args[0]).__name__ if args else 'nothing')
for event in ('pre_execute', 'pre_run_cell', 'post_execute', 'post_run_cell'):
    ip.events.register(event, note)
# %%
seen
# %%
for event in ('pre_execute', 'pre_run_cell', 'post_execute', 'post_run_cell'):
    ip.events.unregister(event, note)
# %%
def broken():
    raise ValueError('in a hook')
ip.events.register('post_execute', broken)
# %%
'with a broken hook'
# %%
ip.events.unregister('post_execute', broken)
ip.events.register('pre_execute', broken)
# %%
'with a hook that is broken before'
# %%
ip.events.unregister('pre_execute', broken)
# %%
def replace(lines):
    return [line.replace('@@', '42') for line in lines]
ip.input_transformers_cleanup.append(replace)
# %%
@@
# %%
ip.input_transformers_cleanup.remove(replace)
# %%
import ast
class Negate(ast.NodeTransformer):
    def visit_Constant(self, node):
        return ast.copy_location(ast.Constant(-node.value), node) if type(node.value) is int else node
negate = Negate()
ip.ast_transformers.append(negate)
# %%
5
# %%
ip.ast_transformers.remove(negate)
# %%
def handle(shell, etype, value, tb, tb_offset=None):
    print('handled', etype.__name__)
ip.set_custom_exc((KeyError,), handle)
# %% raises KeyError
# | differs in outputs: ours says what was raised even if a handler of the user's was called
{}['a']
# %%
sys.displayhook is ip.displayhook, sys.excepthook is not None
# %%
from IPython.utils.capture import capture_output
with capture_output() as c:
    print('quiet')
    display(1)
c.stdout, len(c.outputs)
# %%
%%script cat
piped to cat
# %%
%%prun -q -T profile.txt
sum(range(10))
""",
)

HELP = session(
    "help is found",
    r"""
# %%
def documented(a, b=1):
    '''Adds.

    With a second paragraph.'''
    return a + b
# %% differs in outputs: ours names no file, because a cell is in none
documented?
# %% differs in outputs: ours names no file, because a cell is in none
documented??
# %% differs in outputs: ours names no file, because a cell is in none
?documented
# %% differs in outputs: ours names no file, because a cell is in none
%pinfo documented
# %% differs in outputs: without colours IPython ends the line elsewhere
%pdef documented
# %%
%pdoc documented
# %%
%psource documented
# %%
no_such_name?
# %%
%pdef no_such_name
# %%
str.upp*?
# %%
help(documented)
# %%
print(documented.__doc__)
# %%
%psearch documented*
# %%
len?
# %%
%%writefile shown.py
SHOWN = 1
# %%
%pycat shown.py
# %%
%less shown.py
# %%
%%writefile shown.txt
shown
# %%
%more shown.txt
# %% raises UsageError
%less
# %% raises FileNotFoundError
# | differs in outputs: ours shows the line as the user wrote it, ipykernel what it was turned into
%more missing.txt
# %%
%page documented
# %%
get_ipython().object_inspect('documented')['docstring']
# %%
sorted(get_ipython().object_inspect('len'))
# %%
get_ipython().Completer.__class__.__name__
# %%
import rlcompleter
rlcompleter.Completer(globals()).complete('documen', 0)
""",
)

SHELL = session(
    "shell commands run and their output is shown or kept",
    r"""
# %%
!echo hello
# %%
files = !printf 'a\nb\n'
files
# %%
files.s, files.n, type(files).__name__
# %%
!!echo kept
# %%
%sx echo sx
# %%
%system echo system
# %%
name = 'world'
!echo hello $name {1 + 1} {name.upper()}
# %%
!echo $$ | grep -c .
# %%
!echo '$name' "{name}"
# %%
# | differs in outputs: ipykernel's pseudo-terminal mixes a command's stderr into its stdout; ours keeps them apart
!echo to stderr >&2
# %%
!exit 3
# %%
_exit_code
# %%
# | differs in outputs: ipykernel's pseudo-terminal mixes a command's stderr into its stdout; ours keeps them apart
!no_such_command_at_all
# %%
_exit_code
# %%
if True:
    !echo indented
# %%
def run():
    !echo in a function
run()
# %% differs in outputs: ours sets _exit_code for a captured command too
result = !false
result, _exit_code
# %%
%%bash
echo one
for i in 1 2; do echo "loop $i"; done
# %%
%%sh
echo from sh
# %%
%%bash
echo to stderr >&2
# %% raises CalledProcessError
# | differs in outputs: ours shows the line as the user wrote it, ipykernel what it was turned into
%%bash
echo before
exit 3
# %%
%%bash --no-raise-error
exit 3
# %%
%%bash --out captured
echo kept
# %%
captured
# %%
%%bash -s first second
echo $2
# %%
%%script bash
echo scripted
# %%
%%python3
import sys
print('another python')
print('its stderr', file=sys.stderr)
# %%
%%script --no-raise-error false
text
# %%
%%script no_such_program
text
# %%
!for i in 1 2 3; do echo $i; done
# %%
!printf 'no newline'
# %%
!printf 'ünïcode ☃\n'
# %%
!cat /dev/null
# %%
lines = !echo a; echo b
[line.upper() for line in lines]
# %%
!cd / && pwd
# %%
import os
os.getcwd() == '/'
# %%
%%!
echo cell
echo magic
# %%
!seq 1 500 | tail -n 2
# %%
!sleep 0.1 && echo waited
# %%
get_ipython().system('echo by method')
# %%
get_ipython().getoutput('echo got')
# %%
get_ipython().getoutput('echo got', split=False)
# %%
os.environ['SAMENESS_VALUE'] = 'seen by the shell'
!echo $SAMENESS_VALUE
# %%
# | differs in outputs: ipykernel runs commands in a pseudo-terminal, which columns and colours are for; ours in none
!python -c "import sys; print(sys.stdout.isatty())"
""",
)

ASYNC = session(
    "async code runs at the top level and goes on between cells",
    r"""
# %%
import asyncio
await asyncio.sleep(0)
# %%
await asyncio.sleep(0, result='a value')
# %%
async def double(n):
    await asyncio.sleep(0.001)
    return n * 2
await double(4)
# %%
await asyncio.gather(double(1), double(2))
# %%
[await double(n) for n in range(3)]
# %%
async def numbers():
    for n in range(3):
        yield n
        await asyncio.sleep(0)
async for n in numbers():
    print(n)
# %%
[n async for n in numbers()]
# %%
import contextlib
@contextlib.asynccontextmanager
async def opened():
    print('open')
    yield 'inside'
    print('close')
async with opened() as value:
    print(value)
# %%
steps = []
async def work():
    for n in range(3):
        steps.append(n)
        await asyncio.sleep(0.01)
    return 'finished'
task = asyncio.create_task(work())
# %%
await task
# %%
steps, task.done(), task.result()
# %%
event = asyncio.Event()
waiter = asyncio.ensure_future(event.wait())
# %%
event.set()
await waiter
# %%
future = asyncio.get_running_loop().create_future()
asyncio.get_running_loop().call_later(0.01, future.set_result, 'called later');
# %%
await future
# %%
asyncio.get_running_loop() is asyncio.get_event_loop(), asyncio.get_running_loop().is_running()
# %% raises RuntimeError
unwanted = double(1)
asyncio.run(unwanted)
# %%
unwanted.close()
# %%
coroutine = double(5)
type(coroutine).__name__
# %%
await coroutine
# %% raises TimeoutError
# | differs in outputs: ipykernel points at the line that the frame has reached by now, ours at the line that raised
async with asyncio.timeout(0.01):
    await asyncio.sleep(5)
# %% raises TimeoutError
await asyncio.wait_for(asyncio.sleep(5), 0.01)
# %% raises ExceptionGroup
# | differs in outputs: ipykernel prints a group to stderr, ours shows it like any exception
async def bad():
    raise ValueError('in a task')
async with asyncio.TaskGroup() as group:
    group.create_task(bad())
# %% raises CancelledError
cancelled = asyncio.ensure_future(asyncio.sleep(5))
cancelled.cancel()
await cancelled
# %%
x = 1
await asyncio.sleep(0)
x
# %%
def sync():
    return asyncio.get_running_loop().is_running()
sync()
# %%
await asyncio.to_thread(lambda: 'from a thread')
# %%
process = await asyncio.create_subprocess_exec('echo', 'sub', stdout=asyncio.subprocess.PIPE)
(await process.communicate())[0]
# %%
import contextvars
variable = contextvars.ContextVar('variable', default='unset')
variable.set('set with await')
await asyncio.sleep(0)
variable.get()
# %% differs in outputs: ipykernel forgets what a cell with await has set; in ours all cells share a context
variable.get()
# %% differs in outputs: as above
await asyncio.sleep(0)
variable.get()
# %%
%autoawait
# %%
%autoawait False
# %% raises SyntaxError
await double(1)
# %%
%autoawait True
# %%
await double(6)
# %%
queue = asyncio.Queue()
async def producer():
    for n in range(2):
        await queue.put(n)
feeding = asyncio.create_task(producer())
# %%
await queue.get(), await queue.get()
# %%
async def announce():
    await gate.wait()
    print('printed by a task of an earlier cell')
gate = asyncio.Event()
announcing = asyncio.create_task(announce())
# %% differs in outputs: ipykernel gives it to the earlier cell, whose result our caller already has
gate.set()
await announcing
# %%
print('the last cell')
""",
)

LANGUAGE = session(
    "the language works as in a file",
    r"""
# %%
def outer():
    count = 0
    def inner():
        nonlocal count
        count += 1
        return count
    return inner
step = outer()
step(), step()
# %%
def decorator(f):
    return lambda *a: ('decorated', f(*a))
@decorator
def g(n):
    return n
g(1)
# %%
import dataclasses
@dataclasses.dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0
sorted([Version(2), Version(1, 5)])
# %% raises FrozenInstanceError
Version(1).major = 2
# %%
def gen():
    received = yield 1
    print('received', received)
    yield 2
it = gen()
next(it), it.send('x')
# %%
def describe(value):
    match value:
        case {'kind': str(kind), **rest}:
            return kind, rest
        case [first, *others] if others:
            return first, others
        case Version(major=m):
            return m
        case _:
            return 'other'
describe({'kind': 'a', 'b': 1}), describe([1, 2, 3]), describe(Version(4)), describe(0)
# %%
if (n := len('walrus')) > 3:
    print(n)
# %%
(lambda a, /, b, *, c=3: (a, b, c))(1, 2)
# %%
first, *middle, last = range(5)
middle
# %%
{**{'a': 1}, 'b': 2}, [*range(2), *'ab']
# %%
f'{n!r:>5} {n=} {3.14159:.2f} {"nested"}'
# %%
class Base:
    def __init_subclass__(cls, **kw):
        print('subclass', cls.__name__, kw)
class Child(Base, flag=True):
    __slots__ = ('a',)
# %%
class Descriptor:
    def __set_name__(self, owner, name):
        self.name = name
    def __get__(self, instance, owner):
        return self.name
class Owner:
    attribute = Descriptor()
Owner().attribute
# %%
import abc
class Abstract(abc.ABC):
    @abc.abstractmethod
    def method(self): ...
# %% raises TypeError
Abstract()
# %%
import typing
class Movie(typing.TypedDict):
    name: str
T = typing.TypeVar('T')
class Stack(typing.Generic[T]): ...
Movie(name='x'), Stack[int], list[int], int | None
# %%
import functools, itertools
functools.reduce(lambda a, b: a * b, range(1, 6)), list(itertools.pairwise('abc'))
# %%
@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
fib(80), fib.cache_info()
# %%
try:
    x = 1
except ValueError:
    pass
else:
    print('else')
finally:
    print('finally')
# %%
for i in range(2):
    pass
else:
    print('no break')
i
# %%
while True:
    break
# %%
def variadic(*args, **kwargs):
    return args, kwargs
variadic(1, *[2], a=3, **{'b': 4})
# %%
del x
'x' in globals()
# %%
import random
random.seed(1)
random.random(), random.randint(0, 9)
# %%
with open('f.txt', 'w') as f:
    f.write('a\nb\n')
f.closed, open('f.txt').readlines()
# %%
import re
re.match(r'(\w)(?P<n>\d)', 'a1')
# %%
eval('1 + 1'), exec('made = 3'), made
# %%
__import__('math').pi
# %%
type(Version).__name__, Version.__mro__, callable(g)
# %%
import sys
sys.getrecursionlimit()
# %%
locals() is globals()
# %%
def h():
    '''Doc.

    >>> h()
    1
    '''
    return 1
import doctest
doctest.testmod(sys.modules['__main__'], verbose=False)
# %%
import unittest
class Case(unittest.TestCase):
    def test_it(self):
        self.assertEqual(h(), 1)
outcome = unittest.main(argv=['x'], exit=False, verbosity=0).result
outcome.wasSuccessful()
# %%
import this
""",
)

PROCESSES = session(
    "output written below Python's streams is captured",
    r"""
# %% late
import os
os.write(1, b'straight to descriptor 1\n');
# %% late
os.write(2, b'straight to descriptor 2\n');
# %% late
os.system('echo from os.system');
# %% late
import subprocess
subprocess.run(['echo', 'inherited stdout']).returncode;
# %% late
subprocess.run('echo inherited stderr >&2', shell=True).returncode;
# %%
subprocess.run(['echo', 'piped'], capture_output=True, text=True).stdout
# %%
subprocess.check_output('echo out; echo err >&2', shell=True, stderr=subprocess.STDOUT)
# %% raises CalledProcessError
subprocess.run(['false'], check=True)
# %% raises FileNotFoundError
subprocess.run(['no_such_program'])
# %% late
import ctypes
libc = ctypes.CDLL(None)
libc.puts(b'from C')
libc.fflush(None);
# %%
os.popen('echo from popen').read()
# %%
import multiprocessing
def square(n):
    return n * n
with multiprocessing.get_context('fork').Pool(2) as pool:
    print(pool.map(square, range(5)))
# %%
queue = multiprocessing.get_context('fork').Queue()
def put(queue):
    queue.put('from a child')
child = multiprocessing.get_context('fork').Process(target=put, args=(queue,))
child.start()
print(queue.get(timeout=20))
child.join()
child.exitcode
# %% raises ZeroDivisionError
def divide(n):
    return 1 / n
with multiprocessing.get_context('fork').Pool(1) as pool:
    pool.map(divide, [0])
# %%
# | from 3.12: differs in outputs: Python warns of ipykernel's threads; the thread of a kernel is ready for a fork
pid = os.fork()
if pid == 0:
    os._exit(7)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
# %%
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork')) as executor:
    print(executor.submit(square, 9).result())
# %% late
print('from Python', flush=True)
subprocess.run(['echo', 'from a child']);
# %% late
os.write(1, 'ünïcode ☃\n'.encode());
# %% late
os.write(1, b'not utf-8: \xff\n');
# %% late
import sys
sys.__stdout__.write('the original stdout\n')
sys.__stdout__.flush()
# %% differs in outputs: ours wants the stack of a crash
import faulthandler
faulthandler.is_enabled()
# %%
import time
started = time.monotonic()
time.sleep(0.01)
time.monotonic() > started
# %%
os.get_terminal_size.__name__, os.environ.get('COLUMNS')
# %% raises OSError
os.get_terminal_size()
# %% raises StdinNotImplementedError
# | differs in error, outputs: ours says what to do instead
input('name? ')
# %% raises StdinNotImplementedError
# | differs in error, outputs: ours says what to do instead
import getpass
getpass.getpass()
# %%
sys.stdin.read()
# %%
'the kernel goes on'
""",
)

NUMPY = session(
    "numpy arrays are shown as numpy shows them",
    r"""
# %%
import numpy as np
np.arange(6).reshape(2, 3)
# %%
np.array([1.5, np.nan, np.inf])
# %%
np.float64(1.5), np.int32(3), np.bool_(True)
# %%
np.zeros((1000, 1000))
# %%
np.array(['a', 'bc'])
# %%
np.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')])
# %%
np.random.default_rng(1).normal(size=3)
# %%
np.random.seed(1)
np.random.rand(2)
# %%
print(np.eye(2))
# %%
np.array([1, 2]) / 0
# %% raises ValueError
np.zeros(2) + np.zeros(3)
# %% raises LinAlgError
np.linalg.inv(np.zeros((2, 2)))
# %%
%precision 2
# %%
np.array([3.14159, 2.71828]), 3.14159
# %%
np.set_printoptions(precision=1)
np.array([3.14159])
# %%
np.dtype('f8'), np.ma.masked_array([1, 2], [True, False])
""",
    needs=("numpy",),
)

PANDAS = session(
    "pandas objects are shown as tables",
    r"""
# %%
import pandas as pd
frame = pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': [0.5, float('nan')]})
frame
# %%
frame['a']
# %%
frame.describe()
# %%
display(frame.head(1), frame.dtypes)
# %%
print(frame)
# %%
frame.info()
# %%
pd.DataFrame({'n': range(200)})
# %%
pd.DataFrame({f'column {i}': range(2) for i in range(40)})
# %%
pd.DataFrame()
# %%
frame.groupby('b').sum()
# %%
frame.style.format(precision=1).highlight_max(subset=['a'])
# %%
pd.date_range('2020-01-01', periods=3)
# %%
pd.Series([1, 2], name='s', index=['x', 'y'])
# %%
pd.DataFrame({'html': ['<b>escaped</b> & "quoted"']})
# %%
pd.concat({'left': frame, 'right': frame}, axis=1)
# %% raises KeyError
frame['missing']
# %%
pd.options.display.max_rows = 4
pd.DataFrame({'n': range(10)})
# %%
with pd.option_context('display.html.table_schema', True):
    display(frame)
# %%
pd.options.display.notebook_repr_html, pd.get_option('display.width'), pd.get_option('display.max_columns')
# %%
frame.to_csv('frame.csv', index=False)
pd.read_csv('frame.csv')
# %%
pd.Categorical(['a', 'b']), pd.Timestamp('2020-01-01'), pd.NA, pd.NaT
# %%
frame[frame.a > 1]['c'] = 5
""",
    needs=("jinja2", "pandas"),
)

PLOTS = session(
    "figures are shown as images",
    r"""
# %%
import matplotlib
matplotlib.get_backend()
# %%
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
# %%
plt.plot([1, 2]);
# %%
plt.plot([3, 1])
plt.show()
# %%
print('before')
plt.plot([1])
plt.show()
print('after')
# %%
plt.figure(); plt.plot([1])
plt.figure(); plt.plot([2])
None
# %%
fig, ax = plt.subplots(figsize=(2, 1))
ax.plot([1, 2])
fig
# %%
fig
# %%
fig, ax = plt.subplots()
plt.close(fig)
# %%
plt.get_fignums()
# %%
ax.set_title('changed later')
display(fig)
# %%
import numpy as np
plt.imshow(np.zeros((4, 4)))
# %%
plt.hist([1, 2, 2, 3])
# %%
plt.rcParams['figure.dpi'], plt.rcParams['figure.figsize'], plt.rcParams['figure.facecolor']
# %%
%config InlineBackend.figure_format = 'retina'
plt.plot([1, 2]);
# %%
%config InlineBackend.figure_formats = {'png', 'jpeg'}
plt.plot([1, 2]);
# %%
%config InlineBackend.figure_format = 'png'
# %%
%config InlineBackend.print_figure_kwargs = {'bbox_inches': None}
plt.plot([1, 2]);
# %%
%matplotlib inline
# %%
%matplotlib
# %%
plt.isinteractive()
# %%
plt.savefig('empty.png')
# %% raises ValueError
# | differs in outputs: in ours the error ends the result, after figures that were still open
plt.plot([1, 2], [1])
# %%
plt.gcf().number
# %%
import io
buffer = io.BytesIO()
figure, axes = plt.subplots()
figure.savefig(buffer, format='png')
plt.close('all')
len(buffer.getvalue()) > 1000
# %%
plt.plot([1]); raise_later = True
# %%
plt.title('☃ ünïcode');
# %%
%config InlineBackend.close_figures = False
# %%
plt.plot([1, 2]);
# %%
plt.gcf().axes[0].lines[0].get_ydata()
""",
    needs=("matplotlib", "numpy"),
)

LIBRARIES = session(
    "libraries find out that they run in a notebook",
    r"""
# %%
ip = get_ipython()
type(ip).__name__, type(ip).__module__
# %%
[cls.__name__ for cls in type(ip).__mro__][:2]
# %%
'IPKernelApp' in ip.config, hasattr(ip, 'kernel'), ip.kernel is not None, ip.has_trait('kernel')
# %%
__IPYTHON__
# %%
import sys
'ipykernel.zmqshell' in sys.modules, 'comm' in sys.modules, 'IPython' in sys.modules
# %%
from IPython import get_ipython as found
found() is ip, ip is get_ipython()
# %%
ip.xmode, ip.autoawait
# %%
import os
[os.environ.get(key) for key in ('MPLBACKEND', 'PAGER', 'GIT_PAGER')]
# %% differs in outputs: ours asks for text without colours, because a program reads it
[os.environ.get(key) for key in ('CLICOLOR', 'TERM')]
# %%
from tqdm.auto import tqdm
tqdm.__module__
# %%
sum(tqdm(range(3), desc='work'))
# %%
from tqdm import tqdm as plain
for _unused in plain(range(3)):
    pass
# %%
from tqdm.autonotebook import tqdm as auto
auto.__name__
# %%
from rich.console import Console
console = Console()
console.is_jupyter, console.is_terminal, console.width
# %%
console.print('[bold red]rich[/] text')
# %%
from rich import print as rich_print
rich_print({'a': [1, 2]})
# %%
from rich.table import Table
table = Table('name', 'value')
table.add_row('a', '1')
table
# %%
import ipywidgets
slider = ipywidgets.IntSlider(value=3, description='n')
slider
# %%
slider.value = 5
slider.value
# %%
changes = []
slider.observe(lambda change: changes.append(change['new']), 'value')
slider.value = 7
changes
# %%
out = ipywidgets.Output()
out
# %%
with out:
    print('inside an Output widget')
# %%
# | differs in outputs: ipykernel points at the line that the frame has reached by now, ours at the line that raised
with out:
    1/0
# %%
@ipywidgets.interact(n=(0, 5))
def shown(n=2):
    print('n is', n)
# %%
ipywidgets.HBox([ipywidgets.Button(description='press'), ipywidgets.Label('text')])
# %%
import comm
channel = comm.create_comm(target_name='mine', data={'a': 1})
channel.send({'b': 2})
channel.close()
channel.target_name, len(comm.get_comm_manager().targets)
# %%
import plotly.io as pio
pio.renderers.default
# %%
import plotly.graph_objects as go
figure = go.Figure(go.Scatter(y=[1, 2]))
figure.show(renderer='plotly_mimetype')
# %%
figure.show(renderer='json')
# %%
import pandas as pd
pd.io.formats.console.in_ipython_frontend(), pd.io.formats.console.in_interactive_session()
# %%
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.initialized(), InteractiveShell.instance() is ip
# %%
import shutil
shutil.get_terminal_size()
# %%
from rich.pretty import install
install()
# %%
{'pretty': [1, 2, {'deep': None}]}
""",
    needs=("ipywidgets", "nbformat", "pandas", "plotly", "rich", "tqdm"),
)

FIRST = session(
    "the first cells of a kernel",
    """
# %%
%tb
# %%
(_i, _ii, _iii, _ih, _oh, _dh == [__import__('pathlib').Path.cwd()])
# %%
%history -n -o
# %%
x = 1
y = 2
# %%
%reset_selective y
# %%
sorted(name for name in ('x', 'y') if name in globals())
# %%
%save kept.py 4
# %%
%save kept.py 4
# %%
%reset
# %% raises NameError
x
# %%
%tb
# %%
%rerun 4
# %%
x, y
# %%
%notebook kept.ipynb
# %%
__import__('os').path.exists('kept.ipynb')
# %%
{kind: sorted(names) for kind, names in get_ipython().magics_manager.lsmagic().items()}
# %%
from IPython.utils.capture import capture_output
# docs/kernels.md has what asks, opens, installs or belongs to a front end; the others show what is new in each run.
differing = {'autosave', 'conda', 'connect_info', 'debug', 'ed', 'edit', 'gui', 'mamba', 'micromamba', 'pip'}
differing |= {'qtconsole', 'reset', 'reset_selective', 'script', 'subshell', 'uv', 'config', 'env', 'hist', 'history'}
differing |= {'less', 'magic', 'man', 'more', 'page', 'prun', 'quickref', 'recall', 'rep'}  # shown in a pager
def try_all(kind, run, *arguments):
    ends = {}
    for name in sorted(set(get_ipython().magics_manager.lsmagic()[kind]) - differing):
        with capture_output():
            try:
                ends[name] = repr(run(name, *arguments))
            except BaseException as exc:
                ends[name] = f'{type(exc).__name__}: {exc}'
    return ends
# %%
try_all('line', get_ipython().run_line_magic, '--nonsense')
# %%
try_all('cell', get_ipython().run_cell_magic, '--nonsense', 'x = 1')
""",
)

SESSIONS = (
    FIRST,
    VALUES,
    SHOWN,
    HISTORY,
    SYNTAX,
    EXCEPTIONS,
    FRAMES,
    TEXT,
    WARNINGS,
    DISPLAYS,
    REPRS,
    HANDLES,
    NAMESPACE,
    FILES,
    MAGICS,
    HELP,
    SHELL,
    ASYNC,
    LANGUAGE,
    PROCESSES,
    NUMPY,
    PANDAS,
    PLOTS,
    LIBRARIES,
)

"""Tracebacks for reading, by a model above all: no colours, no machinery, source lines for the user's own code.

The shape is IPython's, without the rule and the heading. Frames of installed libraries are one short line each,
because their source tells the reader little and finding it costs IPython hundreds of milliseconds. What repeats itself
is shown once; a deep stack shows its first and last frames. Source lines are those of the function that failed.
"""

from __future__ import annotations

import inspect
import linecache
import sysconfig
import traceback
from collections.abc import Iterator
from types import CodeType, TracebackType

import IPython

from kernelbox import guest, wire
from kernelbox.guest._stdlib import os
from kernelbox.guest.shell._cell_names import cell_title, name_cells
from kernelbox.guest.shell._error_hints import hint
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._json import exact, type_name

keep_builtins(globals())

_EDGE = 8
_CONTEXT = 2
_CHAIN = 10

# Frames that a recursion goes through before it comes back to the first, for which repetitions are looked for.
_LONGEST_CYCLE = 4
_LINE = 500

_LIBRARY_ROOTS = tuple(
    sorted({os.path.join(os.path.realpath(path), "") for path in sysconfig.get_paths().values() if path})
)


def format_exception(exc: BaseException, value: str) -> list[str]:
    """Returns the lines of a traceback.

    `value` is what `format_value` returned: asking the exception again would run the user's code again.
    """
    lines: list[str] = []
    chain = list(_chain(exc))
    for index, (link, introduction) in enumerate(reversed(chain)):
        lines += _format_one(link, value if link is exc else format_value(link))
        if index < len(chain) - 1:
            lines += ["", introduction, ""]
    return [line for at, line in enumerate(lines) if not line.startswith("Hint: ") or line not in lines[at + 1 :]]


def format_value(exc: BaseException) -> str:
    """Returns `str(exc)` as an exact str, no matter what the class does in its `__str__`.

    Cells are called by their titles in it.
    """
    try:
        return name_cells(exact(str(exc)))
    except BaseException as failure:  # noqa: BLE001  # user code; it must not end the kernel
        return f"<exception str() failed: {type_name(failure)}>"


def _chain(exc: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Yields the exception and what led to it, each with the sentence that follows the older one."""
    introduction, seen = "", set[int]()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen and len(seen) < _CHAIN:
        seen.add(id(link))
        if link.__cause__ is not None:
            older, sentence = (
                link.__cause__,
                "The above exception was the direct cause of the following exception:",
            )
        elif link.__context__ is not None and not link.__suppress_context__:
            older = link.__context__
            sentence = "During handling of the above exception, another exception occurred:"
        else:
            older, sentence = None, ""
        yield link, introduction
        introduction, link = sentence, older


def _format_one(exc: BaseException, value: str) -> list[str]:
    name, lines = type_name(exc), list[str]()
    frames = _user_frames(exc.__traceback__)
    if not isinstance(exc, SyntaxError) or (cell_title(exc.filename) is None and frames):  # else the cell did not begin
        lines += _format_frames(frames)
    if isinstance(exc, SyntaxError):
        lines += _format_syntax_error(exc)
    elif isinstance(exc, BaseExceptionGroup):
        group = traceback.TracebackException(type(exc), exc, None, max_group_depth=5)
        lines += ["", *"".join(group.format(chain=False)).splitlines()]
    else:
        lines += ["", *f"{name}: {value}".split("\n")] if lines else f"{name}: {value}".split("\n")
    if advice := hint(exc, value):
        lines.append(advice)
    lines += [str(note) for note in getattr(exc, "__notes__", ())] if not isinstance(exc, BaseExceptionGroup) else []
    return lines


def _user_frames(tb: TracebackType | None) -> list[tuple[CodeType, int]]:
    """Returns the frames below the shell's own; all of them, if the shell is not on the stack."""
    frames: list[tuple[CodeType, int]] = []
    while tb is not None:
        hide = tb.tb_frame.f_locals.get("__tracebackhide__") if tb.tb_frame.f_code.co_name in _HIDERS else None
        if hide == "__ipython_bottom__":
            frames.clear()
        elif not tb.tb_frame.f_code.co_filename.startswith(_MACHINERY):
            frames.append((tb.tb_frame.f_code, tb.tb_lineno))
        tb = tb.tb_next
    return frames


_HIDERS = ("run_code", "run_cell_magic", "run_line_magic")
_MACHINERY = tuple(
    os.path.join(os.path.dirname(os.path.abspath(str(each.__file__))), "") for each in (guest, wire, IPython)
)


def _format_frames(frames: list[tuple[CodeType, int]]) -> list[str]:
    steps = list(_collapse(frames))
    if len(steps) > 2 * _EDGE + 1:
        cut = len(steps) - 2 * _EDGE
        steps[_EDGE:-_EDGE] = [f"    [… {cut} frames cut …]"]
    lines: list[str] = []
    for step in steps:
        lines += [step, ""] if isinstance(step, str) else _format_frame(*step)
    return lines[:-1] if lines and not lines[-1] else lines


def _collapse(frames: list[tuple[CodeType, int]]) -> Iterator[tuple[CodeType, int] | str]:
    """Yields the frames; those that repeat what came before them only as how often they do."""
    at = 0
    while at < len(frames):
        for size in range(1, _LONGEST_CYCLE + 1):
            cycle, end = frames[at : at + size], at + size
            while frames[end : end + size] == cycle:
                end += size
            times = (end - at) // size - 1
            if times * size > 2:
                yield from cycle
                yield f"    [… {'this' if size == 1 else f'these {size} frames'} {times} more times …]"
                at = end
                break
        else:
            yield frames[at]
            at += 1


def _format_frame(code: CodeType, lineno: int) -> list[str]:
    at_top, cell = code.co_name == "<module>", cell_title(code.co_filename)
    if cell is None and _is_library(code.co_filename):
        where = "" if at_top else f", in {code.co_qualname}"
        return [_clip(f"File {_in_library(code.co_filename)}:{lineno}{where}")]
    where = "" if at_top else f", in {_qualified(code)}"
    if cell is not None:
        title = f"{cell}, line {lineno}{where}"
    else:
        title = f"File {_short(code.co_filename)}:{lineno}{where}"
    source = _source(code, lineno)
    return [_clip(title), *source, ""] if source else [_clip(title)]


def _qualified(code: CodeType) -> str:
    by_place, by_name = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = iter(code.co_varnames[by_name:])
    rest = [f"*{next(names)}"] if code.co_flags & inspect.CO_VARARGS else []
    keywords = [f"**{next(names)}"] if code.co_flags & inspect.CO_VARKEYWORDS else []
    arguments = [*code.co_varnames[:by_place], *rest, *code.co_varnames[by_place:by_name], *keywords]
    return f"{code.co_qualname}({', '.join(arguments)})"


def _is_library(filename: str) -> bool:
    if filename.startswith("<"):
        return True
    return os.path.realpath(filename).startswith(_LIBRARY_ROOTS)


def _in_library(filename: str) -> str:
    """Returns the path of a library's file below the directory that all of them are in."""
    real = os.path.realpath(filename)
    roots = [root for root in _LIBRARY_ROOTS if real.startswith(root)]
    return real[len(max(roots, key=len)) :] if roots else filename


def _short(filename: str) -> str:
    home = os.path.expanduser("~")
    return "~" + filename[len(home) :] if home != "/" and filename.startswith(home + os.sep) else filename


# Cells whose `!`, `%` and `%%` lines were rewritten before they ran, by file name: their lines as the user wrote them.
written: dict[str, list[str]] = {}


def _source(code: CodeType, lineno: int) -> list[str]:
    source = written.get(code.co_filename) or linecache.getlines(code.co_filename)
    first, last = max(1, lineno - _CONTEXT), min(len(source), lineno + _CONTEXT)
    if code.co_name != "<module>":
        first, last = max(first, code.co_firstlineno), min(last, _last_line(code))
    width = len(str(last)) if source else 0
    lines = []
    for number in range(first, last + 1):
        text = source[number - 1].rstrip("\n")
        if number == lineno:
            lines.append(_clip(f"{'-' * max(4 - width + 1, 1)}> {number:>{width}} {text}"))
        else:
            lines.append(_clip(f"{' ' * max(4 - width + 1, 1)}  {number:>{width}} {text}"))
    return [line.rstrip() for line in lines]


def _last_line(code: CodeType) -> int:
    """Returns the last line of a function, what is defined in it included."""
    inner = (_last_line(part) for part in code.co_consts if isinstance(part, CodeType))
    return max(*(line for _, _, line in code.co_lines() if line is not None), *inner, code.co_firstlineno, 0)


def _format_syntax_error(exc: SyntaxError) -> list[str]:
    lines, cell = [], cell_title(exc.filename)
    if exc.filename:
        lines.append(f"  {cell}, line {exc.lineno}" if cell else f"  File {_short(exc.filename)}:{exc.lineno}")
    text = exc.text or ""
    if cell and exc.filename and exc.lineno:
        text = linecache.getline(exc.filename, exc.lineno) or text  # the whole line, also of an f-string's part
    if text.strip():
        text = text.rstrip("\n")
        stripped = text.lstrip()
        lines.append("    " + _clip(stripped))
        if exc.offset:  # 0 is CPython's word for "somewhere"
            start = max(0, exc.offset - 1 - (len(text) - len(stripped)))  # indentation itself may be the mistake
            end = (exc.end_offset or 0) - 1 - (len(text) - len(stripped))
            if start <= len(stripped):
                width = end - start if exc.end_lineno == exc.lineno and end > start else 1
                lines.append("    " + " " * start + "^" * min(width, len(stripped) - start + 1))
    lines.append(_clip(f"{type_name(exc)}: {exc.msg}"))
    return lines


def _clip(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[: _LINE - 20]} [… {len(line) - _LINE + 20:,} more]"

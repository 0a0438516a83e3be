"""Writes docs/reference/api.md from the docstrings of the public names.

python scripts/api_reference.py
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import kernelbox

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "api.md"

# The groups of the page, in the order that people need them. Every public name is in exactly one.
GROUPS = {
    "Kernels": ["Kernel", "AsyncKernel", "CodeExecutor"],
    "Functions": [
        *("get_or_create", "create", "execute", "stream", "execute_with_retry"),
        *("interrupt", "restart", "destroy", "status", "list_kernels", "wipe"),
    ],
    "Results": [
        *("ExecutionResult", "ErrorInfo", "OutputItem", "AttemptSnapshot"),
        *("CodeExecutionResult", "CodeExecutionChunk", "Variable", "PastCell", "FileInfo"),
    ],
    "Jobs and batches": ["Job", "AsyncJob", "Pool", "AsyncPool"],
    "Time travel": ["checkpoint", "checkpoints", "rollback", "branch", "promote", "drop", "Checkpoint"],
    "Approvals and tools": [
        *("ApprovalPolicy", "ApprovalRule", "ApprovalRequest", "SyncApprovalRequest"),
        *("ToolEvent", "generate_mcp_sources"),
    ],
    "Settings": ["KernelBoxConfig", "KernelRecord", "Limits"],
}

_HEAD = """# Python API

Everything that `from kernelbox import …` offers, from the docstrings of the code.

<!-- Written by scripts/api_reference.py; a test compares. -->
"""


def page() -> str:
    """Returns the page."""
    rest = sorted(set(kernelbox.__all__) - {name for names in GROUPS.values() for name in names})
    errors = [name for name in rest if _is_error(getattr(kernelbox, name))]
    groups = {**GROUPS, "Other names": [name for name in rest if name not in errors], "Exceptions": errors}
    lines = [_HEAD]
    for title, names in groups.items():
        if names:
            lines.append(f"## {title}\n")
            lines += [part for name in names for part in _entry(name, getattr(kernelbox, name))]
    return "\n".join(lines)


def _entry(name: str, value: object) -> Iterator[str]:
    yield f"### {name}\n"
    if isinstance(value, type) and _is_error(value):
        yield f"{_text(value)}\n"
        return
    yield f"```text\n{_call(name, value)}\n```\n"
    yield f"{_text(value)}\n"
    if isinstance(value, type):
        members = [*_members(value)]
        if members:
            yield "| member | what it is |\n|---|---|"
            yield from members
            yield ""


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _members(owner: type) -> Iterator[str]:
    """Yields a row for each public field, method and property; what a kernel has of its record is with the record."""
    inherited = set(dir(kernelbox.KernelRecord)) if owner in _OBJECTS else set()
    fields = {field.name: field for field in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else {}
    for name in sorted(fields.keys() - inherited, key=list(fields).index):
        if not name.startswith("_"):
            yield f"| `{name}` | `{_escaped(str(fields[name].type))}` |"
    own = {name for base in owner.__mro__[:-1] for name in vars(base) if not name.startswith("_")}
    for name in sorted(own - fields.keys() - (inherited - vars(owner).keys()) - _NOT_FOR_USERS):
        member = inspect.getattr_static(owner, name)
        if isinstance(member, (classmethod, staticmethod)):
            member = member.__func__
        if inspect.isfunction(member):
            yield f"| `{name}{_arguments(member)}` | {_first(member)} |"
        elif isinstance(member, property):
            yield f"| `{name}` | {_first(member)} |"


_OBJECTS = (kernelbox.Kernel, kernelbox.AsyncKernel)
# How our own code makes the object of a record.
_NOT_FOR_USERS = {"of"}


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _arguments(function: object) -> str:
    """Returns the names of the arguments alone; the signature says the rest to editors."""
    names = []
    for parameter in inspect.signature(function).parameters.values():  # type: ignore[arg-type]  # functions only
        if parameter.name in ("self", "cls"):
            continue
        star = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        names.append(f"{star}{parameter.name}{'=' if parameter.default is not parameter.empty else ''}")
    return f"({', '.join(names)})"


def _call(name: str, value: object) -> str:
    """Returns how a function or class is called, with its defaults."""
    signature = inspect.signature(value)  # type: ignore[arg-type]  # functions and classes
    shown, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.name.startswith("_") or parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        shown.append(f"{parameter.name}{_default(parameter)}")
    returns = signature.return_annotation
    arrow = "" if isinstance(value, type) or returns is signature.empty else f" -> {returns}"
    line = f"{name}({', '.join(shown)}){arrow}"
    if len(line) <= 84:
        return line
    inner = textwrap.fill(", ".join(shown), 84, initial_indent="    ", subsequent_indent="    ")
    return f"{name}(\n{inner}\n){arrow}"


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return ""
    text = repr(parameter.default)
    # A factory, a sentinel or a path of this machine has no text that a reader could use.
    return "=…" if "<" in text or "/" in text or len(text) > 40 else f"={text}"


def _first(member: object) -> str:
    return _escaped(_text(member).split("\n\n")[0])


def _text(value: object) -> str:
    doc = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    if dataclasses.is_dataclass(value) and doc.startswith(f"{getattr(value, '__name__', '')}("):
        doc = ""
    # A name in angle brackets would be markup.
    return re.sub(r"<(\w+)", r"&lt;\1", doc)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)

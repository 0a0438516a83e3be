"""Generates the modules of a server in a process of its own: `python -m kernelbox.tools._worker`.

Importing the generator takes a second, it reads what strangers wrote, and whether the classes work is found out by
making them: none of it belongs into the application's process. One request comes on stdin, one answer goes to stdout.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import re
import signal
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

from pydantic import BaseModel

from kernelbox.tools._classes import Class, read_classes
from kernelbox.tools._schemas import clean_text, make_safe
from kernelbox.tools._source import OPEN_PARAMS, Tool, apart, signature, write_module, write_package

# Seconds of the processor's time for the classes of one schema; the largest that was seen takes a tenth of one.
_MOMENT = 3.0

# Schemas whose classes are kept for another tool with the same.
_MOST_KEPT = 1_000


def main() -> None:
    """Answers one request."""
    gc.set_threshold(100_000)  # the generator makes many objects, and this process ends soon
    warnings.simplefilter("ignore")  # the generator's remarks are not for the user
    answers = sys.stdout
    sys.stdout = sys.stderr
    _generate("Params", {"type": "object", "properties": {"a": {"type": "string"}}})  # while the server starts
    request = json.load(sys.stdin)
    answer = build(request["server"], request["instructions"], request["tools"], request["modules"])
    json.dump(answer, answers)


def build(server: str, instructions: object, listed: list[dict[str, Any]], modules: dict[str, str]) -> dict[str, Any]:
    """Returns the files of a server's package, by name."""
    files, index, tools = {}, [], []
    for entry in listed:
        tool = _read_tool(entry, modules[entry["name"]])
        params, result, text = _build_tool(server, tool)
        files[f"{tool.module}.py"] = text
        tools.append(tool)
        index.append(_describe(tool, params, result))
    files["__init__.py"] = write_package(server, clean_text(instructions), tools)
    files["tools.json"] = json.dumps({"server": server, "tools": index}, indent=1)
    return {"files": files}


def _read_tool(entry: dict[str, Any], module: str) -> Tool:
    output = entry.get("outputSchema")
    return Tool(
        entry["name"],
        module,
        clean_text(entry.get("description")),
        make_safe(entry.get("inputSchema")),
        make_safe(output, lenient=True) if isinstance(output, dict) else None,
    )


def _build_tool(server: str, tool: Tool) -> tuple[list[Class], list[Class], str]:
    """Returns the classes of parameters and result, and the text of the module: the most exact that works."""
    params = _classes("Params", tool.input_schema) or [OPEN_PARAMS]
    result = apart(params, _classes("Result", tool.output_schema) or [])
    for attempt in (result, []):
        text = write_module(server, tool, params, attempt)
        if _works(text):
            return params, attempt, text
    text = write_module(server, tool, [OPEN_PARAMS], [])
    assert _works(text), tool.name
    return [OPEN_PARAMS], [], text


def _describe(tool: Tool, params: list[Class], result: list[Class]) -> dict[str, Any]:
    called = next(made for made in params if made.name == "Params")
    parts = [made for made in (*params, *result) if made.name not in ("Params", "Result")]
    return {
        "name": tool.name,
        "module": tool.module,
        "description": tool.description,
        "signature": signature(called),
        "returns": next((signature(made) for made in result if made.name == "Result"), ""),
        "parts": list(map(signature, parts)),
        "parameters": {field.name: field.description for field in called.fields},
    }


def _classes(name: str, schema: dict[str, Any] | None) -> list[Class] | None:
    """Returns the classes for a schema, the one with this name last; None if there is no way to make them."""
    return _classes_of(name, json.dumps(schema)) if schema else None


@functools.lru_cache(_MOST_KEPT)
def _classes_of(name: str, schema: str) -> list[Class] | None:
    """Makes classes of a schema; tools of one server often share it, and the generator takes milliseconds for each."""
    try:
        with _limited():
            classes = read_classes(_generate(name, json.loads(schema)))
    except Exception:  # noqa: BLE001  # a generator that cannot make classes of a schema says so in many ways
        return None
    return classes if any(made.name == name for made in classes) else None


def _generate(name: str, schema: dict[str, Any]) -> str:
    from datamodel_code_generator import generate
    from datamodel_code_generator.enums import DataModelType, InputFileType
    from datamodel_code_generator.format import PythonVersion
    from datamodel_code_generator.parser import LiteralType

    if name == "Params":
        schema = {"type": "object", **schema}
    made = generate(
        json.dumps(schema),
        input_file_type=InputFileType.JsonSchema,
        output_model_type=DataModelType.PydanticV2BaseModel,
        class_name=name,
        formatters=[],
        disable_timestamp=True,
        enum_field_as_literal=LiteralType.All,
        field_constraints=True,
        strict_nullable=True,
        target_python_version=PythonVersion.PY_311,
        use_annotated=False,
        use_schema_description=True,
        use_standard_collections=True,
        use_union_operator=True,
    )
    return made if isinstance(made, str) else ""


class _Slow(Exception):
    """Raised in the middle of work that takes too long."""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Ends work on one tool that takes more than a moment of the processor's time."""

    def stop(signum: int, frame: object) -> NoReturn:
        raise _Slow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, _MOMENT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _works(text: str) -> bool:
    """Tells whether a module can be used: its classes are made here, as they will be in a kernel."""
    checked = re.sub(r"^from kernelbox\.guest\.tools import .*$", "", text, flags=re.MULTILINE)
    module = sys.modules["checked"] = types.ModuleType("checked")  # where pydantic looks for the names in annotations
    try:
        with _limited():
            exec(compile(checked, "checked", "exec"), vars(module))  # _classes.py has seen to what can be in it
            for made in list(vars(module).values()):
                if isinstance(made, type) and issubclass(made, BaseModel) and made.__module__ == "checked":
                    made.model_rebuild()
    except Exception:  # noqa: BLE001  # whatever it is, the module does not work
        return False
    return True


if __name__ == "__main__":
    main()

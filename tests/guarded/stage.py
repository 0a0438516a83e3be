"""Has every attack on the guard tried in kernels without it, with it, and sandboxed as well; prints what came of each.

A program of its own, so that it can be run as any user: `python stage.py DIRECTORY`, and with words behind it only the
attacks that have one of them in their names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelbox import ApprovalRequest, CodeExecutionError, CodeExecutor, get_or_create, wipe
from kernelbox.base._errors import ExecutionTimeout
from kernelbox.guest.walls._system_calls import landlock_version

sys.path.insert(0, str(Path(__file__).resolve().parent))

from attacks import ATTACKS, PROLOGUE, C  # type: ignore[import-not-found]  # run as a program, it has no package

# Seconds. Far beyond what an attack takes.
PATIENCE = 30.0

# What version of Landlock keeps signals in a domain.
WITH_SCOPES = 6

LEVELS: dict[str, dict[str, Any]] = {
    "none": {},
    "guarded": {"require_shell_escape": True},
    "sandboxed": {"require_shell_escape": True, "sandbox": True},
}


def main(base: Path, words: list[str]) -> dict[str, dict[str, bool]]:
    """Returns of each attack and level whether it got through, and whether the kernel went on."""
    os.environ.update(KERNELBOX_HOME=str(base / "home"), KERNELBOX_KEY_FILE=str(base / "key"))
    library = compile_library(base)
    results: dict[str, dict[str, bool]] = {}
    try:
        get_or_create("neighbour")
        for attack in ATTACKS:
            if words and not any(word in attack.name for word in words):
                continue
            if attack.name.startswith("signals") and landlock_version() < WITH_SCOPES:
                continue
            told = results[attack.name] = {}
            for level, options in LEVELS.items():
                if level == "none" and not attack.proves:
                    continue  # some would harm the host
                work = base / "work"
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir()
                targets = put_up(work, base, library)
                through, usable, said = asyncio.run(attempt(attack, options, targets, work))
                told |= {level: through, f"{level} usable": usable}
                print(f"{attack.name}, {level}: {through=} {usable=}\n{said}", file=sys.stderr)
    finally:
        wipe()
    return results


def put_up(work: Path, base: Path, library: str) -> dict[str, Any]:
    """Makes the program that attacks try to start; returns where all is."""
    made, program = work / "made", work / "program"
    program.write_text(f"#!/bin/sh\n/usr/bin/touch {made}\n")
    program.chmod(0o755)
    shutil.copy(library, work / "library.so")
    return {
        "made": str(made),
        "program": str(program),
        "library": str(work / "library.so"),
        "host": os.getpid(),
        "runtime": str(base / "home" / "runtime"),
        "proc": str(base / "proc"),
    }


async def attempt(attack: Any, options: dict[str, Any], targets: dict[str, Any], work: Path) -> tuple[bool, bool, str]:
    async with CodeExecutor(working_dir=work, approve_shell_cmds=True, **options) as executor:
        said = await run(executor, "kept=1", ("kept=1",), language="bash")
        said += await run(executor, f"T = {targets!r}\n{PROLOGUE}\n{attack.code}", attack.accepts)
        usable = "usable" in await run(executor, "!echo usable", ("echo usable",))
    return (work / "made").exists() or "THROUGH" in said.split(), usable, said


async def run(executor: CodeExecutor, code: str, accepts: tuple[str, ...], **options: Any) -> str:
    text = ""
    try:
        async for item in executor.stream(code, timeout=PATIENCE, **options):
            if isinstance(item, ApprovalRequest):
                if item.tool_args.get("cmd") in accepts and item.tool_args.keys() <= {"cmd", "program"}:
                    await item.accept()
                else:
                    text += f"rejected {item.tool_args}\n"
                    await item.reject()
            else:
                text += getattr(item, "text", None) or ""
    except (CodeExecutionError, ExecutionTimeout) as error:
        text += error.text or str(error)
    return text


def compile_library(base: Path) -> str:
    """Makes a library that starts the program when it is loaded; where there is no compiler, a file that is none."""
    source, library = base / "library.c", base / "library.so"
    source.write_text(C.replace("COMMAND", f'"{base / "work" / "program"}"'))
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    library.touch()
    return str(library)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))

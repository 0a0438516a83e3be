"""`doctor`: checks that kernels can run here, and says how to fix each problem."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Literal

from kernelbox.api import _sync
from kernelbox.api._configured import kernels
from kernelbox.base._config import KernelBoxConfig, unknown_variables
from kernelbox.base._errors import KernelBoxError, installer
from kernelbox.base._extras import EXTRAS
from kernelbox.base._extras import missing as missing_extra
from kernelbox.base._text import escape
from kernelbox.cli.terminal._output import emit, fields_of
from kernelbox.core._options import KernelOptions
from kernelbox.host._engines import engine_for
from kernelbox.host.engines.own._template_processes import is_answering, list_templates
from kernelbox.host.files._home import Home
from kernelbox.host.files._key import is_missing, key_path, read_key
from kernelbox.host.files._lock import is_locked, locked
from kernelbox.host.pythons._probing import probe
from kernelbox.host.pythons._searching import find_python
from kernelbox.host.store._record import KernelRecord
from kernelbox.wire._values import dataclass

_NEWLINE = "\n"

# A kernel's files are a few kilobytes; below this nothing else works either.
_LITTLE_SPACE = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, what was found, and how to fix it. `fix` is empty if nothing is wrong or `found` says it."""

    name: str
    verdict: Literal["ok", "warning", "failed"]
    found: str
    fix: str = ""


def run(options: Namespace) -> int:
    """Runs the command."""
    checks: list[Check] = []
    for look in _CHECKS:
        broken = [check.found for check in checks if check.verdict == "failed"]
        if broken and look in _NEED_A_KERNEL:
            continue  # it would fail for the same reason, and be blamed for it
        checks += [check for check in _carefully(look) if check.verdict != "failed" or check.found not in broken]
    healthy = all(check.verdict != "failed" for check in checks)
    if options.pretty:
        _print(checks)
    else:
        emit({"ok": healthy, "checks": list(map(fields_of, checks))})
    return 0 if healthy else 1


def _carefully(look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    name = look.__name__.removeprefix("_check_").replace("_", " ")
    try:
        yield from look()
    except KernelBoxError as exc:
        yield Check(name, "failed", str(exc))  # which ends in what to do
    except Exception as exc:  # noqa: BLE001  # a check that breaks is a finding, not a crash
        yield Check(name, "failed", f"{type(exc).__name__}: {exc}", "this is unexpected; please report it")


def _check_python() -> Iterator[Check]:
    yield Check("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")


def _check_python_of_kernels() -> Iterator[Check]:
    """Asks the interpreter that KERNELBOX_PYTHON names whether kernels can run in it."""
    wanted = KernelBoxConfig.from_env().python
    if wanted:
        python = probe(find_python(wanted, os.getcwd()))
        yield Check("python of kernels", "ok", f"{python.version} at {python.executable}, by KERNELBOX_PYTHON")


def _check_packages() -> Iterator[Check]:
    """Looks for the packages of the default install, as the installed kernelbox names them."""
    versions, missing = [], []
    for requirement in importlib.metadata.requires("kernelbox") or ():
        if ";" in requirement:  # of an extra, or of some systems only
            continue
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        fix = f"{installer()} {' '.join(missing)}"
        yield Check("packages", "failed", f"missing: {', '.join(missing)}", fix)
    else:
        yield Check("packages", "ok", ", ".join(versions))


def _check_extras() -> Iterator[Check]:
    """Shows which of the optional parts are installed; none is needed."""
    for name, extra in EXTRAS.items():
        found, fix = f"installed: {extra.purpose}", ""
        if missing_extra(name):
            found, fix = f"not {found}", f"{installer()} 'kernelbox[{name}]'"
        yield Check(f"kernelbox[{name}]", "ok", found, fix)


def _check_settings() -> Iterator[Check]:
    if unknown := unknown_variables():
        fix = "unset them, or correct their names: docs/configuration.md lists all"
        yield Check("unknown settings", "warning", ", ".join(unknown), fix)
    config = KernelBoxConfig.from_env()
    yield Check("settings", "ok", f"home {config.home}, store {config.store_backend}, engine {config.engine}")


def _check_kernel_type() -> Iterator[Check]:
    config = KernelBoxConfig.from_env()
    engine_for(config.kernel_type, config.engine).check(config.kernel_type)  # names the known ones if this one is not
    yield Check("kernel type", "ok", config.kernel_type)


def _check_home() -> Iterator[Check]:
    config = KernelBoxConfig.from_env()
    try:
        Home(config.home, config.key_file).open().close()
        yield Check("home", "ok", f"{config.home}, made by this user's kernelbox on this machine")
    except FileNotFoundError:
        yield Check("home", "ok", f"{config.home}, which is made when it is needed")


def _check_key() -> Iterator[Check]:
    key_file = KernelBoxConfig.from_env().key_file
    if is_missing(key_file):
        yield Check("key", "ok", f"{key_path(key_file)}, which is made with the first home")
        return
    yield Check("key", "ok", f"{read_key(key_file).path}, which seals the homes of this user")


def _check_runtime_directory() -> Iterator[Check]:
    here = kernels()
    with here.store.locking("kernelbox doctor"):
        pass  # makes the directory, and shows that it can be written to
    path, probe = here.store.runtime_dir, f"doctor-{os.getpid()}"
    with here.store.runtime() as runtime, locked(runtime, probe, here.store.secret()):
        locks_work = is_locked(runtime, probe)
    if not locks_work:
        fix = "set KERNELBOX_HOME to a directory on a local disk"
        yield Check("locks", "failed", f"the file system of {path} does not keep locks", fix)
    free = shutil.disk_usage(path).free
    if free < _LITTLE_SPACE:
        yield Check("disk", "failed", f"{free:,} bytes are free in {path}", "free some space")
    yield Check("runtime directory", "ok", f"{path}, {free // 1024**2:,} MB free")


def _check_kernels() -> Iterator[Check]:
    records = _sync.list_kernels()
    dead = [record.name for record in records if record.status == "dead"]
    stale = [record.name for record in records if record.stale]
    yield Check("kernels", "ok", f"{len(records)} known, {len(records) - len(dead)} alive")
    if dead:
        yield Check("dead kernels", "warning", ", ".join(map(repr, dead)), "kernelbox destroy NAME forgets one")
    if stale:
        yield Check("stale kernels", "warning", ", ".join(map(repr, stale)), "kernelbox wipe --stale ends them")


def _check_start() -> Iterator[Check]:
    name = f"doctor-{os.urandom(4).hex()}"
    began = time.perf_counter()
    try:
        result = _sync.execute(name, "1 + 1")
        took = (time.perf_counter() - began) * 1000
        if result.return_value == "2":
            yield Check("start", "ok", f"a kernel opened and answered in {took:.0f} ms")
        else:
            yield Check("start", "failed", result.text, "kernelbox logs --template may say more")
    finally:
        _sync.destroy(name)


def _check_template() -> Iterator[Check]:
    config = kernels().config
    if not engine_for(config.kernel_type, config.engine).uses_template:
        yield Check("template", "ok", "not used by Jupyter kernels")
        return
    if not config.template:
        fix = "unset KERNELBOX_TEMPLATE for starts in milliseconds"
        yield Check("template", "warning", "switched off: each kernel starts cold", fix)
        return
    answering: list[str] = []
    with contextlib.suppress(FileNotFoundError), kernels().store.runtime() as runtime:
        answering = [name for name in list_templates(runtime) if is_answering(runtime, name)]
    if answering:
        yield Check("template", "ok", f"{len(answering)} ready to fork from")
    elif sys.platform == "linux":
        fix = "kernelbox logs --template shows why; KERNELBOX_TEMPLATE=0 does without"
        yield Check("template", "warning", "none answers", fix)
    else:
        yield Check("template", "ok", f"not used on {sys.platform}: each kernel starts cold")


def _check_system() -> Iterator[Check]:
    if hasattr(os, "pidfd_open"):
        yield Check("processes", "ok", "watched by descriptor: a death is seen at once")
    else:
        fix = "use Linux 5.3 or newer for that"
        yield Check("processes", "warning", "no process descriptors: a death is seen with a delay", fix)
    bash = shutil.which("bash")
    if bash:
        yield Check("bash", "ok", bash)
    else:
        yield Check("bash", "warning", "not found: exec --bash cannot be used", "install bash")


def _check_sandbox() -> Iterator[Check]:
    found = "{}: kernels opened with sandbox=True are confined"
    yield from _try("sandbox", lambda name, cwd: _sync.get_or_create(name, cwd=cwd, sandbox=True), found)


def _check_guard() -> Iterator[Check]:
    found = "with require_shell_escape=True, kernels start only approved programs"
    yield from _try("guard", lambda name, cwd: kernels().create(name, KernelOptions(cwd=cwd, guarded=True)), found)


def _check_sandbox_in_srt() -> Iterator[Check]:
    from kernelbox.host.engines.own._srt_template import find_srt, search_path

    what = "sandbox in srt"
    try:
        program, version = find_srt(search_path())
    except KernelBoxError as exc:
        yield Check(what, "ok", f"not used: {exc}")
        return
    found = f"{{}} {version}: {program}"
    yield from _try(
        what, lambda name, cwd: _sync.get_or_create(name, cwd=cwd, sandbox=True, sandbox_level="srt"), found
    )


def _try(what: str, open_kernel: Callable[[str, str], KernelRecord], found: str) -> Iterator[Check]:
    """Opens a confined kernel. A failure is only a warning: plain kernels still work."""
    import tempfile

    name = f"doctor-{os.urandom(4).hex()}"
    with tempfile.TemporaryDirectory() as directory:
        try:
            record = open_kernel(name, directory)
            yield Check(what, "ok", found.format(record.sandbox))
        except KernelBoxError as exc:
            yield Check(what, "warning", f"not available: {exc}")
        finally:
            _sync.destroy(name)


_CHECKS = (
    _check_python,
    _check_settings,
    _check_python_of_kernels,
    _check_packages,
    _check_extras,
    _check_kernel_type,
    _check_key,
    _check_home,
    _check_runtime_directory,
    _check_kernels,
    _check_start,
    _check_template,
    _check_system,
    _check_sandbox,
    _check_sandbox_in_srt,
    _check_guard,
)


# Checks that start kernels, and say nothing if none can start.
_NEED_A_KERNEL = (_check_start, _check_template, _check_sandbox, _check_sandbox_in_srt, _check_guard)


def _print(checks: list[Check]) -> None:
    from kernelbox.cli.terminal._pretty import paint
    from kernelbox.cli.terminal._tables import width_of

    signs = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}
    width = width_of(sys.stdout)
    for check in checks:
        unused = check.verdict == "ok" and (check.fix or check.found.startswith("not used"))
        sign, color = ("-", "dim") if unused else signs[check.verdict]
        line = f"{check.name}: {escape(check.found, keep=_NEWLINE)}"
        if check.verdict == "ok" and not unused and len(line) > width - 2:
            line = line[: width - 3] + "…"
        print(f"{paint(sign, color, sys.stdout)} {_wrap(line, width - 2)}")
        if check.fix:
            print(f"  → {check.fix}")
    found = [check.verdict for check in checks]
    failed, warnings = found.count("failed"), found.count("warning")
    verdict = f"Not ready: {failed} of {len(found)} checks failed." if failed else "Ready: kernels run here."
    print(f"{verdict} Warnings: {warnings}." if warnings else verdict)


def _wrap(text: str, width: int) -> str:
    """Breaks lines between words, and puts each below the first."""
    import textwrap

    lines = [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    ]
    return "\n  ".join(lines)

"""The commands about kernels: create, console, list, status, interrupt, restart, destroy, wipe, logs; and version."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TypeVar

from kernelbox import __version__
from kernelbox.api import _sync
from kernelbox.api._configured import kernels
from kernelbox.api._kernel import Kernel
from kernelbox.base._errors import InvalidInput, KernelBoxError, KernelNotFound
from kernelbox.base._limits import parse_limits
from kernelbox.base._text import escape
from kernelbox.cli.terminal._output import answer, emit, say
from kernelbox.core._every_kernel import list_all
from kernelbox.core._options import choose_sandbox
from kernelbox.host.engines._limiting import measured
from kernelbox.host.files._place import Place
from kernelbox.host.store._record import KernelRecord
from kernelbox.wire._layout import LOG, TEMPLATE

Done = TypeVar("Done")

# Bytes that are read from the end of a log: as much as a person reads.
_LONGEST_LOG = 4 * 1024 * 1024


def create(options: Namespace) -> int:
    from kernelbox.cli.terminal._pretty import progress

    tags = {}
    for text in options.tag:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidInput("--tag", text, "use KEY=VALUE")
        tags[key] = value
    limits = parse_limits(options.limit)
    sandbox = choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level)
    [name] = options.names
    with progress(f"starting kernel {name!r}"):
        record = _sync.create(
            name,
            cwd=options.cwd,
            kernel_type=options.kernel_type,
            tags=tags or None,  # those of a dead kernel stay
            limits=limits,
            sandbox=sandbox,
            python=options.python,
            requirements=options.packages,
            progress=say,
        )
    from kernelbox.cli.terminal._pretty import say_opened

    return answer(options, record.to_dict(), say_opened(record.name))


def console(options: Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput.saying("the console needs a terminal on stdin and stdout; use `kernelbox exec` in scripts")
    from kernelbox.cli.console._console import Console
    from kernelbox.cli.terminal._pretty import progress

    sandbox = choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level)
    with progress(f"starting kernel {options.name!r}"):
        limits = parse_limits(options.limit)
        record = _sync.get_or_create(
            options.name, limits=limits, sandbox=sandbox, python=options.python, requirements=options.packages
        )
    Console(record).run()
    return 0


def show_all(options: Namespace) -> int:
    here = kernels()
    if options.all:
        return _show_everywhere(options)
    records = list_all(here)
    if options.only_names:  # for completion scripts; a name that cannot be seen cannot be chosen
        print("\n".join(record.name for record in records if record.name.isprintable()))
        return 0
    if options.refresh:
        for record in records:
            if record.alive and not here.kernel(record).answers():
                record.status = "unknown"
    measured(records)
    if options.tree:
        from kernelbox.cli.commands._time_travel_commands import show_tree

        return show_tree(options, records)
    if options.pretty:
        from kernelbox.cli.terminal._tables import show_table

        show_table(records)
    else:
        emit({"kernels": [record.to_dict() for record in records]})
    return 0


def _show_everywhere(options: Namespace) -> int:
    """Shows the kernels of all homes, each with the home that its name belongs to."""
    found = _sync.list_kernels(all_homes=True, usage=True)
    homes = [record.home if isinstance(record, Kernel) else "" for record in found]
    if options.pretty:
        from kernelbox.cli.terminal._tables import show_table

        for home in dict.fromkeys(homes):
            print(escape(home))
            show_table([record for record, its in zip(found, homes, strict=True) if its == home])
    else:
        emit({"kernels": [{**record.to_dict(), "home": home} for record, home in zip(found, homes, strict=True)]})
    return 0


def show_one(options: Namespace) -> int:
    record = _sync.status(options.names[0])
    if options.pretty:
        from kernelbox.cli.terminal._tables import show_record

        show_record(record)
    else:
        emit({"alive": record.alive, "kernel": record.to_dict()})
    return 0 if record.alive else 1


def interrupt(options: Namespace) -> int:
    def interrupt_one(key: str) -> bool:
        record = _sync.status(key)
        stopped = _sync.interrupt(record)
        if not stopped:
            say(f"kernel {record.name!r} was not running anything")
        elif options.pretty:
            print(f"interrupted {escape(repr(record.name))}")
        return stopped

    done, failed = _each(options.names, interrupt_one)
    answer(options, {"interrupted": _by_name(options.names, done)}, "")
    return 1 if failed else 0


def restart(options: Namespace) -> int:
    def restart_one(key: str) -> KernelRecord:
        record = _sync.restart(key)
        say(f"restarted {record.name!r}; lost: {record.lost}")
        return record

    done, failed = _each(options.names, restart_one)
    records = [record.to_dict() for record in done.values()]
    answer(options, records[0] if len(options.names) == 1 else {"kernels": records}, "")
    return 1 if failed else 0


def destroy(options: Namespace) -> int:
    def destroy_one(key: str) -> bool:
        try:
            record = _sync.status(key)
            if not _sync.destroy(record):
                raise KernelNotFound(record.name)  # another process was faster
        except KernelNotFound as exc:
            say(str(exc))
            return False
        if options.pretty:
            print(f"destroyed {escape(repr(record.name))}")
        return True

    done, failed = _each(options.names, destroy_one)
    answer(options, {"destroyed": _by_name(options.names, done)}, "")
    return 0 if not failed and all(done.values()) else 1


def _each(names: list[str], act: Callable[[str], Done]) -> tuple[dict[str, Done], bool]:
    """Does something with each kernel; returns what that gave, and whether it failed for any of several."""
    if len(names) == 1:
        return {names[0]: act(names[0])}, False
    done: dict[str, Done] = {}
    failed = False
    for name in names:
        try:
            done[name] = act(name)
        except KernelBoxError as exc:
            say(str(exc))
            failed = True
    return done, failed


def _by_name(names: list[str], done: dict[str, bool]) -> bool | dict[str, bool]:
    """Returns the answer for one kernel, or the answers for several by their names."""
    return done[names[0]] if len(names) == 1 else {name: done.get(name, False) for name in names}


def wipe(options: Namespace) -> int:
    names = {record.kernel_id: record.name for record in _sync.list_kernels(all_homes=options.all)}
    ended = _sync.wipe(stale=options.stale, all_homes=options.all)
    text = "\n".join(f"destroyed {names.get(kernel_id, kernel_id)!r}" for kernel_id in ended)
    return answer(options, {"destroyed": ended}, text or "there was nothing to destroy")


def logs(options: Namespace) -> int:
    store = kernels().store
    found = []
    with contextlib.suppress(FileNotFoundError):
        if options.template:
            with store.runtime() as runtime:
                names = [name for name in runtime.listdir() if name.startswith(TEMPLATE) and name.endswith(".log")]
                found = [_read_log(runtime, name, options.lines) for name in sorted(names)]
        else:
            with store.enter(_sync.status(options.names[0]).kernel_id) as place:
                found = [_read_log(place, LOG, options.lines)]
    return answer(options, {"logs": found}, "\n".join(log["text"].rstrip("\n") for log in found))


def version(options: Namespace) -> int:
    python = ".".join(map(str, sys.version_info[:3]))
    data = {"kernelbox": __version__, "python": python, "platform": sys.platform, "executable": sys.executable}
    return answer(options, data, f"kernelbox {__version__} on Python {python}")


def _read_log(place: Place, name: str, lines: int) -> dict[str, str]:
    try:
        text = place.tail(name, _LONGEST_LOG).decode("utf-8", "replace")
    except FileNotFoundError:
        text = ""
    pieces = text.split("\n")
    kept = pieces[-lines - (pieces[-1] == "") :] if lines else []
    return {"path": place.path_of(name), "text": "\n".join(kept)}

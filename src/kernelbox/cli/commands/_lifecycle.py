"""The commands about kernels themselves: create, list, status, interrupt, restart, destroy, wipe, logs, version."""

from __future__ import annotations

import contextlib
import sys

from kernelbox import __version__
from kernelbox.api import _sync
from kernelbox.api._configured import kernels
from kernelbox.api._kernel import Kernel
from kernelbox.base._errors import InvalidInput, KernelNotFound
from kernelbox.base._limits import parse_limits
from kernelbox.base._text import escape
from kernelbox.cli.terminal._output import emit, say
from kernelbox.core._options import choose_sandbox
from kernelbox.host.engines._limiting import measured
from kernelbox.wire._layout import LOG, TEMPLATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from contextlib import AbstractContextManager

    from kernelbox.host.files._place import Place
    from kernelbox.host.store._record import KernelRecord

# Bytes that are read from the end of a log: as much as a person reads.
_LONGEST_LOG = 4 * 1024 * 1024


def create(options: Namespace) -> int:
    tags = {}
    for text in options.tag:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidInput("--tag", text, "use KEY=VALUE")
        tags[key] = value
    limits = parse_limits("--limit", options.limit)
    sandbox = choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level)
    with _progress(options, f"starting kernel {options.name!r}"):
        record = _sync.create(
            options.name, cwd=options.cwd, kernel_type=options.kernel_type, tags=tags, limits=limits, sandbox=sandbox
        )
    return _print_record(options, record)


def show_all(options: Namespace) -> int:
    here = kernels()
    if options.all:
        return _show_everywhere(options)
    records = here.all()
    if options.names:  # for completion scripts; a name that cannot be seen cannot be chosen
        print("\n".join(record.name for record in records if record.name.isprintable()))
        return 0
    if options.refresh:
        for record in records:
            if record.alive and not here.kernel(record).answers():
                record.status = "unknown"
    measured(records)
    if options.pretty:
        from kernelbox.cli.terminal._pretty import show_table

        show_table(records)
    else:
        emit({"kernels": [record.to_dict() for record in records]})
    return 0


def _show_everywhere(options: Namespace) -> int:
    """Shows the kernels of all homes, each with the home that its name belongs to."""
    found = _sync.list_kernels(all_homes=True)
    homes = [record.home if isinstance(record, Kernel) else "" for record in found]
    if options.pretty:
        from kernelbox.cli.terminal._pretty import show_table

        for home in dict.fromkeys(homes):
            print(escape(home))
            show_table([record for record, its in zip(found, homes, strict=True) if its == home])
    else:
        emit({"kernels": [{**record.to_dict(), "home": home} for record, home in zip(found, homes, strict=True)]})
    return 0


def show_one(options: Namespace) -> int:
    record = _find(options)
    if options.pretty:
        from kernelbox.cli.terminal._pretty import show_record

        show_record(record)
    else:
        emit({"alive": record.alive, "kernel": record.to_dict()})
    return 0 if record.alive else 1


def interrupt(options: Namespace) -> int:
    record = _find(options)
    stopped = _sync.interrupt(record)
    if not stopped:
        say(f"kernel {record.name!r} was not running anything")
    return _print(options, {"interrupted": stopped}, "interrupted" if stopped else "")


def restart(options: Namespace) -> int:
    record = _sync.restart(_find(options))
    say(f"restarted {record.name!r}; lost: {record.lost}")
    return _print_record(options, record)


def destroy(options: Namespace) -> int:
    try:
        record = _find(options)
        if not _sync.destroy(record):
            raise KernelNotFound(record.name)  # another process was faster
    except KernelNotFound as exc:
        say(str(exc))
        _print(options, {"destroyed": False}, "")
        return 1
    return _print(options, {"destroyed": True}, f"destroyed {record.name!r}")


def wipe(options: Namespace) -> int:
    names = {record.kernel_id: record.name for record in _sync.list_kernels(all_homes=options.all)}
    ended = _sync.wipe(stale=options.stale, all_homes=options.all)
    text = "\n".join(f"destroyed {names.get(kernel_id, kernel_id)!r}" for kernel_id in ended)
    return _print(options, {"destroyed": ended}, text or "there was nothing to destroy")


def logs(options: Namespace) -> int:
    store = kernels().store
    found = []
    with contextlib.suppress(FileNotFoundError):
        if options.template:
            with store.runtime() as runtime:
                names = [name for name in runtime.listdir() if name.startswith(TEMPLATE) and name.endswith(".log")]
                found = [_read_log(runtime, name, options.lines) for name in sorted(names)]
        else:
            with store.enter(_find(options).kernel_id) as place:
                found = [_read_log(place, LOG, options.lines)]
    return _print(options, {"logs": found}, "\n".join(log["text"].rstrip("\n") for log in found))


def version(options: Namespace) -> int:
    python = ".".join(map(str, sys.version_info[:3]))
    data = {"kernelbox": __version__, "python": python, "platform": sys.platform, "executable": sys.executable}
    return _print(options, data, f"kernelbox {__version__} on Python {python}")


def _find(options: Namespace) -> KernelRecord:
    return _sync.status(options.id if options.name is None else options.name)


def _progress(options: Namespace, what: str) -> AbstractContextManager[None]:
    if not options.pretty:
        return contextlib.nullcontext()
    from kernelbox.cli.terminal._pretty import progress

    return progress(what)


def _print_record(options: Namespace, record: KernelRecord) -> int:
    return _print(options, record.to_dict(), f"{record.name}  {record.status}  pid {record.pid}  id {record.kernel_id}")


def _print(options: Namespace, data: object, text: str) -> int:
    if options.pretty:
        if text:
            print(escape(text, keep="\n\t"))
    else:
        emit(data)
    return 0


def _read_log(place: Place, name: str, lines: int) -> dict[str, str]:
    try:
        text = place.tail(name, _LONGEST_LOG).decode("utf-8", "replace")
    except FileNotFoundError:
        text = ""
    pieces = text.split("\n")
    kept = pieces[-lines - (pieces[-1] == "") :] if lines else []
    return {"path": place.path_of(name), "text": "\n".join(kept)}

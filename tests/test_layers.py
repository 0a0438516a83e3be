"""The rooms, enforced: which folder may import which, and which file holds which power.

The rules are the tables below. The source is read with `ast`, so an import counts wherever it stands:
inside a function, in a branch, for type checking only. Naming a module as a string, to launch it, is not one.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "src"


@dataclass(frozen=True, kw_only=True)
class Room:
    """Limits what the modules in a folder may import: `ours` are rooms of kernelbox, `others` all the rest."""

    ours: tuple[str, ...]
    others: tuple[str, ...] = ("*",)


# Every folder of the package, from the bottom up; a room imports itself and the rooms named here, all of them below it.
# Both include the rooms inside; a folder without an entry is part of the one around it.
PURE = (
    "__future__",
    "_blake2",
    "_collections",
    "_json",
    "base64",
    "binascii",
    "builtins",
    "codecs",
    "collections",
    "dataclasses",
    "enum",
    "inspect",
    "json",
    "math",
    "struct",
    "typing",
)
BELOW_FACES = ("wire", "base", "sandbox", "host", "core", "tools", "shells")
ROOMS = {
    # What results can do; Pillow is imported when a picture must be scaled.
    "wire/results": Room(ours=("wire",), others=(*PURE, "PIL", "html", "io", "itertools", "pathlib", "re", "warnings")),
    "wire": Room(ours=(), others=PURE),
    "usage": Room(ours=()),
    # What travels between host and guest, in the form that both know.
    "data": Room(ours=()),
    "guest": Room(ours=("wire", "usage", "data")),
    "base": Room(ours=("wire",)),
    # For those who come from KernelBox 0.1, as are `core/types.py` and `core/exceptions.py`.
    "config": Room(ours=("base",)),
    "sandbox": Room(ours=("wire", "base")),
    "host/process": Room(ours=("wire", "usage", "base")),
    "host/files": Room(ours=("wire", "base", "sandbox", "host.process")),
    "host/pythons": Room(ours=("wire", "base", "host.process")),
    "host/store": Room(ours=("wire", "base", "host.process", "host.files")),
    "host/engines": Room(ours=("wire", "usage", "base", "sandbox", "host.process", "host.files", "host.store")),
    "host": Room(ours=("base",)),
    "core/approvals": Room(ours=("wire", "base", "host")),
    "core": Room(ours=("wire", "base", "sandbox", "host", "data")),
    "tools": Room(ours=("wire", "base", "host", "core", "__version__")),
    "shells": Room(ours=("wire", "base", "sandbox", "host", "core", "tools")),
    "api": Room(ours=("wire", "base", "host", "core", "tools", "shells")),
    # The MCP server: what its tools do, and above them the server and its transports.
    "mcp/toolsets": Room(ours=(*BELOW_FACES, "api", "mcp._mcp_options")),
    "mcp": Room(ours=(*BELOW_FACES, "api", "server.http", "server.jobs._draining", "__version__")),
    # The HTTP service, from the bottom: HTTP, what callers run, Jupyter's front ends, the routes, the application.
    "server/http": Room(ours=("wire", "base", "host", "__version__")),
    "server/jobs": Room(ours=(*BELOW_FACES, "server._service_options", "server.http")),
    "server/jupyter": Room(
        ours=(*BELOW_FACES, "api", "server._service_options", "server.http", "server.jobs", "__version__")
    ),
    "server/routes": Room(
        ours=(
            *(*BELOW_FACES, "api", "server._service_options", "server.http", "server.jobs", "server.jupyter"),
            "__version__",
        )
    ),
    "server": Room(ours=(*BELOW_FACES, "mcp", "__version__")),
    "gateway": Room(ours=("wire", "base", "host", "core", "shells", "server")),
    # E2B's code interpreter in local kernels.
    "e2b": Room(ours=("wire", "base", "sandbox", "core", "shells", "api")),
    # Agent frameworks, each imported by its own module alone.
    "integrations": Room(ours=("wire", "base", "core", "shells", "api")),
    "cli": Room(
        ours=(
            "wire",
            "base",
            "sandbox",
            "host",
            "core",
            "tools",
            "shells",
            "api",
            "mcp",
            "server",
            "__version__",
        )
    ),
    # The package itself: the lazy table of public names, and `python -m kernelbox`.
    "": Room(ours=("wire", "base", "sandbox", "host", "core", "tools", "api")),
    "aio.py": Room(ours=("api",)),
    "__main__.py": Room(ours=("cli",)),
}

# The rooms inside the guest, from the bottom up: each imports the files of `guest` itself, its own and those below it.
GUEST_ROOMS = ("walls", "copies", "output", "programs", "shell", "serve", "birth")

# What generated modules and users import: it stands on top of the rooms, and the rooms do not import it.
GUEST_FACES = ("guest/tools.py", "guest/discovery.py")

_PURE_JUPYTER = ("actions", "conversation", "jupyter_cell", "probe", "published")

# Modules outside the wire that decide without sockets, clock or files, as it does.
PURE_FILES = (
    "core/approvals/_approval_policy.py",
    "sandbox/_path_rules.py",
    *(
        f"server/jupyter/_{name}.py"
        for name in ("exchange", "front_end_message", "other_clients", "reconnecting", "websocket_codec")
    ),
    *(f"host/engines/jupyter/_{name}.py" for name in _PURE_JUPYTER),
)

# The files of the HTTP service that may use FastAPI and what is below it. Most of `server/jupyter` may not, so that
# the bridge to ZeroMQ and the clients of a gateway do not import it.
WITH_FASTAPI = (
    *("server/app.py", "server/_serving.py", "server/http/*", "server/jobs/*", "server/routes/*"),
    *("server/jupyter/_front_ends.py", "server/jupyter/_socket_front_end.py"),
)

# One importer per power: (what is used, the only files that may).
POWERS = (
    (
        ("zmq", "jupyter_client"),
        (
            "host/engines/jupyter/*",
            "host/engines/_kernelspecs.py",
            "server/jupyter/_zeromq.py",
            "server/jupyter/_kernelspec.py",
        ),
    ),
    # What tells one kind of kernel from another; all others go through the engine.
    (("kernelbox.host.engines.own",), ("host/engines/own/*", "host/_engines.py", "cli/commands/_doctor.py")),
    (("kernelbox.host.engines.jupyter",), ("host/engines/jupyter/*", "host/_engines.py", "gateway/_remote_cell.py")),
    (
        ("mcp", "mcp_types"),
        (
            "tools/_http_transport.py",
            "tools/_sdk_client.py",
            "tools/_server_messages.py",
            "tools/_server_process.py",
            "tools/_session.py",
            "mcp/*",
        ),
    ),
    (("httpx2",), ("tools/_sdk_client.py", "tools/_http_transport.py", "mcp/*", "gateway/_gateway_link.py")),
    (("websockets",), ("gateway/_gateway_link.py", "server/http/_websocket_protocol.py")),
    (("PIL",), ("integrations/smolagents.py", "wire/results/_picture_scaling.py", "cli/console/_inline_images.py")),
    (("starlette", "uvicorn"), ("mcp/_mount.py", *WITH_FASTAPI)),
    (("fastapi", "fastapi_offline", "prometheus_client", "pythonjsonlogger"), WITH_FASTAPI),
    (("opentelemetry",), ("server/http/_tracing.py",)),
    (
        ("os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv"),
        ("base/_config.py", "base/_environment.py", "guest/*", "tools/_supervisor.py"),
    ),
    (("os.fork", "os.forkpty", "pty.fork"), ("guest/*",)),
    (
        ("os.kill", "os.killpg", "signal.pidfd_send_signal", "signal.pthread_kill", "signal.raise_signal"),
        ("host/process/_process.py", "guest/*", "tools/_supervisor.py"),
    ),
)


def test_there_are_modules_to_check() -> None:
    assert our_modules(), f"no Python files in {SRC / 'kernelbox'}"


def test_every_module_imports_only_from_its_own_room_and_those_below() -> None:
    assert list(room_violations(our_modules())) == []


def test_every_power_is_used_only_in_the_files_that_own_it() -> None:
    assert list(power_violations(our_modules())) == []


def test_modules_that_decide_purely_import_nothing_that_acts() -> None:
    assert list(impurities(our_modules())) == []


def test_a_room_of_the_guest_imports_only_itself_and_those_below() -> None:
    assert list(guest_violations(our_modules())) == []


def test_imports_form_no_cycle() -> None:
    assert find_cycle(our_modules()) == []


def test_engines_are_asked_what_they_can_do_and_never_for_their_name() -> None:
    compared = [
        f"{module.path}:{node.lineno}"
        for module in our_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare) and not module.path.startswith("host/")
        if "engine" in (text := ast.unparse(node)) and ("'kernelbox'" in text or "'jupyter'" in text)
    ]
    assert compared == []


# A folder with more is hard to take in at a glance.
MOST_MODULES = 16

# Public names: `kernelbox.gateway` and `kernelbox` each have a result of their own, as ipybox and KernelBox did, and
# `kernelbox.e2b` has the names of E2B.
SHARED_CLASS_NAMES = {"Execution", "ExecutionError", "ExecutionResult"}


def test_no_folder_has_more_than_sixteen_modules() -> None:
    folders = Counter(module.path.rpartition("/")[0] for module in our_modules() if "__init__" not in module.path)
    assert {folder: count for folder, count in folders.items() if count > MOST_MODULES} == {}


def test_a_file_name_stands_for_one_module() -> None:
    names = Counter(module.path.rpartition("/")[2] for module in our_modules())
    assert {name for name, count in names.items() if count > 1} <= {"__init__.py", "__main__.py"}


def test_a_class_name_stands_for_one_class() -> None:
    classes = Counter(
        node.name
        for module in our_modules()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in classes.items() if count > 1} == SHARED_CLASS_NAMES


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("wire/_messages.py", "import socket"),
        ("wire/_messages.py", "def f():\n    from time import monotonic"),
        ("wire/_messages.py", "from kernelbox.base import _config"),
        ("wire/_messages.py", "from ..base import _errors"),
        ("guest/shell/_shell.py", "from kernelbox.host.process import _process"),
        ("guest/shell/_shell.py", "from kernelbox.base._config import Config"),
        ("guest/shell/_shell.py", "import kernelbox"),
        ("host/engines/own/_launch.py", "import kernelbox.guest"),
        ("host/engines/own/_launch.py", "import kernelbox.core._kernels"),
        ("host/store/_store.py", "import typing\nif typing.TYPE_CHECKING:\n    from kernelbox.api import _sync"),
        ("host/process/_process.py", "from kernelbox.host.store._record import KernelRecord"),
        ("host/store/_store.py", "from kernelbox.host import _engines"),
        ("core/approvals/_approval_gate.py", "from kernelbox.core._kernels import Kernels"),
        ("base/_config.py", "from kernelbox.host.process import _process"),
        ("core/_kernels.py", "def f():\n    from kernelbox.shells._blocking_run import run"),
        ("core/_kernels.py", "from kernelbox.cli import main"),
        ("shells/_asyncio_run.py", "from kernelbox.api import _executor"),
        ("api/_sync.py", "from kernelbox.guest.shell._shell import Shell"),
        ("api/_sync.py", "from kernelbox.cli import main"),
        ("cli/_main.py", "from ..guest.shell import _shell"),
        ("__init__.py", "from kernelbox.cli import main"),
        ("_kernels.py", "import os"),
        ("unknown/_app.py", "import os"),
    ],
)
def test_an_import_from_a_forbidden_room_is_caught(tmp_path: Path, path: str, source: str) -> None:
    modules = write_modules(tmp_path, {path: source})
    assert len(list(room_violations(modules))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("wire/_framing.py", "from collections.abc import Iterator\nfrom ._messages import Done"),
        ("guest/shell/_shell.py", "import os, socket\nfrom kernelbox.wire import Done"),
        ("host/engines/own/_launch.py", "from kernelbox.base import _errors\nGUEST = 'kernelbox.guest'"),
        (
            "host/store/_store.py",
            "from kernelbox.host.process import _process\nfrom kernelbox.host.files._home import Home",
        ),
        ("host/engines/own/_own_engine.py", "from kernelbox.host.engines._local import Engine"),
        ("api/_sync.py", "from kernelbox.host.process import _process\nfrom kernelbox.core import _kernels"),
        ("cli/commands/_exec.py", "from kernelbox import __version__"),
    ],
)
def test_an_import_from_a_room_below_is_allowed(tmp_path: Path, path: str, source: str) -> None:
    modules = write_modules(tmp_path, {path: source})
    assert list(room_violations(modules)) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("guest/walls/_disk.py", "from kernelbox.guest.output._outbox import Outbox"),
        ("guest/output/_outbox.py", "def f():\n    from kernelbox.guest.serve import _io"),
        ("guest/_alarm.py", "from kernelbox.guest.walls import _disk"),
        ("guest/serve/_io.py", "from kernelbox.guest import tools"),
        ("guest/unknown/_io.py", "import os"),
    ],
)
def test_an_import_from_a_higher_room_of_the_guest_is_caught(tmp_path: Path, path: str, source: str) -> None:
    assert len(list(guest_violations(write_modules(tmp_path, {path: source})))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("guest/birth/_template.py", "from kernelbox.guest.walls import _disk\nfrom kernelbox.guest import _alarm"),
        ("guest/tools.py", "from kernelbox.guest.serve._asks import Asks"),
    ],
)
def test_an_import_from_a_lower_room_of_the_guest_is_allowed(tmp_path: Path, path: str, source: str) -> None:
    assert list(guest_violations(write_modules(tmp_path, {path: source}))) == []


@pytest.mark.parametrize("source", ["import os", "from time import monotonic", "def f():\n    import socket"])
def test_an_import_that_acts_in_a_pure_module_is_caught(tmp_path: Path, source: str) -> None:
    modules = write_modules(
        tmp_path, {"host/engines/jupyter/_conversation.py": source, "host/engines/jupyter/_connection_file.py": source}
    )
    (found,) = impurities(modules)
    assert found.startswith("host/engines/jupyter/_conversation.py:")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("host/engines/own/_launch.py", "import zmq.asyncio"),
        ("core/_kernels.py", "from kernelbox.host.engines.own._own_engine import OwnEngine"),
        ("shells/_blocking_run.py", "def f():\n    import kernelbox.host.engines.jupyter._jupyter_connection"),
        ("host/engines/own/_own_engine.py", "from ..jupyter import _engine"),
        ("host/engines/_local.py", "from kernelbox.host.engines.own._own_engine import OwnEngine"),
        ("api/_sync.py", "from jupyter_client.manager import KernelManager"),
        ("host/store/_store.py", "import os\nos.environ['HOME']"),
        ("host/store/_store.py", "import os as system\nsystem.environ.get('HOME')"),
        ("cli.py", "from os import getenv"),
        ("host/process/_process.py", "import os\nos.fork()"),
        ("host/engines/own/_launch.py", "import os\nos.kill(1, 2)"),
        ("core/_kernels.py", "import signal\nsend = signal.pidfd_send_signal"),
    ],
)
def test_a_power_used_outside_its_file_is_caught(tmp_path: Path, path: str, source: str) -> None:
    modules = write_modules(tmp_path, {path: source})
    assert len(list(power_violations(modules))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("host/engines/jupyter/_zmq_channels.py", "import zmq\nfrom jupyter_client import KernelManager"),
        ("base/_config.py", "import os\nos.environ"),
        ("guest/birth/_template.py", "import os\nos.environ\nos.fork()\nos.kill(1, 2)"),
        ("host/process/_process.py", "import signal\nsignal.pidfd_send_signal(3, signal.SIGINT)"),
        ("host/engines/own/_launch.py", "import os\nos.path.join('a', 'b')"),
    ],
)
def test_a_power_used_in_its_own_file_is_allowed(tmp_path: Path, path: str, source: str) -> None:
    modules = write_modules(tmp_path, {path: source})
    assert list(power_violations(modules)) == []


def test_a_cycle_of_imports_is_caught(tmp_path: Path) -> None:
    tried = "try:\n    import kernelbox._a\nexcept ImportError: ..."
    modules = write_modules(tmp_path, {"_a.py": "from ._b import b", "_b.py": tried})
    assert set(find_cycle(modules)) == {"kernelbox._a", "kernelbox._b"}


def test_a_module_that_imports_names_from_its_own_package_is_a_cycle(tmp_path: Path) -> None:
    package, inner = "from ._a import x", "from . import x"
    modules = write_modules(tmp_path, {"wire/__init__.py": package, "wire/_a.py": inner})
    assert set(find_cycle(modules)) == {"kernelbox.wire", "kernelbox.wire._a"}


def test_an_import_inside_a_function_closes_a_cycle(tmp_path: Path) -> None:
    lazy = "class C:\n    def f(self):\n        try:\n            from ._a import a\n        finally: ..."
    modules = write_modules(tmp_path, {"_a.py": "from . import _b", "_b.py": lazy})
    assert set(find_cycle(modules)) == {"kernelbox._a", "kernelbox._b"}


def test_an_import_for_type_checking_closes_no_cycle(tmp_path: Path) -> None:
    typed = "import typing\nif typing.TYPE_CHECKING:\n    from ._a import a"
    modules = write_modules(tmp_path, {"_a.py": "from ._c import c", "_c.py": typed})
    assert find_cycle(modules) == []


@dataclass(frozen=True)
class Module:
    name: str
    path: str
    """Below `src/kernelbox`, with forward slashes."""
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]


@cache
def our_modules() -> list[Module]:
    return read_modules(SRC)


def write_modules(src: Path, sources: dict[str, str]) -> list[Module]:
    for path, source in sources.items():
        file = src / "kernelbox" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    return read_modules(src)


def read_modules(src: Path) -> list[Module]:
    modules = []
    for file in sorted((src / "kernelbox").rglob("*.py")):
        name = ".".join(file.relative_to(src).with_suffix("").parts).removesuffix(".__init__")
        path = file.relative_to(src / "kernelbox").as_posix()
        modules.append(Module(name, path, ast.parse(file.read_text(encoding="utf-8"), filename=path)))
    return modules


def room_violations(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        name = room_of(module.path)
        room = ROOMS.get(name)
        if room is None:
            yield f"{module.path} is in no room"
            continue
        for line, target in imports(module, ast.walk(module.tree)):
            if inside(target, ("kernelbox",)):
                ours = below_kernelbox(target)
                allowed = inside(ours, (*room.ours, *([name.replace("/", ".")] if name else ())))
            else:
                allowed = inside(target, room.others)
            if not allowed:
                yield f"{module.path}:{line} imports {target}"


def guest_violations(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        if room_of(module.path) != "guest" or module.path in GUEST_FACES:
            continue
        floor = guest_floor(module.name)
        if floor is None:
            yield f"{module.path} is in no room of the guest"
            continue
        for line, target in imports(module, ast.walk(module.tree)):
            if not inside(target, ("kernelbox.guest",)):
                continue
            other = guest_floor(target)
            if other is None or other > floor:
                yield f"{module.path}:{line} imports {target}"


def guest_floor(name: str) -> int | None:
    """Returns the floor of the guest that a module stands on: 0 beside the rooms, None for a face or another room."""
    room = name.removeprefix("kernelbox.guest").removeprefix(".").partition(".")[0]
    if room in GUEST_ROOMS:
        return GUEST_ROOMS.index(room) + 1
    return 0 if not room or room.startswith("_") else None


def room_of(path: str) -> str:
    """Returns the innermost room that a module stands in; the package's own `__init__` stands in none."""
    if path == "__init__.py":
        return ""
    folders = path.split("/")
    inner = ("/".join(folders[:depth]) for depth in range(len(folders) - 1, 1, -1))
    return next((folder for folder in inner if folder in ROOMS), folders[0])


def power_violations(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        used = list(uses(module))
        for powers, owners in POWERS:
            if any(fnmatch(module.path, owner) for owner in owners):
                continue
            found = next(((line, name) for line, name in used if inside(name, powers)), None)
            if found is not None:
                line, name = found
                yield f"{module.path}:{line} uses {name}, which belongs to {' and '.join(owners)}"


def impurities(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        for line, target in imports(module, ast.walk(module.tree)) if module.path in PURE_FILES else ():
            if not inside(target, (*PURE, "kernelbox", "fnmatch", "functools", "itertools", "re")):
                yield f"{module.path}:{line} imports {target}"


def find_cycle(modules: list[Module]) -> list[str]:
    known = {module.name for module in modules}
    graph: dict[str, set[str]] = {}
    for module in modules:
        targets = {nearest(target, known) for _, target in imports(module, at_run_time(module.tree))}
        graph[module.name] = {target for target in targets if target and target != module.name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        cycle: list[str] = exc.args[1]
        return cycle
    return []


def imports(module: Module, nodes: Iterator[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yields the line and the absolute name of each import; `from a import b` is `a.b`, module or not."""
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(names=names):
                for alias in names:
                    yield node.lineno, f"{origin(module, node)}.{alias.name}"


def origin(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parents = module.package.split(".")
    return ".".join([*parents[: len(parents) - node.level + 1], *([node.module] if node.module else [])])


def uses(module: Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the absolute name of every import, and of every attribute of an imported module."""
    yield from imports(module, ast.walk(module.tree))
    meaning = dict(bindings(module))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in meaning:
                yield node.lineno, f"{meaning[first]}.{rest}"


def bindings(module: Module) -> Iterator[tuple[str, str]]:
    """Yields each local name that an import binds, and what it stands for."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    root = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (root, root)
            case ast.ImportFrom(names=names):
                for alias in names:
                    yield alias.asname or alias.name, f"{origin(module, node)}.{alias.name}"


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what can run: all but what is there for type checking only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from at_run_time(other)
        else:
            yield child
            yield from at_run_time(child)


def nearest(target: str, known: set[str]) -> str | None:
    """Returns the module that an imported name is, or is in; None if it is not one of ours."""
    while target and target not in known:
        target = target.rpartition(".")[0]
    return target or None


def below_kernelbox(name: str) -> str:
    return name.removeprefix("kernelbox").removeprefix(".")


def inside(name: str, places: tuple[str, ...]) -> bool:
    return any(place == "*" or name == place or name.startswith(place + ".") for place in places)

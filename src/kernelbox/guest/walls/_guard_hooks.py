"""Audit hooks of a guarded kernel, which tell a cell in words that only `!` starts a program.

The operating system enforces that (guest/walls/_guard.py): a guarded kernel has no way to start a program. But a bare
"Operation not permitted" does not help an author of `subprocess.run`. So an audit hook
(PEP 578), which cannot be removed, sees `subprocess`, `os.system`, `os.exec*`, `os.spawn*`, `os.posix_spawn`,
`pty.spawn` and all that is built on them, under whatever name they are imported; what announces itself to no hook is
replaced: `_posixsubprocess.fork_exec`, and `_imp.create_builtin`, which would make a new one.

The guards also keep cells from the files of the runtime directory, as far as Python announces what opens them: with the
keys of Jupyter kernels, which are in it, a cell could have its code run there.
"""

from __future__ import annotations

import _imp
import _posixsubprocess
import subprocess
from _socket import AF_UNIX
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from sys import addaudithook, audit
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any, NoReturn

from kernelbox.guest._exact_values import plain_bytes, to_text
from kernelbox.guest._stdlib import os, sys
from kernelbox.guest.walls._own_files import OwnFiles
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# What ctypes would have to find in the C library to do the same.
_SYMBOLS = frozenset(
    {"system", "popen", "fork", "vfork", "execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe"}
    | {"fexecve", "posix_spawn", "posix_spawnp", "clone", "syscall"}
)

# Modules of which a new copy would have what was replaced in the old one; that make interpreters, in which there is no
# hook; that were made to test the interpreter by breaking its rules; that have an `exec` of their own.
_MODULES = frozenset(
    {"_posixsubprocess", "_imp"}
    | {"_interpreters", "_xxsubinterpreters"}
    | {"_testcapi", "_testinternalcapi", "_testlimitedcapi", "_testmultiphase", "_testsinglephase", "_testclinic"}
    | {"_tkinter"}
)

# Where all of os.spawn* meet.
_SPAWN = os._spawnvef.__code__  # type: ignore[attr-defined]

# What stands between a caller and the function that starts a process.
in_between: set[CodeType] = set()

_on = _heard = False
_home = 0
_files: OwnFiles | None = None
_fork_exec: Callable[..., int] | None = _posixsubprocess.fork_exec
_create_builtin: Callable[[Any], Any] = _imp.create_builtin


def prepare(directory: str) -> None:
    """Stands in for what announces itself to no audit hook; called in a kernel before any user code."""
    global _files
    _files = OwnFiles(directory)
    _posixsubprocess.fork_exec = subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]  # typeshed has neither
    _imp.create_builtin = create_builtin


def raise_guards() -> None:
    """Refuses all starts but those by `!`, until the process ends; raises RuntimeError if a cell has prevented that."""
    global _on, _home, _fork_exec
    if _on:
        return
    original, _fork_exec = _fork_exec, None
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in tuple(names.items()) if value is original]:
            names[name] = fork_exec
    for name in _MODULES - {"_posixsubprocess", "_imp"}:
        _disarm(sys.modules.get(name))
    assert _files is not None
    _files.prepare()
    _on, _home = True, os.getpid()
    addaudithook(_on_event)
    audit(_PROBE)
    if not _heard:  # a hook of a cell's may refuse others, in silence
        raise RuntimeError("an earlier cell of this kernel has blocked audit hooks")


def fork_exec(*args: Any) -> int:
    """Stands in for the function below subprocess and multiprocessing."""
    if _fork_exec is None:
        _refuse("fork_exec")
    return _fork_exec(*args)


def create_builtin(spec: Any) -> Any:
    """Stands in for the function that makes modules that are part of the interpreter."""
    if _on:
        name = str.__str__(spec.name)
        _check_import("import", (name,))
        spec = ModuleSpec(name, None, origin="built-in")  # one whose name is the same when it is asked for again
    return _create_builtin(spec)


def _on_event(event: str, args: tuple[Any, ...]) -> None:
    check = _CHECKS.get(event)
    if check is not None:
        check(event, args)


def _check_fork(event: str, args: tuple[Any, ...]) -> None:
    """Refuses the fork of os.spawn*, whose child would swallow the error and only exit with 127."""
    frame: FrameType | None = sys._getframe(2)
    if frame is not None and frame.f_code in in_between:
        frame = frame.f_back
    if frame is not None and frame.f_code is _SPAWN:
        _refuse("os.spawn")


def _check_symbol(event: str, args: tuple[Any, ...]) -> None:
    if issubclass(type(args[1]), str) and (name := str.__str__(args[1])) in _SYMBOLS:
        _refuse(f"ctypes {name}()")


def _check_import(event: str, args: tuple[Any, ...]) -> None:
    # Python looks in a library for a function with the last part of the module's name, `_` for `-`, up to a NUL
    # (get_encoded_name in CPython's Python/importdl.c). What the file is called does not matter.
    name = str.__str__(args[0]).rpartition(".")[2].partition("\0")[0].replace("-", "_")
    if name in _MODULES:
        raise _ImportRefusal(f"the module {name} is not allowed here: {_ADVICE}")


def _check_hook(event: str, args: tuple[Any, ...]) -> None:
    """Refuses hooks of cells: they would see what is about to start, and could change its environment."""
    raise _Refusal("audit hooks cannot be added here")


def _check_socket(event: str, args: tuple[Any, ...]) -> None:
    """Says why a Unix socket cannot be made; one that is there already, such as half of a pair, gets an object."""
    frame = sys._getframe(2)  # socket.__init__, unless a cell goes round it: the system refuses that as well
    if args[1] == AF_UNIX and frame.f_locals.get("fileno", 0) is None:
        raise _Refusal(f"Unix sockets cannot be made here, because services behind them start programs: {_ADVICE}")


def _check_removal(event: str, args: tuple[Any, ...]) -> None:
    _check_moved(_from_descriptor(_exact_path(args[0]), args[1]))


def _check_change(event: str, args: tuple[Any, ...]) -> None:
    """Refuses changes to our files; the last argument of some events is the descriptor of a directory."""
    if not issubclass(type(args[0]), int):
        fd = args[-1] if event in _WITH_DESCRIPTOR else -1
        _check_source(_from_descriptor(_exact_path(args[0]), fd))


def _check_open(event: str, args: tuple[Any, ...]) -> None:
    if issubclass(type(args[0]), int):
        return
    path = _exact_path(args[0])
    assert _files is not None
    if path is None or _files.hold(path) or (args[1] is None and _files.hold_from_descriptor(path)):  # os.open
        raise _Refusal(f"opening kernelbox's own file {path!r} is not allowed here")


def _check_chdir(event: str, args: tuple[Any, ...]) -> None:
    """Keeps cells out of the runtime directory: what a relative path leads to would change while it is looked at."""
    path = f"/proc/self/fd/{args[0]}" if issubclass(type(args[0]), int) else _exact_path(args[0])
    assert _files is not None
    if path is None or _files.hold(path):
        raise _Refusal(f"going to kernelbox's own directory {path!r} is not allowed here")


def _check_move(event: str, args: tuple[Any, ...]) -> None:
    _check_moved(_from_descriptor(_exact_path(args[0]), args[2]))
    _check_moved(_from_descriptor(_exact_path(args[1]), args[3]))


def _check_link(event: str, args: tuple[Any, ...]) -> None:
    """Refuses links to what is ours: one that is made between the look at a path and its use would deceive."""
    target, place = _exact_path(args[0]), _from_descriptor(_exact_path(args[1]), args[2])
    if target is not None and place is not None and not target.startswith("/"):
        target = f"{place.rpartition('/')[0] or '.'}/{target}"
    _check_source(target)


def _check_moved(path: str | None) -> None:
    """Refuses to move or remove what is ours, and what it is in: its path would lead elsewhere."""
    _check_source(path)
    assert _files is not None
    assert path is not None
    if _files.depend_on(path):
        raise _Refusal(f"moving or removing {path!r} is not allowed here: kernelbox's own files are in it")


def _check_source(path: str | None) -> None:
    assert _files is not None
    if path is None or _files.hold(path):
        raise _Refusal(f"changing, moving or linking kernelbox's own file {path!r} is not allowed here")


def _from_descriptor(path: str | None, fd: int) -> str | None:
    return f"/proc/self/fd/{fd}/{path}" if path is not None and not path.startswith("/") and fd >= 0 else path


def _hear(event: str, args: tuple[Any, ...]) -> None:
    global _heard
    _heard = True


def _exact_path(path: object) -> str | None:
    """Returns the text of a path that is a str or bytes; None for what may have another content when it is used."""
    if issubclass(type(path), str):
        return str.__str__(path)
    if isinstance(path, bytes) and issubclass(type(path), bytes):
        return to_text(plain_bytes(path, "a path"))
    return None


def _disarm(module: Any) -> None:
    """Takes the functions away from a module that was imported before."""
    names = getattr(module, "__dict__", {})
    for name in [name for name, value in tuple(names.items()) if isinstance(value, BuiltinFunctionType)]:
        names[name] = fork_exec


def _refuse(what: str) -> NoReturn:
    message = f"Direct {_called(what)} calls are not allowed here; {_ADVICE}"
    if os.getpid() != _home:
        os.write(2, f"RuntimeError: {message}\n".encode())  # the exception is seen in the fork alone
    raise _Refusal(message)


def _called(what: str) -> str:
    """Returns which library function a cell has called, by the frames in between; `what`, if none."""
    frame: FrameType | None = sys._getframe(1)
    name = what if what.endswith(")") else f"{what}()"
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module in _STARTERS:
            name = "subprocess" if module == "subprocess" else f"{module}.{frame.f_code.co_name}()"
        elif module != __name__ and frame.f_code not in in_between:
            break
        frame = frame.f_back
    return name


# The modules of the library whose functions start processes in Python code.
_STARTERS = ("os", "pty", "subprocess")

# An event of our own, by which the hook is seen to be there.
_PROBE = "kernelbox.guards"

_ADVICE = "use !command, which asks for approval"

# Libraries that probe the machine with a command (matplotlib's `fc-list`, platform's `uname`) do without when that
# fails with an OSError, and without a module that fails with an ImportError. It is shown as a RuntimeError.
_Refusal = type("RuntimeError", (RuntimeError, PermissionError), {"__module__": "builtins"})
_ImportRefusal = type("RuntimeError", (RuntimeError, ImportError), {"__module__": "builtins"})

# Events of changes to a file, of those whose last argument is the descriptor of a directory, and of others.
_WITH_DESCRIPTOR = ("os.mkdir", "os.chmod", "os.chown", "os.utime")
_WITHOUT_DESCRIPTOR = ("os.truncate", "os.setxattr", "os.removexattr", "shutil.rmtree", "shutil.move")

# Audit events (docs.python.org/3/library/audit_events.html), and what is made of each.
_CHECKS: dict[str, Callable[[str, tuple[Any, ...]], None]] = {
    **dict.fromkeys(
        ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"),
        lambda event, args: _refuse(event),
    ),
    "os.fork": _check_fork,
    "os.forkpty": _check_fork,
    "ctypes.dlsym": _check_symbol,
    "import": _check_import,
    "sys.addaudithook": _check_hook,
    "socket.__new__": _check_socket,
    "open": _check_open,
    "os.link": _check_move,
    "os.symlink": _check_link,
    "os.rename": _check_move,
    **dict.fromkeys(("os.remove", "os.rmdir"), _check_removal),
    **dict.fromkeys((*_WITH_DESCRIPTOR, *_WITHOUT_DESCRIPTOR), _check_change),
    "os.chdir": _check_chdir,
    _PROBE: _hear,
}

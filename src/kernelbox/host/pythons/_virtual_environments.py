"""Environments that kernelbox makes for requirements: kept by their hash in the user's cache, shared by all kernels.

An environment is made under a lock that its installer holds too. It counts once a file in it says that it is complete.
What a killed maker leaves is made again by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import time

from kernelbox.base._cell_places import can_cells_write
from kernelbox.base._environment import host_variable
from kernelbox.base._errors import StartFailed
from kernelbox.base._text import escape
from kernelbox.host.pythons._probing import NEEDED
from kernelbox.host.pythons._searching import find_uv
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernelbox.base._interpreter import Interpreter

_FOLDER = "environments"

# Written last, with what the environment was made of.
_COMPLETE = "kernelbox.json"

_LOCK = ".lock"

# Characters of a failed installer's output that an error quotes.
_LONGEST_REASON = 600


@dataclass(frozen=True, slots=True)
class CachedEnvironment:
    """An environment in the cache; `last_used` is in seconds since the epoch, `size` in bytes."""

    path: str
    requirements: tuple[str, ...]
    python_version: str
    last_used: float
    size: int
    complete: bool


def environment_for(
    base: Interpreter, packages: Sequence[str], cache: str, progress: Callable[[str], None] | None = None
) -> str:
    """Returns the interpreter of an environment that has these packages; makes it if there is none.

    Raises StartFailed. `progress` is called with what the installer says, line by line.
    """
    folder = _open_folder(cache)
    directory = os.path.join(folder, _digest(base, packages))
    tell = progress or (lambda line: None)
    if not _is_complete(directory):
        with _locked(directory, tell) as lock:
            if not _is_complete(directory):
                tell(
                    f"making an environment of Python {base.version} with {', '.join(packages) or 'what kernels need'}"
                )
                _make(directory, base, packages, lock, tell)
    with contextlib.suppress(OSError):
        os.utime(os.path.join(directory, _COMPLETE))
    return os.path.join(directory, "bin", "python")


def cache_directory(configured: str) -> str:
    """Returns where environments are kept: KERNELBOX_CACHE, or the user's directory for caches."""
    if configured:
        return os.path.abspath(os.path.expanduser(configured))
    return os.path.join(host_variable("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kernelbox")


def list_environments(cache: str) -> list[CachedEnvironment]:
    """Returns the environments in the cache; the one that was used last comes last."""
    folder = os.path.join(cache, _FOLDER)
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted((_describe(os.path.join(folder, name)) for name in names), key=lambda each: each.last_used)


def remove_environment(environment: CachedEnvironment) -> bool:
    """Removes an environment; returns whether it could be: one that is being made stays."""
    try:
        with _locked(environment.path, None):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(environment.path, _COMPLETE))  # first: half an environment must not count
            shutil.rmtree(environment.path, ignore_errors=True)
            os.unlink(environment.path + _LOCK)
    except OSError:
        return False
    return not os.path.exists(environment.path)


def _open_folder(cache: str) -> str:
    folder = os.path.join(cache, _FOLDER)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        info = os.stat(folder)
    except OSError as exc:
        raise StartFailed(f"the cache {folder!r} cannot be used ({exc.strerror}); set KERNELBOX_CACHE") from exc
    if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o022:
        raise StartFailed(
            f"the cache {folder!r} can be written by other users; set KERNELBOX_CACHE to your own directory"
        )
    if can_cells_write(folder):
        raise StartFailed(
            f"the cache {folder!r} can be written by sandboxed cells; set KERNELBOX_CACHE to another directory"
        )
    return folder


def _digest(base: Interpreter, packages: Sequence[str]) -> str:
    from _blake2 import blake2b  # hashlib's import takes 5 ms, because it loads OpenSSL

    return blake2b(
        json.dumps([base.program, base.build, sorted(packages), NEEDED]).encode(), digest_size=10
    ).hexdigest()


def _is_complete(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, _COMPLETE)) and os.path.exists(
        os.path.join(directory, "bin", "python")
    )


@contextlib.contextmanager
def _locked(directory: str, tell: Callable[[str], None] | None) -> Iterator[int]:
    """Holds the lock of an environment; raises BlockingIOError if it is held and there is nobody to `tell`."""
    while True:
        fd = os.open(directory + _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if tell is None:
                    raise
                tell("waiting for another process that makes this environment")
                fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(directory + _LOCK), os.fstat(fd)):  # or it was removed while we waited
                    yield fd
                    return
        finally:
            os.close(fd)


def _make(directory: str, base: Interpreter, packages: Sequence[str], lock: int, tell: Callable[[str], None]) -> None:
    shutil.rmtree(directory, ignore_errors=True)  # what a killed maker has left
    needed = [f"{name}>={oldest}" for name, oldest in NEEDED.items()]
    try:
        for command in _commands(directory, base.program, [*needed, *packages]):
            _run(command, lock, tell, packages)
        made = {"requirements": list(packages), "python": base.version, "made_at": time.time()}
        with open(os.path.join(directory, _COMPLETE + ".new"), "w", encoding="utf-8") as file:
            json.dump(made, file)
        os.rename(os.path.join(directory, _COMPLETE + ".new"), os.path.join(directory, _COMPLETE))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _commands(directory: str, python: str, wanted: list[str]) -> list[list[str]]:
    """Returns the commands that make an environment: those of uv, or of venv and pip without uv."""
    inside, uv = os.path.join(directory, "bin", "python"), find_uv()
    if uv is None:
        quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-color"]
        return [[python, "-m", "venv", directory], [inside, "-m", "pip", "install", *quiet, "--", *wanted]]
    plain = ["--no-progress", "--color", "never"]
    return [
        [uv, "venv", *plain, "--no-project", "--python", python, directory],
        [uv, "pip", "install", *plain, "--python", inside, "--", *wanted],
    ]


def _run(command: list[str], lock: int, tell: Callable[[str], None], packages: Sequence[str]) -> None:
    """Runs one command of an installation in a directory without settings; its lines go to `tell`."""
    import subprocess

    said: list[str] = []
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            pass_fds=[lock],  # an installer that outlives us keeps others from its directory
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    said = [*said[-20:], escape(line.rstrip())]
                    tell(said[-1])
            except BaseException:
                process.terminate()
                raise
    except OSError as exc:
        raise StartFailed(f"{command[0]!r} cannot be run: {exc.strerror}; install uv") from exc
    if process.returncode:
        words = _reason(said)
        wanted = ", ".join(packages) or "what kernels need"
        raise StartFailed(f"no environment could be made with {wanted}: {words or f'status {process.returncode}'}")


def _reason(said: list[str]) -> str:
    """Returns the end of what an installer has said: the last error of pip, the last lines of uv."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    lines = errors[-1:] or [line.strip() for line in said[-5:] if line.strip()]
    return " ".join(lines)[-_LONGEST_REASON:]


def _describe(path: str) -> CachedEnvironment:
    made: dict[str, object] = {}
    last_used = 0.0
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(path, _COMPLETE), encoding="utf-8") as file:
            made = dict(json.load(file))
        last_used = os.stat(os.path.join(path, _COMPLETE)).st_mtime
    named = made.get("requirements")
    packages = tuple(map(str, named)) if isinstance(named, list) else ()
    return CachedEnvironment(path, packages, str(made.get("python", "")), last_used, _size(path), bool(made))


def _size(path: str) -> int:
    """Returns the bytes of all files in a directory; those that uv links from its own cache count too."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total

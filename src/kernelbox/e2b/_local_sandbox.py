"""A sandbox of E2B's shape on this machine: a directory, a kernel for each context, and the time when it ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import threading
import time
from datetime import UTC, datetime

from kernelbox.api._fresh_shell import NO_LIMIT
from kernelbox.api._sync import get_or_create, list_kernels
from kernelbox.base._environment import scrubbed_environment
from kernelbox.base._errors import KernelNotFound
from kernelbox.e2b._e2b_values import (
    Context,
    EntryInfo,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NoCounterpart,
    NotFoundException,
    SandboxException,
    SandboxInfo,
    SandboxNotFoundException,
    SandboxNotRunningException,
)
from kernelbox.sandbox._sandbox_config import SandboxConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kernelbox.api._kernel import Kernel
    from kernelbox.core._kernel_data import FileInfo

# Where files are in E2B's sandboxes. The same paths lead to the directory of a local one.
USERS_HOME = "/home/user"

# Seconds that a cell has by default, and a sandbox: E2B's own numbers.
DEFAULT_TIMEOUT = 300

_TAG, _LANGUAGE_TAG, _DIRECTORY_TAG = "e2b.sandbox", "e2b.language", "e2b.cwd"
_PREFIX = "kernelbox-e2b-"

_TEMPLATES = (None, "base", "code-interpreter-v1")
_LANGUAGES = {None: "python", "python": "python", "bash": "bash"}


class LocalSandbox:
    """Knows the kernels of a sandbox by their tags, so that other processes find them too."""

    def __init__(self, sandbox_id: str, kernel: Kernel, options: dict[str, Any]) -> None:
        self.id, self.kernel, self._options = sandbox_id, kernel, options
        self.root = kernel.cwd
        self._kernels = {kernel.name: kernel}
        self._timer: threading.Timer | None = None

    @classmethod
    def create(
        cls, timeout: float | None, metadata: dict[str, str] | None, envs: dict[str, str] | None, **options: Any
    ) -> LocalSandbox:
        """Makes the directory and opens the first kernel. Both end with the sandbox, or with this process."""
        seconds = _check_life(DEFAULT_TIMEOUT if timeout is None else timeout)
        sandbox_id = os.urandom(10).hex()
        base = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            root = os.path.join(base, "user")
            os.mkdir(root)
            with open(os.path.join(base, "timeout"), "x"):
                pass  # its time of change is when the sandbox ends
            tags = {**(metadata or {}), _TAG: sandbox_id, _LANGUAGE_TAG: "python", _DIRECTORY_TAG: root}
            env = scrubbed_environment({"HOME": root, **(envs or {})})
            options = {**options, "cwd": root, "env": env, "lifetime": "process"}
            made = cls(sandbox_id, get_or_create(f"e2b-{sandbox_id}", tags=tags, **options), options)
        except BaseException:
            shutil.rmtree(base)
            raise
        made.set_timeout(seconds, owner=True)
        return made

    @classmethod
    def connect(cls, sandbox_id: str, timeout: float | None = None) -> LocalSandbox:
        """Finds a running sandbox, even one of another process."""
        name = f"e2b-{sandbox_id}"
        if not any(record.name == name and record.tags.get(_TAG) == sandbox_id for record in list_kernels()):
            raise SandboxNotFoundException(sandbox_id)
        kernel = get_or_create(name)
        walls = SandboxConfig.from_text(kernel.sandbox_config) if kernel.sandbox is not None else None
        env = scrubbed_environment({"HOME": kernel.cwd})
        options = {"cwd": kernel.cwd, "env": env, "lifetime": "process", "sandbox": walls, "limits": kernel.limits}
        found = cls(sandbox_id, kernel, options)
        if not os.path.basename(os.path.dirname(found.root)).startswith(_PREFIX):
            raise SandboxNotFoundException(sandbox_id)  # another kernel with our tag, whose directory must stay
        found.running()
        if timeout is not None:
            found.set_timeout(timeout)
        return found

    # -- its life --------------------------------------------------------------------------------------------

    def is_running(self) -> bool:
        """Tells whether the sandbox runs; ends it if its time is over."""
        try:
            if time.time() < os.stat(self._timeout_file).st_mtime:
                self.kernel.refresh()
                return True
        except (FileNotFoundError, KernelNotFound):
            return False
        self.kill()
        return False

    def running(self) -> LocalSandbox:
        """Returns the sandbox; raises SandboxNotRunningException."""
        if not self.is_running():
            raise SandboxNotRunningException(self.id)
        return self

    def set_timeout(self, seconds: float, *, owner: bool = False) -> None:
        """Says when the sandbox ends, from now. The process that made it ends it then."""
        end = time.time() + _check_life(seconds)
        try:
            os.utime(self._timeout_file, (end, end))
        except FileNotFoundError:
            raise SandboxNotRunningException(self.id) from None
        if owner:
            atexit.register(self._end_with_process, os.getpid())
        if owner or self._timer is not None:
            self._watch(seconds)

    def _end_with_process(self, owner: int) -> None:
        if os.getpid() == owner:  # a forked child inherits the exit functions
            self.kill()

    def _watch(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(max(0, min(seconds, threading.TIMEOUT_MAX)), self._check_time)
        self._timer.daemon = True
        self._timer.start()

    def _check_time(self) -> None:
        if self.is_running():  # another process has given it more time
            self._watch(os.stat(self._timeout_file).st_mtime - time.time())

    def info(self) -> SandboxInfo:
        """Returns what is known about it."""
        ours = (_TAG, _LANGUAGE_TAG, _DIRECTORY_TAG)
        metadata = {name: value for name, value in self.running().kernel.tags.items() if name not in ours}
        end = datetime.fromtimestamp(os.stat(self._timeout_file).st_mtime, UTC)
        started = datetime.fromtimestamp(os.stat(os.path.dirname(self.root)).st_ctime, UTC)
        return SandboxInfo(self.id, metadata, min(started, end), end)

    def kill(self) -> bool:
        """Ends the kernels and removes the directory; returns whether there was anything to end."""
        if self._timer is not None:
            self._timer.cancel()
        atexit.unregister(self._end_with_process)
        names = {record.name for record in list_kernels() if record.tags.get(_TAG) == self.id} | self._kernels.keys()
        ended = [self._object(name).destroy() for name in names]
        shutil.rmtree(os.path.dirname(self.root), ignore_errors=True)
        return any(ended)

    @property
    def _timeout_file(self) -> str:
        return os.path.join(os.path.dirname(self.root), "timeout")

    # -- contexts --------------------------------------------------------------------------------------------

    def create_context(self, cwd: str | None, language: str | None) -> Context:
        """Opens another kernel in the same directory."""
        language, directory = check_language(language), self.path(cwd or self.root)
        tags = {**self.running().kernel.tags, _LANGUAGE_TAG: language, _DIRECTORY_TAG: directory}
        name = f"e2b-{self.id}-{os.urandom(4).hex()}"
        kernel = self._kernels[name] = get_or_create(name, tags=tags, **self._options)
        self._enter(kernel, directory)
        return _context(kernel)

    def contexts(self) -> list[Context]:
        """Returns the contexts, the first one first."""
        self.running()
        found = [record for record in list_kernels() if record.tags.get(_TAG) == self.id]
        return [_context(record) for record in found]

    def restart_context(self, context: Context | str) -> None:
        """Gives a context a new process; its variables are lost."""
        kernel = self.kernel_of(context)
        kernel.restart()
        self._enter(kernel, kernel.tags[_DIRECTORY_TAG])

    def remove_context(self, context: Context | str) -> None:
        """Ends a context."""
        kernel = self.kernel_of(context)
        if kernel is self.kernel:
            raise InvalidArgumentException("the first context is the sandbox itself; kill() ends it")
        kernel.destroy()
        del self._kernels[kernel.name]

    def kernel_of(self, context: Context | str | None) -> Kernel:
        """Returns the kernel of a context, of the first one by default."""
        self.running()
        name = self.kernel.name if context is None else context if isinstance(context, str) else context.id
        if name not in self._kernels and name not in {each.id for each in self.contexts()}:
            raise NotFoundException(f"sandbox {self.id!r} has no context {name!r}")
        return self._object(name)

    def _object(self, name: str) -> Kernel:
        if name not in self._kernels:
            self._kernels[name] = get_or_create(name)
        return self._kernels[name]

    def _enter(self, kernel: Kernel, directory: str) -> None:
        if directory != self.root:
            with translated_errors():
                kernel.files.make_dir(directory)
            kernel.execute(f"__import__('os').chdir({directory!r})")

    # -- files -----------------------------------------------------------------------------------------------

    def path(self, path: str) -> str:
        """Returns the local path for one of E2B's. Relative paths start in the sandbox's directory, like its home."""
        if path == USERS_HOME or path.startswith(f"{USERS_HOME}/"):
            path = path[len(USERS_HOME) + 1 :]
        return os.path.normpath(os.path.join(self.root, path))


def check_language(language: str | None) -> str:
    """Returns the language of a cell here; raises NoCounterpart."""
    if language not in _LANGUAGES:
        raise NoCounterpart(f"language {language!r} has no counterpart here: kernels run 'python' and 'bash'")
    return _LANGUAGES[language]


def check_options(template: str | None, cloud: dict[str, object]) -> None:
    """Refuses what E2B's cloud offers and a local kernel does not; options of the connection have no effect."""
    if template not in _TEMPLATES:
        raise NoCounterpart(
            f"template {template!r} has no counterpart here: cells have the packages of the Python that runs kernelbox"
        )
    for name, value in cloud.items():
        if value is not None:
            raise NoCounterpart(f"{name}= has no counterpart here: leave it out")


def _check_life(seconds: float) -> float:
    """Returns the seconds until a sandbox ends; raises InvalidArgumentException. What has ended loses its files."""
    if not 0 <= seconds <= NO_LIMIT:
        raise InvalidArgumentException(f"timeout is {seconds}; use 0 to {NO_LIMIT:.0f} seconds")
    return seconds


def seconds_or_none(timeout: float | None, default: float) -> float:
    """Returns the seconds of a cell or command; E2B's 0 means no limit."""
    return default if timeout is None else timeout or NO_LIMIT


def entry(info: FileInfo, path: str) -> EntryInfo:
    """Returns what is known about a file in E2B's form."""
    kind = FileType.DIR if info.is_dir else FileType.FILE
    return EntryInfo(info.name, kind, path, info.size, datetime.fromtimestamp(info.modified, UTC))


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Raises what E2B raises for files."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise FileNotFoundException(str(exc)) from exc
    except (IsADirectoryError, FileExistsError) as exc:
        raise InvalidArgumentException(str(exc)) from exc
    except OSError as exc:
        raise SandboxException(str(exc)) from exc


def _context(record: Any) -> Context:
    return Context(record.name, record.tags[_LANGUAGE_TAG], record.tags[_DIRECTORY_TAG])

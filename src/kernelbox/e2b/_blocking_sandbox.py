"""Sandbox: E2B's code interpreter on local kernels, for code that blocks."""

from __future__ import annotations

import os

from kernelbox.api._fresh_shell import fresh_shell
from kernelbox.e2b._code_run import CodeRun, set_variables
from kernelbox.e2b._e2b_values import (
    CommandExitException,
    CommandResult,
    FileType,
    InvalidArgumentException,
    NoCounterpart,
    TimeoutException,
    WriteInfo,
)
from kernelbox.e2b._local_sandbox import (
    DEFAULT_TIMEOUT,
    LocalSandbox,
    check_language,
    check_options,
    entry,
    seconds_or_none,
    translated_errors,
)
from kernelbox.wire._results import ExecutionResult, OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import IO, Any, Literal, NoReturn, Self

    from kernelbox.base._limits import Limits
    from kernelbox.core._options import Sandbox as Walls
    from kernelbox.core._options import SandboxLevel
    from kernelbox.e2b._code_run import Callback
    from kernelbox.e2b._e2b_values import Context, EntryInfo, Execution, SandboxInfo

    Data = str | bytes | IO[bytes] | Iterable[bytes]

# Seconds that a command has by default: E2B's own number.
COMMAND_TIMEOUT = 60.0


class CloudOnly:
    """A part of E2B's sandboxes that is not here: using it raises NoCounterpart."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise NoCounterpart(f"{owner.__name__}.{self._name} has no counterpart here{self._advice}")


class CloudParts:
    """What neither of the two sandboxes has."""

    pause = CloudOnly("; a sandbox runs until kill() or its timeout")
    beta_pause = CloudOnly("; a sandbox runs until kill() or its timeout")
    create_snapshot = CloudOnly("; kernelbox.checkpoint() keeps a kernel's state")
    list_snapshots = CloudOnly("; kernelbox.checkpoints() lists what was kept")
    delete_snapshot = CloudOnly("; kernelbox.drop() forgets a checkpoint")
    fork = CloudOnly("; kernelbox.branch() copies a kernel")
    get_host = CloudOnly("; nothing outside can reach a sandboxed kernel")
    upload_url = CloudOnly("; files.write() moves files in")
    download_url = CloudOnly("; files.read() moves files out")
    git = CloudOnly("; commands.run('git …') runs git")
    pty = CloudOnly("; commands.run() runs commands without a terminal")
    list = CloudOnly("; kernelbox.list_kernels() shows the kernels of all sandboxes")
    get_metrics = CloudOnly("; kernelbox.list_kernels() shows what each kernel uses")
    update_network = CloudOnly("; the network is chosen by create()")
    get_mcp_token = CloudOnly("; tools= of kernelbox.Kernel lets cells call functions")


class Sandbox(CloudParts):
    """A sandbox: a directory and a kernel, which is confined unless `create(sandbox=False)` says otherwise."""

    def __init__(self, *options: Any, local: LocalSandbox | None = None, **named: Any) -> None:
        """Opens a sandbox with the options of `create`, as programs for version 1 of E2B do."""
        if local is None:
            local = type(self).create(*options, **named)._local
        self._local: LocalSandbox = local
        self.sandbox_id = local.id
        self.files = Filesystem(local)
        self.commands = SandboxCommands(local)

    @classmethod
    def create(
        cls,
        template: str | None = None,
        timeout: float | None = None,
        metadata: dict[str, str] | None = None,
        envs: dict[str, str] | None = None,
        secure: bool | None = None,
        allow_internet_access: bool | None = None,
        mcp: object = None,
        network: object = None,
        iam: object = None,
        lifecycle: object = None,
        volume_mounts: object = None,
        *,
        sandbox: Walls | None = True,
        sandbox_level: SandboxLevel | None = None,
        limits: Limits | Mapping[str, object] | None = None,
        **connection: object,
    ) -> Self:
        """Opens a sandbox for `timeout` seconds; `sandbox`, `sandbox_level` and `limits` are those of `Kernel`."""
        cloud = {"mcp": mcp, "network": network, "iam": iam, "lifecycle": lifecycle, "volume_mounts": volume_mounts}
        check_options(template, cloud)
        check_internet(allow_internet_access, confined=bool(sandbox), level=sandbox_level)
        walls = {"sandbox": sandbox, "sandbox_level": sandbox_level, "limits": limits}
        return cls(local=LocalSandbox.create(timeout, metadata, envs, **walls))

    @classmethod
    def connect(cls, sandbox_id: str, timeout: float | None = None, **connection: object) -> Self:
        """Returns a running sandbox, even one that another program opened in the same directory."""
        return cls(local=LocalSandbox.connect(sandbox_id, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.sandbox_id!r}>"

    def is_running(self, request_timeout: float | None = None) -> bool:
        """Tells whether the sandbox still runs."""
        return self._local.is_running()

    def set_timeout(self: Sandbox | str, timeout: float, **connection: object) -> None:
        """Ends the sandbox this many seconds from now. `Sandbox.set_timeout(sandbox_id, 60)` works too."""
        find(self).set_timeout(timeout)

    def get_info(self: Sandbox | str, **connection: object) -> SandboxInfo:
        """Returns the metadata and times of the sandbox."""
        return find(self).info()

    def kill(self: Sandbox | str, **connection: object) -> bool:
        """Ends the sandbox and removes its files; returns whether it was running."""
        return find(self).kill()

    def run_code(
        self,
        code: str,
        language: str | None = None,
        context: Context | None = None,
        on_stdout: Callback = None,
        on_stderr: Callback = None,
        on_result: Callback = None,
        on_error: Callback = None,
        envs: dict[str, str] | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Execution:
        """Runs a cell; what it raises is in the `error` of the execution. A timeout raises TimeoutException."""
        kernel = self._local.kernel_of(context)
        chosen, run = choose_language(language, context), CodeRun(on_stdout, on_stderr, on_result, on_error)
        if chosen == "bash":
            code = fresh_shell(code, ".", envs) if envs else code
        before = kernel.execute(set_variables({**envs})).value if envs and chosen == "python" else None
        try:
            seconds = seconds_or_none(timeout, DEFAULT_TIMEOUT)
            for item in kernel.stream(code, language=chosen, timeout=seconds, output_char_limit=0):
                run.take(item)
        finally:
            if before is not None:
                kernel.execute(set_variables(before))
        return run.execution

    def create_code_context(
        self, cwd: str | None = None, language: str | None = None, request_timeout: float | None = None
    ) -> Context:
        """Opens a context with variables of its own, in the same directory."""
        return self._local.create_context(cwd, language)

    def list_code_contexts(self) -> Sequence[Context]:
        """Returns all contexts."""
        return self._local.contexts()

    def restart_code_context(self, context: Context | str) -> None:
        """Gives a context a new process."""
        self._local.restart_context(context)

    def remove_code_context(self, context: Context | str) -> None:
        """Ends a context."""
        self._local.remove_context(context)


class Filesystem:
    """The files of a sandbox. Relative paths, and those in `/home/user`, are in the sandbox's own directory."""

    def __init__(self, local: LocalSandbox) -> None:
        self._local = local

    def read(self, path: str, format: Literal["text", "bytes", "stream"] = "text", **connection: object) -> Any:
        """Returns a file as text, as a bytearray, or in pieces."""
        files = self._local.kernel_of(None).files
        with translated_errors():
            if format == "stream":
                return files.stream(self._local.path(path))
            content = files.read(self._local.path(path))
        return content.decode(errors="replace") if format == "text" else bytearray(content)

    def write(self, path: str, data: Data, **connection: object) -> WriteInfo:
        """Writes a file, and makes the directories that it needs."""
        where = self._local.path(path)
        files = self._local.kernel_of(None).files
        with translated_errors():
            files.make_dir(os.path.dirname(where))
            files.write(where, data)
        return WriteInfo(os.path.basename(where), FileType.FILE, where)

    def write_files(self, files: Sequence[Mapping[str, Any]], **connection: object) -> Sequence[WriteInfo]:
        """Writes several files, given as `{"path": …, "data": …}`."""
        return [self.write(file["path"], file["data"]) for file in files]

    def list(self, path: str, depth: int = 1, **connection: object) -> Sequence[EntryInfo]:
        """Returns what is in a directory, and in those below it down to `depth`."""
        where = self._local.path(path)
        with translated_errors():
            listed = self._local.kernel_of(None).files.list(where)
        found = [entry(info, os.path.join(where, info.name)) for info in listed]
        if depth > 1:
            below = [self.list(each.path, depth - 1) for each in found if each.type is FileType.DIR]
            found += [each for folder in below for each in folder]
        return found

    def exists(self, path: str, **connection: object) -> bool:
        """Tells whether there is a file or directory."""
        return self._local.kernel_of(None).files.exists(self._local.path(path))

    def get_info(self, path: str, **connection: object) -> EntryInfo:
        """Returns what is known about a file or directory."""
        where = self._local.path(path)
        with translated_errors():
            return entry(self._local.kernel_of(None).files.info(where), where)

    def make_dir(self, path: str, **connection: object) -> bool:
        """Makes a directory and those above it; returns False if it exists."""
        with translated_errors():
            return self._local.kernel_of(None).files.make_dir(self._local.path(path))

    def rename(self, old_path: str, new_path: str, **connection: object) -> EntryInfo:
        """Moves a file or directory."""
        with translated_errors():
            self._local.kernel_of(None).files.rename(self._local.path(old_path), self._local.path(new_path))
        return self.get_info(new_path)

    def remove(self, path: str, **connection: object) -> None:
        """Removes a file, or a directory with what is in it."""
        with translated_errors():
            self._local.kernel_of(None).files.remove(self._local.path(path), recursive=True)

    watch_dir = CloudOnly("; list() shows what has changed")


class CommandParts:
    """What neither of the two kinds of commands has."""

    list = CloudOnly("; commands end before run() returns")
    kill = CloudOnly("; commands end before run() returns")
    connect = CloudOnly("; commands end before run() returns")
    send_stdin = CloudOnly("; write the input to a file first")
    close_stdin = CloudOnly("; write the input to a file first")
    stream_input = CloudOnly("; write the input to a file first")


class SandboxCommands(CommandParts):
    """Commands in a fresh bash each, run by the kernel of the first context."""

    def __init__(self, local: LocalSandbox) -> None:
        self._local = local

    def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: dict[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        stdin: bool | None = None,
        timeout: float | None = COMMAND_TIMEOUT,
        request_timeout: float | None = None,
    ) -> CommandResult:
        """Runs a command; raises CommandExitException if its exit code is not 0."""
        check_command(background, user, stdin)
        line = fresh_shell(cmd, self._local.path(cwd or "."), envs)
        kernel = self._local.kernel_of(None)
        seconds = seconds_or_none(timeout, COMMAND_TIMEOUT)
        for item in kernel.stream(line, language="bash", timeout=seconds, output_char_limit=0):
            if isinstance(item, ExecutionResult):
                return end_command(item)
            tell_command(item, on_stdout, on_stderr)
        raise AssertionError("a stream ends with its result")


def find(sandbox: Sandbox | str) -> LocalSandbox:
    """Returns what runs a sandbox, which may be named by its id."""
    return LocalSandbox.connect(sandbox) if isinstance(sandbox, str) else sandbox._local


def choose_language(language: str | None, context: Context | None) -> Literal["python", "bash"]:
    """Returns the language of a cell; raises InvalidArgumentException if both arguments say it."""
    if language and context:
        raise InvalidArgumentException("give a context or a language, not both")
    chosen = check_language(context.language if context else language)
    return "bash" if chosen == "bash" else "python"


def check_internet(wanted: bool | None, *, confined: bool, level: str | None) -> None:
    """Refuses to promise a network to a kernel that has none."""
    if wanted and confined and level != "srt":
        raise NoCounterpart(
            "allow_internet_access=True has no counterpart here: a sandboxed kernel has no network; "
            "sandbox_level='srt' allows the domains that you name, and sandbox=False confines nothing"
        )


def check_command(background: object, user: object, stdin: object) -> None:
    """Refuses what a command cannot do here."""
    for name, value in (("background", background), ("user", user), ("stdin", stdin)):
        if value:
            raise NoCounterpart(f"commands.run({name}={value!r}) has no counterpart here: leave it out")


def tell_command(item: object, on_stdout: Callable[[str], Any] | None, on_stderr: Callable[[str], Any] | None) -> Any:
    """Passes a piece of output to its callback; returns what that returned."""
    if not isinstance(item, OutputItem) or item.kind != "stream" or item.text is None:
        return None
    callback = on_stderr if item.name == "stderr" else on_stdout
    return None if callback is None else callback(item.text)


def end_command(result: ExecutionResult) -> CommandResult:
    """Returns what a command did; raises CommandExitException and TimeoutException."""
    if result.status == "timeout":
        raise TimeoutException("the command was interrupted: a larger 'timeout' gives it more time")
    if result.exit_code == 0:
        return CommandResult(result.stderr, result.stdout, 0)
    said = None if result.exit_code is not None or result.error is None else result.error.evalue
    code = 1 if result.exit_code is None else result.exit_code
    raise CommandExitException(result.stderr, result.stdout, code, said)

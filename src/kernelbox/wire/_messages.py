"""The messages that cross the process wall, one dataclass each, shared by both sides.

Host to guest: Execute, Interrupt, Answer, Query, Watch; to a template: Spawn.
Guest to host: Started, Begun, Output, Display, Clear, Ask, Withdraw, Comm, Done, Reply, Farewell; from a template:
Spawned, Introduced, Refused.

What comes between cells, from threads and tasks that they have left, has an empty id.
"""

from __future__ import annotations

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    Language = Literal["python", "bash", "comm"]

keep_builtins(globals())

# The server_name of shell commands, which the kernel itself runs once they are accepted; no MCP server may have it.
SHELL_SERVER = "kernelbox"

# The tool_name of `input()`, of the same server; it is asked only where the client says that it answers.
INPUT_TOOL = "input"


class ToolError(Exception):
    """Raised in the cell when a tool failed, or its server could not be reached; it has the server's words."""


class ApprovalRejectedError(Exception):
    """Raised in the cell when a tool call or shell command was not approved; it did not run."""


class Message:
    """What every message shares: equality and a repr, built once here because dataclass builds them per class,
    and the command line pays for each at every start."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r:.80}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"

    __hash__ = None  # type: ignore[assignment]  # messages hold dicts and lists


def _values(message: Message) -> list[object]:
    return [getattr(message, name) for name in message.__slots__]


@dataclass(eq=False, repr=False, slots=True)
class Execute(Message):
    """Asks for one cell to be run.

    What a front end sends to a comm runs as a cell too, in the language "comm": its code is the JSON of the message,
    and the message's buffers come with it.
    """

    id: str
    code: str
    language: Language = "python"
    silent: bool = False
    store_history: bool = True
    # Characters kept of one text: a repr, an error value, a traceback, a display. 0 is unlimited.
    text_limit: int = 0
    approve_shell: bool = False
    shell_escape_only: bool = False
    restore_cwd: str = ""
    report_changes: bool = False
    # Whether the client answers `input()`.
    allow_stdin: bool = False
    # The id under which the client's front end knows the execution.
    parent: str = ""
    # The connection's own, the same with each request: see wire/_questions.py.
    key: str = ""
    buffers: list[bytes] = field(default_factory=list)


@dataclass(eq=False, repr=False, slots=True)
class Interrupt(Message):
    """Stops execution `id` if it is running, drops it if it is queued; an empty id means whatever runs now.

    `harder` kills the processes that the cell started, which may be what it waits for. With `tell`, a Reply says
    whether the execution was running when the kernel took this.
    """

    id: str = ""
    harder: bool = False
    tell: bool = False


@dataclass(eq=False, repr=False, slots=True)
class Started(Message):
    """Says that an execution has left the queue and runs."""

    id: str
    execution_count: int


@dataclass(eq=False, repr=False, slots=True)
class Watch(Message):
    """Asks to be told, on this connection, what every client's cells write and show, and what comes between cells.

    Each cell of another client begins with a Begun and ends with its Done.
    """

    id: str = ""


@dataclass(eq=False, repr=False, slots=True)
class Begun(Message):
    """Tells a watcher that a cell of another client runs. A long `code` is cut; that of a comm message is empty."""

    id: str
    code: str
    language: Language
    execution_count: int
    silent: bool
    parent: str


@dataclass(eq=False, repr=False, slots=True)
class Output(Message):
    """Carries what was written to stdout or stderr."""

    id: str
    name: str
    text: str


@dataclass(eq=False, repr=False, slots=True)
class Display(Message):
    """Carries a rich output: `kind` is display_data, execute_result, update_display_data, or error for a traceback
    that a cell showed and went on.

    `data` and `metadata` are by MIME type; binary types travel in `blobs`.
    """

    id: str
    kind: str
    data: dict[str, Any]
    metadata: dict[str, Any]
    display_id: str = ""
    execution_count: int | None = None
    cut: bool = False
    blobs: dict[str, bytes] = field(default_factory=dict)


@dataclass(eq=False, repr=False, slots=True)
class Clear(Message):
    """Clears the execution's outputs, at once or with the next output."""

    id: str
    wait: bool


@dataclass(eq=False, repr=False, slots=True)
class Ask(Message):
    """Holds a tool call or shell command in the guest until the host answers `ask`."""

    id: str
    ask: int
    server_name: str
    tool_name: str
    tool_args: dict[str, Any]


@dataclass(eq=False, repr=False, slots=True)
class Answer(Message):
    """Answers an Ask: accepted or not, why not, and what the tool returned, as JSON that only the guest reads.

    `fingerprint` says what was asked. `seal` has the runner of a guarded kernel start the command that was accepted.
    """

    id: str
    ask: int
    accepted: bool
    reason: str = ""
    fingerprint: str = ""
    seal: str = ""
    payload: bytes = b""


@dataclass(eq=False, repr=False, slots=True)
class Withdraw(Message):
    """Takes an Ask back: no thread of the cell waits for the answer any more."""

    id: str
    ask: int


@dataclass(eq=False, repr=False, slots=True)
class Comm(Message):
    """Carries a Jupyter comm message (widgets)."""

    id: str
    msg_type: str
    content: dict[str, Any]
    buffers: list[bytes] = field(default_factory=list)


@dataclass(eq=False, repr=False, slots=True)
class Done(Message):
    """Ends an execution. Everything the cell wrote came before it, on the same stream.

    `status` is ok, error or aborted (dropped from the queue, never ran).
    """

    id: str
    status: str
    execution_count: int | None = None
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = field(default_factory=list)
    interrupted: bool = False
    cut: bool = False
    changed: dict[str, list[str]] | None = None


@dataclass(eq=False, repr=False, slots=True)
class Query(Message):
    """Asks the guest something between cells: `what` is complete, inspect, is_complete, history,
    notebook, expressions, comms, variables, leave or quiesce."""

    id: str
    what: str
    args: dict[str, Any]


@dataclass(eq=False, repr=False, slots=True)
class Reply(Message):
    """Answers a Query, or an Interrupt."""

    id: str
    content: dict[str, Any]


@dataclass(eq=False, repr=False, slots=True)
class Farewell(Message):
    """Says why the kernel is about to end of its own accord."""

    reason: str


# What an opener writes into the pipe that came with Spawn, when the start of its kernel has come to an end.
SETTLED = b"settled"


@dataclass(eq=False, repr=False, slots=True)
class Spawn(Message):
    """Asks a keeper for a process. With it come descriptors, in the order of their names in `descriptors`:

        listener       the kernel's listening socket
        directory      the kernel's directory
        state, log     its state file and its log
        environment    its variables, as in environ(7)
        opening        a pipe that says when its start has come to an end
        lifeline       shows the end of its owner, if it has one
        group <path>   joins a control group, for each of `groups`
        confinement    what it is confined to, if it is sandboxed
        runner         the listening socket of its runner, if it is guarded
        filter         what system calls it may use, if it is guarded

    `entrances` are the files in the directory that a client needs; some may be made only by the process itself. With
    `argv`, which only a keeper of one process takes, the child runs that program instead of our own kernel. `limits`
    are by the names of `Limits`; `disk_before` is what the working directory holds already, in bytes, and `home` the
    inode of the home, if that may be in there: it does not count.
    """

    kernel_id: str
    directory: str
    cwd: str
    umask: int
    entrances: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    descriptors: list[str] = field(default_factory=list)
    idle_timeout: float = 0.0
    limits: dict[str, float] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    disk_before: int = 0
    home: int = 0

    @property
    def is_sandboxed(self) -> bool:
        return "confinement" in self.descriptors

    @property
    def is_guarded(self) -> bool:
        return "filter" in self.descriptors


def group_name(path: str) -> str:
    """Returns what the descriptor is called that joins a control group."""
    return f"group {path}"


@dataclass(eq=False, repr=False, slots=True)
class Spawned(Message):
    """Answers Spawn: the process that was forked. `start_time` tells it from a later one with the same pid."""

    pid: int
    start_time: int


@dataclass(eq=False, repr=False, slots=True)
class Introduced(Message):
    """Comes from a new kernel itself, before Spawned, if its template counts processes in a namespace of its own: the
    system tells with it which process has sent it (SCM_CREDENTIALS, unix(7))."""

    kernel_id: str


@dataclass(eq=False, repr=False, slots=True)
class Refused(Message):
    """Answers Spawn when no kernel could be made."""

    reason: str

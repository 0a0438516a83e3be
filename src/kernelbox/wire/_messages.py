"""The messages that cross the process wall, one dataclass each, shared by both sides.

Host to guest: Execute, Interrupt, Answer, Query, Watch, Copy; to a template: Spawn; to a keeper: Foster, Release,
Measure.
Guest to host: Started, Begun, Output, Display, Clear, Ask, Withdraw, Comm, Payload, Done, Reply, Farewell; from a
template: Spawned, Introduced, Refused; from a keeper also Agreed.
Between a keeper and copies of its kernels: Adopt, Adopted, Thaw.

Output between cells, from threads and tasks that cells left running, has an empty id.
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

# The server of the functions that an application passes to its cells.
HOST_SERVER = "host"

# The tool_name of `input()` on the same server; it is asked only if the client says that it answers.
INPUT_TOOL = "input"


class ToolError(Exception):
    """Raised in the cell when a tool failed or its server could not be reached, with the server's own message."""


class ApprovalRejectedError(Exception):
    """Raised in the cell when a tool call or shell command was not approved; it did not run."""


class Message:
    """The base of every message. It has the equality and the repr that dataclass would build once per class, which
    costs the command line time at every start."""

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
    """Asks the kernel to run one cell.

    A front end's comm message runs as a cell too, in the language "comm": the code is the message as JSON, and
    `buffers` are its buffers.
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
    # Whether the client takes payloads. If not, what they would show is written to stdout.
    payloads: bool = False
    # The client's front end's own id of the execution.
    parent: str = ""
    # The key of the connection, the same in each request: see wire/_questions.py.
    key: str = ""
    # The functions of the host that the cell may call, each described as JSON (core/cells/_host_functions.py).
    functions: list[str] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=list)


@dataclass(eq=False, repr=False, slots=True)
class Interrupt(Message):
    """Stops execution `id` if it is running, drops it if it is queued; an empty id means the cell that runs now.

    `harder` also kills the processes that the cell started, because it may be waiting for one. With `tell`, a Reply
    says whether the execution was running when the kernel received this.
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
    """Asks to receive the outputs of every client's cells on this connection, and the output between cells.

    Each cell of another client begins with a Begun and ends with its Done.
    """

    id: str = ""


@dataclass(eq=False, repr=False, slots=True)
class Begun(Message):
    """Tells a watcher that a cell of another client runs. A long `code` is cut; a comm message has an empty one."""

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
    that the cell showed without ending.

    `data` and `metadata` map MIME types to values; binary types travel in `blobs`.
    """

    id: str
    kind: str
    data: dict[str, Any]
    metadata: dict[str, Any]
    display_id: str = ""
    execution_count: int | None = None
    cut: bool = False
    # The value of the cell as JSON, if it is JSON.
    value: str = ""
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

    `fingerprint` identifies the question. `seal` lets the runner of a guarded kernel start the accepted command.
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
    """Takes an Ask back: no thread of the cell is waiting for the answer."""

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
class Payload(Message):
    """Carries a payload of Jupyter: something for the front end to do after its cell."""

    id: str
    content: dict[str, Any]


@dataclass(eq=False, repr=False, slots=True)
class Done(Message):
    """Ends an execution. It follows everything the cell wrote, on the same stream.

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
    # The exit status of a bash cell.
    exit_code: int | None = None


@dataclass(eq=False, repr=False, slots=True)
class Query(Message):
    """Asks the guest something between cells: `what` is complete, inspect, is_complete, history, expressions,
    comms, variables, leave, quiesce, or one of the transfers of `guest/serve/_transfers.py`."""

    id: str
    what: str
    args: dict[str, Any]
    payload: bytes = b""


@dataclass(eq=False, repr=False, slots=True)
class Reply(Message):
    """Answers a Query, or an Interrupt."""

    id: str
    content: dict[str, Any]
    payload: bytes = b""


@dataclass(eq=False, repr=False, slots=True)
class Farewell(Message):
    """Says why the kernel is about to end itself."""

    reason: str


# What an opener writes into the pipe that it sent with Spawn when the kernel's start has succeeded or failed.
SETTLED = b"settled"


@dataclass(eq=False, repr=False, slots=True)
class Spawn(Message):
    """Asks a keeper for a process. Descriptors travel with it, in the order of their names in `descriptors`:

        listener       the kernel's listening socket
        directory      the kernel's directory
        state, log     its state file and its log
        cells          the newer file of the log of its cells, unless it runs a program
        older cells    the other file of that log
        environment    its variables, as in environ(7)
        opening        a pipe that says when its start has succeeded or failed
        lifeline       a pipe that closes when its owner ends, if it has one
        group <path>   a control group to join, for each of `groups`
        confinement    its encoded `Confinement`, if it is sandboxed
        runner         the listening socket of its runner, if it is guarded
        filter         the filter of its system calls, if it is guarded
        door           the listening socket at which its keeper takes requests about copies of it

    `entrances` are the files in the directory that a client needs; the process itself may create some of them. With
    `argv`, which only a keeper of one process accepts, the child runs that program instead of our own kernel. `limits`
    has the field names of `Limits`. `disk_before` is the size of the working directory's files so far, in bytes. `home`
    is the inode of the home if the home may be below that directory, because its files do not count. `name` is for the
    process's title.
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
    name: str = ""

    @property
    def is_sandboxed(self) -> bool:
        return "confinement" in self.descriptors

    @property
    def is_guarded(self) -> bool:
        return "filter" in self.descriptors


def group_name(path: str) -> str:
    """Returns the name of the descriptor for joining a control group."""
    return f"group {path}"


@dataclass(eq=False, repr=False, slots=True)
class Spawned(Message):
    """Answers Spawn: the process that was forked. `start_time` tells it from a later one with the same pid."""

    pid: int
    start_time: int


@dataclass(eq=False, repr=False, slots=True)
class Introduced(Message):
    """Sent by a new kernel itself, before Spawned, if its template has its own namespace of processes: the credentials
    of this message give the sender's pid outside it (SCM_CREDENTIALS, unix(7))."""

    kernel_id: str


@dataclass(eq=False, repr=False, slots=True)
class Refused(Message):
    """Answers Spawn when no kernel could be made."""

    reason: str


@dataclass(eq=False, repr=False, slots=True)
class Copy(Message):
    """Asks a kernel to copy itself when no cell runs, once for each token. A Reply says how that went.

    A frozen copy is a checkpoint; any other is a kernel of its own, with fresh randomness if `reseed` is set.
    """

    id: str
    tokens: list[str]
    frozen: bool = False
    reseed: bool = True


@dataclass(eq=False, repr=False, slots=True)
class Foster(Message):
    """Asks a keeper to adopt the copy that will name this token. It answers Agreed, and Spawned when the copy has come.

    The copy is made of the kernel `source`. `checkpoint` is the number of a copy that stays frozen. With `thaw` the
    keeper itself asks that checkpoint for a copy. An `heir` takes the place of the kernel's process when its start has
    succeeded; then the keeper answers Agreed once more. If the host ends before that, and the record does not name the
    copy, nothing changes. `checkpoint_memory` is what all checkpoints may have for themselves, and `checkpoint_age` the
    seconds after which this one is dropped, 0 for never.

    The descriptors are those of Spawn: `directory`, `opening` and `lifeline`. A kernel also needs `listener`, `state`,
    `log`, `group …`, and `door` if it has another directory. In the directory of an heir, the files of the first two
    have names that end with `UNBORN` until it takes its place, and so has the host's note of why the process before it
    is ended. The other fields are those of Spawn.
    """

    token: str
    source: str
    kernel_id: str
    directory: str
    cwd: str = ""
    checkpoint: int = 0
    thaw: int = 0
    heir: bool = False
    executions: int = 0
    entrances: list[str] = field(default_factory=list)
    descriptors: list[str] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    disk_before: int = 0
    home: int = 0
    name: str = ""
    checkpoint_memory: int = 0
    checkpoint_age: float = 0.0


# How the names of the socket, the state file and the note of an heir end until it takes its place.
UNBORN = ".unborn"


@dataclass(eq=False, repr=False, slots=True)
class Agreed(Message):
    """Answers Foster when the keeper expects the copy, and again when an heir has taken its place; answers Release."""


@dataclass(eq=False, repr=False, slots=True)
class Release(Message):
    """Asks a keeper to end a checkpoint of a kernel, 0 for all of them; with `wait` it answers when that has ended.

    `why` is noted for messages, if it was not asked for; `told` says that the maker of another checkpoint learns of it.
    """

    kernel_id: str
    checkpoint: int = 0
    wait: bool = True
    why: str = ""
    told: bool = False


@dataclass(eq=False, repr=False, slots=True)
class Measure(Message):
    """Asks a keeper how much memory the checkpoints of a kernel have for themselves. It answers Measured.

    If all together have more than `limit`, it drops the oldest; 0 is no limit. It sends this to the checkpoints with a
    socket: each ends its spare, writes a byte there, and has a spare again when the socket is closed.
    """

    kernel_id: str
    limit: int = 0


@dataclass(eq=False, repr=False, slots=True)
class Measured(Message):
    """Answers Measure: the bytes that each checkpoint shares with no other process, by its number."""

    private: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, repr=False, slots=True)
class Adopt(Message):
    """Presents a copy to its keeper, with a socket for the answer; the system says which process it is.

    If a checkpoint could not make the copy, it says why in `failure`.
    """

    token: str
    failure: str = ""


@dataclass(eq=False, repr=False, slots=True)
class Adopted(Message):
    """Answers Adopt. A copy that does not stay frozen gets what makes it a kernel, as descriptors: `listener`, `state`,
    `log`, `group …`, and both ends of its pipes."""

    kernel_id: str
    directory: str
    executions: int = 0
    descriptors: list[str] = field(default_factory=list)
    name: str = ""
    checkpoint: int = 0


@dataclass(eq=False, repr=False, slots=True)
class Thaw(Message):
    """Asks a checkpoint for a copy that continues as a kernel."""

    token: str

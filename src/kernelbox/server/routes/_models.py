"""What requests and answers look like; names, fields and defaults are those of KernelBox 0.1, with more beside them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kernelbox.base._limits import NAMES
from kernelbox.server.routes._bodies import Body, Few, InvalidField, OldBody, Whole

_Tags = Annotated[dict[str, str], *Few, Field(examples=[{"task": "eda", "owner": "agent"}])]

# A number of seconds: at least a tenth, as KernelBox has it; at most a week, which no caller outlives.
_Seconds = Annotated[float | None, Field(ge=0.1, le=604_800, allow_inf_nan=False, examples=[30])]


class Health(BaseModel):
    status: Literal["ok"]
    service: str
    version: str


class Ready(BaseModel):
    status: Literal["ready"]


class ApiLink(BaseModel):
    href: str
    description: str


class ServiceLinks(BaseModel):
    service: str
    links: dict[str, ApiLink]


_Limits = Annotated[
    Annotated[
        dict[str, int | float | str | None], *Few, Field(json_schema_extra={"propertyNames": {"enum": list(NAMES)}})
    ]
    | None,
    Field(
        description="what the kernel may use: memory, cpu, processes, files, file_size, disk; at most what the server "
        "allows, which is what it gets for all that are not named",
        examples=[{"memory": "512MB", "cpu": "10min", "processes": 50}],
    ),
]


_Python = Annotated[
    str | None,
    Field(
        description="the interpreter that the kernel runs in: one of the words that the server was started with",
        examples=["3.13"],
    ),
]

_Requirements = Annotated[
    Annotated[list[str], *Few] | None,
    Field(
        description="packages of an environment that is made for the kernel, as far as the server installs any",
        examples=[["pandas>=2", "polars"]],
    ),
]


class KernelCreate(OldBody):
    name: str | None = Field(None, description="the name of the kernel; generated if not given", examples=["analysis"])
    session_name: str | None = Field(None, description="a second name", examples=["agent-run-42"])
    tags: _Tags = Field(default_factory=dict, description="labels of your own")
    limits: _Limits = None
    python: _Python = None
    requirements: _Requirements = None


class SessionCreate(OldBody):
    tags: _Tags = Field(default_factory=dict, description="labels for the kernel, if it is a new one")
    limits: _Limits = None
    python: _Python = None
    requirements: _Requirements = None


class KernelModel(BaseModel):
    """A kernel. `death` says how a dead one ended, `lost` what an earlier process of the name took with it."""

    kernel_id: str
    connection_file: str = Field(description="relative to the workspace; if it is elsewhere, only its name")
    name: str
    created_at: str = Field(description="ISO 8601, UTC")
    last_used_at: str
    status: Literal["running", "idle", "dead", "unknown"]
    session_name: str | None
    attempt_count: int = Field(description="how many cells it has run")
    tags: dict[str, str]
    age_seconds: float
    kernel_type: str
    engine: str
    busy_since: str | None
    stale: bool = Field(description="idle for longer than KERNELBOX_KERNEL_IDLE_TIMEOUT")
    death: str | None
    lost: str | None
    limits: dict[str, int | float] = Field(
        description="what it may use: bytes, seconds or numbers", examples=[{"cpu": 600}]
    )
    usage: dict[str, int | float] | None = Field(
        description="what it and all that it started use: bytes of memory, seconds of processor time, processes and "
        "threads; null if it is dead",
        examples=[{"memory": 9_500_000, "cpu": 0.31, "processes": 2}],
    )
    sandbox: str | None = Field(description="the level of the sandbox that confines it")
    guarded: bool = Field(description="whether it starts no program but what an application approves")
    python_version: str = Field(description="of its interpreter; empty for a kernel of Jupyter", examples=["3.13.1"])
    requirements: list[str] | None = Field(description="the packages that its environment was made with")


class KernelList(BaseModel):
    kernels: list[KernelModel]


class KernelStatus(BaseModel):
    alive: bool
    kernel: KernelModel


class Destroyed(BaseModel):
    destroyed: bool


class Wiped(BaseModel):
    destroyed: list[str] = Field(description="the ids of the kernels")


class Interrupted(BaseModel):
    interrupted: bool = Field(description="whether anything ran")


class ErrorModel(BaseModel):
    """An exception that a cell raised, or why it did not finish."""

    ename: str
    evalue: str
    traceback: list[str]


class OutputModel(BaseModel):
    """One thing that a cell wrote or showed."""

    kind: Literal["stream", "display_data", "execute_result", "update_display_data", "clear_output", "error"]
    text: str | None
    name: str | None = Field(description="stdout or stderr, of a stream")
    data: dict[str, Any] = Field(description="by MIME type; pictures are base64")
    metadata: dict[str, Any]


class AttemptModel(BaseModel):
    attempt: int
    code: str
    status: str
    output: str
    stderr: str
    error: ErrorModel | None


class ResultModel(BaseModel):
    """The result of a cell. The first ten fields are those of KernelBox 0.1."""

    status: Literal["success", "error", "timeout", "max_attempts_exceeded"]
    output: str = Field(description="what was written to stdout")
    stderr: str
    error: ErrorModel | None
    return_value: str | None = Field(description="the last expression, as text")
    execution_count: int | None
    duration_ms: int
    outputs: list[OutputModel] = Field(description="all that was written and shown, in order")
    attempts: list[AttemptModel]
    truncated: bool = Field(description="whether something was cut at KERNELBOX_OUTPUT_CHAR_LIMIT")
    text: str = Field(description="everything that a model should read, in order")
    images: list[str] = Field(description="where pictures can be fetched, relative to the server")
    state: Literal["kept", "lost", "rolled back"] = Field(description="whether the kernel has its variables")
    ending: Literal["finished", "interrupted", "restarted", "died", "rolled back", "never ran"]
    ok: bool = Field(description="whether the status is success")
    value: Any = Field(description="the last expression, if it is JSON", examples=[{"a": [1, 2]}])
    exit_code: int | None = Field(description="the exit status of a bash cell")
    kernel_id: str
    name: str = Field(description="the kernel's name")
    opened: bool = Field(description="whether this cell opened the kernel")
    execution_id: str = Field(description="what the cell's whole text can be read by")
    restored_from: int | None = Field(None, description="the checkpoint that the kernel went back to, if it did")
    lost_executions: list[int] = Field([], description="the executions since that checkpoint")


class CellBody(Body):
    code: str = Field(examples=["import math\nmath.sqrt(81)"])
    language: Literal["python", "bash"] = "python"
    timeout: _Seconds = Field(None, description="seconds; by default KERNELBOX_EXECUTION_TIMEOUT")
    output_char_limit: Annotated[int, Field(ge=0, le=100_000_000), Whole] | None = Field(
        None,
        description="characters that are kept of each text, 0 for all; by default KERNELBOX_OUTPUT_CHAR_LIMIT",
    )
    budget: Annotated[int, Field(ge=1, le=100_000_000), Whole] | None = Field(
        None, description="characters of the result's `text`: what tells a model most is kept"
    )


class ExecuteBody(CellBody, OldBody):
    approve: Literal["all", "none"] | None = Field(
        None,
        description="what becomes of shell commands and tool calls that the server's policy leaves open: all run, none "
        "runs; without it, commands run and tool calls are rejected",
    )


class JobExecute(CellBody):
    approve: Literal["ask", "all", "none"] | None = Field(
        None, description="as for `execute`; `ask` puts each to the clients that follow the events"
    )


class StreamExecute(JobExecute):
    on_disconnect: Literal["continue", "interrupt"] = Field(
        "continue", description="what becomes of the cell when the client goes away; what goes on can be followed again"
    )


class ApprovalModel(BaseModel):
    """A shell command or tool call that waits for an answer; `call` shows it on one line."""

    id: str
    server_name: str
    tool_name: str
    tool_args: dict[str, Any]
    call: str


class ApprovalAnswer(Body):
    accept: bool
    reason: str | None = Field(None, max_length=10_000, description="why not, for the cell to read")
    remember: Literal["execution", "session"] | None = Field(
        None, description="accept the very same call again: in this cell, or while the kernel's process lives"
    )


class Answered(BaseModel):
    accepted: bool


class JobFailure(BaseModel):
    """Why a job has no result."""

    status: int
    code: str
    detail: str | list[InvalidField]


class JobModel(BaseModel):
    """A job. It is `lost` if the server that ran it was killed: how far its cell came is not known."""

    id: str
    state: Literal["running", "done", "lost"]
    kernel_id: str | None
    kernel: str | None = Field(description="the kernel's name")
    created_at: str
    ended_at: str | None
    result: ResultModel | None
    failed: JobFailure | None


class JobStatus(JobModel):
    approvals: list[ApprovalModel] = Field(description="what waits for an answer")


class JobList(BaseModel):
    jobs: list[JobModel]


class JobBegun(BaseModel):
    id: str
    events: str = Field(description="where its events are, relative to the server")


class VariableModel(BaseModel):
    name: str
    type: str
    size: int = Field(description="bytes")
    preview: str


class VariableList(BaseModel):
    variables: list[VariableModel]


class Complete(Body):
    code: str = Field(max_length=1_000_000, examples=["import os\nos.pa"])
    cursor_pos: Annotated[int, Field(ge=0), Whole] | None = Field(
        None, description="in characters; the end of the code, if it is missing"
    )


class Completions(BaseModel):
    """What can stand between `cursor_start` and `cursor_end`."""

    matches: list[str]
    cursor_start: int
    cursor_end: int


class Input(BaseModel):
    execution_count: int | None = Field(description="null for bash, and for a cell that did not end")
    code: str
    execution_id: str = ""
    language: str = "python"
    status: Literal["success", "error", "interrupted", "running", "died", "unknown"]
    text: str = Field("", description="what the cell wrote and showed, cut as in results")
    began_at: str | None = None
    ended_at: str | None = None
    lost: str = Field("", description="why the variables were lost after this cell; empty if they were not")


class InputHistory(BaseModel):
    inputs: list[Input]


class OutputPart(BaseModel):
    """A part of the whole text of a cell."""

    text: str
    size: int = Field(description="how many characters the whole text has")


class FileEntry(BaseModel):
    name: str
    kind: Literal["file", "directory", "link", "other"]
    size: int


class FileList(BaseModel):
    path: str
    entries: list[FileEntry]
    total: int = Field(description="how many there are; of many only the first are listed")


class Written(BaseModel):
    path: str
    size: int


class RetryExecute(ExecuteBody):
    max_attempts: Annotated[int, Field(ge=1, le=1000), Whole] | None = Field(
        None, description="by default KERNELBOX_MAX_RETRIES", examples=[5]
    )
    replacement_codes: Annotated[list[str], *Few] = Field(
        default_factory=list, description="what to run after the first failure, the second, …; then the last again"
    )
    on_error_code: str | None = Field(None, description="what to run after failures that have no replacement")

    def code_after(self, failures: int) -> str | None:
        """Returns what to run after the n-th failure; None for the same again."""
        if failures <= len(self.replacement_codes):
            return self.replacement_codes[failures - 1]
        return self.on_error_code

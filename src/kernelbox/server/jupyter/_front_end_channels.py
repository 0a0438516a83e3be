"""The channels of one kernel: it serves the requests of front ends in order, and all front ends see the output."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from kernelbox.base._errors import KernelBoxError, KernelDied, KernelNotFound
from kernelbox.core._cell_options import CellOptions
from kernelbox.host._engines import engine_named
from kernelbox.host.engines._kernelspecs import language_of
from kernelbox.server.jupyter._channel_options import ChannelRules, FrontEnd, KernelAccess
from kernelbox.server.jupyter._exchange import (
    DIED,
    Exchange,
    asks_to_exit,
    failure,
    read_cell,
    read_comm,
    read_expressions,
    read_query,
    stops_on_error,
)
from kernelbox.server.jupyter._front_end_cell import FrontEndCell
from kernelbox.server.jupyter._front_end_message import TIME_FORMAT, Author, JupyterMessage
from kernelbox.server.jupyter._kernel_info import NO_DEBUGGER, debug_refusal, kernel_info
from kernelbox.server.jupyter._other_clients import OtherClients
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.shells._asyncio_run import query
from kernelbox.shells._asyncio_watch import Ended, KernelWatch, Missed, Restarted
from kernelbox.shells._asyncio_workplace import note_nothing
from kernelbox.wire._messages import Execute, Output
from kernelbox.wire._results import ExecutionResult
from kernelbox.wire._schema import COMM_KINDS

# Requests that wait; a front end that runs a large notebook at once sends a few hundred.
_MOST_WAITING = 10_000

# Requests on control that wait: a person interrupts a kernel once or twice.
_MOST_CONTROL = 100

# Seconds that a Jupyter kernel has to describe itself; one that is busy is described by us.
_INFO_PATIENCE = 2.0

# Seconds that a cell has to end when it is interrupted because its server ends.
_STOP_PATIENCE = 5.0

_ROLL_BACK = "roll it back to its last checkpoint, or restart it, which drops its checkpoints"
_NO_APPROVALS = "no one can be asked: Jupyter's front ends have no approvals, and the policy does not allow it"
_MISSED = "the connection to the kernel was lost for a moment; what it said meanwhile is missing here"

# Front ends have no approvals, and take all that a cell says as it comes.
_OPTIONS = CellOptions(shell="accept", asking="reject", unasked=_NO_APPROVALS, raw=True)

# What is not held up by a cell, whichever channel it comes on, and what waits for its turn among the cells.
_CONTROL = ("interrupt_request", "shutdown_request", "debug_request")
_CELLS = ("execute_request", *COMM_KINDS)


class FrontEndChannels:
    """Serves the front ends of one kernel: requests on shell one after the other, and those on control beside them."""

    def __init__(self, reached: KernelAccess, rules: ChannelRules) -> None:
        self._reached = reached
        self._rules = rules
        self.author = Author(os.urandom(16).hex(), _now)
        self._front_ends: set[FrontEnd] = set()
        self._shell = _RequestLine(_MOST_WAITING, self._serve)
        self._control = _RequestLine(_MOST_CONTROL, self._serve)
        self._aborted: set[str] = set()
        self._cell: FrontEndCell | None = None
        self._at_once: set[asyncio.Task[None]] = set()
        self._watch = KernelWatch(reached.find)
        self._others = OtherClients(self.author)
        self._following: asyncio.Task[None] | None = None
        self._said = ""  # the last broadcast state that does not belong to a request
        self._death_told = False

    @property
    def unused(self) -> bool:
        """Whether no front end is connected, and nothing runs for one that was."""
        return not self._front_ends and not self._tasks()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in (self._shell.worker, self._control.worker, *self._at_once) if task is not None]

    def attach(self, front_end: FrontEnd) -> None:
        """Adds a front end, which from now on receives what the kernel says, in the cells of all clients."""
        self._front_ends.add(front_end)
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow())

    def detach(self, front_end: FrontEnd) -> None:
        """Removes a front end. Its cells continue, and their questions to it are refused."""
        self._front_ends.discard(front_end)
        if self._cell is not None:
            self._cell.lose(front_end)

    @property
    def working(self) -> asyncio.Task[None] | None:
        """What serves the requests that wait, while there are any."""
        return self._shell.worker

    async def stop(self) -> None:
        """Interrupts the running cell, so that its front end gets a reply. If it does not stop, `close` ends it."""
        if (working := self._shell.worker) is not None:
            with contextlib.suppress(KernelBoxError):  # it has gone meanwhile
                await self._reached.interrupt()
            await asyncio.wait({working}, timeout=_STOP_PATIENCE)

    async def close(self) -> None:
        """Interrupts what runs for front ends, and returns when it has ended."""
        self._shell.waiting.clear()
        self._control.waiting.clear()
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.rest()
        if self._following is not None:
            await asyncio.wait({self._following})

    def rest(self) -> None:
        """Ends the watch over the kernel."""
        if self._following is not None:
            self._following.cancel()

    def take(self, front_end: FrontEnd, request: JupyterMessage, *, may_end: bool = True) -> None:
        """Serves a message of a front end. Without `may_end`, messages that end or restart the kernel are refused."""
        if request.kind == "shutdown_request" and not may_end:
            self._refuse(front_end, request, "NotAllowed", "this front end may not end the kernel, nor start it anew")
        elif request.channel == "stdin":
            if self._cell is not None:
                self._cell.answer_input(front_end, request)
        elif request.kind == "shutdown_request":  # also while an interrupt waits for a kernel that does not answer
            self._begin(self._serve(front_end, request))
        else:
            beside = request.kind not in _CELLS and (request.channel == "control" or request.kind in _CONTROL)
            line = self._control if beside else self._shell
            if not line.add(front_end, request):
                sentence = f"{line.most:,} requests wait for this kernel already; wait for some, or interrupt it"
                self._refuse(front_end, request, "QueueFull", sentence)

    def _refuse(self, front_end: FrontEnd, request: JupyterMessage, ename: str, sentence: str) -> None:
        self._begin(front_end.send(Exchange(self.author, request).reply(failure(ename, sentence))))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._at_once.add(task)
        task.add_done_callback(self._at_once.discard)

    async def restart(self) -> None:
        """Tells every front end that the kernel is about to be restarted; waiting cells do not run any more."""
        self.abort_waiting()
        await self._say("restarting")

    def look(self) -> None:
        """Checks a dead kernel at once: it may have been restarted."""
        self._watch.look()

    def abort_waiting(self) -> None:
        """Drops the waiting cells."""
        self._aborted |= {request.id for _, request in self._shell.waiting if request.kind == "execute_request"}

    # -- what becomes of the kernel --------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Tells all front ends what the kernel says outside of their requests, and reports its deaths and restarts."""
        async with contextlib.aclosing(self._watch.follow()) as news:
            async for item in news:
                match item:
                    case Missed():
                        await self._broadcast_all([*self._others.lose(), *self._note(_MISSED)])
                    case Ended():
                        await self._tell_end(item)
                    case Restarted():
                        self._death_told = False
                        self._tell_life(True)
                        await self._broadcast_all(self._others.lose())
                        await self._say("restarting")
                        await self._say("idle")
                    case _:
                        await self._broadcast_all(self._others.tell(item))

    async def _tell_end(self, end: Ended) -> None:
        """Reports that the kernel is dead, and why, unless the cell that it died in already has."""
        self.abort_waiting()
        await self._broadcast_all(self._others.lose())
        if end.cause is not None and not self._death_told:
            advice = _ROLL_BACK if end.has_checkpoints else "its variables are lost; restart it"
            await self._broadcast_all(self._note(f"the kernel is dead: {end.cause}; {advice}"))
        self._death_told = True
        await self._say("dead")
        self._tell_life(False)

    def _tell_life(self, alive: bool) -> None:
        if self._reached.on_life is not None:
            self._reached.on_life(alive)

    async def _say(self, state: str) -> None:
        if state != self._said:
            self._said = state
            await self._broadcast(self.author.status(state))

    def _note(self, sentence: str) -> list[JupyterMessage]:
        return self._others.tell(Output("", "stderr", f"[kernelbox] {sentence}\n"))

    # -- serving ---------------------------------------------------------------------------------------------

    async def _serve(self, front_end: FrontEnd, request: JupyterMessage) -> None:
        exchange = Exchange(self.author, request)
        await self._broadcast(exchange.begin())
        try:
            reply = await self._answer(front_end, exchange)
        except (KernelBoxError, OSError, ValueError) as exc:
            reply = exchange.reply(
                failure(type(exc).__name__, self._rules.describe(exc)),
                {DIED: str(exc)} if isinstance(exc, KernelDied | KernelNotFound) else {},
            )
        if self._reached.on_life is not None and reply is not None and _tells_death(reply):
            return  # its front end finds out by itself, as of any kernel that dies
        if reply is not None and request.kind not in COMM_KINDS:  # to which there is none
            await front_end.send(reply)
        await self._broadcast(exchange.end())

    async def _answer(self, front_end: FrontEnd, exchange: Exchange) -> JupyterMessage | None:
        request = exchange.request
        match request.kind:
            case "execute_request" if request.id in self._aborted:
                self._aborted.discard(request.id)
                return exchange.reply({"status": "aborted"})
            case "execute_request":
                return await self._run_cell(front_end, exchange)
            case "comm_open" | "comm_msg" | "comm_close":
                await self._run(front_end, exchange, read_comm(request, _new_id(), approve_shell=self._holds_commands))
                return None
            case "kernel_info_request":
                return exchange.reply(await self._describe_kernel())
            case "interrupt_request":
                await self._reached.interrupt()
                return exchange.reply({"status": "ok"})
            case "shutdown_request":
                return await self._shut_down(exchange)
            case "debug_request":
                return exchange.reply(debug_refusal(request.content))
        what, args = read_query(request)
        return exchange.reply(await query(await self._reached.find(), what, args, timeout=None))

    async def _describe_kernel(self) -> dict[str, Any]:
        """Returns what the kernel says about itself; a kernel that is gone is described as one of kernelbox's own."""
        try:
            kernel = await self._reached.find()
        except KernelBoxError:
            return kernel_info()
        if not engine_named(kernel.record.engine).describes_itself:
            return kernel_info()
        try:
            said = await query(kernel, "kernel_info", {}, timeout=_INFO_PATIENCE)
        except (KernelBoxError, TimeoutError):  # it is dead, or busy
            return kernel_info(await in_thread(language_of, kernel.record.kernel_type))
        return {**said, **NO_DEBUGGER}

    async def _run_cell(self, front_end: FrontEnd, exchange: Exchange) -> JupyterMessage:
        request = exchange.request
        cell = read_cell(request, _new_id(), approve_shell=self._holds_commands)
        result, payload = await self._run(front_end, exchange, cell)
        if result.error is not None and stops_on_error(request):
            self.abort_waiting()
        expressions = read_expressions(request)
        if result.error is None and expressions:
            asked = await query(await self._reached.find(), "expressions", {"expressions": expressions}, timeout=None)
            expressions = asked.get("user_expressions", {})
        return exchange.reply_to_cell(result, expressions, payload)

    async def _run(
        self, front_end: FrontEnd, exchange: Exchange, request: Execute
    ) -> tuple[ExecutionResult, list[dict[str, Any]]]:
        """Runs a cell; returns its result, and what its front end should do then."""
        lent = await self._watch.take()
        kernel = await self._reached.find() if lent is None else lent.kernel
        # Messages for comms do not count as cells: a widget that is moved sends hundreds.
        noted = note_nothing if request.language == "comm" else self._rules.noted
        try:
            place = noted(kernel.record, request.language)
        except KernelBoxError:
            if lent is not None:
                lent.give_back()
            raise
        with place as note:
            options = dataclasses.replace(_OPTIONS, policy=self._rules.policy)
            begun = await self._rules.kernels.begin(kernel, request, options, lent=lent)
            cell = FrontEndCell(begun, front_end, exchange, self._others)
            await self._follow_cell(cell, exchange, request)
            note(cell.result)
        result = cell.result
        if result.error is not None and not asks_to_exit(cell.payload):
            for message in exchange.fail(result.error):
                await self._broadcast(message)
        self._death_told |= result.ending == "died"
        return result, cell.payload

    async def _follow_cell(self, cell: FrontEndCell, exchange: Exchange, request: Execute) -> None:
        """Tells all front ends what a cell says until it has ended."""
        self._cell = cell
        self._others.follow_up(request.id, exchange.request)
        try:
            async with contextlib.aclosing(cell.messages()) as messages:
                async for message in messages:
                    await self._broadcast(message)
        finally:
            self._cell = None

    async def _shut_down(self, exchange: Exchange) -> JupyterMessage:
        restart = exchange.request.content.get("restart") is True
        self.abort_waiting()
        await self._reached.end(restart)
        self._watch.look()
        content = {"status": "ok", "restart": restart}
        await self._broadcast(self.author.write("iopub", "shutdown_reply", content, exchange.request.header))
        return exchange.reply(content)

    @property
    def _holds_commands(self) -> bool:
        return self._rules.policy.concerns_shell()

    async def _broadcast_all(self, messages: list[JupyterMessage]) -> None:
        for message in messages:
            await self._broadcast(message)

    async def _broadcast(self, message: JupyterMessage) -> None:
        for front_end in list(self._front_ends):
            with contextlib.suppress(ConnectionError):  # it has gone this moment
                await front_end.send(message)


class _RequestLine:
    """Serves requests one after the other, as they came, in a task that lasts as long as there are any."""

    def __init__(self, most: int, serve: Callable[[FrontEnd, JupyterMessage], Awaitable[None]]) -> None:
        """`most` requests may wait; `serve` answers one."""
        self.most = most
        self.waiting: deque[tuple[FrontEnd, JupyterMessage]] = deque()
        self.worker: asyncio.Task[None] | None = None
        self._serve = serve

    def add(self, front_end: FrontEnd, request: JupyterMessage) -> bool:
        """Takes a request, unless too many wait; returns whether it did."""
        if len(self.waiting) >= self.most:
            return False
        self.waiting.append((front_end, request))
        if self.worker is None:
            self.worker = asyncio.get_running_loop().create_task(self._work())
        return True

    async def _work(self) -> None:
        try:
            while self.waiting:
                await self._serve(*self.waiting.popleft())
                await asyncio.sleep(0)  # thousands may wait of which none takes any time, and others are served too
        finally:
            self.worker = None


def _tells_death(reply: JupyterMessage) -> bool:
    return DIED in reply.metadata and reply.content["status"] == "error"


def _new_id() -> str:
    return os.urandom(8).hex()


def _now() -> str:
    return datetime.now(UTC).strftime(TIME_FORMAT)

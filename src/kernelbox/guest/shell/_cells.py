"""How a cell is run, from the request to its `Done`, no matter what its code does."""

from __future__ import annotations

import contextvars
import sys as user_sys
from typing import Any

from kernelbox.guest._interrupts import Interrupts
from kernelbox.guest._stdlib import asyncio, contextlib, os, sys, threading
from kernelbox.guest.output._origins import ORIGIN, Origin
from kernelbox.guest.output._text_streams import OutStream
from kernelbox.guest.programs._bash import Bash
from kernelbox.guest.programs._command_environment import take_environment
from kernelbox.guest.programs._program import bash_program
from kernelbox.guest.programs._runner_link import RunnerBash
from kernelbox.guest.shell._changes import Changes
from kernelbox.guest.shell._comm import Comms
from kernelbox.guest.shell._keyboard import keyboard
from kernelbox.guest.shell._shell import ZMQInteractiveShell, end_line
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._messages import Display, Done, Execute

keep_builtins(globals())

_exit = os._exit  # before any user code could put another in its place


# A cell may leave a lower limit behind; with less the next one would not even be compiled.
_LEAST_RECURSION = 500

# Times that the event loop may fail under a cell: what a cell puts in the place of `time.monotonic` makes it.
_LOOP_FAILURES = 10


class Traces:
    """The functions that a cell gave to `sys.settrace` and `sys.setprofile`. They do not see the kernel's own code."""

    def __init__(self) -> None:
        self._trace: Any = None
        self._profile: Any = None

    def resume(self) -> None:
        if self._trace is not None:
            sys.settrace(self._trace)
        if self._profile is not None:
            sys.setprofile(self._profile)

    def suspend(self) -> None:
        self._profile = sys.getprofile()
        if self._profile is not None:
            sys.setprofile(None)
        self._trace = sys.gettrace()
        if self._trace is not None:
            sys.settrace(None)


class Cells:
    """Runs cells, one at a time, on the main thread; context variables last from one to the next."""

    def __init__(
        self,
        shell: ZMQInteractiveShell,
        bash: Bash | RunnerBash,
        comms: Comms,
        loop: asyncio.AbstractEventLoop,
        interrupts: Interrupts,
    ) -> None:
        self._shell = shell
        self._bash = bash
        self._comms = comms
        self._loop = loop
        self._interrupts = interrupts
        self._context = contextvars.copy_context()
        self._pid = os.getpid()
        self._traces = Traces()

    def run(self, request: Execute) -> Done:
        """Runs a cell to its end and returns its `Done`."""
        python = request.language == "python"
        plain = python and self._shell.is_plain(request.code)
        cell = self._run_python(request, plain) if python else self._run_other(request)
        self._shell.set_text_limit(request.text_limit)
        self._shell.takes_payloads = request.payloads
        keyboard.has_left_debugger = False
        self._context.run(ORIGIN.set, Origin(request.id, request.parent or request.id))
        may_wait = python and self._shell.may_wait(request.code, plain)
        self._traces.resume()
        try:
            return self._run_to_end(request, cell) if may_wait else self._run_at_once(request, cell)
        finally:
            self._traces.suspend()
            if sys.getrecursionlimit() < _LEAST_RECURSION:
                sys.setrecursionlimit(_LEAST_RECURSION)

    def renew(self) -> None:
        """Makes a copy count as the kernel itself, not as a child that a cell forked."""
        self._pid = os.getpid()

    def leave_if_forked(self, exc: BaseException | None) -> None:
        """Ends a child that the cell forked and that ran on to the end of the cell, as a script would."""
        if os.getpid() == self._pid:
            return
        if isinstance(exc, SystemExit):
            _exit(exc.code if isinstance(exc.code, int) else int(exc.code is not None))
        if exc is not None:
            lines = self._shell.describe(exc, 0)[2]
            print("\n".join(lines), file=user_sys.stderr, flush=True)
        _exit(exc is not None)

    def _run_at_once(self, request: Execute, cell: Any) -> Done:
        """Runs the coroutine of a cell that never waits, without making a task of it.

        As in a notebook the loop counts as running, so that the cell can start tasks; they run when it has ended.
        """
        loop: Any = self._loop
        asyncio._set_running_loop(loop)
        loop._thread_id = threading.get_ident()
        try:
            self._context.run(cell.send, None)
        except StopIteration as stop:
            done: Done = stop.value
            return done
        except BaseException as exc:  # noqa: BLE001  # an interrupt outside the user's own frames
            self._interrupts.protect()
            self.leave_if_forked(exc)
            return self._report(request, exc)
        finally:
            asyncio._set_running_loop(None)
            loop._thread_id = None
        raise AssertionError("a cell without await has waited")

    def _run_to_end(self, request: Execute, cell: Any) -> Done:
        """Runs the coroutine of a cell to its end in any case, and returns its `Done`."""
        # Not by the loop, which has a cell's task factory make it.
        task = asyncio.Task(self._until_it_ends(cell), loop=self._loop, context=self._context)
        self._interrupts.attach(task)
        failures = 0
        while not task.done():
            try:
                self._loop.run_until_complete(task)
            except KeyboardInterrupt:
                if not self._interrupts.seen:
                    continue  # a task in the background has raised it itself, and has ended
                # It struck a task in the background while the cell waited; it was meant for the cell.
                self._interrupts.protect()
                if not task.done():
                    task.cancel()
            except (RuntimeError, asyncio.CancelledError, SystemExit):
                continue  # the cell stopped the loop, or cancelled every task
            except Exception as failure:  # noqa: BLE001  # the loop uses what the cell may have patched
                failures += 1
                if failures > _LOOP_FAILURES:
                    self._interrupts.protect()
                    task.cancel()
                    return self._report(request, failure)
        self.leave_if_forked(None if task.cancelled() else task.exception())
        if task.cancelled():
            value = "the cell cancelled its own task"
            return Done(request.id, "error", None, "CancelledError", value, [f"CancelledError: {value}"])
        if (exc := task.exception()) is not None:
            self._interrupts.protect()
            return self._report(request, exc)
        result: Done = task.result()
        return result

    async def _until_it_ends(self, cell: Any) -> Any:
        """Stops the loop with the cell: tasks that it leaves behind run after its end was reported."""
        try:
            return await cell
        finally:
            self._loop.stop()

    async def _run_python(self, request: Execute, plain: bool) -> Done:
        shell = self._shell
        shell.error = None
        shell.changes = Changes(shell) if request.report_changes else None
        if request.restore_cwd and not _is_here(request.restore_cwd):  # another client's cell went elsewhere
            with contextlib.suppress(OSError):  # the notice after the cell says so
                os.chdir(request.restore_cwd)
        try:
            self._interrupts.expose()
            result = await self._run_cell(request, plain)
            error = self._failure(result)
            self.leave_if_forked(error)
            self._flush_own_streams()
            report = None if error is None else shell.describe(self._as_interrupt(error), request.text_limit)
        except BaseException as exc:  # noqa: BLE001  # an interrupt outside the user's own frames
            self._interrupts.protect()
            return self._report(request, exc)
        finally:
            self._interrupts.protect()
            shell.error = None
        done = Done(request.id, "ok", interrupted=self._interrupts.seen)
        if report is not None:
            done.status, (done.ename, done.evalue, done.traceback, done.cut) = "error", report
        if shell.changes is not None:
            done.changed = shell.changes.report()
            done.cut |= shell.changes.cut
        if request.restore_cwd and not _is_here(request.restore_cwd):
            self._restore_cwd(request)
        return done

    def _flush_own_streams(self) -> None:
        """Flushes what cells have put in the place of `sys.stdout` and `sys.stderr`: it may have a buffer."""
        for name in ("stdout", "stderr"):
            stream: Any = getattr(user_sys, name, None)
            if type(stream) is not OutStream:
                with contextlib.suppress(Exception):  # it may be anything, or nothing
                    stream.flush()

    async def _run_cell(self, request: Execute, plain: bool) -> Any:
        shell, result, failure = self._shell, None, None
        try:
            cell = end_line(request.code) if plain else shell.transform_cell(request.code)
        except Exception:  # noqa: BLE001  # IPython shows what its transformers raise
            cell, failure = request.code, sys.exc_info()
        shell.in_cell = True
        try:
            result = await shell.run_cell_async(
                request.code,
                store_history=request.store_history,
                silent=request.silent,
                transformed_cell=cell,
                preprocessing_exc_tuple=failure,
            )
        finally:
            shell.in_cell = False
            shell.events.trigger("post_execute")
            if not request.silent:
                shell.events.trigger("post_run_cell", result)
        return result

    async def _run_other(self, request: Execute) -> Done:
        """Runs a bash cell, or a front end's message to a comm."""
        status = 0
        try:
            self._interrupts.expose()
            if request.language == "bash":
                status = self._run_in_bash(request.code)
            else:
                self._comms.take(request)
                self._flush_own_streams()
        except BaseException as exc:  # noqa: BLE001  # reported as the cell's error
            self._interrupts.protect()
            return self._report(request, exc)
        finally:
            self._interrupts.protect()
        done = Done(request.id, "ok", interrupted=self._interrupts.seen)
        if request.language == "bash":
            done.exit_code = status
        if status:
            done.status, done.ename, done.evalue = "error", "CalledProcessError", f"bash returned exit status {status}"
            done.traceback = [f"CalledProcessError: {done.evalue}"]
        return done

    def _run_in_bash(self, code: str) -> int:
        """Runs a bash cell; returns its exit status."""
        shell = self._shell
        waiting, there = self._bash.look()
        program = bash_program(code, take_environment(), shell.kernel.asks.take_directory(there))
        return self._bash.run(shell.approve("shell", program, with_changes=not waiting))

    def _failure(self, result: Any) -> BaseException | None:
        """Returns the exception that a cell failed with, whether the shell has shown it or not."""
        return result.error_before_exec or result.error_in_exec or self._shell.error

    def _as_interrupt(self, error: BaseException) -> BaseException:
        """A cell that was interrupted in an `await` sees a cancellation; its caller asked for an interrupt."""
        if self._interrupts.seen and isinstance(error, asyncio.CancelledError):
            return KeyboardInterrupt().with_traceback(error.__traceback__)
        return error

    def _report(self, request: Execute, exc: BaseException) -> Done:
        name, value, lines, cut = self._shell.describe(self._as_interrupt(exc), request.text_limit)
        return Done(request.id, "error", None, name, value, lines, self._interrupts.seen, cut)

    def _restore_cwd(self, request: Execute) -> None:
        try:
            os.chdir(request.restore_cwd)
            notice = f"[kernelbox] cwd reset to {request.restore_cwd}"
        except OSError as exc:
            notice = f"[kernelbox] cwd cannot be reset to {request.restore_cwd}: {exc.strerror}"
        # A display has lines of its own, even if the cell has begun a line.
        self._shell.displayhook.outbox.send(Display(request.id, "display_data", {"text/plain": notice}, {}))


def _is_here(directory: str) -> bool:
    """Tells whether a path leads to the current directory, also through links."""
    try:
        return os.path.samefile(os.curdir, directory)
    except OSError:  # one of them has been deleted
        return False

"""KernelGateway: a gateway as a child process of this one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from kernelbox.base._command_line import LOG_LEVELS
from kernelbox.base._config import limits_as_variables
from kernelbox.base._endpoint import check_port
from kernelbox.base._environment import gateway_environment
from kernelbox.base._errors import InvalidInput, StartFailed
from kernelbox.base._limits import check_limits
from kernelbox.base._unique_objects import Handle
from kernelbox.core._arguments import check_environment, check_path, check_switch
from kernelbox.core._options import choose_sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from kernelbox.base._limits import Limits
    from kernelbox.core._options import SandboxLevel

# Seconds that a gateway may take until it listens: it imports for a second or two, and machines are busy.
_START_PATIENCE = 60.0


class KernelGateway(Handle):
    """Runs a gateway: `KernelClient` opens kernels in it, and so do Jupyter's front ends.

    Kernels see the variables in `env` and a few harmless ones of this process (PATH, HOME, the locale). They end with
    the gateway, and the gateway ends with this process, however that ends.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8888,
        sandbox: bool = False,
        sandbox_config: Path | None = None,
        log_level: str = "INFO",
        log_to_stderr: bool = False,
        env: Mapping[str, str] | None = None,
        *,
        working_dir: str | os.PathLike[str] | None = None,
        limits: Limits | Mapping[str, object] | None = None,
        sandbox_level: SandboxLevel | None = None,
    ) -> None:
        """`port` 0 lets the system choose one. Kernels work in `working_dir`, by default this process's directory.

        `limits` is what each kernel may use.
        With `sandbox` they are confined, by the rules of `sandbox_config` if that is given, and at `sandbox_level`
        "srt" inside sandbox-runtime: see docs/sandbox.md.
        """
        if log_level.upper() not in LOG_LEVELS:
            raise InvalidInput("log_level", log_level, f"use one of {', '.join(LOG_LEVELS)}")
        self.host = host
        self.port = check_port(port)
        self.sandbox = check_switch("sandbox", sandbox)
        self.sandbox_config = sandbox_config
        self.sandbox_level = sandbox_level
        choose_sandbox(self.sandbox, sandbox_config, sandbox_level)  # raises for a file that cannot be used
        self._rules_file = None if sandbox_config is None else os.path.abspath(os.path.expanduser(sandbox_config))
        self.log_level = log_level.upper()
        self.log_to_stderr = check_switch("log_to_stderr", log_to_stderr)
        self.env = check_environment(dict(env or {}), "env") or {}
        self.working_dir = None if working_dir is None else Path(check_path("working_dir", working_dir))
        self.limits = check_limits(limits)
        self._process: asyncio.subprocess.Process | None = None

    def __repr__(self) -> str:
        return f"<KernelGateway {self.host}:{self.port} {'running' if self.running else 'stopped'}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def running(self) -> bool:
        """Whether the gateway's process is there."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Starts the gateway, and returns when it listens; raises RuntimeError if it is running, or cannot start."""
        if self.running:
            raise RuntimeError("the gateway is running already; stop() it before you start it again")
        self._process = await self._launch()
        try:
            async with asyncio.timeout(_START_PATIENCE):
                said = await self._read_first_line(self._process)
        except BaseException as exc:
            await self._kill(self._process)
            if isinstance(exc, TimeoutError):
                raise StartFailed(f"the gateway did not listen within {_START_PATIENCE:g} s") from None
            raise
        self.port = int(said["url"].rpartition(":")[2])

    async def stop(self, timeout: float = 10) -> None:  # noqa: ASYNC109  # as ipybox has it
        """Ends the gateway and its kernels; a gateway that has not ended after `timeout` seconds is killed."""
        if timeout < 0:
            raise InvalidInput("timeout", timeout, "use 0 or more seconds")
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        try:
            async with asyncio.timeout(timeout):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            await self._kill(process)
        self._process = None

    async def join(self) -> None:
        """Waits for the gateway's process to end."""
        if self._process is not None:
            await self._process.wait()

    async def _launch(self) -> asyncio.subprocess.Process:
        # Without the current directory on its path: a folder of the user's may have the name of a module.
        command = [sys.executable, "-P", "-m", "kernelbox.gateway", "--host", self.host, "--port", str(self.port)]
        if self.sandbox:
            command.append("--sandbox")
        if self._rules_file is not None:
            command += ["--sandbox-config", self._rules_file]
        if self.sandbox_level is not None:
            command += ["--sandbox-level", self.sandbox_level]
        try:
            return await asyncio.create_subprocess_exec(
                *(*command, "--log-level", self.log_level, "--lifeline"),
                stdin=asyncio.subprocess.PIPE,  # broken when this process ends
                stdout=asyncio.subprocess.PIPE,
                stderr=None if self.log_to_stderr else asyncio.subprocess.DEVNULL,
                env={**gateway_environment(self.env), **limits_as_variables(self.limits)},
                cwd=self.working_dir,
                start_new_session=True,  # Ctrl-C in a terminal is for this process, which then stops the gateway
            )
        except OSError as exc:
            raise StartFailed(f"the gateway cannot be started in {str(self.working_dir)!r}: {exc.strerror}") from exc

    async def _read_first_line(self, process: asyncio.subprocess.Process) -> dict[str, str]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        try:
            said: dict[str, str] = json.loads(line)
        except ValueError:
            status = await process.wait()
            raise StartFailed(f"the gateway ended with status {status}; log_to_stderr=True shows why") from None
        if "error" in said:
            raise StartFailed(f"the gateway cannot start: {said['error']}")
        return said

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        """Ends the process at once, if it is there; its kernels end with it."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.shield(process.wait())
        assert process.stdin is not None
        process.stdin.close()

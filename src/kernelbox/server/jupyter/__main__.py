"""`python -m kernelbox.server.jupyter -f FILE`: what the kernelspec of `kernelbox jupyter install` starts."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from kernelbox.api._configured import kernels
from kernelbox.base._environment import host_variable
from kernelbox.base._errors import KernelBoxError
from kernelbox.base._extras import require
from kernelbox.core._options import KernelOptions
from kernelbox.core.approvals._approval_policy import ApprovalPolicy
from kernelbox.server.jupyter._channel_options import ChannelRules, KernelAccess
from kernelbox.server.jupyter._front_end_channels import FrontEndChannels
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.tools._toolbox import Toolbox

# Seconds. Before the sockets are closed, a front end gets the reply to its shutdown request, or the last output of a
# dead kernel. A kernel that another client restarts is back by then.
_LAST_REPLY = 0.2

# The variable in which Jupyter says which process started a kernel.
_PARENT_VARIABLE = "JPY_PARENT_PID"


async def run(connection_file: str, name: str | None) -> None:
    """Serves a kernel until a front end shuts it down: a new one, or the one of a name, which stays."""
    require("jupyter")
    from kernelbox.server.jupyter._zeromq import ConnectionFile, Sockets, until_the_end

    file = ConnectionFile.read(connection_file)
    new = KernelOptions(cwd=os.getcwd(), lifetime="kernel" if name else "process")
    reached = AsyncKernels(kernels(), new, Toolbox(kernels().config), advice="restart it")
    record = await (reached.open(name) if name else reached.create(f"jupyter-{os.urandom(6).hex()}"))
    asked_to_end = asyncio.Event()
    dying: asyncio.TimerHandle | None = None

    def see_life(alive: bool) -> None:
        """Ends this process with its kernel: that is how Jupyter learns of a death."""
        nonlocal dying
        if dying is not None:
            dying.cancel()
        dying = None if alive else asyncio.get_running_loop().call_later(_LAST_REPLY, asked_to_end.set)

    async def end(restart: bool) -> None:
        """Ends this process soon; Jupyter starts another to restart a kernel, so a named one is restarted here."""
        if restart and name:
            await reached.restart(record.kernel_id)
        asyncio.get_running_loop().call_later(_LAST_REPLY, asked_to_end.set)

    access = KernelAccess(
        lambda: reached.kernel(record.kernel_id), lambda: reached.interrupt(record.kernel_id), end, see_life
    )
    channels = FrontEndChannels(access, ChannelRules(ApprovalPolicy(), reached))
    sockets = Sockets(file)
    serving = asyncio.ensure_future(sockets.serve(channels))
    try:
        await until_the_end(serving, asked_to_end, _parent())
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await channels.close()
        await reached.end_own()
        sockets.close()


def _parent() -> int | None:
    said = host_variable(_PARENT_VARIABLE) or ""
    return int(said) if said.isdecimal() and int(said) > 1 else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kernelbox.server.jupyter", description=__doc__)
    parser.add_argument("-f", dest="connection_file", required=True, metavar="FILE", help="Jupyter's connection file")
    parser.add_argument("--name", help="use the kernel of this name, which stays when the front end has gone")
    options, _ = parser.parse_known_args()  # `jupyter run` passes on the names of the files that it runs
    try:
        asyncio.run(run(options.connection_file, options.name))
    except KernelBoxError as exc:
        print(f"kernelbox: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

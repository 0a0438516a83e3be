"""What kernelbox is measured against: IPython in the same process, and ipykernel through jupyter_client."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from jupyter_client.manager import KernelManager


def in_process() -> Callable[[str], object]:
    """Returns IPython's own `run_cell`, the least that running a cell can cost."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)

    def run(code: str) -> object:
        with redirect_stdout(StringIO()):
            return shell.run_cell(code, store_history=True)

    return run


class JupyterKernel:
    """An ipykernel with its channels kept open; an execution ends when the reply and idle are both there."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel()
        self.client: Any = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def execute(self, code: str) -> str:
        """Runs a cell; returns the text it wrote and showed."""
        wanted = self.client.execute(code, store_history=True)
        text = []
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != wanted:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    text.append(content["text"])
                case "execute_result":
                    text.append(content["data"]["text/plain"])
                case "status" if content["execution_state"] == "idle":
                    break
        while self.client.get_shell_msg(timeout=120)["parent_header"].get("msg_id") != wanted:
            continue
        return "".join(text)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def time_first_result() -> float:
    """Returns how long jupyter_client takes from nothing to the first result."""
    began = time.perf_counter()
    kernel = JupyterKernel()
    kernel.execute("1+1")
    taken = time.perf_counter() - began
    kernel.close()
    return taken

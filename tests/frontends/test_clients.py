"""Jupyter's own clients, unchanged, each in a process of its own, against our server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.server import DEADLINE, Served

NBCLIENT = """
import json, sys, nbformat
from jupyter_server.gateway.gateway_client import GatewayClient
from nbclient import NotebookClient
GatewayClient.instance().url = sys.argv[1]
cells = ["print('hello')", "6 * 7", "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()", "1 / 0"]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
client = NotebookClient(
    notebook,
    kernel_manager_class="jupyter_server.gateway.managers.GatewayKernelManager",
    allow_errors=True,
    timeout=60,
)
client.execute()
print(json.dumps([[dict(output) for output in cell.outputs] for cell in notebook.cells]))
"""

DEAD = """
import sys, nbformat
from jupyter_server.gateway.gateway_client import GatewayClient
from nbclient import NotebookClient
GatewayClient.instance().url = sys.argv[1]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import os; os.kill(os.getpid(), 9)")])
client = NotebookClient(
    notebook, kernel_manager_class="jupyter_server.gateway.managers.GatewayKernelManager", timeout=60
)
try:
    client.execute()
except Exception as exc:
    print('"' + type(exc).__name__ + '"')
"""

PAPERMILL = """
import json, sys, nbformat, papermill
from jupyter_server.gateway.gateway_client import GatewayClient
GatewayClient.instance().url = sys.argv[1]
cell = nbformat.v4.new_code_cell("x = 1")
cell.metadata.tags = ["parameters"]
notebook = nbformat.v4.new_notebook(
    cells=[cell, nbformat.v4.new_code_cell("print(x + 1)")],
    metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
)
nbformat.write(notebook, "in.ipynb")
papermill.execute_notebook(
    "in.ipynb",
    "out.ipynb",
    parameters={"x": 41},
    progress_bar=False,
    kernel_manager_class="jupyter_server.gateway.managers.GatewayKernelManager",
)
made = nbformat.read("out.ipynb", 4)
print(json.dumps([output.text for cell in made.cells for output in cell.outputs]))
"""

KERNEL_CLIENT = """
import json, sys
from jupyter_kernel_client import JupyterKernelClient
with JupyterKernelClient(server_url=sys.argv[1], token="") as kernel:
    first = kernel.execute("x = 20; print('hello')")
    second = kernel.execute("x + 1")
    third = kernel.execute("1 / 0")
print(json.dumps([first, second, third], default=str))
"""


def client(served: Served, script: str, directory: Path) -> Any:
    """Runs a client; returns what it printed last."""
    ended = subprocess.run(
        [sys.executable, "-c", script, served.url],
        cwd=directory,
        env={**os.environ, "NO_PROXY": "*", "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.slow
def test_nbclient_runs_a_notebook(served: Served, tmp_path: Path) -> None:
    stream, result, plot, error = client(served, NBCLIENT, tmp_path)
    assert [output["text"] for output in stream] == ["hello\n"]
    assert (result[0]["data"], result[0]["execution_count"]) == ({"text/plain": "42"}, 2)
    assert "image/png" in plot[0]["data"]
    assert (error[0]["output_type"], error[0]["ename"]) == ("error", "ZeroDivisionError")


@pytest.mark.slow
def test_nbclient_notices_a_kernel_that_dies(served: Served, tmp_path: Path) -> None:
    assert client(served, DEAD, tmp_path) in ("DeadKernelError", "CellExecutionError")


@pytest.mark.slow
def test_papermill_runs_a_notebook_with_parameters(served: Served, tmp_path: Path) -> None:
    assert client(served, PAPERMILL, tmp_path) == ["42\n"]


def test_jupyter_kernel_client_runs_cells(served: Served, tmp_path: Path) -> None:
    first, second, third = client(served, KERNEL_CLIENT, tmp_path)
    assert first["outputs"][0]["text"] == "hello\n"
    assert second["outputs"][0]["data"]["text/plain"] == "21"
    assert third["status"] == "error"


@pytest.mark.slow
def test_clients_leave_no_kernel_behind(served: Served, tmp_path: Path) -> None:
    before = served.http.get("/api/kernels").json()
    client(served, PAPERMILL, tmp_path)
    assert len(served.http.get("/api/kernels").json()) == len(before)

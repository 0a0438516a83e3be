"""JupyterLab with `--gateway-url`, in a real browser: a notebook is run, and its plot and its widget are seen."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.browser import chromium, python
from tests.support.server import DEADLINE, Served

__all__ = ["chromium", "python"]

ROOT = Path(__file__).resolve().parent.parent.parent

# Seconds. JupyterLab imports for several on a quiet machine.
_START_DEADLINE = 300.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MOVE = "slider.observe(lambda change: setattr(moved, 'value', f'moved to {change.new}'), 'value')"
CELLS = [
    "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()",
    "import ipywidgets\nslider = ipywidgets.IntSlider(value=23, description='amount')\nslider",
    f"moved = ipywidgets.Label('unmoved')\n{MOVE}\nmoved",
    "name = input('name? ')\nprint('hello', name)",
]

# Run with the Python of the folder: playwright drives the browser there.
BROWSE = """
import sys
from playwright.sync_api import expect, sync_playwright
url, chromium = sys.argv[1:]

def run(page, cell):
    # JupyterLab drops what is run while it connects to its kernel anew, as it does when it starts.
    for _ in range(10):
        expect(page.locator(".jp-Notebook-ExecutionIndicator").first).to_have_attribute("data-status", "idle")
        cell.locator(".jp-InputArea-editor").click()
        page.keyboard.press("Control+Enter")
        try:
            return expect(cell.locator(".jp-InputPrompt").first).not_to_have_text("[ ]:", timeout=10_000)
        except AssertionError:
            continue

with sync_playwright() as play:
    browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1400, "height": 1800})
    page.set_default_timeout(120_000)
    expect.set_options(timeout=120_000)
    page.goto(url)
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(4)
    for number in range(4):
        run(page, page.locator(".jp-CodeCell").nth(number))
        if number == 0:
            expect(page.locator(".jp-RenderedImage img")).to_be_visible()
            print("plot")
        elif number == 1:
            expect(page.locator(".widget-slider")).to_be_visible()
            expect(page.locator(".widget-readout")).to_have_text("23")
            print("widget")
        elif number == 2:
            expect(page.locator(".widget-label", has_text="unmoved")).to_be_visible()
            page.locator(".widget-slider .noUi-handle").focus()
            page.keyboard.press("ArrowRight")
            expect(page.locator(".widget-label", has_text="moved to 24")).to_be_visible()
            print("moved")
        else:
            page.locator(".jp-Stdin-input").fill("Ada")
            page.keyboard.press("Enter")
            expect(page.locator(".jp-OutputArea-output", has_text="hello Ada")).to_be_visible()
            print("input")
    browser.close()
"""


@contextlib.contextmanager
def jupyterlab(python: Path, gateway_url: str, directory: Path) -> Iterator[str]:
    """Runs JupyterLab on a folder; yields the address of the notebook in it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--gateway-url={gateway_url}", "--no-browser", "--allow-root", f"--port={port}", "--ip=127.0.0.1"]
    quiet = ["--IdentityProvider.token="]
    settings = {f"JUPYTER_{name}_DIR": str(directory / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    with (
        (directory / "lab.log").open("w") as log,
        subprocess.Popen(
            [python.parent / "jupyter-lab", *options, *quiet, str(directory)],
            cwd=directory,
            env={**os.environ, **settings, "NO_PROXY": "*"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            wait_for(f"http://127.0.0.1:{port}/api", process)
            yield f"http://127.0.0.1:{port}/lab/tree/n.ipynb?reset"
        finally:
            process.terminate()
            process.wait(DEADLINE)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_DEADLINE
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
    raise AssertionError("JupyterLab does not answer")


def test_jupyterlab_runs_a_notebook_in_our_kernels(served: Served, python: Path, chromium: str, tmp_path: Path) -> None:
    cells: list[dict[str, object]] = [
        {"cell_type": "code", "id": f"c{n}", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for n, source in enumerate(CELLS)
    ]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3 (kernelbox)", "language": "python"}}
    notebook = {"cells": cells, "metadata": spec, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "n.ipynb").write_text(json.dumps(notebook))
    with jupyterlab(python, served.url, tmp_path) as url:
        done = subprocess.run(
            [python, "-c", BROWSE, url, chromium], capture_output=True, text=True, timeout=600, check=False
        )
    assert done.stdout.split() == ["plot", "widget", "moved", "input"], (
        done.stderr[-3000:] + (tmp_path / "lab.log").read_text()[-3000:]
    )

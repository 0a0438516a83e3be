"""The built site, in a real browser."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.browser import chromium, python
from tests.support.documentation import ROOT

__all__ = ["chromium", "python"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Run with the Python that has playwright.
BROWSE = """
import json, sys
from playwright.sync_api import sync_playwright
url, chromium, *pages = sys.argv[1:]
CHANGED = "before => navigator.clipboard.readText().then(now => now != '' && now != before)"

with sync_playwright() as play:
    browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"])
    context = browser.new_context(viewport={"width": 390, "height": 844}, permissions=["clipboard-read"])
    page, widths = context.new_page(), {}
    for path in pages:
        page.goto(url + path)
        widths[path] = page.evaluate("document.documentElement.scrollWidth")
    page.goto(url)
    copied = []
    for number in (0, 1, 2):
        page.locator("article [data-clipboard-target]").nth(number).click()
        page.wait_for_function(CHANGED, arg="".join(copied[-1:]))
        copied.append(page.evaluate("navigator.clipboard.readText()"))
    print(json.dumps({"widths": widths, "copied": copied}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Builds the site and serves it; returns its address."""
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", place / "docs")
    shutil.copy(ROOT / "zensical.toml", place)
    zensical = Path(sys.executable).parent / "zensical"
    subprocess.run([zensical, "build", "--strict"], cwd=place, check=True, capture_output=True)
    handler = functools.partial(Quiet, directory=str(place / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
    shutil.rmtree(place)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_pages_fit_a_telephone_and_console_blocks_are_copied_as_one_types_them(
    site: str, python: Path, chromium: str
) -> None:
    pages = ["", "tutorial/first-agent/", "how-to/fastapi/", "frameworks/", "reference/api/", "performance/"]
    done = subprocess.run(
        [python, "-c", BROWSE, site, chromium, *pages], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)

    assert {page: width for page, width in seen["widths"].items() if width > 390} == {}
    install, program, shell = seen["copied"]
    assert install.splitlines()[0].startswith("pip install .")
    assert program.startswith("from kernelbox import Kernel\n\nwith Kernel()")
    assert shell.splitlines() == [
        'kernelbox run demo "x = 2 ** 10"',
        'kernelbox run demo "x"',
        "kernelbox destroy demo",
    ]

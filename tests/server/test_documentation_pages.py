"""Swagger UI and ReDoc in a real browser that reaches nothing but this server: they show the routes all the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.browser import chromium, python
from tests.support.server import Served

__all__ = ["chromium", "python"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# Run with the Python of the folder: playwright drives the browser there.
BROWSE = """
import json, sys
from playwright.sync_api import expect, sync_playwright
url, chromium = sys.argv[1:]
with sync_playwright() as play:
    alone = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", alone])
    page = browser.new_page()
    page.set_default_timeout(120_000)
    expect.set_options(timeout=120_000)
    requests, failures = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("requestfailed", lambda request: failures.append((request.url, request.failure)))
    page.on("pageerror", lambda error: failures.append((str(error), "error")))
    page.goto(f"{url}/docs")
    expect(page.locator(".opblock-summary-path", has_text="/api/kernelspecs").first).to_be_visible()
    expect(page.locator(".opblock").first).to_be_visible()
    page.locator(".opblock-summary-path", has_text="/health").first.click()
    page.locator("button.try-out__btn").first.click()
    page.locator("button.execute").first.click()
    expect(page.locator(".live-responses-table tr.response .response-col_status").first).to_contain_text("200")
    page.goto(f"{url}/redoc")
    expect(page.locator(".menu-content")).to_be_visible()
    expect(page.locator("h1").first).to_be_visible()
    expect(page.get_by_text("/api/kernelspecs", exact=False).first).to_be_attached()
    print(json.dumps({"requests": requests, "failures": failures}))
    browser.close()
"""


def test_the_documentation_is_shown_without_any_other_host(served: Served, python: Path, chromium: str) -> None:
    command = [str(python), "-c", BROWSE, served.url, chromium]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    refused = {url for url, reason in seen["failures"] if reason == "csp"}  # by the browser itself, as we tell it to
    assert [failure for failure in seen["failures"] if failure[0] not in refused] == []
    elsewhere = {url for url in seen["requests"] if not url.startswith((f"{served.url}/", "data:", "blob:"))}
    assert elsewhere <= refused
    assert f"{served.url}/openapi.json" in seen["requests"]

"""The main job in one minute: a named kernel, state across calls, an error repaired by a retry, a plot as PNG."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

from kernelbox import ExecutionResult, destroy, execute, execute_with_retry, get_or_create

T = TypeVar("T")


def step(title: str, action: Callable[[], T]) -> T:
    """Runs one step and says how long it took."""
    began = time.perf_counter()
    value = action()
    print(f"{(time.perf_counter() - began) * 1000:8.1f} ms  {title}")
    return value


def repair(result: ExecutionResult, attempt: int) -> str:
    """Stands where an agent would ask its model: reads the error, returns better code."""
    assert result.error is not None
    print(f"             attempt {attempt} failed: {result.error.ename}: {result.error.evalue}")
    return "prices = [3, 4, 5]\nsum(prices) / len(prices)"


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ.setdefault("KERNELBOX_HOME", home)
        run()


def run() -> None:
    kernel = step("first kernel of all: starts the template, too", lambda: get_or_create("demo"))
    step("second kernel, forked from the template", lambda: get_or_create("demo-2"))

    step("x = list(range(1_000_000))", lambda: execute(kernel, "x = list(range(1_000_000))"))
    total = step("sum(x)            the kernel remembers x", lambda: execute(kernel, "sum(x)"))
    print(f"             → {total.return_value}")

    fixed = step("an error, repaired", lambda: execute_with_retry(kernel, "sum(prices) / len(prices)", repair))
    print(f"             → {fixed.status}, {fixed.return_value}, {len(fixed.attempts)} attempts")

    slow = step("while True: pass, with timeout=0.5", lambda: execute(kernel, "while True: pass", timeout=0.5))
    kept = execute(kernel, "len(x)")
    print(f"             → {slow.status}, state {slow.state}: len(x) is still {kept.return_value}")

    plot = (
        "from PIL import Image, ImageDraw\n"
        "chart = Image.new('RGB', (320, 200), 'white')\n"
        "ImageDraw.Draw(chart).line([(20 * i, 190 - i * i) for i in range(14)], 'navy', 3)\n"
        "chart"
    )
    images = os.path.abspath("images")
    drawn = step("a plot", lambda: execute(kernel, plot, images_dir=images))
    print(f"             → {drawn.images[0]} ({os.path.getsize(drawn.images[0]):,} bytes)")

    step("os._exit(1)       the kernel dies, and says so", lambda: print("             →", _death(kernel.name)))
    step("destroy both", lambda: (destroy("demo"), destroy("demo-2")))


def _death(name: str) -> str:
    error = execute(name, "import os; os._exit(1)").error
    assert error is not None
    return f"{error.ename}: {error.evalue}"


if __name__ == "__main__":
    main()

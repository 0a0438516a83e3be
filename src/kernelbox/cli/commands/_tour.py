"""`tour`: what kernels can do, shown step by step with real ones. `make demo` is the same without pauses."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time

from kernelbox.api._kernel import Kernel
from kernelbox.base._config import KernelBoxConfig
from kernelbox.base._environment import gateway_environment
from kernelbox.base._errors import KernelBoxError
from kernelbox.base._text import escape
from kernelbox.cli.terminal._output import FAILED
from kernelbox.cli.terminal._pretty import paint, progress, write
from kernelbox.cli.terminal._terminal_text import for_terminal
from kernelbox.core._every_kernel import wipe
from kernelbox.core._kernels import Kernels
from kernelbox.core._options import KernelOptions, choose_sandbox
from kernelbox.shells._blocking_run import run as run_blocking
from kernelbox.wire._results import ExecutionResult, OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from kernelbox.core.approvals._requests import SyncApprovalRequest
    from kernelbox.sandbox._sandbox_config import SandboxConfig

_NAME = "tour"

# Pillow comes with kernelbox, so that the chart needs no other package.
_CHART = """\
from PIL import Image, ImageDraw
chart = Image.new("RGB", (320, 200), "white")
points = [(25 * i, 190 - i * i) for i in range(14)]
ImageDraw.Draw(chart).line(points, "navy", 3)
chart"""

_END = """\
That was the tour. Its kernels are gone.

  {program} console demo        talk to a kernel of your own
  {program} run demo "x = 1"    use it from a shell
  {program} --help              every command
"""


class _Left(Exception):
    """The person has seen enough."""


def run(options: Namespace) -> int:
    """Runs the command. The kernels live in a directory of their own, which is removed with them."""
    guided = sys.stdin.isatty() and sys.stdout.isatty() and not options.no_pauses
    with tempfile.TemporaryDirectory(prefix="kernelbox-tour-") as scratch:
        tour = _Tour(scratch, guided=guided)
        try:
            with progress("starting the first kernel"):
                tour.kernel = tour.open(_NAME)
            for number, (title, sentence, show) in enumerate(_STEPS, 1):
                tour.step(f"{number}/{len(_STEPS)}  {title}", sentence, show)
        except _Left:
            pass
        finally:
            wipe(tour.here)
    _print("")
    _print(_END.format(program=_program()))
    return FAILED if tour.failed else 0


def _program() -> str:
    """Returns what a person types to run kernelbox here: in a checkout, it is in a folder that PATH does not have."""
    if shutil.which("kernelbox") is not None:
        return "kernelbox"
    return os.path.relpath(os.path.join(os.path.dirname(sys.executable), "kernelbox"))


class _Tour:
    """The kernel of the tour, and what is printed about it. A guided tour waits for the person after each step."""

    def __init__(self, scratch: str, *, guided: bool) -> None:
        self.guided, self.failed = guided, False
        self.kernel: Kernel  # which the steps share
        self._directory = os.path.join(scratch, "work")
        os.mkdir(self._directory)
        # Settings of the person, such as limits, would make it another tour.
        key_file = KernelBoxConfig.from_env().key_file
        self.here = Kernels(KernelBoxConfig(home=os.path.join(scratch, "kernels"), key_file=key_file), run_blocking)

    def open(self, name: str, *, sandbox: SandboxConfig | None = None) -> Kernel:
        """Opens a kernel of the tour."""
        options = KernelOptions(cwd=self._directory, sandbox=sandbox)
        return Kernel.of(self.here, self.here.get_or_create(name, options), options)

    def step(self, title: str, sentence: str, show: Callable[[_Tour], None]) -> None:
        """Shows one step. What this machine does not allow is said, and the tour goes on."""
        _print("")
        _print(paint(title, "bold", sys.stdout))
        _print(paint(sentence, "dim", sys.stdout))
        _print("")
        try:
            show(self)
        except KernelBoxError as exc:
            self.failed = True
            self.say(f"not on this machine: {exc}", "red")
        if self.guided and self.ask("\nEnter: next   q: leave  ") == "q":
            raise _Left

    def ask(self, question: str) -> str:
        """Returns what the person answers, in small letters. The end of the input means to leave."""
        try:
            return input(question).strip().lower()
        except EOFError:
            _print("")
            raise _Left from None
        except KeyboardInterrupt:
            _print("")  # the sentence about it begins a line
            raise

    def cell(self, code: str, kernel: Kernel | None = None, **options: object) -> ExecutionResult:
        """Runs a cell, and prints its code, what came of it, and how long it took."""
        self.show_code(code)
        began = time.perf_counter()
        result = (kernel or self.kernel).execute(code, **options)  # type: ignore[arg-type]  # passed on as they are
        self.show_end(result, time.perf_counter() - began)
        return result

    def call(self, code: str, act: Callable[[], object]) -> None:
        """Calls a method of the kernel, and prints the call and how long it took."""
        self.say(code, "blue")
        began = time.perf_counter()
        act()
        self.say(f"{(time.perf_counter() - began) * 1000:.1f} ms", "dim")

    def show_code(self, code: str) -> None:
        for number, line in enumerate(code.split("\n")):
            self.say(("... " if number else ">>> ") + line, "blue")

    def show_end(self, result: ExecutionResult, seconds: float, output: str | None = None) -> None:
        """Prints the output of a cell, its value, its error in a line, and its time."""
        for text in (result.output if output is None else output, result.return_value):
            if text:
                self.say(text.rstrip("\n"))
        if result.error is not None:
            self.say(f"{result.error.ename}: {result.error.evalue}", "red")
        self.say(f"{seconds * 1000:.1f} ms", "dim")

    def say(self, text: str, color: str = "") -> None:
        for line in for_terminal(text).split("\n"):
            _print("  " + paint(line, color, sys.stdout))


def _show_state(tour: _Tour) -> None:
    tour.cell("rows = [3, 1, 4, 1, 5]")
    tour.cell("sum(rows)")


def _show_repair(tour: _Tour) -> None:
    tour.say("kernel.retry(code, ask_model)", "blue")
    codes = ["total / len(rows)", "total = sum(rows)\ntotal / len(rows)"]
    tour.show_code(codes[0])
    began = time.perf_counter()

    def ask_model(failed: ExecutionResult, attempt: int) -> str:
        nonlocal began
        tour.show_end(failed, time.perf_counter() - began)
        tour.show_code(codes[attempt])
        began = time.perf_counter()
        return codes[attempt]

    tour.show_end(tour.kernel.retry(codes[0], ask_model), time.perf_counter() - began)


def _show_second_process(tour: _Tour) -> None:
    tour.say(f'$ kernelbox run {_NAME} "max(rows)"', "blue")
    began = time.perf_counter()
    command = [sys.executable, "-m", "kernelbox", "run", _NAME, "max(rows)"]
    config = tour.here.config
    others = {name: text for name, text in gateway_environment({}).items() if not name.startswith("KERNELBOX_")}
    env = {**others, "KERNELBOX_HOME": config.home, "KERNELBOX_KEY_FILE": config.key_file}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    tour.say((done.stdout + done.stderr).rstrip("\n"))
    tour.say(f"{(time.perf_counter() - began) * 1000:.0f} ms, with the start of Python", "dim")


def _show_streaming(tour: _Tour) -> None:
    code = "import time\nfor row in rows:\n    print(row)\n    time.sleep(0.1)"
    tour.show_code(code)
    began = time.perf_counter()
    for item in tour.kernel.stream(code):
        seconds = time.perf_counter() - began
        if isinstance(item, OutputItem) and item.kind == "stream":
            tour.say(f"{(item.text or '').rstrip()}   after {seconds:.1f} s")
        elif isinstance(item, ExecutionResult):
            tour.show_end(item, seconds, output="")


def _show_plot(tour: _Tour) -> None:
    result = tour.cell(_CHART, images_dir=os.path.abspath("images"))
    for path in result.images:
        tour.say(f"{path}  ({os.path.getsize(path):,} bytes)")
        if tour.guided:
            _show_picture(path)


def _show_picture(path: str) -> None:
    from kernelbox.cli.console._inline_images import encode, find_protocol

    protocol = find_protocol()
    if protocol is not None:
        with open(path, "rb") as file:
            picture = encode(protocol, "image/png", base64.b64encode(file.read()).decode())
        write(f"{picture}\n" if picture else "", sys.stdout)


def _show_approval(tour: _Tour) -> None:
    answers = iter(["yes", "no"])

    def approve(request: SyncApprovalRequest) -> bool | str:
        question = f"  may it run `{escape(str(request.tool_args['cmd']))}`? [y/n] "
        if tour.guided:
            answer = tour.ask(question)
        else:
            answer = next(answers)
            _print(question + answer)
        return answer in ("", "y", "yes") or "the person said no"

    tour.cell("!echo hello from a shell", approve=approve)
    tour.cell("!rm -rf build", approve=approve)


def _show_sandbox(tour: _Tour) -> None:
    with progress("starting a kernel in a sandbox"):
        kernel = tour.open("untrusted", sandbox=choose_sandbox(True))
    tour.cell("open('notes.txt', 'w').write('allowed')", kernel)
    tour.cell("open('/etc/notes.txt', 'w')", kernel)
    tour.cell("import socket; socket.create_connection(('1.1.1.1', 443))", kernel)


def _show_death(tour: _Tour) -> None:
    tour.cell("import ctypes; ctypes.string_at(0)  # reads where no memory is")
    tour.cell("rows")


def _show_rollback(tour: _Tour) -> None:
    tour.cell("rows = [3, 1, 4, 1, 5]")
    tour.call('kernel.checkpoint("loaded")', lambda: tour.kernel.checkpoint("loaded"))
    tour.cell("rows.clear()")
    tour.call('kernel.rollback("loaded")', lambda: tour.kernel.rollback("loaded"))
    tour.cell("rows")


_STEPS: tuple[tuple[str, str, Callable[[_Tour], None]], ...] = (
    ("State", "A kernel keeps its variables from one call to the next.", _show_state),
    ("A repaired error", "An error says what a model needs to know, and the next attempt is right.", _show_repair),
    ("A second process", "The kernel has a name. Another process finds it, with its variables.", _show_second_process),
    ("Streaming", "Output arrives while the cell still runs.", _show_streaming),
    ("A plot", "Pictures are part of the result, and files if you want them.", _show_plot),
    ("An approval", "A shell command waits until somebody allows it.", _show_approval),
    ("The sandbox", "Code that you do not trust writes in its directory only, and has no network.", _show_sandbox),
    ("A death", "A kernel that dies says why. The next call by its name gets a fresh one.", _show_death),
    ("A rollback", "A checkpoint freezes a live kernel. Going back takes milliseconds.", _show_rollback),
)


def _print(text: str) -> None:
    write(f"{text}\n", sys.stdout)

"""The cells that the soak runs, and what each must have written: a cell says in which life of its kernel it ran."""

from __future__ import annotations

import random
from dataclasses import dataclass

# Long enough for every cell to wait for a kernel that others use and that is stopped for a while.
PATIENCE = 30.0

# A life is one process of a kernel: its first cell gives it an id. Each client counts its own cells in it.
_COUNTED = """
import os as _os, uuid as _uuid
_soak = globals().setdefault("_soak", {{"life": _uuid.uuid4().hex, "counts": {{}}}})
_soak["counts"][{client}] = _soak["counts"].get({client}, 0) + 1
print("{token}", _soak["life"], _os.getpid(), _soak["counts"][{client}], flush=True)
"""


@dataclass(frozen=True)
class Sign:
    """What the first line of a counted cell says: the life it ran in, and the client's count of its cells there."""

    life: str
    pid: int
    count: int


@dataclass(frozen=True)
class Cell:
    """Code, and the text that it writes after its first line."""

    token: str
    code: str
    rest: str
    timeout: float = PATIENCE
    ends: bool = True
    error: str = ""

    def read(self, output: str) -> tuple[Sign | None, str]:
        """Returns what the cell said first, and what is wrong with its output; the cell may have been stopped."""
        first, newline, rest = output.partition("\n")
        if not newline:
            return None, "" if not output or self.token.startswith(output.split(" ")[0]) else "foreign output"
        words = first.split(" ")
        if len(words) != 4 or words[0] != self.token or not words[2].isdigit() or not words[3].isdigit():
            return None, "foreign output"
        sign = Sign(words[1], int(words[2]), int(words[3]))
        return sign, "" if self.rest.startswith(rest) else "foreign or torn output"

    def is_complete(self, output: str) -> bool:
        return output.partition("\n")[2] == self.rest


def counted(client: int, rng: random.Random) -> Cell:
    """Returns a cell that writes a few lines, in one of the ways that there are."""
    token = _token(rng)
    head = _COUNTED.format(client=client, token=token)
    lines = [f"{token} {number}\n" for number in range(rng.randrange(60))]
    rest = "".join(lines)
    match rng.randrange(5):
        case 0:
            body = f"print({rest!r}, end='')"
        case 1:
            body = f"for _line in {lines!r}: print(_line, end='', flush=True)"
        case 2:
            body = f"_os.write(1, {rest.encode()!r})"
        case 3:
            body = f"import subprocess as _s; _s.run(['printf', '%s', {rest!r}], check=True)"
        case _:
            body = f"import asyncio as _a\nfor _line in {lines!r}:\n    print(_line, end='')\n    await _a.sleep(0)"
    return Cell(token, f"{head}{body}\n", rest)


def flood(client: int, rng: random.Random) -> Cell:
    """Returns a cell that writes more than any pipe or result keeps."""
    token = _token(rng)
    rest = "".join(f"{token} {number:06} {'x' * 50}\n" for number in range(rng.randrange(100, 8000)))
    lines = f"('{token} ' + format(_number, '06') + ' ' + 'x' * 50 for _number in range({rest.count(chr(10))}))"
    body = rng.choice((f"for _line in {lines}: print(_line)\n", f"print('\\n'.join({lines}))\n"))
    return Cell(token, _COUNTED.format(client=client, token=token) + body, rest)


def failing(client: int, rng: random.Random) -> Cell:
    """Returns a cell that raises, with its token for the value of the error."""
    token = _token(rng)
    return Cell(token, _COUNTED.format(client=client, token=token) + f"raise ValueError('{token}')", "", error=token)


def endless(client: int, rng: random.Random, *, stubborn: bool = False) -> Cell:
    """Returns a cell that ends only when it is interrupted, or not even then."""
    token = _token(rng)
    wait = rng.choice(("import time; time.sleep(600)", "while True: pass", "import asyncio; await asyncio.sleep(600)"))
    if stubborn:
        wait = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    timeout = rng.uniform(0.1, 1.0)
    return Cell(token, _COUNTED.format(client=client, token=token) + wait + "\n", "", timeout=timeout, ends=False)


def bash(rng: random.Random) -> tuple[str, str]:
    """Returns a bash cell and what it writes."""
    token, count = _token(rng), rng.randrange(1, 40)
    return f"for number in $(seq {count}); do echo {token} $number; done", "".join(
        f"{token} {number}\n" for number in range(1, count + 1)
    )


def _token(rng: random.Random) -> str:
    return f"t{rng.getrandbits(64):016x}"

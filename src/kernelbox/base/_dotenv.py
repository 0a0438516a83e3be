"""The `.env` file of a workspace: one name and value per line. Nothing in it is expanded or run."""

from __future__ import annotations

import os
import re
import stat

from kernelbox.base._errors import InvalidInput

# A file of settings; anything larger is something else.
_LARGEST = 1024 * 1024

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def read_dotenv(path: str) -> tuple[dict[str, str], list[int]]:
    """Returns the pairs in a file, and the numbers of the lines that could not be parsed; a missing file has none.

    Raises InvalidInput for a file that cannot be read.
    """
    try:
        with open(path, encoding="utf-8-sig", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput("the file of variables", path, "it is not a regular file")
            text = file.read(_LARGEST + 1)
    except (FileNotFoundError, IsADirectoryError):
        return {}, []
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput("the file of variables", path, f"it cannot be read: {exc}") from exc
    if len(text) > _LARGEST:
        raise InvalidInput("the file of variables", path, f"it has more than {_LARGEST:,} characters")
    return parse_dotenv(text)


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file without waiting for the other end if it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse_dotenv(text: str) -> tuple[dict[str, str], list[int]]:
    """Returns the pairs in a text, and the numbers of the other lines, which other programs may understand."""
    pairs: dict[str, str] = {}
    unread: list[int] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            unread.append(number)
            continue
        name, value = match.groups()
        quote = value[:1]
        if quote in ("'", '"'):
            quoted = [value[1:]]
            while (end := _closing(quoted[-1], quote)) < 0 and (following := next(lines, None)) is not None:
                quoted.append(following[1])
            if end < 0:
                unread.append(number)
                break
            value = "\n".join([*quoted[:-1], quoted[-1][:end]])
            value = value if quote == "'" else _unescape(value)
        else:
            value = re.split(r"(?:^|\s)#", value, maxsplit=1)[0].strip()
        pairs[name] = value
    return pairs, unread


def _closing(line: str, quote: str) -> int:
    """Returns where a quoted value ends in a line; -1 if it continues on the next one."""
    at = 0
    while at < len(line):
        if line[at] == "\\" and quote == '"':
            at += 1
        elif line[at] == quote:
            return at
        at += 1
    return -1


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), value, flags=re.DOTALL)

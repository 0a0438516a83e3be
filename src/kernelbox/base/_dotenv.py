"""The `.env` file of a workspace: names and values, one pair on a line. Nothing in it is expanded or run."""

from __future__ import annotations

import re

from kernelbox.base._errors import InvalidInput

# A file of settings; anything larger is something else.
_LARGEST = 1024 * 1024

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def read_dotenv(path: str) -> dict[str, str]:
    """Returns what a file says; no file says nothing. Raises InvalidInput for one that cannot be read."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(_LARGEST + 1)
    except (FileNotFoundError, IsADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput("the file of variables", path, f"it cannot be read: {exc}") from exc
    if len(text) > _LARGEST:
        raise InvalidInput("the file of variables", path, f"it has more than {_LARGEST:,} characters")
    return parse_dotenv(text, path)


def parse_dotenv(text: str, path: str) -> dict[str, str]:
    """Returns the pairs in a text; `path` is for the sentence about a line that is none."""
    pairs: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise InvalidInput(f"line {number} of {path}", line[:40], "write NAME=value, or # before a comment")
        name, value = match.groups()
        quote = value[:1]
        if quote in ("'", '"'):
            while (end := _closing(value, quote)) < 0:
                following = next(lines, None)
                if following is None:
                    raise InvalidInput(f"line {number} of {path}", line[:40], f"the closing {quote} is missing")
                value += f"\n{following[1]}"
            value = value[1:end] if quote == "'" else _unescape(value[1:end])
        else:
            value = re.split(r"(?:^|\s)#", value, maxsplit=1)[0].strip()
        pairs[name] = value
    return pairs


def _closing(value: str, quote: str) -> int:
    """Returns where a quoted value ends; -1 if it goes on in the next line."""
    at = 1
    while at < len(value):
        if value[at] == "\\" and quote == '"':
            at += 1
        elif value[at] == quote:
            return at
        at += 1
    return -1


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), value, flags=re.DOTALL)

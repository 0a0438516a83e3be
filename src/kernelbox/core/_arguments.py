"""Checks of the arguments that callers pass; anything that cannot be used raises InvalidInput."""

from __future__ import annotations

import os
import sys

from kernelbox.base._errors import InvalidInput, StartFailed
from kernelbox.base._suggestions import did_you_mean
from kernelbox.base._text import MAX_NAME, is_name
from kernelbox.host.store._record import MAX_TAGS, KernelRecord, are_tags
from kernelbox.wire._framing import MAX_TEXT, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from kernelbox.host.store._record import Lifetime
    from kernelbox.wire._messages import Language

    # What callers may write for a language.
    LanguageName = Literal["python", "py", "bash", "sh", "shell"]

# Code of this length fits a message unless most of it is control characters, which take six bytes each. The other
# fields are short.
_LONGEST_CODE = 8_000_000
_OTHER_FIELDS = 100_000

_LARGEST = sys.float_info.max

_LANGUAGES: dict[str, Language] = {"python": "python", "py": "python", "bash": "bash", "sh": "bash", "shell": "bash"}


def check_name(name: object) -> str:
    """Returns a usable name: any text that fits on one line."""
    if not isinstance(name, str):
        raise InvalidInput("a kernel's name", name, "use a string")
    if not is_name(name):
        raise InvalidInput("a kernel's name", name, f"use 1 to {MAX_NAME:,} characters without control characters")
    return name


def check_key(key: object) -> str:
    """Returns a key to find a kernel by: a usable name, or an id."""
    if not isinstance(key, str):
        raise InvalidInput("the kernel", key, "use a KernelRecord, a name or an id")
    return check_name(key)


def key_of(kernel: KernelRecord | str) -> str:
    """Returns the key of a kernel that is given by its record, a name or an id."""
    return kernel.kernel_id if isinstance(kernel, KernelRecord) else check_key(kernel)


def check_code(code: object) -> str:
    if not isinstance(code, str):
        raise InvalidInput("code", code, "use a string")
    if len(code) > _LONGEST_CODE:
        raise InvalidInput("code", code, f"use at most {_LONGEST_CODE:,} characters; put data into a file")
    if len(code) * 6 > MAX_TEXT - _OTHER_FIELDS and len(to_json(code)) > MAX_TEXT - _OTHER_FIELDS:
        raise InvalidInput("code", code, "use fewer control characters; put data into a file")
    return code.removeprefix("\ufeff")  # the byte order mark of a file, which is not part of the code


def check_language(language: object) -> Language:
    """Returns the name that kernels use for a language; case does not matter."""
    known = _LANGUAGES.get(language.lower()) if isinstance(language, str) else None
    if known is None:
        question = did_you_mean(language, _LANGUAGES) if isinstance(language, str) else ""
        raise InvalidInput(
            "language", language, " ".join(filter(None, (question, f"use one of {', '.join(_LANGUAGES)}")))
        )
    return known


def check_tags(tags: object) -> dict[str, str]:
    if are_tags(tags):
        return dict(tags)
    raise InvalidInput("tags", tags, f"use a dict of strings to strings, of at most {MAX_TAGS:,} characters in all")


def check_lifetime(lifetime: Lifetime) -> Lifetime:
    if lifetime not in ("kernel", "process"):
        raise InvalidInput("lifetime", lifetime, "use 'kernel' or 'process'")
    return lifetime


def check_environment(env: object, what: str = "env") -> dict[str, str] | None:
    """Returns a usable environment; None means the caller's own."""
    if env is None:
        return None
    from collections.abc import Mapping  # few callers give one

    if not isinstance(env, Mapping) or not all(isinstance(part, str) for pair in env.items() for part in pair):
        raise InvalidInput(what, env, "use a dict of strings to strings")
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidInput(what, name, "a variable has a name without '=', and no NUL")
    return dict(env)


def check_python(python: object) -> str | None:
    """Returns the requested interpreter as text, None if none is requested. Raises InvalidInput."""
    if python is None:
        return None
    return path_text("python", python, "use a path, an environment's directory, a version, or 'project'")


def check_kernel_type(kernel_type: object) -> str | None:
    """Returns the name of a kernelspec; None means the configured one."""
    if kernel_type is None or (isinstance(kernel_type, str) and kernel_type):
        return kernel_type
    raise InvalidInput("kernel_type", kernel_type, "use the name of a Jupyter kernelspec, or None")


def check_switch(what: str, value: object) -> bool:
    """Returns True or False; other values are rejected, because "no" would count as True."""
    if not isinstance(value, bool):
        raise InvalidInput(what, value, "use True or False")
    return value


def check_output_limit(limit: object, default: int) -> int:
    """Returns how many characters of a text are kept, 0 for all; None means the default."""
    whole = default if limit is None else _whole(limit)
    if whole is None:
        raise InvalidInput("output_char_limit", limit, "use a whole number of characters, 0 for all, or None")
    return min(max(0, whole), sys.maxsize)


def check_budget(budget: object) -> int:
    """Returns how many characters the text of a result may have; None and 0 mean any number."""
    whole = 0 if budget is None else _whole(budget)
    if whole is None or whole < 0:
        raise InvalidInput("budget", budget, "use a whole number of characters, or None for any number")
    return whole


def check_seconds(what: str, seconds: float | None) -> float | None:
    """Returns a time limit; None means no limit."""
    if seconds is None:
        return None
    number = _number(seconds)
    if number is None or number <= 0:
        raise InvalidInput(what, seconds, "use a number of seconds above 0, or None for no limit")
    return number


def check_timeout(timeout: float | None, default: float) -> float:
    """Returns the seconds that a cell may take; 0, which models send for "not given", means the default."""
    if timeout is None:
        return default
    number = _number(timeout)
    if number is None or number < 0:
        raise InvalidInput("timeout", timeout, "use a number of seconds, or 0 or None for the configured one")
    return number or default


def _number(value: object) -> float | None:
    """Returns a finite number, of any library's type, as a float; None for anything else."""
    if type(value) is bool or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= _LARGEST else None


def _whole(value: object) -> int | None:
    """Returns a whole number, of any library's type, as an int; None for anything else."""
    if type(value) is bool:
        return None
    try:
        return int(type(value).__index__(value))  # type: ignore[attr-defined]  # without one it is not a whole number
    except (AttributeError, TypeError):
        return None


def check_directory(cwd: str | os.PathLike[str] | None) -> str:
    """Returns the real path of a directory that a kernel can start in, by default the current one."""
    path = check_path("cwd", "." if cwd is None else cwd)
    if cwd is None:
        return path  # the system has resolved its links
    if os.path.isdir(path):
        found = os.path.realpath(path)
        if found != path:
            from kernelbox.base._cell_places import first_planted_link  # few paths have links

            if (link := first_planted_link(path)) is not None:
                raise InvalidInput("cwd", str(cwd), f"{link!r} is a link that a sandboxed cell may have made")
        return found
    raise InvalidInput("cwd", str(cwd), "there is no such directory")


def path_text(what: str, path: object, allowed: str) -> str:
    """Returns a path as text; raises InvalidInput for anything else."""
    try:
        text = os.fspath(path)  # type: ignore[call-overload]  # it raises TypeError
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInput(what, path, allowed)
    return text


def check_path(what: str, path: object) -> str:
    """Returns an absolute path, whether or not it exists."""
    text = path_text(what, path, "use a path, as a string or a Path")
    try:
        return os.path.abspath(text)
    except FileNotFoundError as exc:
        raise StartFailed(
            f"the current directory has been deleted; change to another, or give {what} as an absolute path"
        ) from exc

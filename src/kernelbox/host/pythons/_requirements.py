"""Requirements of an environment: a list of packages, or a script with inline metadata (PEP 723)."""

from __future__ import annotations

import os

from kernelbox.base._errors import InvalidInput
from kernelbox.base._text import version_numbers
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Characters of all requirements together; records keep them.
MOST_CHARACTERS = 5_000

# A script is read up to here.
_LONGEST_SCRIPT = 1_000_000

_ALLOWED = "use a list such as ['pandas>=2'], or the path of a script with inline metadata (# /// script)"


@dataclass(frozen=True, slots=True)
class Requirements:
    """What an environment must have: packages, sorted, and the accepted versions of Python."""

    packages: tuple[str, ...]
    python: str = ""

    def accepts(self, version: str) -> bool:
        """Tells whether a version of Python is accepted."""
        return all(_holds(version_numbers(version), each.strip()) for each in self.python.split(",") if each.strip())


def check_requirements(given: object) -> Requirements:
    """Returns what is required; raises InvalidInput."""
    if isinstance(given, Requirements):
        return given
    if isinstance(given, (str, os.PathLike)):
        return _read_script(os.fspath(given))
    if not isinstance(given, (list, tuple, set, frozenset)) or not all(isinstance(each, str) for each in given):
        raise InvalidInput("requirements", given, _ALLOWED)
    return _sorted(given)


def _sorted(packages: Iterable[str], python: str = "") -> Requirements:
    found: set[str] = set()
    for each in packages:
        text = each.strip()
        if not text or not text.isprintable() or text.startswith(("-", ".", "/", "~", "file:")):
            raise InvalidInput("requirements", each, "use names of packages, such as pandas>=2, or git+https addresses")
        found.add(text if ";" in text or "@" in text else text.replace(" ", ""))
    if sum(map(len, found)) > MOST_CHARACTERS:
        raise InvalidInput.saying(f"requirements: these have more than {MOST_CHARACTERS:,} characters")
    return Requirements(tuple(sorted(found)), python)


def _read_script(path: str | bytes) -> Requirements:
    import tomllib

    try:
        with open(path, encoding="utf-8") as file:
            lines = _metadata(file.read(_LONGEST_SCRIPT).splitlines())
    except (OSError, ValueError) as exc:
        raise InvalidInput("requirements", path, f"it cannot be read as a script ({exc}); {_ALLOWED}") from exc
    if lines is None:
        raise InvalidInput("requirements", path, f"the script has no inline metadata; {_ALLOWED}")
    try:
        found = tomllib.loads("\n".join(lines))
        packages, python = found.get("dependencies", []), found.get("requires-python", "")
        assert isinstance(python, str)
        assert all(isinstance(each, str) for each in packages)
    except (tomllib.TOMLDecodeError, AssertionError, TypeError) as exc:
        raise InvalidInput("requirements", path, f"its inline metadata is not valid ({exc})") from exc
    return _sorted(packages, python)


def _metadata(lines: list[str]) -> list[str] | None:
    """Returns the lines of the block that `# /// script` opens, without the signs of comments; None without one."""
    try:
        begin = lines.index("# /// script")
        end = lines.index("# ///", begin + 1)
    except ValueError:
        return None
    return [line.removeprefix("#").removeprefix(" ") for line in lines[begin + 1 : end]]


def _holds(version: tuple[int, ...], rule: str) -> bool:
    """Tells whether a version satisfies a rule such as >=3.12; no version satisfies an unknown rule."""
    sign = rule[: len(rule) - len(rule.lstrip("=<>!~"))]
    text = rule[len(sign) :].strip().removesuffix(".*")
    wanted = version_numbers(text)
    part = version[: len(wanted)]
    match sign:
        case ">=":
            return version >= wanted
        case "<=":
            return part <= wanted
        case ">":
            return part > wanted
        case "<":
            return part < wanted
        case "==":
            return part == wanted
        case "!=":
            return part != wanted
        case "~=":
            return version >= wanted and version[: len(wanted) - 1] == wanted[:-1]
    return False

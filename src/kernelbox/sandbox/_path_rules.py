"""Turns rules about paths into a list of mounts: which paths are hidden, read-only or writable.

This works only on the text of the paths, which are absolute and free of links; `_paths.py` finds them.
"""

from __future__ import annotations

import functools

from kernelbox.wire._confinement import Mount
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    State = Literal["hide", "read", "write", "private"]


@dataclass(frozen=True, slots=True)
class PathRules:
    """Paths, grouped by what should happen to them. For reading, the deepest rule decides. A denied write stays denied.

    Each kernel has its own version of the `private` directories. A `needed` path is shown unless a rule denies that
    very path. A `secret` path is always hidden. The paths in `files` are known not to be directories.
    """

    deny_read: frozenset[str] = frozenset()
    allow_read: frozenset[str] = frozenset()
    allow_write: frozenset[str] = frozenset()
    deny_write: frozenset[str] = frozenset()
    private: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    secret: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @property
    def paths(self) -> list[str]:
        """All paths that a rule names, parents before their children."""
        named = self.deny_read | self.allow_read | self.allow_write | self.deny_write
        return sorted(named | self.private | self.needed | self.secret, key=_steps)


def state_of(path: str, rules: PathRules) -> State:
    """Returns what the rules make of a path."""
    above = [path, *parents(path)]
    if any(place in rules.secret for place in above):
        return "hide"
    for place in above:
        seen = _seen_at(place, rules)
        if seen == "show":
            return "write" if _is_writable(above, rules) else "read"
        if seen is not None:
            return seen
    return "write" if _is_writable(above, rules) else "read"


def _seen_at(place: str, rules: PathRules) -> Literal["show", "hide", "private"] | None:
    """Returns what the rules about exactly this path say; the user's own rules count before the defaults."""
    if place in rules.allow_read:
        return "show"
    if place in rules.deny_read:
        return "private" if place in rules.private else "hide"
    if place in rules.allow_write or place in rules.needed:
        return "show"
    return "private" if place in rules.private else None


def _is_writable(above: list[str], rules: PathRules) -> bool:
    return not any(place in rules.deny_write for place in above) and any(place in rules.allow_write for place in above)


def resolve(rules: PathRules) -> list[Mount]:
    """Returns the mounts that put the rules into effect, in order.

    Rules that change nothing are left out. In a writable directory, a cell must not move a protected path away together
    with a directory above it, so each directory in between is pinned.
    """
    kept: dict[str, State] = {}
    for path in rules.paths:
        around = next((kept[place] for place in parents(path) if place in kept), "read")
        state = state_of(path, rules)
        if state == "hide" and around == "private":
            continue  # a private directory does not show it anyway
        if state != around or (state == "private" and path in rules.private):
            kept[path] = state
    mounts: list[Mount] = []
    above = {place for path in kept for place in parents(path)}
    for path, state in kept.items():
        directory = path not in rules.files
        if state == "hide" and directory and path in above:
            mounts.append(Mount("screen", path))
        elif state == "write" and (pins := _pins(path, kept)):
            # The pins are mounted on a first copy, which the second one covers: unreachable, but in use.
            mounts += [Mount("write", path), *(Mount("pin", pin) for pin in pins), Mount("write", path)]
        else:
            mounts.append(Mount(state, path, directory))
    return mounts


def is_writable(path: str, mounted: Mapping[str, str]) -> bool:
    """Tells whether cells can write to a path of the host, given the final mounts."""
    return next((mounted[place] for place in (path, *parents(path)) if place in mounted), "read") == "write"


def _pins(root: str, kept: dict[str, State]) -> list[str]:
    """Returns the directories between a writable directory and the mounts in it, the outermost first."""
    found: set[str] = set()
    for path in kept:
        if not is_below(path, root):
            continue
        between = [place for place in parents(path) if is_below(place, root)]
        if not any(place in kept for place in between):  # otherwise the mount in between has its own pins
            found.update(between)
    return sorted(found, key=_steps)


def is_below(path: str, directory: str) -> bool:
    """Tells whether a path is inside a directory; the directory itself is not."""
    return path != directory and path.startswith(directory.rstrip("/") + "/")


@functools.lru_cache(maxsize=4096)
def parents(path: str) -> tuple[str, ...]:
    """Returns the directories above a path, the innermost first."""
    found = []
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        found.append(path)
    return tuple(found)


def _steps(path: str) -> list[str]:
    return path.rstrip("/").split("/")

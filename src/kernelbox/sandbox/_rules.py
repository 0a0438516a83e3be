"""What rules about paths come to: which of them are hidden, read-only or writable, as a list of mounts.

Purely by the paths: they are absolute, real, and without links. `_paths.py` finds out which those are.
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
    """Paths by what they are to be. Of what is read, the deepest rule decides; what is denied to be written stays so.

    `private` are directories that a kernel has for itself alone; `needed` is shown where another rule than a denial of
    that very path would hide it; `secret` is hidden whatever any other rule says. Of paths that stand in `files` it is
    known that they are no directories.
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
        """All paths that a rule names, parents before what is in them."""
        named = self.deny_read | self.allow_read | self.allow_write | self.deny_write
        return sorted(named | self.private | self.needed | self.secret, key=_steps)


def state_of(path: str, rules: PathRules) -> State:
    """Returns what a path is by the rules."""
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
    """Returns what the rules about one path say; where several do, what was asked for counts before what is usual."""
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
    """Returns what is to be mounted, in this order, so that every path is what the rules say.

    A rule is kept where it changes something. In a directory that can be written what is protected must not be moved
    away together with a directory above it: each of those is pinned.
    """
    kept: dict[str, State] = {}
    for path in rules.paths:
        around = next((kept[place] for place in parents(path) if place in kept), "read")
        state = state_of(path, rules)
        if state == "hide" and around == "private":
            continue  # what is there is not to be seen anyway
        if state != around or (state == "private" and path in rules.private):
            kept[path] = state
    mounts: list[Mount] = []
    for path, state in kept.items():
        directory = path not in rules.files
        if state == "hide" and directory and any(is_below(other, path) for other in kept):
            mounts.append(Mount("screen", path))
        elif state == "write" and (pins := _pins(path, kept)):
            # They are mounted on a first copy, which the second covers: no path leads to them, but they are in use.
            mounts += [Mount("write", path), *(Mount("pin", pin) for pin in pins), Mount("write", path)]
        else:
            mounts.append(Mount(state, path, directory))
    return mounts


def is_writable(path: str, mounted: Mapping[str, str]) -> bool:
    """Tells whether cells can write to a path of the host's, by what is mounted where in the end."""
    return next((mounted[place] for place in (path, *parents(path)) if place in mounted), "read") == "write"


def _pins(root: str, kept: dict[str, State]) -> list[str]:
    """Returns the directories between a writable one and the mounts in it, the outermost first."""
    found: set[str] = set()
    for path in kept:
        if not is_below(path, root):
            continue
        between = [place for place in parents(path) if is_below(place, root)]
        if not any(place in kept for place in between):  # else that mount has its own
            found.update(between)
    return sorted(found, key=_steps)


def is_below(path: str, directory: str) -> bool:
    """Tells whether a path lies in a directory, and is not the directory itself."""
    return path != directory and path.startswith(directory.rstrip("/") + "/")


@functools.lru_cache(maxsize=4096)
def parents(path: str) -> tuple[str, ...]:
    """Returns the directories that a path lies in, the innermost first."""
    found = []
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        found.append(path)
    return tuple(found)


def _steps(path: str) -> list[str]:
    return path.rstrip("/").split("/")

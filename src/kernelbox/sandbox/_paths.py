"""Which real paths the rules of a configuration name, on the file system as it is when a kernel starts.

Cells write in their working directory, and may leave links there for the next kernel to follow. A rule that allows is
therefore never followed through a link in a directory that cells can write; one that denies always is.
"""

from __future__ import annotations

import errno
import os
import re

from kernelbox.base._errors import StartFailed
from kernelbox.sandbox._rules import is_below
from kernelbox.sandbox._sandbox_config import is_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Entries of directories that are looked at for one rule. More take seconds at every start.
_MOST_ENTRIES = 200_000

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG)

# What programs outside the sandbox read or run: always read-only, as the README of srt has it.
_FILES = frozenset(
    (
        ".gitconfig",
        ".gitmodules",
        ".bashrc",
        ".bash_profile",
        ".zshrc",
        ".zprofile",
        ".profile",
        ".ripgreprc",
        ".mcp.json",
    )
)
_DIRECTORIES = frozenset((".vscode", ".idea"))
_IN_CLAUDE = ("commands", "agents")


def absolute(path: str, cwd: str) -> str:
    """Returns a path as written, made absolute; links are not followed."""
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def outermost(paths: list[str]) -> list[str]:
    """Returns the paths that lie in none of the others: what is in a directory that is allowed needs no rule."""
    return [path for path in dict.fromkeys(paths) if not any(is_below(path, other) for other in paths)]


def real(path: str) -> str | None:
    """Returns where a path leads; None if nothing is there, or nothing that this user can reach.

    The system tells, in half the time that looking at each step takes. Another failure is no answer: it is raised.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno not in _NOTHING_THERE:
            raise
        return None
    try:
        found = os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return found if found.startswith("/") else None  # a pipe, or something that is mounted nowhere


def real_allowed(path: str, writable: list[str]) -> str | None:
    """Returns where a path that is to be allowed leads; None if nothing is there, or a link made by a cell."""
    for root in writable:
        if is_below(path, root):
            found = real(root)
            inside = None if found is None else os.path.join(found, os.path.relpath(path, root))
            return inside if inside is not None and real(inside) == inside else None
    return real(path)


def expand(path: str) -> list[str]:
    """Returns what there is by a path or a pattern; raises StartFailed for a pattern that is too much work."""
    if not is_pattern(path):
        return [path]
    literal: list[str] = []
    for step in path.split("/"):
        if is_pattern(step):
            break
        literal.append(step)
    start = "/".join(literal) or "/"
    rest = path[len(start) :].lstrip("/")
    try:
        matches = re.compile(_translate(rest)).fullmatch
    except re.error as exc:  # a range that goes backwards
        raise StartFailed(f"the sandbox's pattern {path!r} makes no sense: {exc.msg}") from exc
    deepest = None if "**" in rest else rest.count("/") + 1
    return [found for found, relative in _walk(start, deepest, path) if matches(relative)]


def _walk(start: str, deepest: int | None, pattern: str) -> Iterator[tuple[str, str]]:
    """Gives what is below a directory, and its path from there. Links to directories are followed, each once."""
    seen = 0
    known: set[tuple[int, int]] = set()
    waiting = [(start, "", 0)]
    while waiting:
        directory, relative, depth = waiting.pop()
        try:
            info = os.stat(directory)
            entries = [] if (info.st_dev, info.st_ino) in known else list(os.scandir(directory))
        except OSError:
            continue  # it cannot be listed here, nor by a cell
        known.add((info.st_dev, info.st_ino))
        for entry in entries:
            seen += 1
            if seen > _MOST_ENTRIES:
                raise StartFailed(
                    f"the sandbox's pattern {pattern!r} has more than {_MOST_ENTRIES:,} files to look at; let it start "
                    "in a smaller directory"
                )
            inside = f"{relative}/{entry.name}" if relative else entry.name
            yield entry.path, inside
            if (deepest is None or depth + 1 < deepest) and entry.is_dir():
                waiting.append((entry.path, inside, depth + 1))


def _translate(pattern: str) -> str:
    """Returns a pattern as a regular expression: `**` spans directories, `*` and `?` do not, `[abc]` is one of them."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif pattern.startswith("**", at):
            parts.append(".*")
            at += 2
        elif pattern[at] == "*":
            parts.append("[^/]*")
            at += 1
        elif pattern[at] == "?":
            parts.append("[^/]")
            at += 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            parts.append(_translate_set(pattern[at + 1 : end]))
            at = end + 1
        else:
            parts.append(re.escape(pattern[at]))
            at += 1
    return "(?s:" + "".join(parts) + ")"


def _translate_set(inside: str) -> str:
    """Returns what stands in brackets as a regular expression; all but none is any."""
    negated = inside[0] in "!^"
    parts: list[str] = []
    rest = inside[negated:]
    while rest:
        is_range = rest[1:2] == "-" and len(rest) > 2
        parts.append(f"{re.escape(rest[0])}-{re.escape(rest[2])}" if is_range else re.escape(rest[0]))
        rest = rest[3 if is_range else 1 :]
    return f"[{'^/' if negated else ''}{''.join(parts)}]" if parts else "[^/]"


def find_protected(root: str, depth: int, *, git_config: bool, hidden: frozenset[str]) -> tuple[set[str], set[str]]:
    """Returns what in a writable directory must stay read-only, and what is called like one of the hidden names.

    What is not there yet is not protected. Directories are searched to a depth, links are not followed.
    """
    protected: set[str] = set()
    named: set[str] = set()
    seen = 0
    waiting = [(root, 0)]
    while waiting:
        directory, level = waiting.pop()
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue  # a file, or one that cells cannot list either
        seen += len(entries)
        if seen > _MOST_ENTRIES:
            raise StartFailed(
                f"{root!r} has more than {_MOST_ENTRIES:,} files to look at for what must stay read-only; let the "
                "sandbox write to a smaller directory, or set mandatoryDenySearchDepth to less"
            )
        for entry in entries:
            name = entry.name
            if name in hidden:
                named.add(entry.path)
            if name in _FILES or name in _DIRECTORIES:
                protected.add(entry.path)
            elif name == ".claude":
                protected.update(f"{entry.path}/{folder}" for folder in _IN_CLAUDE)
            elif name == ".git":
                protected.update(_in_git(entry.path, git_config))
            elif level < depth and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, level + 1))
    return {path for path in protected if os.path.lexists(path)}, named


def find_absent(cwd: str, denied: tuple[str, ...]) -> list[str]:
    """Returns paths at which nothing is, and where srt will put something empty to mount on, so that a cell cannot."""
    inside = [*_FILES, *_DIRECTORIES, *(f".claude/{folder}" for folder in _IN_CLAUDE)]
    inside += [".git/hooks", ".git/config"] if os.path.isdir(f"{cwd}/.git") else []
    found = (_first_absent(absolute(path, cwd)) for path in (*inside, *denied))
    return sorted({path for path in found if path is not None})


def _first_absent(path: str) -> str | None:
    """Returns the outermost of the directories of a path, or the path, at which nothing is."""
    if os.path.lexists(path):
        return None
    parent = os.path.dirname(path)
    return path if os.path.lexists(parent) else _first_absent(parent)


def _in_git(path: str, git_config: bool) -> Iterator[str]:
    """Gives what git runs, or reads what to run from, submodules included; a file is one that says where that is."""
    if not os.path.isdir(path):
        yield path
        return
    for repository in (path, *_submodules(f"{path}/modules"), *_directories(f"{path}/worktrees")):
        yield f"{repository}/hooks"
        yield f"{repository}/commondir"
        if not git_config:
            yield f"{repository}/config"
            yield f"{repository}/config.worktree"


def _submodules(path: str) -> Iterator[str]:
    """Gives all directories in which a submodule may be: they are named by its path, and have submodules in them.

    What is in one tells nothing, because a cell may have put it there. Only objects, of which there are many, are left
    out.
    """
    waiting, seen = _directories(path), 0
    while waiting:
        directory = waiting.pop()
        yield directory
        inner = _directories(directory)
        seen += len(inner)
        if seen > _MOST_ENTRIES:
            raise StartFailed(
                f"{path!r} has more than {_MOST_ENTRIES:,} directories to look at for repositories of git"
            )
        of_objects = directory.endswith("/objects")
        waiting += [place for place in inner if not of_objects or len(os.path.basename(place)) != 2]


def _directories(path: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []

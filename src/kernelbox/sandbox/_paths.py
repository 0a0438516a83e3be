"""Finds the real paths that the rules of a configuration name when a kernel starts.

A hostile cell may have prepared the file system. A rule that allows something never follows a link in a directory that
cells can write. A rule that denies something denies such a link, and its target unless kernels need that to run. A
search goes into real directories only, and one that cannot be listed is closed.
"""

from __future__ import annotations

import errno
import os
import re

from kernelbox.base._config import DEFAULT_HOME
from kernelbox.base._errors import StartFailed
from kernelbox.sandbox._path_rules import is_below
from kernelbox.sandbox._sandbox_config import is_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The most directory entries to look at for one rule. More take seconds at every start.
_MOST_ENTRIES = 200_000

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG)

# Programs outside the sandbox read or run these, so they are always read-only. The list is from srt's README.
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
    """Returns the paths that are not inside another of them: an allowed directory covers everything in it."""
    return [path for path in dict.fromkeys(paths) if not any(is_below(path, other) for other in paths)]


def real(path: str) -> str | None:
    """Returns the real path; None if nothing is there, or nothing that this user can reach.

    Opening the path and asking the system takes half the time of os.path.realpath. Other errors are raised.
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
    return found if found.startswith("/") else None  # a pipe, or something that is not mounted


def real_allowed(path: str, writable: list[str]) -> str | None:
    """Returns the real path of a path to allow; None if nothing is there, or if a cell may have made it a link."""
    for root in writable:
        if is_below(path, root):
            found = real(root)
            inside = None if found is None else os.path.join(found, os.path.relpath(path, root))
            return inside if inside is not None and real(inside) == inside else None
    return real(path)


def expand(path: str, roots: Sequence[str] = (), closed: list[str] | None = None) -> list[str]:
    """Returns the files that a path or pattern names; raises StartFailed if the pattern has too many to look at.

    Links in `roots`, which cells can write, are not followed. Directories there that cannot be listed go to `closed`:
    a cell can open them again.
    """
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
        raise StartFailed(f"the sandbox's pattern {path!r} is not valid: {exc.msg}") from exc
    deepest = None if "**" in rest else rest.count("/") + 1
    return [found for found, relative in _walk(start, deepest, path, roots, closed) if matches(relative)]


def _walk(
    start: str, deepest: int | None, pattern: str, roots: Sequence[str], closed: list[str] | None
) -> Iterator[tuple[str, str]]:
    """Yields what is below a directory, and its path from there. Other links than those of cells are followed once."""
    seen = 0
    known: set[tuple[int, int]] = set()
    waiting = [(start, "", 0)]
    while waiting:
        directory, relative, depth = waiting.pop()
        directory = real(directory) or directory  # or links would add up, until the system follows no more of them
        is_cells = any(directory == root or is_below(directory, root) for root in roots)
        try:
            info = os.stat(directory)
            entries = [] if (info.st_dev, info.st_ino) in known else list(os.scandir(directory))
        except PermissionError:
            if closed is not None and is_cells:
                closed.append(directory)
            continue
        except OSError:
            continue  # it is gone, or not a directory
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
            if (deepest is None or depth + 1 < deepest) and entry.is_dir(follow_symlinks=not is_cells):
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
    """Returns the text between brackets as a regular expression; an empty negation matches any character."""
    negated = inside[0] in "!^"
    parts: list[str] = []
    rest = inside[negated:]
    while rest:
        is_range = rest[1:2] == "-" and len(rest) > 2
        parts.append(f"{re.escape(rest[0])}-{re.escape(rest[2])}" if is_range else re.escape(rest[0]))
        rest = rest[3 if is_range else 1 :]
    return f"[{'^/' if negated else ''}{''.join(parts)}]" if parts else "[^/]"


def find_protected(root: str, depth: int, *, git_config: bool, hidden: frozenset[str]) -> tuple[set[str], set[str]]:
    """Returns what must stay read-only in a writable directory, and the files with one of the hidden names.

    Files that do not exist yet are not protected. The search stops at `depth` and does not follow links. A directory
    that cannot be listed is both: a cell may have closed it, and can open it again. The homes of kernels are, too.
    """
    protected: set[str] = set()
    named: set[str] = set()
    seen = 0
    waiting = [(root, 0)]
    while waiting:
        directory, level = waiting.pop()
        entries = _entries(directory)
        if entries is None:
            _refuse_closed(directory, root)
            protected.add(directory)
            named.add(directory)
            continue
        seen += len(entries)
        if seen > _MOST_ENTRIES:
            raise StartFailed(
                f"{root!r} has more than {_MOST_ENTRIES:,} files to search for those that must stay read-only; let the "
                "sandbox write to a smaller directory, or lower mandatoryDenySearchDepth"
            )
        for entry in entries:
            name = entry.name
            if name in hidden or name == DEFAULT_HOME:
                named.add(entry.path)
            if name in _FILES or name in _DIRECTORIES or name == DEFAULT_HOME:
                protected.add(entry.path)
            elif name == ".claude":
                protected.update(f"{entry.path}/{folder}" for folder in _IN_CLAUDE)
            elif name == ".git":
                protected.update(_in_git(entry.path, git_config))
            elif level < depth and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, level + 1))
    return {path for path in protected if os.path.lexists(path)}, named


def find_absent(cwd: str, denied: tuple[str, ...]) -> list[str]:
    """Returns the protected paths that do not exist: srt mounts something empty there, so that cells cannot."""
    inside = [*_FILES, *_DIRECTORIES, *(f".claude/{folder}" for folder in _IN_CLAUDE)]
    inside += [".git/hooks", ".git/config"] if os.path.isdir(f"{cwd}/.git") else []
    found = (_first_absent(absolute(path, cwd)) for path in (*inside, *denied))
    return sorted({path for path in found if path is not None})


def _first_absent(path: str) -> str | None:
    """Returns the outermost part of a path that does not exist; None if the whole path exists."""
    if os.path.lexists(path):
        return None
    parent = os.path.dirname(path)
    return path if os.path.lexists(parent) else _first_absent(parent)


def _in_git(path: str, git_config: bool) -> Iterator[str]:
    """Yields the files that make git run programs, submodules included. A `.git` file points elsewhere."""
    if os.path.islink(path) or not os.path.isdir(path) or _entries(path) is None:
        yield path
        return
    for repository in (path, *_submodules(f"{path}/modules"), *_directories(f"{path}/worktrees")):
        if _entries(repository) is None:
            yield repository
            continue
        yield f"{repository}/hooks"
        yield f"{repository}/commondir"
        if not git_config:
            yield f"{repository}/config"
            yield f"{repository}/config.worktree"


def _submodules(path: str) -> Iterator[str]:
    """Yields all directories that may hold a submodule. They are named by its path, and may contain more submodules.

    A cell may have written their contents, so the contents prove nothing. Only the many directories of objects are
    left out.
    """
    waiting, seen = _directories(path), 0
    while waiting:
        directory = waiting.pop()
        yield directory
        inner = [place for place in _directories(directory) if place != directory]
        seen += len(inner)
        if seen > _MOST_ENTRIES:
            raise StartFailed(
                f"{path!r} has more than {_MOST_ENTRIES:,} directories to search for git repositories; remove the "
                "submodules that are not used, or work in another directory"
            )
        of_objects = directory.endswith("/objects")
        waiting += [place for place in inner if not of_objects or len(os.path.basename(place)) != 2]


def _directories(path: str) -> list[str]:
    entries = _entries(path)
    if entries is None:
        return [path]  # what may be in it is not known
    return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def _entries(directory: str) -> list[os.DirEntry[str]] | None:
    """Returns what is in a directory, nothing if there is none; None for one that this user cannot list and enter."""
    try:
        found = list(os.scandir(directory))
        return found if os.access(directory, os.X_OK) else None
    except PermissionError:
        return None
    except OSError:
        return []


def _refuse_closed(directory: str, root: str) -> None:
    if directory == root:
        raise StartFailed(
            f"a sandboxed kernel cannot write to {root!r}, because that directory cannot be listed, so nothing in "
            f"it can be protected: use `chmod u+rwx {root}`"
        )

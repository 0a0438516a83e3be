"""Writes a generated package: beside the old one, and in its place when it is whole."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat

from kernelbox.base._errors import InvalidInput, KernelBoxError, StoreFailed
from kernelbox.core._arguments import check_path
from kernelbox.host._user_files import READABLE, write_new
from kernelbox.host._workspace import Workspace
from kernelbox.tools._source import ROOT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Bytes of an index; those of 10,000 tools are fewer, and a cell can put a file of any size in its place.
_LARGEST_INDEX = 64 * 1024 * 1024

# What other processes may generate at the same moment: each try makes way for one of them.
_ATTEMPTS = 20


def check_root(root: str | os.PathLike[str]) -> str:
    """Returns the absolute path of the directory for packages."""
    path = check_path("root_dir", os.path.expanduser(root) if isinstance(root, str) else root)
    if os.path.islink(path):  # a cell may have made it
        raise InvalidInput("root_dir", root, "it is a link; use the directory that it leads to")
    if os.path.lexists(path) and not os.path.isdir(path):
        raise InvalidInput("root_dir", root, "it is not a directory")
    return path


def check_owner(root: str, package: str, server: str) -> None:
    """Raises InvalidInput if a package there is not this server's to replace."""
    path = os.path.join(root, package)
    if not os.path.lexists(path):
        return
    owner = read_owner(path)
    if owner is None:
        raise InvalidInput("the package", path, "what is there was not generated; remove it, or use another name")
    if owner != server:
        raise InvalidInput("the name of a server", server, f"its package is {package!r}, which server {owner!r} has")


def read_owner(path: str) -> str | None:
    """Returns the server that a package was generated for, None if it is no such package.

    Cells can put a link or a pipe there, which is neither followed nor waited for.
    """
    try:
        owner = json.loads(Workspace(path).read("tools.json", 0, _LARGEST_INDEX)[0])["server"]
    except (KernelBoxError, ValueError, KeyError, TypeError):
        return None
    return owner if isinstance(owner, str) else None


def write_package(root: str, package: str, files: Mapping[str, str]) -> None:
    """Writes the files of a package, in place of an older one; a reader finds one or the other, whole.

    The root is opened once: a cell that puts a link in its place meanwhile leads nowhere.
    """
    mark = f"{os.getpid()}-{os.urandom(3).hex()}"
    new, old = f".{package}.{mark}.new", f".{package}.{mark}.old"
    try:
        os.makedirs(root, exist_ok=True)
        directory = os.open(root, READABLE)
        try:
            os.mkdir(new, dir_fd=directory)
            _fill(new, files, directory)
            with contextlib.suppress(FileExistsError):
                write_new("__init__.py", ROOT.encode(), directory)
            _put(new, package, old, directory)
        finally:
            shutil.rmtree(new, ignore_errors=True, dir_fd=directory)
            os.close(directory)
    except OSError as exc:
        raise StoreFailed(f"cannot write the package {os.path.join(root, package)!r}: {exc.strerror or exc}") from exc


def remove_package(root: str, package: str, server: str) -> bool:
    """Removes a package if it is this server's; returns whether it was."""
    path = os.path.join(root, package)
    if read_owner(path) != server:
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True


def _fill(new: str, files: Mapping[str, str], directory: int) -> None:
    inside = os.open(new, READABLE, dir_fd=directory)
    try:
        for name, text in files.items():
            write_new(name, text.encode(), inside)
    finally:
        os.close(inside)


def _put(new: str, package: str, old: str, directory: int) -> None:
    def rename(name: str, other: str) -> None:
        os.rename(name, other, src_dir_fd=directory, dst_dir_fd=directory)

    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            rename(package, old)
        try:
            rename(new, package)
        except OSError:
            if not _is_directory(package, directory):
                with contextlib.suppress(OSError):
                    rename(old, package)
                raise
        else:
            return
        finally:
            shutil.rmtree(old, ignore_errors=True, dir_fd=directory)
    raise OSError(f"others write {package!r} all the time")


def _is_directory(name: str, directory: int) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False

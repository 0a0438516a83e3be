"""Writes a generated package beside the old one, and then moves it into its place.

The directory for packages is in a project, where a clone or a cell can place links. So it must itself be a directory,
and its contents are reached by its descriptor, without following links.
"""

from __future__ import annotations

import contextlib
import json
import os

from kernelbox.base._errors import InvalidInput, StoreFailed
from kernelbox.core._arguments import check_path
from kernelbox.host.files._place import Place
from kernelbox.host.files._user_files import READABLE, open_directory, write_new
from kernelbox.tools._modules import ROOT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_INDEX = "tools.json"

# Bytes of an index. 10,000 tools need fewer, and a cell can replace the file by one of any size.
_LARGEST_INDEX = 64 * 1024 * 1024

# Other processes may write the same package at the same time; each attempt yields to one of them.
_ATTEMPTS = 20


def check_root(root: str | os.PathLike[str]) -> str:
    """Returns the absolute path of the directory for packages."""
    path = check_path("root_dir", os.path.expanduser(root) if isinstance(root, str) else root)
    if os.path.islink(path):
        raise InvalidInput("root_dir", root, "it is a link, which is not followed; name the directory itself")
    if os.path.lexists(path) and not os.path.isdir(path):
        raise InvalidInput("root_dir", root, "it is not a directory")
    return path


def check_owner(root: str, package: str, server: str) -> None:
    """Raises InvalidInput if a package there is not this server's to replace."""
    try:
        with _open(root) as place:
            if not place.exists(package):
                return
            owner = _read_owner(place, package)
    except OSError:
        return  # it does not exist, or writing will report why it cannot be used
    path = os.path.join(root, package)
    if owner is None:
        raise InvalidInput("the package", path, "what is there was not generated; remove it, or use another name")
    if owner != server:
        raise InvalidInput("the name of a server", server, f"its package is {package!r}, which server {owner!r} has")


def write_package(root: str, package: str, files: Mapping[str, str]) -> None:
    """Writes the files of a package in place of an older one. A reader finds either of them complete."""
    new = f".{package}.{os.getpid()}-{os.urandom(3).hex()}.new"
    try:
        os.makedirs(root, exist_ok=True)
        with _open(root) as place:
            try:
                os.mkdir(new, dir_fd=place.fd)
                with _enter(place, new) as inside:
                    for name, text in files.items():
                        write_new(name, text.encode(), inside.fd)
                with contextlib.suppress(FileExistsError):
                    write_new("__init__.py", ROOT.encode(), place.fd)
                _put(place, new, package)
            finally:
                place.remove_tree(new)
    except OSError as exc:
        raise StoreFailed(f"cannot write the package {os.path.join(root, package)!r}: {exc.strerror or exc}") from exc


def remove_package(root: str, package: str, server: str) -> bool:
    """Removes a package if it is this server's; returns whether it was."""
    with contextlib.suppress(OSError), _open(root) as place:
        if _read_owner(place, package) == server:
            place.remove_tree(package)
            return True
    return False


def _open(root: str) -> Place:
    return Place(open_directory(root, (), make=False), root)


def _enter(place: Place, name: str) -> Place:
    """Opens a directory inside another; it need not be private."""
    return Place(os.open(name, READABLE, dir_fd=place.fd), place.path_of(name))


def _read_owner(place: Place, package: str) -> str | None:
    """Returns the server that a package was generated for, None for anything else.

    A cell can place a link or a pipe there: it is not followed, and reading does not block.
    """
    try:
        with _enter(place, package) as inside:
            owner = json.loads(inside.read(_INDEX, _LARGEST_INDEX))["server"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return owner if isinstance(owner, str) else None


def _put(place: Place, new: str, package: str) -> None:
    old = f"{new.removesuffix('.new')}.old"
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            place.rename(package, old)
        try:
            place.rename(new, package)
        except OSError:
            if not place.exists(package):
                with contextlib.suppress(OSError):
                    place.rename(old, package)
                raise
        else:
            return
        finally:
            place.remove_tree(old)
    raise OSError(f"others write {package!r} all the time")

"""The search path of a template of sandboxed kernels: the interpreter's own directories, and what packages installed.

`.pth` files, as those of `pip install -e .`, add directories where cells may write, and Python runs a sitecustomize.py
that lies there. The template is outside of the sandboxes. So it is started without `site`, and does the same without
these directories. Its kernels get them, in their sandboxes.
"""

from __future__ import annotations

import ctypes
import os
import site
import sys

# Where cells can write; what `.pth` files add there, and lines of theirs that need it.
_avoided: list[str] = []
_directories: list[str] = []
_lines: list[str] = []

# What such lines have put on sys.meta_path: they know where the packages are that are installed in place.
_finders: list[object] = []


def build_path(without: str) -> None:
    """Builds the path of an interpreter that was started with -S as `site` does.

    Where cells can write, directories that `.pth` files add are left out; they are `without`, as in PATH.
    """
    _avoided.extend(filter(None, without.split(os.pathsep)))
    files: list[str] = []

    def note(
        sitedir: str | os.PathLike[str], name: str | os.PathLike[str], known_paths: set[str] | None
    ) -> set[str] | None:
        files.append(os.path.join(sitedir, name))
        return known_paths

    customize, site.execsitecustomize = site.execsitecustomize, lambda: None
    customize_user, site.execusercustomize = site.execusercustomize, lambda: None
    site.addpackage, add = note, site.addpackage
    try:
        site.main()
    finally:
        site.execsitecustomize, site.execusercustomize, site.addpackage = customize, customize_user, add
    finders = list(sys.meta_path)
    for file in files:
        _read(file)
    customize()
    if site.ENABLE_USER_SITE:
        customize_user()
    _finders.extend(finder for finder in sys.meta_path if finder not in finders)
    sys.meta_path[:] = finders
    _forget_flag()


def complete_path() -> None:
    """Gives a kernel, in its sandbox, the rest of what `.pth` files add."""
    sys.path.extend(path for path in _directories if path not in sys.path)
    sys.meta_path.extend(_finders)  # type: ignore[arg-type]  # they were there
    for line in _lines:
        _run(line)


def _read(file: str) -> None:
    """Does what a `.pth` file says, but for directories that cells can write, and lines that fail without them."""
    try:
        with open(file, encoding="utf-8-sig", errors="replace") as lines:
            said = lines.read(1_000_000).splitlines()
    except OSError:
        return
    for line in said:
        if line.startswith(("import ", "import\t")):
            if not _run(line):
                _lines.append(line)
        elif line.strip() and not line.startswith("#"):
            path = os.path.abspath(os.path.join(os.path.dirname(file), line.strip()))
            if os.path.exists(path) and path not in sys.path:
                (_directories if _is_avoided(path) else sys.path).append(path)
    _directories.extend(path for path in sys.path if _is_avoided(path))
    sys.path[:] = [path for path in sys.path if not _is_avoided(path)]


def _is_avoided(path: str) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in _avoided)


def _run(line: str) -> bool:
    try:
        exec(line)  # it stands among the installed packages, and Python runs it whenever it starts
    except Exception:  # noqa: BLE001  # any code; `site` goes on too
        return False
    return True


def _forget_flag() -> None:
    """Makes `sys.flags` look as without -S: interpreters that multiprocessing starts get the same flags."""
    at = type(sys.flags).__match_args__.index("no_site")
    set_item = ctypes.pythonapi.PyStructSequence_SetItem
    set_item.argtypes, set_item.restype = (ctypes.py_object, ctypes.c_ssize_t, ctypes.py_object), None
    zero = 0
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(zero))  # which the tuple takes over
    set_item(sys.flags, at, zero)

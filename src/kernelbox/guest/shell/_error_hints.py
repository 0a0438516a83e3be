"""What to do about an exception, in a line: a name that was meant, a package to install, a network that is missing."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import sys
import warnings
from collections.abc import Iterable
from types import ModuleType

from kernelbox.guest._stdlib import os
from kernelbox.guest.shell._missing_keys import find_keys
from kernelbox.guest.shell._network import has_network, wants_network
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._json import exact

keep_builtins(globals())

# Names that are looked through, and characters of one: CPython's own limits for its suggestions.
_MOST_NAMES = 750
_LONGEST_NAME = 40

# How alike two names must be, as difflib counts it.
_LIKENESS = 0.7

# Packages whose modules have another name.
_PACKAGES = {
    "Crypto": "pycryptodome",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "jwt": "pyjwt",
    "pptx": "python-pptx",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}

# Packages that code often needs, and whose modules have the same name. Others are advised only under a condition: the
# module may be the user's own, or a model has made its name up, and anyone can publish a package under a name.
_WELL_KNOWN = frozenset(
    {
        *("aiohttp", "altair", "anthropic", "bokeh", "boto3", "duckdb", "fastapi", "flask", "httpx", "jinja2"),
        *("joblib", "lightgbm", "lxml", "matplotlib", "networkx", "nltk", "numba", "numpy", "openai", "openpyxl"),
        *("pandas", "plotly", "polars", "psycopg", "pyarrow", "pydantic", "pypdf", "pytest", "requests", "rich"),
        *("scipy", "seaborn", "shapely", "spacy", "sqlalchemy", "statsmodels", "sympy", "tabulate", "torch", "tqdm"),
        *("transformers", "xarray", "xgboost"),
    }
)

# How ImportError begins for `from a import b`; its `name_from` is not in every version that we know.
_NO_SUCH_NAME = "cannot import name '"

# Messages of asyncio, in every version that we know.
_LOOP_RUNS = (
    "asyncio.run() cannot be called from a running event loop",
    "Cannot run the event loop while another loop is running",
    "Runner.run() cannot be called from a running event loop",
    "This event loop is already running",
)


_NO_NETWORK = (
    "Hint: this kernel has no network, as in a sandbox. So nothing can be downloaded; this does not mean that the "
    "package or the address does not exist."
)


def hint(exc: BaseException, value: str) -> str:
    """Returns a line of advice, or "". Attributes are read for it, but no user code is called."""
    match exc:
        case ModuleNotFoundError(name=str(name)):
            return _install(exact(name))
        case ImportError(name=str(name)) if value.startswith(_NO_SUCH_NAME) and name in sys.modules:
            return _meant(value.removeprefix(_NO_SUCH_NAME).partition("'")[0], _attributes(sys.modules[name]))
        case NameError(name=str(name)):
            return _meant(name, _visible(exc))
        case AttributeError(name=str(name)):
            return _meant(name, _attributes(exc.obj))
        case KeyError(args=(str(key),)):
            return _meant(exact(key), find_keys(exc.__traceback__))
        case RuntimeError() if value in _LOOP_RUNS:
            return "Hint: an event loop runs already; write `await main()` in place of `asyncio.run(main())`"
        case FileNotFoundError(filename=str(path)) if meant := _meant_file(exact(path)):
            return meant
    return _NO_NETWORK if wants_network(exc) and not has_network() else ""


def forget_refused(exc: BaseException, value: str) -> None:
    """Drops the coroutine that `asyncio.run` has refused, unless the cell has a name for it.

    The traceback would keep it, and Python warn in a later cell, which has nothing to do with it, that it was never
    awaited. The hint has said so.
    """
    if value not in _LOOP_RUNS:
        return
    tb = exc.__traceback__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        while tb is not None:
            if tb.tb_frame.f_code in _RUNNERS:
                with contextlib.suppress(RuntimeError):  # it runs, and reports what it has caught
                    tb.tb_frame.clear()
            tb = tb.tb_next


_RUNNERS = (asyncio.run.__code__, asyncio.Runner.run.__code__)


def _install(name: str) -> str:
    root = name.partition(".")[0]
    if root in sys.modules:
        return ""  # the package is there: the part is missing
    if not root.isidentifier() or root in sys.stdlib_module_names or len(root) > _LONGEST_NAME:
        return ""
    package = _PACKAGES.get(root, root)
    known = root in _PACKAGES or root in _WELL_KNOWN
    return (
        f"Hint: %pip install {package}" if known else f"Hint: if it is a package that you know: %pip install {package}"
    )


def _visible(exc: BaseException) -> Iterable[str]:
    tb = exc.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    frame = tb.tb_frame if tb is not None else None
    return [*frame.f_locals, *frame.f_globals, *vars(builtins)] if frame is not None else ()


def _meant_file(path: str) -> str:
    """Suggests a file of the same directory."""
    directory, name = os.path.split(path)
    try:
        with os.scandir(directory or ".") as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_NAMES), strict=False)]
    except (OSError, ValueError):
        return ""
    return _meant(name, names, directory)


def _attributes(thing: object) -> Iterable[str]:
    """Returns the names that a thing has, past a `__dir__` or `__getattr__` of its own."""
    if isinstance(thing, ModuleType):
        return vars(thing)
    classes = type.mro(thing) if isinstance(thing, type) else type.mro(type(thing))
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        own = {}
    return [name for names in (own, *(vars(cls) for cls in classes)) for name in names]


def _meant(name: str, names: Iterable[object], directory: str = "") -> str:
    import difflib

    if not name or len(name) > _LONGEST_NAME:
        return ""
    hidden = name.startswith("_")
    known = {exact(other) for other in names if isinstance(other, str) and len(other) <= _LONGEST_NAME}
    known = {other for other in known if (hidden or not other.startswith("_")) and other != name}
    if len(known) > _MOST_NAMES:
        return ""
    for candidate in known:
        if candidate.lower() == name.lower():
            return f"Hint: did you mean {os.path.join(directory, candidate)!r}?"
    found = difflib.get_close_matches(name, sorted(known), 1, _LIKENESS)
    return f"Hint: did you mean {os.path.join(directory, found[0])!r}?" if found else ""

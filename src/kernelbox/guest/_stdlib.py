"""The standard library as it was before any user code ran. The kernel does not use what cells put in its place.

The modules of the guest import it from here, and take their built-in names from `wire/_builtins.py`. IPython and the
event loop, which run cells, are loaded with such built-in names too. So a cell that replaces `len` or `isinstance` does
not make the next one fail.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from kernelbox.wire._builtins import keep_builtins

if TYPE_CHECKING:
    import asyncio as asyncio
    import contextlib as contextlib
    import fcntl as fcntl
    import os as os
    import select as select
    import signal as signal
    import stat as stat
    import sys as sys
    import threading as threading
    import time as time
else:
    import sys
    from importlib.machinery import PathFinder, SourceFileLoader
    from importlib.util import find_spec, module_from_spec

    _WITH_OWN_BUILTINS = frozenset(
        {"IPython", "asyncio", "codeop", "linecache", "selectors", "tokenize", "traceback", "traitlets"}
    )

    class _Loader(SourceFileLoader):
        def exec_module(self, module: ModuleType) -> None:
            keep_builtins(module.__dict__)
            super().exec_module(module)

    class _Finder:
        """Finds the modules of some packages, as Python does, and has them loaded with built-in names of their own."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            if name.partition(".")[0] not in _WITH_OWN_BUILTINS:
                return None
            spec = PathFinder.find_spec(name, path, target)
            if spec is not None and type(spec.loader) is SourceFileLoader:
                spec.loader = _Loader(spec.loader.name, spec.loader.path)
            return spec

    sys.meta_path.insert(0, _Finder)

    import asyncio
    import contextlib
    import fcntl
    import os
    import select
    import signal
    import stat
    import threading
    import time

    def _copy(module: ModuleType) -> ModuleType:
        copy = ModuleType(module.__name__, module.__doc__)
        copy.__dict__.update(vars(module))
        return copy

    def _load_anew(module: ModuleType) -> ModuleType:
        """Returns a second module of the same source, whose own functions use the built-in names as they are now."""
        anew = module_from_spec(find_spec(module.__name__))
        _execute(anew)
        return anew

    def _execute(module: ModuleType) -> None:
        keep_builtins(module.__dict__)
        find_spec(module.__name__).loader.exec_module(module)

    asyncio, fcntl, os, select, signal, stat, sys, threading, time = map(
        _copy, (asyncio, fcntl, os, select, signal, stat, sys, threading, time)
    )
    _execute(contextlib)  # again, because IPython uses it
    contextlib = _load_anew(contextlib)

"""The threads that a copy would lack, because a fork copies only the one that calls it: whose they are, and whether
their owner starts them again.

Pools that can be ended are ended first; they start again when they are next used. For each thread that is left, the C
library's own data names its first function, and the library of that function is the owner.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import re
import struct
import sys as user_sys
import threading as user_threading
from collections.abc import Callable
from typing import Any

from kernelbox.guest._stdlib import contextlib, os, sys, threading, time
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Libraries whose threads end at a fork, and are started again when they are next needed (pthread_atfork(3)).
_SAFE = re.compile(r"openblas|libarrow|libparquet|pypocketfft|_pocketfft|_duccfft|libgomp", re.IGNORECASE)

# Pools that are ended before a fork, and how. Each OpenBLAS has a prefix and an ending of its own.
_POOLS = re.compile(r"libgomp|openblas", re.IGNORECASE)
_SHUTDOWNS = tuple(
    f"{prefix}blas_thread_shutdown{ending}" for prefix in ("", "scipy_") for ending in ("_", "_64_", "64_")
)
_PAUSE_SOFT = 1  # omp_pause_soft of omp.h

# Advice about owners whose threads do not survive.
_ADVICE = {
    "polars": "its pool does not start again in a copy; use polars in another kernel, or copy before importing it",
    "duckdb": "close its connections",
    "libtorch_cuda": "use the GPU in another kernel",
}

# The beginning of what the C library keeps of a thread (struct pthread) lies within so many bytes of the end of its
# stack, and the function that it began with within so many words of that beginning.
_TOP = 65536
_WORDS = 320

# Threads of a pool that has just been ended are gone within this.
_PATIENCE = 0.5

_Mapping = tuple[int, int, str, str]  # from, to, permissions, file

# The owners of threads, by number and start: they do not change.
_known: dict[tuple[int, str], str] = {}

# What ends the pools of a library, by its file. Libraries are not unloaded.
_enders: dict[str, list[Callable[[], object]]] = {}


def find_obstacles() -> list[str]:
    """Ends the pools that can be ended; returns the threads that a copy would lack for good."""
    if is_alone():
        return []
    _end_pools()
    if _has_unknown():  # only then are the mappings read: milliseconds with many libraries
        _find_pools(_parse(_read_maps()))
        _end_pools()
    deadline = time.monotonic() + _PATIENCE
    while True:
        found, may_end = _look()
        if not found or not may_end or time.monotonic() > deadline:
            return sorted(set(found))
        time.sleep(0.002)


def is_alone() -> bool:
    """Tells whether this thread is the only one."""
    return len(os.listdir("/proc/self/task")) == 1


def _read_maps() -> bytes:
    with open("/proc/self/maps", "rb") as file:
        return file.read()


def _find_pools(maps: list[_Mapping]) -> None:
    """Finds the libraries whose pools can be ended."""
    for path in {path for _, _, _, path in maps if path not in _enders and _POOLS.search(path)}:
        _enders[path] = []
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            for name in ("omp_pause_resource_all",) if "gomp" in path else _SHUTDOWNS:
                if (end := getattr(library, name, None)) is not None:
                    _enders[path].append(functools.partial(end, *((_PAUSE_SOFT,) if "gomp" in path else ())))


def _has_unknown() -> bool:
    """Tells whether there are threads that are neither Python's nor known from before."""
    ours = {threading.get_native_id(), *(thread.native_id for thread in user_threading.enumerate())}
    others = (tid for tid in map(int, os.listdir("/proc/self/task")) if tid not in ours)
    return any((tid, _start_of(tid)) not in _known for tid in others)


def _end_pools() -> None:
    for enders in _enders.values():
        for end in enders:
            end()
    for name in ("joblib.externals.loky.reusable_executor", "loky.reusable_executor"):
        loky: Any = user_sys.modules.get(name)
        if loky is not None and getattr(loky, "_executor", None) is not None:
            with contextlib.suppress(Exception):  # a cell may have changed it; its threads are then found
                loky._executor.shutdown(wait=True, kill_workers=True)
                loky._executor = None


def _look() -> tuple[list[str], bool]:
    """Returns the obstacles, and whether some may be gone in a moment."""
    found, may_end, mappings = [], False, None
    ours = {thread.native_id: thread for thread in user_threading.enumerate()}
    for tid in map(int, os.listdir("/proc/self/task")):
        if tid == threading.get_native_id():
            continue
        if (thread := ours.get(tid)) is not None:
            if not _is_idle_helper(thread):
                found.append(f"the Python thread {thread.name!r} runs; end it, or wait for it")
                may_end |= thread.name == "QueueFeederThread"  # of a pool that is just ending
            continue
        start = _start_of(tid)
        owner = _known.get((tid, start))
        if owner is None:
            mappings = mappings or _parse(_read_maps())
            owner = _find_owner(tid, mappings)
            if owner:
                _known[tid, start] = owner
        if not owner:
            name = _name_of(tid)
            if name is None:
                continue  # it has ended
            found.append(f"a thread {name!r} of an unknown library runs; use that library in another process")
            may_end = True
        elif not _SAFE.search(owner):
            found.append(_describe(owner))
            may_end |= "openblas" in owner
    return found, may_end


def _is_idle_helper(thread: Any) -> bool:
    """Tells whether a Python thread waits for work, and is started again when there is some."""
    if type(thread).__name__ == "TMonitor":  # of tqdm
        return True
    if not thread.name.startswith("asyncio_"):
        return False
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and frame.f_code.co_name == "_worker"


def _describe(owner: str) -> str:
    library = os.path.basename(owner)
    advice = next((advice for name, advice in _ADVICE.items() if name in owner), "use it in another process")
    return f"{library} has threads that a copy would lack; {advice}"


def _start_of(tid: int) -> str:
    try:
        with open(f"/proc/self/task/{tid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _name_of(tid: int) -> str | None:
    try:
        with open(f"/proc/self/task/{tid}/comm") as file:
            return file.read().strip()
    except OSError:
        return None


def _parse(maps: bytes) -> list[_Mapping]:
    found = []
    for line in os.fsdecode(maps).splitlines():
        fields = line.split(maxsplit=5)
        low, high = fields[0].split("-")
        found.append((int(low, 16), int(high, 16), fields[1], fields[5] if len(fields) == 6 else ""))
    return found


def _at(address: int, maps: list[_Mapping]) -> _Mapping | None:
    index = bisect.bisect_right(maps, (address, sys.maxsize * 2 + 1, "", "")) - 1
    return maps[index] if index >= 0 and maps[index][0] <= address < maps[index][1] else None


def _find_owner(tid: int, maps: list[_Mapping]) -> str:
    """Returns the library that started a thread; "" if it is unknown.

    `struct pthread` is known by its two pointers to itself; no offset is assumed. The first word in it that points into
    executable code is the thread's first function. If the C++ library owns that function, the class of its argument,
    which is the next word, belongs to the owner.
    """
    try:
        with open(f"/proc/self/task/{tid}/syscall") as file:
            fields = file.read().split()
        stack = _at(int(fields[-2], 16), maps) if len(fields) > 2 else None
        if stack is None:
            return ""
        low = max(stack[0], stack[1] - _TOP)
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            words = _read_words(memory, low, stack[1] - low)
            first = next((i for i in range(len(words) - 3, -1, -1) if words[i] == low + i * 8 == words[i + 2]), None)
            if first is None:
                return ""
            for index in range(first, min(first + _WORDS, len(words) - 1)):
                code = _at(words[index], maps)
                if code is None or "x" not in code[2] or not code[3].startswith("/"):
                    continue
                if "libstdc++" not in code[3] and "libc++" not in code[3]:
                    return code[3]
                (table,) = _read_words(memory, words[index + 1], 8)
                made = _at(table, maps)
                return made[3] if made is not None and made[3].startswith("/") else ""
    except (OSError, ValueError):
        return ""
    return ""


def _read_words(memory: Any, at: int, size: int) -> tuple[int, ...]:
    memory.seek(at)
    data = memory.read(size)
    return struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])

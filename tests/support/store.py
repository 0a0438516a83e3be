"""What the tests of the store share: other processes, damaged disks, and a look at the files themselves."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounded import DEADLINE as DEADLINE

from kernelbox import KernelRecord
from kernelbox.host.store._record_files import signed

_MANY = """
import json, os, sys
import kernelbox
from kernelbox import *

count, code = int(sys.argv[1]), compile(sys.argv[2], "<many>", "exec")
gate, opener = os.pipe()
readers = []
for number in range(count):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(opener)
        os.read(gate, 1)
        names = {**globals(), "number": number, "answer": None}
        try:
            exec(code, names)
            answer = names["answer"]
        except BaseException as exc:
            answer = f"{type(exc).__name__}: {exc}"
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    readers.append(reader)
os.close(opener)
print(json.dumps([json.loads(open(reader).read()) for reader in readers]))
for _ in readers:
    os.wait()
"""


_EARLY = """
import _blake2, json, os, pwd, stat, sys, tempfile, traceback, warnings
import kernelbox
import kernelbox.host.store._registry, kernelbox.host.engines.own._own_engine
from kernelbox import *
from kernelbox.api import _sync
from kernelbox.host.process import _process
from kernelbox.host.files._place import Place
from kernelbox.sandbox import _native
"""


def in_many_processes(count: int, code: str) -> list[Any]:
    """Runs code in processes that are let go at the same moment; returns the `answer` that each one sets."""
    done = run_python(_MANY, str(count), code)
    answers: list[Any] = json.loads(done.stdout)
    return answers


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a new interpreter, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def as_user(uid: int, code: str) -> str:
    """Runs code as another user; returns what it prints. Skips the test if we are not root.

    What it needs is imported before: the interpreter may be where the other user cannot read it.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    change = f"os.setgroups([]); os.setgid({uid}); os.setuid({uid}); os.umask(0o022)"
    return run_python(f"{_EARLY}\n{change}\n{code}").stdout


def start_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts code in a new interpreter; it reads stdin, and what it prints can be read line by line."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def rewrite_record(path: Path, **fields: Any) -> None:
    """Writes fields into a record as a host does that knows the key; a field that is None is removed."""
    data = {**json.loads(path.read_text()), **fields}
    secret = Path(os.environ["KERNELBOX_KEY_FILE"]).read_bytes()
    kept = {name: value for name, value in data.items() if name != "signature" and (name, None) not in fields.items()}
    path.write_bytes(signed(kept, secret))


def read_registry(home: Path) -> dict[str, Any]:
    """Returns the kernels in the registry file, whose shape it checks."""
    data = json.loads((home / "registry.json").read_text())
    assert data["version"] == 1
    kernels: dict[str, Any] = data["kernels"]
    return kernels


def kernel_directories(home: Path) -> list[Path]:
    """Returns what there is in the runtime directory, apart from the store's own folders and the templates."""
    ours = ("names", "locks")
    return [
        path for path in (home / "runtime").iterdir() if path.name not in ours and not path.name.startswith("template-")
    ]


def remove_tree(path: Path) -> None:
    """Removes a directory in which a kernel or its keeper may be making a file meanwhile."""
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def mounted(where: Path, options: str) -> Iterator[Path]:
    """Mounts a small disk; skips the test where that is not allowed."""
    where.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


@contextlib.contextmanager
def read_only(where: Path) -> Iterator[None]:
    """Makes a directory read-only, even for root, by mounting it over itself."""
    done = subprocess.run(["mount", "--bind", str(where), str(where)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a directory cannot be mounted here: {done.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(where)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(disk: Path) -> Path:
    """Writes a file until nothing more fits on its disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
    return filler


def pid_of(record: KernelRecord) -> int:
    assert record.pid is not None
    return record.pid


@contextlib.contextmanager
def shortage(spare: int) -> Iterator[None]:
    """Leaves this process a few descriptors."""
    gc.collect()  # or it would free some meanwhile
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
    while taken[-1] <= highest or len(taken) <= spare:
        taken.append(os.dup(taken[0]))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, limits[1]))
        while spare:
            os.close(taken.pop())
            spare -= 1
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in taken:
            os.close(fd)


def held_in(folder: Path) -> list[str]:
    """Returns the names of the files inside a folder that this process has open."""
    held = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one of the listing
            held.add(os.fstat(int(descriptor)).st_ino)
    return sorted(path.name for path in folder.iterdir() if path.stat().st_ino in held)

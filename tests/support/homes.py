"""Homes for the tests' kernels, which leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelbox import destroy, list_kernels

# Seconds that a template may take to leave once nobody needs it; it only has to notice.
_TEMPLATE_PATIENCE = 20.0


@contextlib.contextmanager
def new_home() -> Iterator[Path]:
    """Makes a home; in the end its templates have left and the directory is gone. The path is short: sockets."""
    path = Path(tempfile.mkdtemp(prefix="kb-"))
    try:
        yield path
        for template in path.glob("runtime/template-*"):
            if template.is_socket():
                dismiss(template)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def outside_of_tmp() -> str:
    """Returns where directories can be made that sandboxed kernels see, as they do not see the temporary directory."""
    return "/var/lib" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_dir


def destroy_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(home))  # a test may have changed it
    for record in list_kernels():
        destroy(record)
    for pattern in ("runtime/*.new", "runtime/*.gone"):  # of a test's own killed processes; listing does it later
        for rubbish in home.glob(pattern):
            shutil.rmtree(rubbish, ignore_errors=True)
    for aside in home.glob("registry.json.damaged-*"):
        shutil.rmtree(aside) if aside.is_dir() else aside.unlink()


def dismiss(template: Path) -> None:
    """Makes a template leave, and waits for it: without its socket, and with no kernels, it is of no use."""
    with contextlib.suppress(ConnectionRefusedError, FileNotFoundError), contextlib.ExitStack() as stack:
        nudge, watch = (stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(2))
        nudge.connect(str(template))
        watch.connect(str(template))
        os.unlink(template)
        nudge.close()  # it wakes up and finds its socket gone
        watch.settimeout(_TEMPLATE_PATIENCE)
        with contextlib.suppress(ConnectionResetError):
            assert watch.recv(1) == b"", "a template does not speak first"

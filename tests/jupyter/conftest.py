"""A home for Jupyter kernels, and kernelspecs that are installed nowhere but there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelbox import KernelRecord, destroy, get_or_create, list_kernels

ODD_KERNEL = Path(__file__).with_name("odd_kernel.py")


@pytest.fixture(scope="session")
def jupyter_root() -> Iterator[Path]:
    """Makes a directory with everything that Jupyter and IPython would otherwise keep in the user's."""
    root = Path(tempfile.mkdtemp(prefix="kbj-"))
    try:
        subprocess.run([sys.executable, "-m", "bash_kernel.install", "--prefix", str(root)], check=True)
        install_odd(root, "odd", "odd", interrupt_mode="message")
        install_odd(root, "odd-tcp", "odd", metadata={"kernelbox": {"transport": "tcp"}})
        install_odd(root, "odd-forgetful", "odd", habits=["forgets-idle"])
        install_odd(root, "odd-silent", "odd", habits=["forgets-reply"])
        install_odd(root, "odd-staying", "odd", habits=["stays"])
        install(root, "odd-missing", {"argv": ["/nowhere/kernel", "{connection_file}"], "language": "odd"})
        install(root, "odd-failing", {"argv": ["sh", "-c", "echo no such luck; exit 3"], "language": "odd"})
        mute = ["sh", "-c", 'sleep 100 & echo $$ $! > "$STARTED"; wait']
        install(root, "odd-mute", {"argv": mute, "language": "odd"})
        yield root
        with pytest.MonkeyPatch.context() as monkeypatch:
            point_at(root, monkeypatch)
            for record in list_kernels():
                destroy(record)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(autouse=True)
def jupyter(jupyter_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes `python3` a Jupyter kernel, in a home that the tests of this folder share."""
    point_at(jupyter_root, monkeypatch)
    return jupyter_root


@pytest.fixture
def ipython() -> KernelRecord:
    """Opens the ipykernel that most tests share: starting one takes a second."""
    return get_or_create("ipython")


@pytest.fixture
def bash() -> KernelRecord:
    """Opens the bash kernel that the tests share."""
    return get_or_create("bash", kernel_type="bash")


@pytest.fixture
def odd() -> KernelRecord:
    """Opens the kernel of our own making that the tests share; it takes interrupts as messages."""
    return get_or_create("odd", kernel_type="odd")


def point_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(root / "home"))
    monkeypatch.setenv("KERNELBOX_ENGINE", "jupyter")
    monkeypatch.setenv("IPYTHONDIR", str(root / "ipython"))
    monkeypatch.setenv("JUPYTER_PATH", str(root / "share" / "jupyter"))
    for kind in ("DATA", "CONFIG", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{kind}_DIR", str(root / kind.lower()))


def install_odd(root: Path, name: str, language: str, *, habits: list[str] | None = None, **spec: object) -> None:
    argv = [sys.executable, str(ODD_KERNEL), "{connection_file}", *(habits or [])]
    install(root, name, {"argv": argv, "language": language, **spec})


def install(root: Path, name: str, spec: dict[str, object]) -> None:
    directory = root / "share" / "jupyter" / "kernels" / name
    directory.mkdir(parents=True)
    (directory / "kernel.json").write_text(json.dumps({"display_name": name, **spec}))

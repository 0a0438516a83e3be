"""What the tests share: a home for their kernels, which leaves nothing behind, and a fresh kernel for each test."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support.homes import destroy_all, new_home

from kernelbox import KernelRecord, get_or_create
from kernelbox.base import _cell_places

# What may say, beside HOME, where a program keeps its files.
_DIRECTORIES = (
    *("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"),
    *("HISTFILE", "MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)

# How long an example takes says nothing on a machine that has other work too.
settings.register_profile("kernelbox", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kernelbox")

_numbers = itertools.count(1)

# A shell has what it starts in the background ignore Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # tests run without xdist too
def pytest_xdist_auto_num_workers() -> int:
    """Has one process more than processors: tests wait for timeouts, deaths and programs more than they work."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@pytest.fixture(scope="session", autouse=True)
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keeps the key that homes are sealed with among the tests' own files, not among the user's."""
    path = tmp_path_factory.mktemp("key") / "key"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_KEY_FILE", str(path))
        yield path


@pytest.fixture(scope="session", autouse=True)
def short_lived_templates() -> Iterator[None]:
    """Has the template of a home that a test forgot leave before the run is examined for what it left behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_TEMPLATE_IDLE_TIMEOUT", "20")
        yield


@pytest.fixture(scope="session", autouse=True)
def users_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Gives what the tests start a home directory of its own: shells, IPython and Jupyter write to the user's.

    Tools that install programs keep their caches, and npm its settings: it may need them to reach a registry.
    """
    users, own = Path.home(), tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        for name in _DIRECTORIES:
            patch.delenv(name, raising=False)
        for name, path in (
            ("XDG_CACHE_HOME", ".cache"),
            ("npm_config_cache", ".npm"),
            ("npm_config_userconfig", ".npmrc"),
        ):
            patch.setenv(name, os.environ.get(name, str(users / path)))
        patch.setenv("HOME", str(own))
        yield own


@pytest.fixture(scope="session")
def shared_home() -> Iterator[Path]:
    """Makes the directory that most tests use, so that they fork from one warm template."""
    with new_home() as home:
        yield home


@pytest.fixture
def home(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Points KERNELBOX_HOME at the shared home; destroys every kernel in it afterwards."""
    monkeypatch.setenv("KERNELBOX_HOME", str(shared_home))
    yield shared_home
    destroy_all(shared_home, monkeypatch)


@pytest.fixture
def own_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Points KERNELBOX_HOME at a directory that no other test uses, with a template of its own."""
    with new_home() as home:
        monkeypatch.setenv("KERNELBOX_HOME", str(home))
        yield home
        destroy_all(home, monkeypatch)


@pytest.fixture(autouse=True)
def _no_places_of_cells() -> Iterator[None]:
    """Has each test begin as a process does: it has read no record of a sandboxed kernel."""
    yield
    _cell_places._places.clear()


@pytest.fixture
def kernel(home: Path) -> KernelRecord:
    """Opens a kernel under a name that nobody else uses."""
    return get_or_create(f"test-{next(_numbers)}")

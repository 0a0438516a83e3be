"""What generated modules import: loaded beforehand in a home that has tool servers, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.tools import PLAIN

from kernelbox import KernelBoxConfig, destroy, execute
from kernelbox.tools._servers import Servers, read_parameters

LOADED = "import sys; print({'kernelbox.guest.tools', 'kernelbox.guest.discovery', 'pydantic'} <= sys.modules.keys())"


def test_new_kernels_have_it_loaded_as_soon_as_there_is_a_server_and_as_long_as_there_is_one(own_home: Path) -> None:
    def loaded(name: str) -> str:
        return execute(name, LOADED).output

    servers = Servers(KernelBoxConfig.from_env())
    before = loaded("before")
    servers.put("plain", read_parameters("plain", PLAIN), str(own_home))
    during = loaded("during")
    servers.remove("plain")
    assert [before, during, loaded("after")] == ["False\n", "True\n", "False\n"]


def test_servers_of_another_home_change_nothing(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("KERNELBOX_HOME", str(own_home / "other"))
        other = Servers(KernelBoxConfig.from_env())
        other.put("plain", read_parameters("plain", PLAIN), str(own_home))
    assert execute("here", LOADED).output == "False\n"
    other.remove("plain")


@pytest.mark.parametrize("reason", ["raise ImportError('broken')", "raise SystemExit(3)"])
def test_a_library_that_cannot_be_imported_keeps_no_kernel_from_starting(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    (tmp_path / "pydantic.py").write_text(reason)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    servers = Servers(KernelBoxConfig.from_env())
    servers.put("plain", read_parameters("plain", PLAIN), str(own_home))
    try:
        assert execute("k", "1 + 1").return_value == "2"
        failed = execute("k", "import kernelbox.guest.tools").error
        assert failed is not None
    finally:
        servers.remove("plain")


@pytest.mark.parametrize("content", [b"", b"x\n[", b"x\n[]", b"x\n" + b"[" * 100_000])
def test_a_damaged_file_of_servers_keeps_no_kernel_from_starting(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(tmp_path / "key"))
    (tmp_path / "servers.json").write_bytes(content)
    assert execute("k", LOADED).output == "False\n"


def test_kernels_without_a_home_have_no_key_made_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(key))
    monkeypatch.setenv("KERNELBOX_STORE_BACKEND", "memory")
    assert execute("k", "1 + 1").return_value == "2"
    destroy("k")
    assert not key.exists()

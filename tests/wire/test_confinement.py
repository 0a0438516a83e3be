"""What a sandboxed kernel is confined to comes to its process as the host has worked it out."""

from __future__ import annotations

import pytest

from kernelbox.wire._confinement import Confinement, Mount


@pytest.mark.parametrize(
    "confinement",
    [
        Confinement([], b"", "/scratch", {}),
        Confinement([Mount("private", "/tmp")], bytes(range(256)), "/dev/.own", {"/tmp/a": "/var/b", "/c": "d"}),
        Confinement([Mount("hide", "/a \udcff\n", False), Mount("write", "/ü"), Mount("pin", "/")], b"\0", "/é", {}),
    ],
)
def test_a_confinement_is_read_as_it_was_written(confinement: Confinement) -> None:
    assert Confinement.decode(confinement.encode()) == confinement

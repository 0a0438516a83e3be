"""Names of files: what can be the id of a kernel, and so the name of its directory."""

from __future__ import annotations

import pytest

from kernelbox.wire._layout import is_kernel_id

ID = "0123456789abcdef" * 2


def test_the_id_of_a_kernel_is_32_hexadecimal_digits() -> None:
    assert is_kernel_id(ID)


@pytest.mark.parametrize(
    "text", ["", ID[1:], ID + "0", ID.upper(), ID[:-1] + "g", "../" + ID[3:], ID[:15] + "/" + ID[16:]]
)
def test_nothing_else_is_the_id_of_a_kernel(text: str) -> None:
    assert not is_kernel_id(text)

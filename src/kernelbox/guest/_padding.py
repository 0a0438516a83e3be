"""Padding: objects that take what is free between those of the template, on pages that all kernels share.

A kernel that made its own objects there would copy those pages, one for a few bytes. Beyond the padding they lie
together, and so does what the template itself makes for each request.
"""

from __future__ import annotations

import sys

# Python has pools for each size of small objects, up to 512 bytes by steps of 16 (Objects/obmalloc.c).
_SIZES = range(48, 513, 16)

# Bytes for each size, half a megabyte in all: with more a kernel's memory gets no less.
_BYTES = 16 * 1024

_padding: list[bytes] = []


def pad() -> None:
    """Takes what is free between the small objects of this process, for good."""
    for size in _SIZES:
        _padding.extend(bytes(size - sys.getsizeof(b"")) for _ in range(_BYTES // size))

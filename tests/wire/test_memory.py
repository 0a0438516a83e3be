"""What a reader needs of memory for one message, however it was made; each in a process of its own."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelbox.wire._framing import MAX_FRAME, MAX_TEXT, Decoder, ProtocolError, encode
from kernelbox.wire._messages import Display, Done, Execute, Output

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs /proc")

ROOM = MAX_FRAME - 1000
WIDE = "\U0001f600".encode()
SHOW = b'["Display","x","display_data",{"text/plain":"%s"},{},"",null,false,"",{}]'


def frame(header: bytes, binary: bytes = b"") -> bytes:
    return struct.pack("!II", len(header), len(binary)) + header + binary


# Frames that no kernel of ours sends.
HOSTILE: dict[str, Callable[[], bytes]] = {
    "letters that one emoji makes wide": lambda: frame(SHOW % (b"a" * (ROOM - 200) + WIDE)),
    "text that is not UTF-8": lambda: frame(b'["Output","x","stdout"]', b"\xff" * ROOM),
    "escapes": lambda: frame(SHOW % (b"\\u0041" * (ROOM // 6 - 100) + WIDE)),
    "long keys": lambda: frame(b'["Reply","x",{%s}]' % b",".join(b'"%0300d":1' % key for key in range(190_000))),
}


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("case", HOSTILE)
def test_a_frame_that_no_kernel_sends_is_refused_for_little_more_than_it_takes_itself(case: str) -> None:
    refused, grown = in_a_fork(HOSTILE[case])
    assert refused
    assert grown < 3 * MAX_FRAME


@pytest.mark.slow
@pytest.mark.parametrize(
    "message",
    [
        Done("x", "error", None, "E", "\1" * 2**21, ["\1" * 2**21 + "\U0001f600"]),
        Display("x", "display_data", {"text/plain": "\U0001f600" * 7_900_000}, {}),
        Execute("x", "\U0001f600" * 7_900_000),
    ],
    ids=["an error", "a display", "code"],
)
def test_what_a_kernel_and_its_client_may_send_arrives(message: Done | Display | Execute) -> None:
    (received,) = Decoder().feed(encode(message))
    assert received == message


def test_text_that_would_be_refused_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="does not fit"):
        encode(Execute("x", "\1" * (MAX_TEXT // 6)))
    (received,) = Decoder().feed(encode(Output("x", "stdout", "\U0001f600" * 2_000_000)))
    assert isinstance(received, Output)


def in_a_fork(make: Callable[[], bytes]) -> tuple[bool, int]:
    """Reads a frame in pieces; returns whether it was refused, and how many bytes the process grew at most."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            data = make()
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            before, refused, decoder = peak(), False, Decoder()
            try:
                for start in range(0, len(data), 2**18):
                    decoder.feed(data[start : start + 2**18])
            except ProtocolError:
                refused = True
            os.write(write, f"{refused:d} {peak() - before}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as answer:
        refused_, grown = answer.read().split()
    os.waitpid(pid, 0)
    return refused_ == "1", int(grown)


def peak() -> int:
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024

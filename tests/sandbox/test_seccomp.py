"""The filter of system calls, run by an interpreter of its instructions, and its numbers compared with libseccomp's."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import struct
from typing import TYPE_CHECKING

import pytest

from kernelbox.sandbox._seccomp import ARCHITECTURES, DECIDED, MISSING, REFUSED, STARTING, build_filter

if TYPE_CHECKING:
    from kernelbox.sandbox._seccomp import Machine

MACHINES: tuple[Machine, ...] = ("x86_64", "aarch64")
ALLOWED, KILLED = "allowed", "killed"


def decide(program: bytes, number: int, *arguments: int, architecture: int) -> str:
    """Runs a program as the system does; returns what becomes of a call."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("IIQ6Q", number, architecture, 0, *padded)
    code = list(struct.iter_unpack("HBBI", program))
    accumulator = at = 0
    while True:
        kind, yes, no, value = code[at]
        at += 1
        match kind:
            case 0x20:
                (accumulator,) = struct.unpack_from("I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x45:
                at += yes if accumulator & value else no
            case 0x06:
                return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(value) or errno.errorcode[value & 0xFFFF]
            case _:
                raise AssertionError(kind)


def call(machine: Machine, name: str, *arguments: int, unix_sockets: bool = False) -> str:
    column = MACHINES.index(machine)
    number = {**REFUSED, **DECIDED, **MISSING}[name][column]
    assert number is not None
    program = build_filter(machine, unix_sockets=unix_sockets)
    return decide(program, number, *arguments, architecture=ARCHITECTURES[machine])


each_machine = pytest.mark.parametrize("machine", MACHINES)


@each_machine
def test_every_call_of_the_list_is_refused(machine: Machine) -> None:
    names = [name for name, numbers in REFUSED.items() if numbers[MACHINES.index(machine)] is not None]
    assert {call(machine, name) for name in names} == {"EPERM"}
    assert len(names) > 50


@each_machine
def test_all_other_calls_are_allowed(machine: Machine) -> None:
    column = MACHINES.index(machine)
    known = {numbers[column] for numbers in (*REFUSED.values(), *DECIDED.values(), *MISSING.values())}
    program = build_filter(machine, unix_sockets=False)
    others = {decide(program, n, architecture=ARCHITECTURES[machine]) for n in range(470) if n not in known}
    assert others == {ALLOWED}


@each_machine
def test_calls_that_are_newer_than_the_list_are_unknown(machine: Machine) -> None:
    for unix_sockets, programs in ((False, True), (True, True), (False, False)):
        program = build_filter(machine, unix_sockets=unix_sockets, programs=programs)
        newer = {decide(program, n, architecture=ARCHITECTURES[machine]) for n in range(470, 1000)}
        assert newer == {"ENOSYS"}


@each_machine
def test_a_process_can_be_cloned_but_no_namespace_with_it_and_not_beside_its_parent(machine: Machine) -> None:
    assert call(machine, "clone", 0x1200011) == ALLOWED  # as fork(3) has it
    assert call(machine, "clone", 0x3D0F00) == ALLOWED  # as pthread_create(3) has it
    for flag in (0x80, 0x8000, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert call(machine, "clone", flag | 17) == "EPERM"
    assert call(machine, "clone3", 0) == "ENOSYS"  # so that the C library uses the other


@each_machine
@pytest.mark.parametrize(
    ("family", "kind", "protocol", "verdict"),
    [
        (2, 1, 0, ALLOWED),
        (2, 2, 17, ALLOWED),
        (10, 1, 0, ALLOWED),
        (16, 3, 0, ALLOWED),  # NETLINK_ROUTE, of the own namespace
        (16, 3, 9, "EPERM"),  # NETLINK_AUDIT
        (16, 3, 15, "EPERM"),  # NETLINK_KOBJECT_UEVENT
        (1, 1, 0, "EPERM"),
        (1, 2, 0, "EPERM"),
        (40, 1, 0, "EPERM"),  # AF_VSOCK, which no namespace covers
        (17, 3, 0, "EPERM"),  # AF_PACKET
        (38, 5, 0, "EPERM"),  # AF_ALG
        (31, 3, 0, "EPERM"),  # AF_BLUETOOTH
        (0x1_0000_0001, 1, 0, "EPERM"),  # the system reads 32 bits: AF_UNIX
    ],
)
def test_sockets_are_decided_by_their_family(
    machine: Machine, family: int, kind: int, protocol: int, verdict: str
) -> None:
    assert call(machine, "socket", family, kind, protocol) == verdict


@each_machine
def test_unix_sockets_can_be_allowed(machine: Machine) -> None:
    assert call(machine, "socket", 1, 1, 0, unix_sockets=True) == ALLOWED
    assert call(machine, "socketpair", 1, 2, 0, unix_sockets=True) == ALLOWED
    assert call(machine, "socket", 40, 1, 0, unix_sockets=True) == "EPERM"


@each_machine
def test_a_pair_of_sockets_cannot_be_of_datagrams_which_could_be_connected_elsewhere(machine: Machine) -> None:
    for flags in (0, 0o4000, 0o2000000, 0o2004000):
        assert call(machine, "socketpair", 1, 1 | flags) == ALLOWED
        assert call(machine, "socketpair", 1, 5 | flags) == ALLOWED
        assert call(machine, "socketpair", 1, 2 | flags) == "EPERM"
        assert call(machine, "socketpair", 1, 3 | flags) == "EPERM"


@each_machine
def test_pairs_are_of_unix_sockets_and_no_other_family(machine: Machine) -> None:
    for family in (2, 16, 30, 40):  # 30 is AF_TIPC, which has pairs too
        for unix_sockets in (False, True):
            assert call(machine, "socketpair", family, 1, 0, unix_sockets=unix_sockets) == "EPERM"


@each_machine
def test_no_characters_can_be_put_into_a_terminal(machine: Machine) -> None:
    assert call(machine, "ioctl", 0, 0x5412) == "EPERM"
    assert call(machine, "ioctl", 0, 0x1_0000_5412) == "EPERM"
    assert call(machine, "ioctl", 0, 0x541C) == "EPERM"
    assert call(machine, "ioctl", 0, 0x5401) == ALLOWED


@each_machine
def test_no_file_can_be_made_to_run_as_its_owner_or_for_its_group(machine: Machine) -> None:
    calls = {"fchmod": (0,), "fchmodat": (0, 0), "fchmodat2": (0, 0), "mknodat": (0, 0), "openat": (0, 0, 0o101)}
    if machine == "x86_64":
        calls |= {"chmod": (0,), "creat": (0,), "mknod": (0,), "open": (0, 0o101)}
    for name, before in calls.items():
        assert call(machine, name, *before, 0o755) == ALLOWED, name
        assert call(machine, name, *before, 0o1777) == ALLOWED, name
        assert call(machine, name, *before, 0o2755) == "EPERM", name
        assert call(machine, name, *before, 0o4755) == "EPERM", name
    assert call(machine, "openat", 0, 0, 0o20200001, 0o4755) == "EPERM"  # O_TMPFILE
    assert call(machine, "openat", 0, 0, 0o1, 0o4755) == ALLOWED  # what is no mode
    assert call(machine, "openat2") == "ENOSYS"  # whose mode cannot be read


@each_machine
def test_no_lease_can_be_taken_that_others_would_wait_for(machine: Machine) -> None:
    assert call(machine, "fcntl", 0, 1024, 1) == "EPERM"
    assert call(machine, "fcntl", 0, 1040, 1) == "EPERM"  # F_SETDELEG of Linux 6.19
    assert call(machine, "fcntl", 0, 4, 0) == ALLOWED


@each_machine
def test_a_filter_without_programs_refuses_to_start_one_and_to_limit_another_process(machine: Machine) -> None:
    column, architecture = MACHINES.index(machine), ARCHITECTURES[machine]
    for programs, refused in ((True, ALLOWED), (False, "EPERM")):
        program = build_filter(machine, unix_sockets=False, programs=programs)
        for numbers in STARTING.values():
            assert decide(program, numbers[column], architecture=architecture) == refused
        limit = DECIDED["prlimit64"][column]
        assert limit is not None
        assert decide(program, limit, 0, 7, architecture=architecture) == ALLOWED
        assert decide(program, limit, 1234, 7, architecture=architecture) == refused


@each_machine
def test_calls_of_another_architecture_end_the_process(machine: Machine) -> None:
    program = build_filter(machine, unix_sockets=False)
    assert decide(program, 1, architecture=0x40000003) == KILLED  # 32 bits


def test_calls_by_the_numbers_of_x32_are_refused() -> None:
    program = build_filter("x86_64", unix_sockets=False)
    assert decide(program, 0x40000000 | 59, architecture=ARCHITECTURES["x86_64"]) == "EPERM"


@each_machine
def test_the_numbers_are_those_that_libseccomp_knows(machine: Machine) -> None:
    path = ctypes.util.find_library("seccomp")
    if path is None:
        pytest.skip("libseccomp is not installed")
    resolve = ctypes.CDLL(path).seccomp_syscall_resolve_name_arch
    resolve.argtypes = (ctypes.c_uint32, ctypes.c_char_p)
    compared = 0
    for name, numbers in {**REFUSED, **DECIDED, **MISSING, **STARTING}.items():
        known = resolve(ARCHITECTURES[machine], name.encode())
        if known == -1:  # newer than the library
            continue
        compared += 1
        assert numbers[MACHINES.index(machine)] == (known if known >= 0 else None), name
    assert compared > 60

"""The filter of system calls for sandboxed and guarded kernels, as a program for seccomp(2).

It lists the calls that are refused, as a second wall behind namespaces and dropped capabilities. These calls would open
a way through the first wall, or have had security holes themselves. Where arguments decide, the filter looks at their
lower 32 bits, as the system does.
"""

from __future__ import annotations

import errno
import functools
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Machine = Literal["x86_64", "aarch64"]

# AUDIT_ARCH_* of each machine (include/uapi/linux/audit.h).
ARCHITECTURES: dict[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# The numbers of refused calls: x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), arm64 (asm-generic/unistd.h); None
# where the machine has no such call.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # mounts
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # namespaces; clone is decided by its flags
    "unshare": (272, 97),
    "setns": (308, 268),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # parts of Linux with a history of security holes
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "vmsplice": (278, 75),
    # the machine
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "get_kernel_syms": (177, None),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}

# Calls whose arguments a filter cannot read. Programs have a fallback for systems that lack them.
MISSING: dict[str, tuple[int, int]] = {"clone3": (435, 435), "openat2": (437, 437)}

# The calls that start a program. They are refused to a guarded kernel and to everything it forks.
STARTING: dict[str, tuple[int, int]] = {"execve": (59, 221), "execveat": (322, 281)}

# Calls that are allowed or refused by their arguments.
SOCKET, SOCKETPAIR, CLONE, IOCTL, FCNTL, PRLIMIT = "socket", "socketpair", "clone", "ioctl", "fcntl", "prlimit64"
DECIDED: dict[str, tuple[int | None, int | None]] = {
    SOCKET: (41, 198),
    SOCKETPAIR: (53, 199),
    CLONE: (56, 220),
    IOCTL: (16, 29),
    FCNTL: (72, 25),
    PRLIMIT: (302, 261),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "creat": (85, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open": (2, None),
    "openat": (257, 56),
}

# The positions of the arguments for the file's mode, and for the flags that say whether the call uses the mode.
_MODES: dict[str, tuple[int, int | None]] = {
    "chmod": (1, None),
    "fchmod": (1, None),
    "fchmodat": (2, None),
    "fchmodat2": (2, None),
    "creat": (1, None),
    "mknod": (1, None),
    "mknodat": (2, None),
    "open": (2, 1),
    "openat": (3, 2),
}

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE_MASK = 1, 5, 0xF

# CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NEW_NAMESPACES = 0x80 | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000

# CLONE_PARENT makes a sibling of the kernel, which no limit counts and nobody waits for.
_BESIDE = 0x8000

# S_ISUID and S_ISGID: the program runs as this user or group, no matter who starts it.
_SET_IDS = 0o6000

# F_SETLEASE and F_SETDELEG: anyone who opens the file or changes the directory waits for the holder.
_HOLDING = (1024, 1040)

# Requests that put characters into another program's input: TIOCSTI and TIOCLINUX (ioctl_tty(2)).
_TYPING = (0x5412, 0x541C)

# The first number that Linux 6.18 does not use. Later calls have not been reviewed. Programs have to cope without them
# on older systems anyway.
_NEWER = 470

# The calls of x32 are those of x86-64 under other numbers.
_X32 = 0x40000000

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSE, _MISSING = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS

# struct seccomp_data: number, architecture, instruction pointer, six arguments of 64 bits each.
_NUMBER, _ARCHITECTURE = 0, 4
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06

# Jumps lead to an end of the program, or to the next instruction.
_Step = tuple[int, int, str, str]
_ENDS = {"allow": _ALLOW, "refuse": _REFUSE, "missing": _MISSING, "kill": _KILL}


@functools.cache
def build_filter(machine: Machine, *, unix_sockets: bool, programs: bool = True) -> bytes:
    """Returns the filter for a machine; `unix_sockets` allows sockets of the family AF_UNIX.

    Without `programs`, the process cannot start programs or change the limits of other processes.
    """
    column = list(ARCHITECTURES).index(machine)
    steps: list[_Step] = [
        (_LOAD, _ARCHITECTURE, "", ""),
        (_EQUAL, ARCHITECTURES[machine], "", "kill"),
        (_LOAD, _NUMBER, "", ""),
    ]
    if machine == "x86_64":
        steps.append((_AT_LEAST, _X32, "refuse", ""))
    steps.append((_AT_LEAST, _NEWER, "missing", ""))
    refused = REFUSED if programs else {**REFUSED, **STARTING}
    numbers = (numbers[column] for numbers in refused.values())
    steps += [(_EQUAL, number, "refuse", "") for number in numbers if number is not None]
    steps += [(_EQUAL, numbers[column], "missing", "") for numbers in MISSING.values()]
    for name, decision in (
        (CLONE, [_argument(0), (_ANY_OF, _NEW_NAMESPACES | _BESIDE, "refuse", "allow")]),
        (IOCTL, [_argument(1), *((_EQUAL, request, "refuse", "") for request in _TYPING), _END]),
        (FCNTL, [_argument(1), *((_EQUAL, command, "refuse", "") for command in _HOLDING), _END]),
        (SOCKETPAIR, _decide_socketpair(unix_sockets)),
        (SOCKET, _decide_socket(unix_sockets)),
        *([] if programs else [(PRLIMIT, [_argument(0), (_EQUAL, 0, "allow", "refuse")])]),
        *((name, _decide_mode(*places)) for name, places in _MODES.items()),
    ):
        number = DECIDED[name][column]
        if number is not None:
            steps.append((_EQUAL, number, "", f"+{len(decision)}"))
            steps += decision
    steps.append(_END)
    return _assemble(steps)


_END: _Step = (_RETURN, _ALLOW, "", "")


def _argument(index: int) -> _Step:
    return _LOAD, 16 + 8 * index, "", ""


def _decide_mode(mode: int, flags: int | None) -> list[_Step]:
    """Refuses to make a file setuid or setgid. A call that opens a file is refused only if it creates the file."""
    decision: list[_Step] = [_argument(mode), (_ANY_OF, _SET_IDS, "refuse", "allow")]
    if flags is None:
        return decision
    # O_CREAT, and the bit of O_TMPFILE that is not O_DIRECTORY. Both machines use the same bits.
    return [_argument(flags), (_ANY_OF, 0o100 | 0o20000000, "", "allow"), *decision]


def _decide_socket(unix_sockets: bool) -> list[_Step]:
    allowed = [_AF_INET, _AF_INET6, *([_AF_UNIX] if unix_sockets else [])]
    return [
        _argument(0),
        *((_EQUAL, family, "allow", "") for family in allowed),
        (_EQUAL, _AF_NETLINK, "", "refuse"),
        _argument(2),
        (_EQUAL, _NETLINK_ROUTE, "allow", "refuse"),
    ]


def _decide_socketpair(unix_sockets: bool) -> list[_Step]:
    """Allows pairs of Unix sockets that must stay pairs. A datagram socket could be reconnected to a path."""
    family: list[_Step] = [_argument(0), (_EQUAL, _AF_UNIX, "", "refuse")]
    if unix_sockets:
        return [*family, _END]
    return [
        *family,
        _argument(1),
        (_AND, _SOCK_TYPE_MASK, "", ""),
        (_EQUAL, _SOCK_STREAM, "allow", ""),
        (_EQUAL, _SOCK_SEQPACKET, "allow", "refuse"),
    ]


def _assemble(steps: list[_Step]) -> bytes:
    """Writes the steps as instructions (struct sock_filter), followed by the ends that they jump to."""
    places = {end: len(steps) + index for index, end in enumerate(_ENDS)}

    def distance(at: int, target: str) -> int:
        if target.startswith("+"):
            return int(target)
        return places[target] - at - 1 if target else 0

    code = [(kind, distance(at, yes), distance(at, no), value) for at, (kind, value, yes, no) in enumerate(steps)]
    code += [(_RETURN, 0, 0, value) for value in _ENDS.values()]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)
